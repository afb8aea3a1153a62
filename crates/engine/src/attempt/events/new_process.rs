//! Another process for the same attempt: after a warm process was lost, or for an executable that does not stream.

use std::sync::Arc;

use trunkline_core::event::Event;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::vocabulary::OutputForm;
use trunkline_process::RunningProcess;

use super::{Attempt, State};
use crate::attempt::request::{BeginError, start_process};

impl Attempt {
    /// Starts again in a new process. It is the same attempt: losing a warm process is our failure, not the provider's.
    pub(super) fn start_over(&mut self, why: &str) {
        let State::Live(mut live) = std::mem::replace(&mut self.state, State::Done) else { return };
        let Some(spec) = live.warm.as_mut().and_then(|warm| warm.cold.take()) else { return };
        let (shared, provider) = (Arc::clone(&live.resources.shared), Arc::clone(&live.provider));
        let message = format!("the {} that was kept ready {why}; starting another", provider.name);
        tracing::info!(model = live.model.name, "{message}");
        shared.warm.counters.note(&provider.name, |figures| figures.lost += 1);
        self.events.push_back(Event::Notice { message });
        self.state = State::Leaving(live, Box::new(spec));
    }

    /// Starts again without streaming: the answer comes in one piece.
    pub(super) fn generate(&mut self) {
        let State::Live(mut live) = std::mem::replace(&mut self.state, State::Done) else { return };
        let Some(spec) = live.generate.take() else { return };
        tracing::info!(model = live.model.name, "{} does not stream: asking for the whole answer", live.provider.name);
        self.state = State::Leaving(live, spec);
    }

    pub(super) fn start_cold(&mut self) {
        let State::Leaving(mut live, spec) = std::mem::replace(&mut self.state, State::Done) else { return };
        live.warm = None;
        let (shared, provider) = (Arc::clone(&live.resources.shared), Arc::clone(&live.provider));
        let starting = async move {
            start_process(&shared.keepers, *spec, &provider).await.map_err(|not_begun| match not_begun {
                BeginError::Failed(failure) => failure,
                BeginError::Exhausted(message) => Failure::new(Category::Server, message),
            })
        };
        self.state = State::Starting(live, Box::pin(starting));
    }

    pub(super) fn started_over(&mut self, started: Result<RunningProcess, Failure>) {
        let State::Starting(mut live, _) = std::mem::replace(&mut self.state, State::Done) else { return };
        match started {
            Ok(running) => {
                live.decoder = live.provider.decoder(live.model.normalize, OutputForm::Streamed);
                live.running = running;
                live.deadline = None;
                self.state = State::Live(live);
            }
            Err(failure) => self.events.push_back(Event::Failed(failure)),
        }
    }
}
