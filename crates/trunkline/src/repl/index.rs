//! Index of conversations that can be resumed: one line of JSON per turn, newest last.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;

use super::plain::first_line;
use super::private_file;

/// Conversations that are kept when the file is compacted.
const MAX_CONVERSATIONS: usize = 500;

/// Length of a title, which is the beginning of the first message.
const MAX_TITLE_CHARS: usize = 60;

/// A conversation as of its latest turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedConversation {
    pub(crate) time: jiff::Timestamp,
    pub(crate) folder: PathBuf,
    pub(crate) model: String,
    pub(crate) session: SessionId,
    /// Beginning of its first message.
    pub(crate) title: String,
    /// Names of its transcript files, oldest first.
    #[serde(default)]
    pub(super) transcripts: Vec<String>,
}

/// Conversations that match a session id or a prefix of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IndexMatch {
    One(SavedConversation),
    Several(Vec<SavedConversation>),
    None,
}

impl SavedConversation {
    pub(super) fn new(folder: &Path, model: &str, session: &SessionId, message: &str) -> Self {
        let title = first_line(message, MAX_TITLE_CHARS);
        let time = jiff::Timestamp::now();
        let (folder, model, session) = (folder.to_owned(), model.to_owned(), session.clone());
        Self { time, folder, model, session, title, transcripts: Vec::new() }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ConversationIndex {
    path: PathBuf,
}

impl ConversationIndex {
    pub(crate) fn new(state: &Path) -> Self {
        Self { path: state.join("repl/sessions.jsonl") }
    }

    /// Adds a turn. Compacts the file from time to time.
    pub(super) fn add(&self, entry: &SavedConversation) -> io::Result<()> {
        let mut file = private_file::open(&self.path)?;
        // Other terminals may write it at the same time.
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if text.lines().count() < 4 * MAX_CONVERSATIONS {
            return file.write_all(line(entry).as_bytes());
        }
        let mut entries = newest_of_each(&text);
        entries.truncate(MAX_CONVERSATIONS - 1);
        file.set_len(0)?;
        let kept: String = entries.iter().rev().chain([entry]).map(line).collect();
        file.write_all(kept.as_bytes())
    }

    /// Conversations of a folder, newest first.
    pub(super) fn of_folder(&self, folder: &Path) -> Vec<SavedConversation> {
        self.all().into_iter().filter(|entry| entry.folder == folder).collect()
    }

    /// The newest conversation of a folder and, if given, of a model.
    pub(crate) fn newest(&self, folder: &Path, model: Option<&str>) -> Option<SavedConversation> {
        self.of_folder(folder).into_iter().find(|entry| model.is_none_or(|model| entry.model == model))
    }

    /// The conversation with this session id, or those with this prefix.
    pub(crate) fn named(&self, name: &str) -> IndexMatch {
        let mut found = self.all();
        if let Some(at) = found.iter().position(|entry| *entry.session.0 == *name) {
            return IndexMatch::One(found.swap_remove(at));
        }
        found.retain(|entry| entry.session.0.starts_with(name));
        match found.len() {
            0 => IndexMatch::None,
            1 => IndexMatch::One(found.swap_remove(0)),
            _ => IndexMatch::Several(found),
        }
    }

    /// All conversations, newest first. A file that cannot be read counts as empty.
    fn all(&self) -> Vec<SavedConversation> {
        newest_of_each(&std::fs::read_to_string(&self.path).unwrap_or_default())
    }
}

fn line(entry: &SavedConversation) -> String {
    serde_json::to_string(entry).map(|line| line + "\n").unwrap_or_default()
}

/// Each conversation once, newest first. Lines that are not valid are skipped.
fn newest_of_each(text: &str) -> Vec<SavedConversation> {
    let mut seen = HashSet::new();
    let entries = text.lines().rev().filter_map(|line| serde_json::from_str::<SavedConversation>(line).ok());
    entries.filter(|entry| seen.insert(entry.session.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(folder: &str, model: &str, session: &str) -> SavedConversation {
        SavedConversation::new(Path::new(folder), model, &SessionId(session.into()), "Hello,\nworld")
    }

    fn sessions(entries: &[SavedConversation]) -> Vec<&str> {
        entries.iter().map(|entry| &*entry.session.0).collect()
    }

    #[test]
    fn finds_the_newest_of_a_folder_and_one_by_prefix() {
        let state = tempfile::tempdir().unwrap();
        let index = ConversationIndex::new(state.path());
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
            IndexMatch::One(entry) => vec![entry.session.to_string()],
            IndexMatch::Several(entries) => entries.into_iter().map(|entry| entry.session.to_string()).collect(),
            IndexMatch::None => Vec::new(),
        };
        assert_eq!(named("s-two"), ["s-two"]);
        assert_eq!(named("s-o"), ["s-one"]);
        assert_eq!(named("s-t"), ["s-three", "s-two"], "two have this prefix");
        assert!(named("s-x").is_empty());
        assert!(index.all().iter().all(|entry| entry.title == "Hello,"));
        let mode = std::fs::metadata(state.path().join("repl/sessions.jsonl")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn compacts_the_file_and_keeps_the_newest() {
        let state = tempfile::tempdir().unwrap();
        let index = ConversationIndex::new(state.path());
        let path = state.path().join("repl/sessions.jsonl");
        let old: String = (0..4 * MAX_CONVERSATIONS).map(|at| line(&entry("/a", "m", &format!("old-{at}")))).collect();
        private_file::open(&path).unwrap().write_all(format!("not ours\n{old}").as_bytes()).unwrap();
        index.add(&entry("/a", "m", "new")).unwrap();
        let entries = index.of_folder(Path::new("/a"));
        assert_eq!(entries.len(), MAX_CONVERSATIONS);
        assert_eq!(sessions(&entries[..2]), ["new".to_owned(), format!("old-{}", 4 * MAX_CONVERSATIONS - 1)]);
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), MAX_CONVERSATIONS);
    }
}
