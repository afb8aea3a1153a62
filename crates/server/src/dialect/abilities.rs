//! Abilities of a model in lists of models: the `trunkline` object there.

use serde::Serialize;

use crate::app::App;
use crate::door::Door;

/// Abilities of the provider that is tried first for a name.
#[derive(Serialize)]
pub(crate) struct Abilities {
    provider: String,
    /// The provider gets the client's tools.
    tools: bool,
    /// Answers match a JSON schema if the client sends one.
    schemas: bool,
    images: bool,
    sessions: bool,
    /// The provider works with tools of its own.
    own_tools: bool,
    /// Runs work in a git worktree of their own.
    worktree: bool,
}

impl Abilities {
    pub(crate) fn of<D: Door>(app: &App<D>, name: &str) -> Option<Self> {
        let abilities = app.door.abilities(name)?;
        Some(Self {
            provider: abilities.provider,
            tools: abilities.tools,
            schemas: abilities.schemas,
            images: abilities.images,
            sessions: abilities.sessions,
            own_tools: abilities.own_tools,
            worktree: abilities.worktree,
        })
    }
}
