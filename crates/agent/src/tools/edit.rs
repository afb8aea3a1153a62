//! `edit_file`: one exact replacement in a file. What is replaced, and why not, is [`replace`]'s.

use std::fs;

use tokio_util::sync::CancellationToken;

use super::place::{Workspace, special};
use super::replace::replace;
use super::{Answer, save};

/// Nobody edits a larger file by hand.
const LARGEST: u64 = 16 << 20;

pub(super) fn edit(workspace: &Workspace, path: &str, old: &str, new: &str, gone: &CancellationToken) -> Answer {
    let place = workspace.find_to_change(path)?;
    let Some(existing) = place.look()? else {
        return Err(format!("{}; write_file creates new files", place.missing()));
    };
    if existing.is_dir() {
        return Err(format!("`{path}` is a folder; name a file in it"));
    }
    if let Some(kind) = special(existing.file_type()) {
        return Err(format!("`{path}` is {kind}, not a file, and cannot be edited"));
    }
    if existing.len() > LARGEST {
        return Err(format!("`{path}` has {} bytes, too many to edit; use bash (sed)", existing.len()));
    }
    let content = fs::read(&place.path).map_err(|error| place.cannot("read", &error))?;
    let edited = replace(&content, old, new).map_err(|why| format!("`{path}` was not edited: {why}"))?;
    save::save(&place.path, Some(&existing), &edited, gone).map_err(|error| place.cannot("write", &error))?;
    Ok("OK".into())
}
