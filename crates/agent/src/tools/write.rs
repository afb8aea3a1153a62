//! `write_file`: creates or replaces a file, with its parent folders.

use tokio_util::sync::CancellationToken;

use super::outcome::ToolResult;
use super::save;
use super::workspace::{Workspace, special};

pub(super) fn write(workspace: &Workspace, path: &str, content: &str, cancelled: &CancellationToken) -> ToolResult {
    let file = workspace.find_to_change(path)?;
    let existing = file.metadata()?;
    let kind = existing.as_ref().map(|found| found.file_type());
    if path.ends_with('/') || kind.is_some_and(|kind| kind.is_dir()) {
        return Err(format!("`{path}` is a folder; name a file in it"));
    }
    // Saving would replace it by a regular file, which does harm to a path like `/dev/null`.
    if let Some(kind) = kind.and_then(special) {
        return Err(format!("`{path}` is {kind}, not a file, and cannot be written"));
    }
    if existing.is_none() {
        file.create_parents()?;
    }
    save::save(&file.path, existing.as_ref(), content.as_bytes(), cancelled)
        .map_err(|error| file.cannot("write", &error))?;
    Ok("OK".into())
}
