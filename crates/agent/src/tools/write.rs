//! `write_file`: creates a file, or replaces it, with the folders it needs.

use tokio_util::sync::CancellationToken;

use super::place::{Workspace, special};
use super::{Answer, save};

pub(super) fn write(workspace: &Workspace, path: &str, content: &str, gone: &CancellationToken) -> Answer {
    let place = workspace.find_to_change(path)?;
    let existing = place.look()?;
    let kind = existing.as_ref().map(|found| found.file_type());
    if path.ends_with('/') || kind.is_some_and(|kind| kind.is_dir()) {
        return Err(format!("`{path}` is a folder; name a file in it"));
    }
    // Something else would take its place: `/dev/null` as a file does harm.
    if let Some(kind) = kind.and_then(special) {
        return Err(format!("`{path}` is {kind}, not a file, and cannot be written"));
    }
    if existing.is_none() {
        place.make_room()?;
    }
    save::save(&place.path, existing.as_ref(), content.as_bytes(), gone)
        .map_err(|error| place.cannot("write", &error))?;
    Ok("OK".into())
}
