//! Operations: liveness and health of providers, metrics, the order in which a model would be tried, and the description of the
//! API.

pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod route;
