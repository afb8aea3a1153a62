//! Who is asked, in which order, and what follows a failure: every decision of the router, and nothing else. No I/O; the
//! attempts themselves are made by the engine.

mod circuit;
mod policy;
mod retries;
mod selection;

pub use circuit::{Breaker, CircuitState};
pub use policy::{Backoff, Policy};
pub use selection::{Routed, Router};

pub(crate) use circuit::{Circuits, Pass, Refused};
pub(crate) use policy::{Exposure, Failed, Next, next};
pub(crate) use retries::Retries;
pub(crate) use selection::{Candidate, Why, circuit_of};
