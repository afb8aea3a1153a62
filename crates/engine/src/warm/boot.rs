//! Specification of a warm process: everything that is fixed when it starts, and how many of its kind a model asks for.

use trunkline_core::live::{Greeting, LiveProtocol, LiveRecipe};
use trunkline_core::model::Model;
use trunkline_process::Spec;

/// Specification of a warm process. Processes with equal specifications are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BootSpec {
    pub(crate) provider: String,
    pub(crate) protocol: LiveProtocol,
    /// The command, without what differs for each process: its private `TMPDIR` and the run id in its environment.
    pub(crate) spec: Spec,
    pub(crate) greeting: Greeting,
    pub(crate) private_tmp: bool,
    /// Content of files that arguments name as [`ToolRecipe::FILE`](trunkline_core::live::ToolRecipe::FILE) and their index.
    pub(crate) files: Vec<String>,
    /// Files that the process reads when it starts.
    pub(crate) reads: Vec<String>,
    /// Number of turns of this kind before a process is kept ready. A kind that differs only by a client's own text may
    /// never be used again.
    pub(crate) uses_first: usize,
}

/// Number of ready processes that a model asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarmTarget {
    /// As many as its recent use suggests.
    ByUse,
    /// A fixed number, always.
    Fixed(usize),
}

impl WarmTarget {
    /// Whether a model uses warm processes at all. Some providers have them only for models that ask for them.
    pub(crate) fn is_any(model: &Model, recipe: &LiveRecipe) -> bool {
        model.warm.map_or(!recipe.opt_in, |number| number > 0)
    }

    /// Returns the target of a model for one kind. A fixed number applies only to the model's own kind.
    pub(crate) fn of(model: &Model, boot: &BootSpec) -> Self {
        match model.warm {
            Some(number) if boot.uses_first <= 1 => Self::Fixed(number as usize),
            Some(_) | None => Self::ByUse,
        }
    }
}
