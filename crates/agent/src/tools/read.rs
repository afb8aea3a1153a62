//! `read_file`: the content of a text file, truncated if it is too long.
//!
//! Notes are in brackets and name the file, so that a model does not mistake them for content. An empty file gets a note,
//! too: an empty result looks like a failed tool, and some APIs refuse it.

use std::fs::{self, File};
use std::io::Read;

use super::cut;
use super::outcome::ToolResult;
use super::workspace::{Workspace, WorkspacePath, special};

/// Bytes of a file that are shown: about 60,000 tokens.
const MAX_SHOWN_BYTES: usize = 256 * 1024;

/// Entries of a folder that are shown.
const MAX_SHOWN_NAMES: usize = 500;

pub(super) fn read(workspace: &Workspace, path: &str) -> ToolResult {
    let file = workspace.find_to_read(path)?;
    let Some(found) = file.metadata()? else { return Err(file.missing()) };
    if found.is_dir() {
        return list(&file);
    }
    // Checked before the file is opened: opening a pipe without a writer blocks forever.
    if let Some(kind) = special(found.file_type()) {
        return Err(format!("`{path}` is {kind}, not a file, and cannot be read"));
    }
    let opened = File::open(&file.path).map_err(|error| file.cannot("read", &error))?;
    let mut bytes = Vec::new();
    opened.take(MAX_SHOWN_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| file.cannot("read", &error))?;
    // Some files of the kernel report no length.
    let length = found.len().max(bytes.len() as u64);
    if memchr::memchr(0, &bytes).is_some() {
        let hint = if workspace.has_bash() { "; inspect it with bash (file, xxd, iconv)" } else { "" };
        return Err(format!("`{path}` is a binary file of {length} bytes, not text{hint}"));
    }
    if bytes.is_empty() {
        return Ok(format!("[`{path}` is empty: 0 bytes]"));
    }
    let shown = if bytes.len() > MAX_SHOWN_BYTES { cut::head(&bytes[..MAX_SHOWN_BYTES]) } else { &bytes };
    let mut text = String::from_utf8_lossy(shown).into_owned();
    if std::str::from_utf8(shown).is_err() {
        note(&mut text, &format!("`{path}` is not UTF-8 throughout: each U+FFFD above stands for other bytes"));
    }
    if shown.len() < bytes.len() {
        let rest = if workspace.has_bash() { rest_of(path, shown) } else { "there is no way to see the rest".into() };
        note(&mut text, &format!("`{path}` is cut here: {} of {length} bytes are shown; {rest}", shown.len()));
    }
    Ok(text)
}

/// Lists a folder. A read-only model has no other way to find files.
fn list(file: &WorkspacePath<'_>) -> ToolResult {
    let cannot = |error| file.cannot("list", &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(&file.path).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
        names.push(format!("{}{slash}\n", entry.file_name().to_string_lossy()));
    }
    names.sort();
    let all = names.len();
    names.truncate(MAX_SHOWN_NAMES);
    let mut text = format!("[`{}` is a folder; entries: {all}]\n{}", file.asked, names.concat());
    if names.len() < all {
        note(&mut text, &format!("{} of {all} entries are shown", names.len()));
    }
    Ok(text)
}

/// Hint with a command that shows the part of a file after `shown`.
fn rest_of(path: &str, shown: &[u8]) -> String {
    let path = format!("'{}'", path.replace('\'', r"'\''"));
    if shown.ends_with(b"\n") {
        let next = memchr::memchr_iter(b'\n', shown).count() + 1;
        format!("continue with bash: sed -n '{next},{}p' -- {path}", next + 499)
    } else {
        format!("continue with bash: tail -c +{} -- {path} | head -c 32000", shown.len() + 1)
    }
}

fn note(text: &mut String, note: &str) {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("[{note}]\n"));
}
