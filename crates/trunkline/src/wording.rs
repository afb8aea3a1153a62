//! How a run is told of to a person: the same words in `trunkline run` and in the REPL.

use trunkline_core::event::{Finish, Receipt};
use trunkline_core::failure::{Category, Failure};
use trunkline_engine::StartError;

use crate::Exit;
use crate::repl::plain::plain;

/// A turn that did not start.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// What was tried, where that was more than one.
    pub(crate) tried: Option<String>,
    pub(crate) message: String,
    pub(crate) exit: Exit,
}

impl Refusal {
    pub(crate) fn of(model: &str, error: StartError) -> Self {
        let (tried, message, exit) = match error {
            StartError::UnknownModel { near } => (None, unknown_model(model, &near), Exit::General),
            StartError::Failed { failure, attempts, .. } => {
                let tried =
                    attempts.iter().map(|a| format!("{} ({})", a.model, a.category.map_or("ok", Category::name)));
                let tried = (attempts.len() > 1).then(|| format!("tried {}", tried.collect::<Vec<_>>().join(", ")));
                (tried, with_hint(&failure), Exit::Provider)
            }
            error @ StartError::Unavailable { .. } => (None, error.to_string(), Exit::Provider),
            error @ StartError::Busy { .. } => (None, error.to_string(), Exit::General),
        };
        Self { tried, message: plain(&message), exit }
    }
}

pub(crate) fn unknown_model(name: &str, near: &[String]) -> String {
    if near.is_empty() {
        format!("unknown model {name:?}; see: trunkline models")
    } else {
        format!("unknown model {name:?}; did you mean {}?", near.join(" or "))
    }
}

/// A turn that started and failed.
pub(crate) fn failed(provider: &str, failure: &Failure) -> String {
    plain(&format!("{provider} failed ({}): {}", failure.category.name(), with_hint(failure)))
}

fn with_hint(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{failure} ({hint})"),
        None => failure.to_string(),
    }
}

/// What a run left in its worktree.
pub(crate) fn left(receipt: &Receipt) -> String {
    let Some(branch) = &receipt.branch else { return "nothing changed".to_owned() };
    let files = match receipt.files_changed {
        1 => "1 file changed".to_owned(),
        files => format!("{files} files changed"),
    };
    format!("{files} (+{} -{}) on branch {branch}", receipt.insertions, receipt.deletions)
}

/// Why an answer ends where one would not expect it.
pub(crate) const fn cut_short(finish: Finish) -> Option<&'static str> {
    match finish {
        Finish::Length => Some("the answer was cut off at the model's output limit"),
        Finish::ContentFilter => Some("the answer was stopped by the provider's content filter"),
        Finish::Stop | Finish::ToolCalls => None,
    }
}
