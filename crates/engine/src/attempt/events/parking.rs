//! Attempts that stop for results of the client's tools: the run ends with the calls, and the run that brings the results continues
//! the attempt.

use tokio::time::Instant;
use trunkline_core::limits::RunLimits;
use trunkline_core::vocabulary::OutputForm;
use trunkline_process::ProcessEvent;

use super::{Attempt, CliAttempt, State};
use crate::admission::Permit;
use crate::tools::{StdioAnswer, ToolExchange};

/// Next step of an attempt with tools of the client.
pub(super) enum StepWithTools {
    Process(ProcessEvent),
    /// A call has arrived.
    Called,
    /// All calls of a model response have arrived.
    Settled,
    Deadline,
}

impl Attempt {
    /// Ends the run with the calls of the client's tools. The process waits for [`resume`](Self::resume).
    pub(super) fn end_with_calls(&mut self) {
        let (tools, prompt) = match &mut self.state {
            State::Live(live) => (live.warm.as_mut().and_then(|warm| warm.tools.as_mut()), live.prompt.as_str()),
            State::Working(at_work) => (at_work.tools.as_mut(), ""),
            State::Leaving(..) | State::Starting(..) | State::Calling(_) | State::Closing { .. } | State::Done => {
                return;
            }
        };
        if let Some(tools) = tools {
            self.events.extend(tools.calls(prompt));
            self.parked = true;
        }
    }

    /// Whether the process waits for results of the client's tools.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked
    }

    /// Waits until the process of a parked attempt has ended. Its output is kept for the run that continues it. Cancel safe.
    pub(crate) async fn parked_process_ended(&mut self) {
        loop {
            let live = match &mut self.state {
                State::Live(live) => live,
                // It has no process that could end.
                State::Working(_) => return std::future::pending().await,
                State::Leaving(..) | State::Starting(..) | State::Calling(_) | State::Closing { .. } | State::Done => {
                    return;
                }
            };
            match live.running.next().await {
                step @ ProcessEvent::Stdout(_) => self.take(step),
                ProcessEvent::Exited(_) | ProcessEvent::Limit(_) => return,
            }
        }
    }

    /// Releases the slot and the run of a parked attempt. Its process has no limits while it waits.
    pub(crate) fn park(&mut self) {
        match &mut self.state {
            State::Live(live) => {
                live.running.limit(RunLimits::NONE);
                live.resources.park();
            }
            State::Working(at_work) => at_work.resources.park(),
            State::Leaving(..) | State::Starting(..) | State::Calling(_) | State::Closing { .. } | State::Done => {}
        }
    }

    /// Continues a parked attempt in another run, with the results of the client's tools.
    pub(crate) fn resume(&mut self, run: &str, permit: Permit, results: impl Fn(&str) -> Result<String, String>) {
        self.parked = false;
        match &mut self.state {
            State::Live(live) => {
                live.resources.resume(run, permit);
                live.running.limit(live.model.limits);
                live.running.enter(live.decoder.phase());
                live.answer_calls(results);
            }
            State::Working(at_work) => at_work.resume(run, permit, results),
            State::Leaving(..) | State::Starting(..) | State::Calling(_) | State::Closing { .. } | State::Done => {}
        }
    }

    /// Tells the process of a parked attempt that no results will come.
    pub(crate) fn refuse_results(&mut self, why: &str) {
        let refuse = |_: &str| Err(why.to_owned());
        match &mut self.state {
            State::Live(live) => live.answer_calls(refuse),
            State::Working(at_work) => at_work.answer_calls(refuse),
            State::Leaving(..) | State::Starting(..) | State::Calling(_) | State::Closing { .. } | State::Done => {}
        }
    }
}

impl CliAttempt {
    /// Asks a model that has not called a tool, although the client requires it, once more. Returns whether it did.
    pub(super) fn remind(&mut self) -> bool {
        let (Some(warm), Some(live)) = (&mut self.warm, &self.provider.live) else { return false };
        let reminder = warm.tools.as_mut().and_then(ToolExchange::remind);
        let words = reminder.and_then(|reminder| warm.line.say(&live.escape.text(&reminder), None));
        let Some(words) = words else { return false };
        self.decoder = self.provider.decoder(self.model.normalize, OutputForm::Streamed);
        self.running.limit(self.model.limits);
        self.running.write(&words);
        true
    }

    pub(super) fn has_tools(&self) -> bool {
        self.warm.as_ref().is_some_and(|warm| warm.tools.is_some())
    }

    /// Waits for output, for a call of a client's tool, or until all calls of a model response have arrived. Cancel safe.
    pub(super) async fn next_with_tools(&mut self) -> StepWithTools {
        let Some(tools) = self.warm.as_mut().and_then(|warm| warm.tools.as_mut()) else {
            return StepWithTools::Process(self.running.next().await);
        };
        let at = |at: Option<Instant>| async move {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let (settled, deadline) = (at(tools.settled_at()), at(self.deadline));
        tokio::select! {
            biased;
            call = tools.next_call() => {
                tools.take_port_call(call);
                StepWithTools::Called
            }
            step = self.running.next() => StepWithTools::Process(step),
            () = settled => StepWithTools::Settled,
            () = deadline => StepWithTools::Deadline,
        }
    }

    /// Writes the results of the calls that wait, by their ids.
    fn answer_calls(&mut self, results: impl Fn(&str) -> Result<String, String>) {
        let Some(warm) = &mut self.warm else { return };
        let Some(tools) = &mut warm.tools else { return };
        for StdioAnswer { key, result } in tools.answer(results) {
            let answer = warm.line.answer_call(&key, result.as_deref().map_err(String::as_str));
            self.running.write(&answer);
        }
    }

    pub(super) fn lacks_call(&self) -> bool {
        self.warm.as_ref().and_then(|warm| warm.tools.as_ref()).is_some_and(ToolExchange::lacks_call)
    }
}
