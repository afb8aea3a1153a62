//! The conversations that can be gone on with: one line of JSON for each turn of them, the newest last.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;

use super::plain::first_line;
use super::private;

/// How many conversations are remembered.
const MOST: usize = 500;

/// How much of a first message is kept, to know a conversation by.
const TITLE: usize = 60;

/// A conversation, as of its latest turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) time: jiff::Timestamp,
    pub(crate) folder: PathBuf,
    pub(crate) model: String,
    pub(crate) session: SessionId,
    /// How it began.
    pub(crate) title: String,
    /// The files that say what was said in it, the oldest first.
    #[serde(default)]
    pub(super) transcripts: Vec<String>,
}

/// What a name or its beginning stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    One(Entry),
    Several(Vec<Entry>),
    Nobody,
}

impl Entry {
    pub(super) fn new(folder: &Path, model: &str, session: &SessionId, said: &str) -> Self {
        let title = first_line(said, TITLE);
        let time = jiff::Timestamp::now();
        let (folder, model, session) = (folder.to_owned(), model.to_owned(), session.clone());
        Self { time, folder, model, session, title, transcripts: Vec::new() }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Index {
    path: PathBuf,
}

impl Index {
    pub(crate) fn new(state: &Path) -> Self {
        Self { path: state.join("repl/sessions.jsonl") }
    }

    /// Adds a turn. Now and then the file is written anew, without what nobody asks for any more.
    pub(super) fn add(&self, entry: &Entry) -> io::Result<()> {
        let mut file = private::open(&self.path)?;
        // Several terminals may be at it.
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if text.lines().count() < 4 * MOST {
            return file.write_all(line(entry).as_bytes());
        }
        let mut entries = newest_of_each(&text);
        entries.truncate(MOST - 1);
        file.set_len(0)?;
        let kept: String = entries.iter().rev().chain([entry]).map(line).collect();
        file.write_all(kept.as_bytes())
    }

    /// The conversations of a folder, the newest first.
    pub(super) fn of_folder(&self, folder: &Path) -> Vec<Entry> {
        self.all().into_iter().filter(|entry| entry.folder == folder).collect()
    }

    /// The conversation to go on with: the newest of this folder and, if one is named, of this model.
    pub(crate) fn newest(&self, folder: &Path, model: Option<&str>) -> Option<Entry> {
        self.of_folder(folder).into_iter().find(|entry| model.is_none_or(|model| entry.model == model))
    }

    /// The conversation with this name, or the only one whose name begins like this.
    pub(crate) fn named(&self, name: &str) -> Named {
        let mut found = self.all();
        if let Some(at) = found.iter().position(|entry| entry.session.0 == name) {
            return Named::One(found.swap_remove(at));
        }
        found.retain(|entry| entry.session.0.starts_with(name));
        match found.len() {
            0 => Named::Nobody,
            1 => Named::One(found.swap_remove(0)),
            _ => Named::Several(found),
        }
    }

    /// One that cannot be read holds nothing to go on with.
    fn all(&self) -> Vec<Entry> {
        newest_of_each(&std::fs::read_to_string(&self.path).unwrap_or_default())
    }
}

fn line(entry: &Entry) -> String {
    serde_json::to_string(entry).map(|line| line + "\n").unwrap_or_default()
}

/// Each conversation once, the newest first. A line that is not one of ours, or only half of one, is passed over.
fn newest_of_each(text: &str) -> Vec<Entry> {
    let mut seen = HashSet::new();
    let entries = text.lines().rev().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
    entries.filter(|entry| seen.insert(entry.session.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(folder: &str, model: &str, session: &str) -> Entry {
        Entry::new(Path::new(folder), model, &SessionId(session.into()), "Hello,\nworld")
    }

    fn sessions(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.session.0.as_str()).collect()
    }

    #[test]
    fn the_newest_of_a_folder_and_one_by_name() {
        let state = tempfile::tempdir().unwrap();
        let index = Index::new(state.path());
        assert_eq!(index.newest(Path::new("/a"), None), None);
        for (folder, model, session) in
            [("/a", "m", "s-one"), ("/a", "n", "s-two"), ("/b", "m", "s-three"), ("/a", "m", "s-one")]
        {
            index.add(&entry(folder, model, session)).unwrap();
        }
        let newest = |folder: &str, model| index.newest(Path::new(folder), model).map(|entry| entry.session.0);
        assert_eq!(newest("/a", None).as_deref(), Some("s-one"));
        assert_eq!(newest("/a", Some("n")).as_deref(), Some("s-two"));
        assert_eq!(newest("/b", None).as_deref(), Some("s-three"));
        assert_eq!(newest("/b", Some("n")), None);
        assert_eq!(sessions(&index.of_folder(Path::new("/a"))), ["s-one", "s-two"]);
        let named = |name| match index.named(name) {
            Named::One(entry) => vec![entry.session.0],
            Named::Several(entries) => entries.into_iter().map(|entry| entry.session.0).collect(),
            Named::Nobody => Vec::new(),
        };
        assert_eq!(named("s-two"), ["s-two"]);
        assert_eq!(named("s-o"), ["s-one"]);
        assert_eq!(named("s-t"), ["s-three", "s-two"], "two begin like this");
        assert!(named("s-x").is_empty());
        assert!(index.all().iter().all(|entry| entry.title == "Hello,"));
        let mode = std::fs::metadata(state.path().join("repl/sessions.jsonl")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn it_does_not_grow_for_ever_and_keeps_the_newest() {
        let state = tempfile::tempdir().unwrap();
        let index = Index::new(state.path());
        let path = state.path().join("repl/sessions.jsonl");
        let old: String = (0..4 * MOST).map(|at| line(&entry("/a", "m", &format!("old-{at}")))).collect();
        private::open(&path).unwrap().write_all(format!("not ours\n{old}").as_bytes()).unwrap();
        index.add(&entry("/a", "m", "new")).unwrap();
        let entries = index.of_folder(Path::new("/a"));
        assert_eq!(entries.len(), MOST);
        assert_eq!(sessions(&entries[..2]), ["new".to_owned(), format!("old-{}", 4 * MOST - 1)]);
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), MOST);
    }
}
