//! Operations: liveness and health of providers, metrics, and the order in which a model would be tried.

pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod route;
