//! A counter that a program in C keeps in the first eight bytes of a file.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Reads the current value.
pub(super) fn read_counter(file: &Path) -> Result<u64> {
    let bytes = fs::read(file).context("no counter")?;
    Ok(u64::from_ne_bytes(bytes.as_slice().try_into().context("the counter is not a number")?))
}
