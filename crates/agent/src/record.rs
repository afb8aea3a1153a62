//! Conversations on disk: a file each, a line for each message, in the words of the API.
//!
//! A message is written when it is complete, so that whatever ends the process, the next turn goes on from there. A last
//! line that was cut off is not a message.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    session: SessionId,
    repo: PathBuf,
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

    /// A new conversation about `repo`.
    #[must_use]
    pub fn begin(&self, repo: &Path) -> Record {
        let session = SessionId(Uuid::now_v7().to_string());
        Record { path: self.path(&session), session, repo: repo.to_owned(), file: None, written: 0 }
    }

    /// A conversation to go on with, and what was said in it.
    pub fn resume(&self, session: &SessionId, repo: &Path) -> Result<(Record, Transcript), Failure> {
        check(session)?;
        let path = self.path(session);
        let unreadable = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                let message = format!("the agent has no session {session}");
                return Failure::new(Category::Validation, message).hint("leave the session out to begin a new one");
            }
            Failure::new(Category::Server, format!("cannot read the session {session}: {error}"))
        };
        let mut text = String::new();
        let file = OpenOptions::new().read(true).append(true).open(&path).map_err(unreadable)?;
        (&file).take(LARGEST).read_to_string(&mut text).map_err(unreadable)?;
        let mut lines = text.lines();
        let header: Option<Header> = lines.next().and_then(|line| serde_json::from_str(line).ok());
        if let Some(Header { repo: other, .. }) = header.filter(|header| header.repo != repo) {
            let message = format!("the session {session} is about {}, not {}", other.display(), repo.display());
            return Err(Failure::new(Category::Validation, message).hint("begin a new one here"));
        }
        let mut said = Transcript::default();
        said.extend(lines.filter_map(|line| Some(message(serde_json::from_str(line).ok()?))));
        if !text.ends_with('\n') {
            // What was being written when the process ended stays a line of its own.
            (&file).write_all(b"\n").map_err(unreadable)?;
        }
        let written = said.messages().len();
        let record = Record { session: session.clone(), path, repo: repo.to_owned(), file: Some(file), written };
        Ok((record, said))
    }

    fn path(&self, session: &SessionId) -> PathBuf {
        self.folder.join(format!("{session}.jsonl"))
    }
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
        for message in fresh {
            line_of(&line(message), &mut text)?;
        }
        file.write_all(&text)?;
        self.file = Some(file);
        self.written = messages.len();
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
        let mut record = records.begin(Path::new("/repo"));
        let path = record.path.clone();
        record.keep(&[]).unwrap();
        assert!(!path.exists(), "nothing was said");
        record.keep(&talk()[..1]).unwrap();
        record.keep(&talk()[..3]).unwrap();
        record.keep(&talk()[..3]).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let session = record.session().clone();
        drop(record);
        let (mut again, said) = records.resume(&session, Path::new("/repo")).unwrap();
        assert_eq!(said.messages(), &talk()[..3]);
        again.keep(&talk()).unwrap();
        assert_eq!(records.resume(&session, Path::new("/repo")).unwrap().1.messages(), talk());
    }

    #[test]
    fn a_line_that_was_cut_off_is_no_message_and_harms_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().to_owned());
        let mut record = records.begin(Path::new("/repo"));
        record.keep(&talk()[..1]).unwrap();
        let session = record.session().clone();
        OpenOptions::new().append(true).open(&record.path).unwrap().write_all(b"{\"role\":\"assis").unwrap();
        let (mut again, said) = records.resume(&session, Path::new("/repo")).unwrap();
        assert_eq!(said.messages(), &talk()[..1]);
        again.keep(&talk()[..2]).unwrap();
        assert_eq!(records.resume(&session, Path::new("/repo")).unwrap().1.messages(), &talk()[..2]);
    }

    #[test]
    fn what_cannot_be_resumed_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().to_owned());
        let mut record = records.begin(Path::new("/repo"));
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
            let failure = records.resume(&SessionId(session.to_owned()), Path::new(repo)).unwrap_err();
            assert_eq!((failure.category, failure.message.as_str()), (Category::Validation, message));
        }
    }
}
