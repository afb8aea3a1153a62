//! `read_file`: a whole text file, as far as it is one and not too long.
//!
//! What is not content stands in brackets and names the file, so that a model does not take it for content. That goes for
//! an empty file too: an empty answer looks like a tool that failed, and some APIs refuse one.

use std::fs::{self, File};
use std::io::Read;

use super::place::{Place, Workspace, special};
use super::{Answer, cut};

/// How much of a file is shown: some sixty thousand tokens.
const LIMIT: usize = 256 * 1024;
/// How many names of a folder are shown.
const MOST_NAMES: usize = 500;

pub(super) fn read(workspace: &Workspace, path: &str) -> Answer {
    let place = workspace.find_to_read(path)?;
    let Some(found) = place.look()? else { return Err(place.missing()) };
    if found.is_dir() {
        return list(&place);
    }
    // Looked at before it is opened: a pipe that nobody writes to would have us wait for ever.
    if let Some(kind) = special(found.file_type()) {
        return Err(format!("`{path}` is {kind}, not a file, and cannot be read"));
    }
    let file = File::open(&place.path).map_err(|error| place.cannot("read", &error))?;
    let mut bytes = Vec::new();
    file.take(LIMIT as u64 + 1).read_to_end(&mut bytes).map_err(|error| place.cannot("read", &error))?;
    // Some files of the kernel have no length of their own.
    let length = found.len().max(bytes.len() as u64);
    if memchr::memchr(0, &bytes).is_some() {
        let hint = if workspace.has_bash() { "; look at it with bash (file, xxd, iconv)" } else { "" };
        return Err(format!("`{path}` is a binary file of {length} bytes, not text{hint}"));
    }
    if bytes.is_empty() {
        return Ok(format!("[`{path}` is empty: 0 bytes]"));
    }
    let shown = if bytes.len() > LIMIT { cut::head(&bytes[..LIMIT]) } else { &bytes };
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

/// The names in a folder. A read-only model has no other way to find its way.
fn list(place: &Place<'_>) -> Answer {
    let cannot = |error| place.cannot("list", &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(&place.path).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
        names.push(format!("{}{slash}\n", entry.file_name().to_string_lossy()));
    }
    names.sort();
    let all = names.len();
    names.truncate(MOST_NAMES);
    let mut text = format!("[`{}` is a folder; entries: {all}]\n{}", place.asked, names.concat());
    if names.len() < all {
        note(&mut text, &format!("{} of {all} entries are shown", names.len()));
    }
    Ok(text)
}

/// A command that shows what comes after the part that was shown.
fn rest_of(path: &str, shown: &[u8]) -> String {
    let path = format!("'{}'", path.replace('\'', r"'\''"));
    if shown.ends_with(b"\n") {
        let next = memchr::memchr_iter(b'\n', shown).count() + 1;
        format!("go on with bash: sed -n '{next},{}p' -- {path}", next + 499)
    } else {
        format!("go on with bash: tail -c +{} -- {path} | head -c 32000", shown.len() + 1)
    }
}

fn note(text: &mut String, note: &str) {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("[{note}]\n"));
}
