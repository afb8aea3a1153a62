//! Texts about a run, shared by `trunkline run` and the REPL.

use trunkline_core::event::{Finish, Receipt};
use trunkline_core::failure::{Category, Failure};
use trunkline_engine::StartError;

use crate::exit::CliExit;

/// A turn that did not start.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The models that were tried, if there was more than one.
    pub(crate) tried: Option<String>,
    pub(crate) message: String,
    pub(crate) category: Category,
    pub(crate) exit: CliExit,
}

/// The command that a message names to list the models.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ModelListCommand {
    /// `trunkline models`.
    Shell,
    /// `/model` in the REPL.
    Repl,
}

impl Refusal {
    pub(crate) fn of(model: &str, error: StartError, list: ModelListCommand) -> Self {
        let (tried, message, category, exit) = match error {
            StartError::UnknownModel { near, cli, .. } => {
                let message = match cli {
                    Some(cli) => format!("unknown model {model:?}: {}; {}", cli.why, cli.remedy),
                    None => unknown_model(model, &near, list),
                };
                (None, message, Category::NotFound, CliExit::General)
            }
            StartError::Failed { failure, attempts, .. } => {
                let tried =
                    attempts.iter().map(|a| format!("{} ({})", a.model, a.category.map_or("ok", Category::name)));
                let tried = (attempts.len() > 1).then(|| format!("tried {}", tried.collect::<Vec<_>>().join(", ")));
                (tried, with_hint(&failure), failure.category, CliExit::Provider)
            }
            error @ (StartError::Unavailable { .. } | StartError::Storage { .. }) => {
                (None, error.to_string(), Category::Server, CliExit::Provider)
            }
            error @ StartError::InvalidMember { .. } => {
                (None, error.to_string(), Category::Validation, CliExit::General)
            }
            error @ (StartError::Busy { .. } | StartError::Limited { .. }) => {
                (None, error.to_string(), Category::RateLimit, CliExit::General)
            }
        };
        Self { tried, message, category, exit }
    }
}

pub(crate) fn unknown_model(name: &str, near: &[String], list: ModelListCommand) -> String {
    if near.is_empty() {
        let see = match list {
            ModelListCommand::Shell => "trunkline models",
            ModelListCommand::Repl => "/model",
        };
        format!("unknown model {name:?}; see: {see}")
    } else {
        format!("unknown model {name:?}; did you mean {}?", near.join(" or "))
    }
}

/// Message for a turn that started and failed.
pub(crate) fn failed(provider: &str, failure: &Failure) -> String {
    format!("{provider} failed ({}): {}", failure.category.name(), with_hint(failure))
}

fn with_hint(failure: &Failure) -> String {
    match &failure.hint {
        Some(hint) => format!("{failure} ({hint})"),
        None => failure.to_string(),
    }
}

/// Result of a run in its worktree: the branch, and the folder if it was kept.
pub(crate) fn worktree_result(receipt: &Receipt) -> String {
    let changed = match (&receipt.branch, receipt.files_changed) {
        (Some(branch), Some(files)) => {
            let files = if files == 1 { "1 file changed".to_owned() } else { format!("{files} files changed") };
            let (insertions, deletions) = (receipt.insertions.unwrap_or(0), receipt.deletions.unwrap_or(0));
            format!("{files} (+{insertions} -{deletions}) on branch {branch}")
        }
        (Some(branch), None) => format!("on branch {branch}"),
        (None, Some(_)) => "nothing changed".to_owned(),
        (None, None) => "the work is not on a branch".to_owned(),
    };
    let refs = receipt.refs.iter().map(|name| format!("; more commits: {name}"));
    let reason = receipt.reason.iter().map(|reason| format!(" ({reason})"));
    let path = receipt.path.iter().map(|path| format!("; worktree kept: {path}"));
    let warnings = receipt.warnings.iter().map(|warning| format!("; warning: {warning}"));
    std::iter::once(changed).chain(refs).chain(path).chain(reason).chain(warnings).collect()
}

/// Reason why an answer is incomplete, if it is.
pub(crate) const fn cut_short(finish: Finish) -> Option<&'static str> {
    match finish {
        Finish::Length => Some("the answer was cut off at the model's output limit"),
        Finish::ContentFilter => Some("the answer was stopped by the provider's content filter"),
        Finish::Stop | Finish::ToolCalls => None,
    }
}
