//! One attempt: one try of a turn on one provider, with everything it needs and owns.
//!
//! ```text
//! begin ──▶ launch (program, plan, environment, home, compile_cache)   what to start
//!   │        └── template (file_memo)                                what its turns have in common
//!   │  └──▶ resources (scratch, worktree, slot, session)               what to give back
//!   ├──▶ warm       a pre-started process answers
//!   ├──▶ with_tools a process with tools of the client answers
//!   ├──▶ builtin    the built-in agent answers
//!   └──▶ events     output becomes events; the end becomes the last event
//! ```
//!
//! Which provider is tried, and whether another attempt follows, is decided in [`crate::runs`] and [`crate::router`].

pub(crate) mod agent_file;
pub(crate) mod begin;
pub(crate) mod builtin;
pub(crate) mod compile_cache;
pub(crate) mod environment;
pub(crate) mod events;
mod file_memo;
pub(crate) mod home;
pub(crate) mod launch;
pub(crate) mod plan;
pub(crate) mod program;
pub(crate) mod request;
pub(crate) mod resources;
pub(crate) mod scratch;
pub(crate) mod template;
pub(crate) mod warm;
mod with_tools;
