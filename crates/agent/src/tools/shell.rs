//! Settings of shell commands.

use std::ffi::OsString;

use trunkline_process::{Confinement, Keepers};

/// Settings for starting commands.
#[derive(Clone)]
pub struct Shell {
    pub keepers: Keepers,
    /// The whole environment of a command.
    pub env: Vec<(OsString, OsString)>,
    /// Paths that a command may write; `None` for every path that the user may write.
    pub confinement: Option<Confinement>,
}
