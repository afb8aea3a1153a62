//! Models for tests of what is decided about models without running one.

use std::path::Path;
use std::sync::Arc;

use trunkline_core::model::{Backend, Model};
use trunkline_core::provider;

/// A model of an executable that is not there.
pub(crate) fn model(name: &str) -> Model {
    let nowhere = provider::executable(name, "/no/such/program", &[]);
    Model::new(name, Backend::Program(Arc::new(nowhere)), Path::new("/"))
}
