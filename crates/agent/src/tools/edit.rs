//! `edit_file`: one exact replacement in a file. [`replace`] does the replacement in memory.

use std::fs;

use tokio_util::sync::CancellationToken;

use super::outcome::ToolResult;
use super::replace::replace;
use super::save;
use super::workspace::{Workspace, special};

/// Largest file that can be edited.
const MAX_FILE_BYTES: u64 = 16 << 20;

pub(super) fn edit(
    workspace: &Workspace,
    path: &str,
    old: &str,
    new: &str,
    cancelled: &CancellationToken,
) -> ToolResult {
    let file = workspace.find_to_change(path)?;
    let Some(existing) = file.metadata()? else {
        return Err(format!("{}; write_file creates new files", file.missing()));
    };
    if existing.is_dir() {
        return Err(format!("`{path}` is a folder; name a file in it"));
    }
    if let Some(kind) = special(existing.file_type()) {
        return Err(format!("`{path}` is {kind}, not a file, and cannot be edited"));
    }
    if existing.len() > MAX_FILE_BYTES {
        return Err(format!("`{path}` has {} bytes, too many to edit; use bash (sed)", existing.len()));
    }
    let content = fs::read(&file.path).map_err(|error| file.cannot("read", &error))?;
    let edited = replace(&content, old, new).map_err(|reason| format!("`{path}` was not edited: {reason}"))?;
    save::save(&file.path, Some(&existing), &edited, cancelled).map_err(|error| file.cannot("write", &error))?;
    Ok("OK".into())
}
