//! Models for unit tests that run no process.

use std::path::Path;
use std::sync::Arc;

use trunkline_core::model::{Backend, Model};
use trunkline_core::provider;

/// A model whose executable does not exist.
pub(crate) fn model(name: &str) -> Model {
    let nowhere = provider::executable(name, "/no/such/program", &[]);
    Model::new(name, Backend::Program(Arc::new(nowhere)), Path::new("/"))
}
