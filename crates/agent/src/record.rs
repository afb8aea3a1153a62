//! Conversations on disk: a file each, a line for each message, in the words of the API.
//!
//! A message is written when it is complete, so that whatever ends the process, the next turn goes on from there. A last
//! line that was cut off is not a message.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_core::event::{Call, SessionId};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::{Message, Role};
use uuid::Uuid;

use crate::transcript::Transcript;

/// The largest record that is read back.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Where conversations are kept.
#[derive(Debug, Clone)]
pub struct Records {
    folder: PathBuf,
}

/// One conversation. Its file is made with its first message.
#[derive(Debug)]
pub struct Record {
    session: SessionId,
    path: PathBuf,
    /// The repository it is about.
    repo: PathBuf,
    file: Option<File>,
    /// How many messages are in the file.
    written: usize,
    /// The turn that is being written; none once that was said.
    turn: Option<String>,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    session: SessionId,
    repo: PathBuf,
}

/// Says which turn the messages after it are of.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    turn: String,
}

/// Every other line.
#[derive(Serialize, Deserialize)]
struct Line {
    role: Role,
    #[serde(default)]
    content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<LineCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct LineCall {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    function: LineFunction,
}

#[derive(Serialize, Deserialize)]
struct LineFunction {
    name: String,
    arguments: String,
}

impl Records {
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// A new conversation about `repo`, with its first turn.
    #[must_use]
    pub fn begin(&self, repo: &Path, turn: &str) -> Record {
        let session = SessionId(Uuid::now_v7().to_string());
        let (path, turn) = (self.path(&session), Some(turn.to_owned()));
        Record { path, session, repo: repo.to_owned(), file: None, written: 0, turn }
    }

    /// A conversation to go on with, and what was said in it before `turn`: what an earlier try of it left is taken back.
    pub fn resume(&self, session: &SessionId, repo: &Path, turn: &str) -> Result<(Record, Transcript), Failure> {
        check(session)?;
        let path = self.path(session);
        let unreadable = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                let message = format!("the agent has no session {session}");
                return lost(message);
            }
            Failure::new(Category::Server, format!("cannot read the session {session}: {error}"))
        };
        let mut text = Vec::new();
        let file = OpenOptions::new().read(true).append(true).open(&path).map_err(unreadable)?;
        (&file).take(LARGEST).read_to_end(&mut text).map_err(unreadable)?;
        let mut lines = text.split_inclusive(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let mut end = first.len();
        let Ok(Header { repo: other, .. }) = serde_json::from_slice(first) else {
            let message = format!("the session {session} cannot be gone on with: its record is broken");
            return Err(lost(message));
        };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if real(&other) != real(repo) {
            let message = format!("the session {session} is about {}, not {}", other.display(), repo.display());
            return Err(Failure::new(Category::Validation, message).hint("begin a new one here"));
        }
        let mut said = Transcript::default();
        for line in lines {
            if serde_json::from_slice(line).is_ok_and(|mark: Mark| mark.turn == turn) {
                break;
            }
            end += line.len();
            said.extend(serde_json::from_slice(line).ok().map(message));
        }
        if end < text.len() {
            file.set_len(end as u64).map_err(unreadable)?;
        }
        if !text[..end].ends_with(b"\n") {
            // What was being written when the process ended stays a line of its own.
            (&file).write_all(b"\n").map_err(unreadable)?;
        }
        let written = said.messages().len();
        let (session, turn) = (session.clone(), Some(turn.to_owned()));
        let record = Record { session, path, repo: repo.to_owned(), file: Some(file), written, turn };
        Ok((record, said))
    }

    /// Removes those that nothing was added to for `age`; how many that were.
    pub fn prune(&self, age: Duration) -> io::Result<usize> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut removed = 0;
        for entry in entries {
            let entry = entry?;
            let old = entry.metadata()?.modified()?.elapsed().is_ok_and(|unused| unused >= age);
            if old && entry.path().extension().is_some_and(|extension| extension == "jsonl") {
                fs::remove_file(entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn path(&self, session: &SessionId) -> PathBuf {
        self.folder.join(format!("{session}.jsonl"))
    }
}

/// A failure to resume a conversation whose record is missing or unreadable.
fn lost(message: String) -> Failure {
    Failure::new(Category::Validation, message).hint("leave the session out to begin a new one").session_lost()
}

/// Whether a client's word can be the name of a conversation, and so of a file.
pub fn check(session: &SessionId) -> Result<(), Failure> {
    match Uuid::try_parse(&session.0) {
        Ok(id) if id.hyphenated().to_string() == session.0 => Ok(()),
        Ok(_) | Err(_) => {
            let message = format!("{:?} is not a session of the agent: those are UUIDs", session.0);
            Err(Failure::new(Category::Validation, message))
        }
    }
}

impl Record {
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Writes what has been said since the last time. `messages` is everything that was said.
    pub fn keep(&mut self, messages: &[Message]) -> io::Result<()> {
        let fresh = messages.get(self.written..).unwrap_or_default();
        if fresh.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        let mut file = match self.file.take() {
            Some(file) => file,
            None => {
                line_of(&Header { session: self.session.clone(), repo: self.repo.clone() }, &mut text)?;
                self.create()?
            }
        };
        if let Some(turn) = &self.turn {
            line_of(&Mark { turn: turn.clone() }, &mut text)?;
        }
        for message in fresh {
            line_of(&line(message), &mut text)?;
        }
        file.write_all(&text)?;
        self.file = Some(file);
        (self.written, self.turn) = (messages.len(), None);
        Ok(())
    }

    fn create(&self) -> io::Result<File> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)
    }
}

fn line_of(value: &impl Serialize, text: &mut Vec<u8>) -> io::Result<()> {
    serde_json::to_writer(&mut *text, value)?;
    text.push(b'\n');
    Ok(())
}

fn line(message: &Message) -> Line {
    let call = |call: &Call| LineCall {
        id: call.id.clone(),
        kind: "function".to_owned(),
        function: LineFunction { name: call.name.clone(), arguments: call.arguments.clone() },
    };
    // Pictures are for the turn they came with.
    let pictures = "\n[a picture]".repeat(message.images.len());
    Line {
        role: message.role,
        content: format!("{}{pictures}", message.text),
        tool_calls: message.calls.iter().map(call).collect(),
        tool_call_id: message.call_id.clone(),
    }
}

fn message(line: Line) -> Message {
    let call = |call: LineCall| Call { id: call.id, name: call.function.name, arguments: call.function.arguments };
    Message {
        calls: line.tool_calls.into_iter().map(call).collect(),
        call_id: line.tool_call_id,
        ..Message::new(line.role, line.content)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::transcript::tests::call;

    fn talk() -> Vec<Message> {
        vec![
            Message::new(Role::User, "go\n\"on\" \u{1f980}"),
            Message { calls: vec![call("a")], ..Message::new(Role::Assistant, "") },
            Message { call_id: Some("a".into()), ..Message::new(Role::Tool, "[exit code: 1]") },
            Message::new(Role::Assistant, "done"),
        ]
    }

    #[test]
    fn what_was_kept_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().join("agent"));
        let mut record = records.begin(Path::new("/repo"), "t1");
        let path = record.path.clone();
        record.keep(&[]).unwrap();
        assert!(!path.exists(), "nothing was said");
        record.keep(&talk()[..1]).unwrap();
        record.keep(&talk()[..3]).unwrap();
        record.keep(&talk()[..3]).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let session = record.session().clone();
        drop(record);
        let (mut again, said) = records.resume(&session, Path::new("/repo"), "t2").unwrap();
        assert_eq!(said.messages(), &talk()[..3]);
        again.keep(&talk()).unwrap();
        assert_eq!(records.resume(&session, Path::new("/repo"), "t3").unwrap().1.messages(), talk());
        let (mut once_more, said) = records.resume(&session, Path::new("/repo"), "t2").unwrap();
        assert_eq!(said.messages(), &talk()[..3], "another try begins where the turn began");
        once_more.keep(&talk()).unwrap();
        assert_eq!(records.resume(&session, Path::new("/repo"), "t3").unwrap().1.messages(), talk());
    }

    #[test]
    fn a_line_that_was_cut_off_is_no_message_and_harms_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().to_owned());
        let mut record = records.begin(Path::new("/repo"), "t1");
        record.keep(&talk()[..1]).unwrap();
        let session = record.session().clone();
        OpenOptions::new()
            .append(true)
            .open(&record.path)
            .unwrap()
            .write_all(b"{\"role\":\"user\",\"content\":\"caf\xc3")
            .unwrap();
        let (mut again, said) = records.resume(&session, Path::new("/repo"), "t2").unwrap();
        assert_eq!(said.messages(), &talk()[..1]);
        again.keep(&talk()[..2]).unwrap();
        assert_eq!(records.resume(&session, Path::new("/repo"), "t3").unwrap().1.messages(), &talk()[..2]);
        std::fs::write(&again.path, "").unwrap();
        let broken = records.resume(&session, Path::new("/repo"), "t3").unwrap_err();
        assert!(broken.message.ends_with("its record is broken"), "{broken}");
    }

    #[test]
    fn old_ones_can_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().join("agent"));
        assert_eq!(records.prune(Duration::ZERO).unwrap(), 0, "there are none");
        let mut record = records.begin(Path::new("/repo"), "t1");
        record.keep(&talk()).unwrap();
        fs::write(folder.path().join("agent/other.txt"), "").unwrap();
        assert_eq!(records.prune(Duration::from_secs(3600)).unwrap(), 0, "it is new");
        assert_eq!(records.prune(Duration::ZERO).unwrap(), 1);
        assert!(!record.path.exists() && folder.path().join("agent/other.txt").exists());
    }

    #[test]
    fn what_cannot_be_resumed_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().to_owned());
        let mut record = records.begin(Path::new("/repo"), "t1");
        record.keep(&talk()).unwrap();
        let known = record.session().0.clone();
        let unknown = "01a1dc9b-98ad-7900-b3ff-2cd667be397c";
        for (session, repo, message) in [
            ("../../etc/passwd", "/repo", "\"../../etc/passwd\" is not a session of the agent: those are UUIDs"),
            (
                &unknown.replace('-', ""),
                "/repo",
                "\"01a1dc9b98ad7900b3ff2cd667be397c\" is not a session of the agent: those are UUIDs",
            ),
            (unknown, "/repo", "the agent has no session 01a1dc9b-98ad-7900-b3ff-2cd667be397c"),
            (&known, "/other", &format!("the session {known} is about /repo, not /other")),
        ] {
            let failure = records.resume(&SessionId(session.to_owned()), Path::new(repo), "t2").unwrap_err();
            assert_eq!((failure.category, failure.message.as_str()), (Category::Validation, message));
        }
    }
}
