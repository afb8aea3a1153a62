//! Decisions about where a turn goes: which candidates, in which order, and what follows a failure. No I/O: attempts are made in
//! `runs/`.

mod aliases;
mod asked_models;
mod circuit;
pub(crate) mod explain;
mod honoured;
pub(crate) mod models;
mod policy;
mod retries;
mod selection;
mod side_requests;
#[cfg(test)]
pub(crate) mod test_models;

pub use aliases::{Alias, AliasError, AliasRule, Aliases};
pub use circuit::{Breaker, CircuitState};
pub use policy::{Backoff, RetryPolicy};
pub use selection::{Routed, Router};
pub use side_requests::SideRequests;

pub(crate) use asked_models::AskedModels;
pub(crate) use circuit::{Circuits, Pass, Refused};
pub(crate) use honoured::{check_servers, has_own_tools, ignored_members, server_notes, takes_tools};
pub(crate) use policy::{Exposure, Failed, Next, next};
pub(crate) use retries::Retries;
pub(crate) use selection::{Candidate, Why, circuit_of};
