//! The REPL of `trunkline agent`.

pub(crate) mod plain;
pub(crate) mod tool;
