//! What a process is started as: all that is fixed from then on.

use trunkline_core::live::{Greeting, Protocol, Recipe};
use trunkline_core::model::Model;
use trunkline_process::Spec;

/// A process that is kept, before it is one. Equal boots give processes that nobody could tell apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boot {
    pub(crate) provider: String,
    pub(crate) protocol: Protocol,
    /// Without what is the single process's own: the folder for its litter, and the name in its environment.
    pub(crate) spec: Spec,
    pub(crate) greeting: Greeting,
    pub(crate) private_tmp: bool,
    /// Files that it reads when it starts.
    pub(crate) reads: Vec<String>,
    /// How often its kind must be used before one is worth keeping: one that only a client's own words make different may
    /// never be wanted again.
    pub(crate) uses_first: usize,
}

/// How many lines a model wants of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// As many as its use asks for.
    ByUse,
    /// So many, always.
    Fixed(usize),
}

impl Wish {
    /// Whether a model wants lines at all. Some are kept only for a model that asks for them.
    pub(crate) fn is_any(model: &Model, recipe: &Recipe) -> bool {
        model.warm.map_or(!recipe.opt_in, |number| number > 0)
    }

    /// What a model that wants some wants of a kind. A fixed number is of the model's own kind.
    pub(crate) fn of(model: &Model, boot: &Boot) -> Self {
        match model.warm {
            Some(number) if boot.uses_first <= 1 => Self::Fixed(number as usize),
            Some(_) | None => Self::ByUse,
        }
    }
}
