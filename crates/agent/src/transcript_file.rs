//! Sessions of the agent on disk: one file for each, one line for each message, in the format of the API.
//!
//! A message is written as soon as it is complete, so that the next turn can continue from there even if the process is
//! killed. A last line that is incomplete is ignored.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_core::event::{SessionId, ToolCall};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::{Message, Role};
use uuid::Uuid;

use crate::transcript::AgentTranscript;

/// Bytes of a file that are read. The rest is ignored.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Folder with the transcripts of sessions.
#[derive(Debug, Clone)]
pub struct TranscriptFiles {
    folder: PathBuf,
}

/// Transcript of one session. The file is created with its first message.
#[derive(Debug)]
pub struct TranscriptFile {
    session: SessionId,
    path: PathBuf,
    /// The repository that the session works in.
    repo: PathBuf,
    file: Option<File>,
    /// Number of messages in the file.
    written: usize,
    /// Turn whose mark is still to be written; `None` once it is in the file.
    turn: Option<String>,
}

/// First line of a file.
#[derive(Serialize, Deserialize)]
struct TranscriptHeader {
    session: SessionId,
    repo: PathBuf,
}

/// Line that names the turn of the messages after it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnMark {
    turn: String,
}

/// Line with a message.
#[derive(Serialize, Deserialize)]
struct TranscriptLine {
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

impl TranscriptFiles {
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Transcript of a new session in `repo` that starts with `turn`.
    #[must_use]
    pub fn begin(&self, repo: &Path, turn: &str) -> TranscriptFile {
        let session = SessionId(Uuid::now_v7().to_string().into());
        let (path, turn) = (self.path(&session), Some(turn.to_owned()));
        TranscriptFile { path, session, repo: repo.to_owned(), file: None, written: 0, turn }
    }

    /// Opens the transcript of a session, and returns its messages before `turn`. Messages of an earlier attempt of `turn`
    /// are removed.
    pub fn resume(
        &self,
        session: &SessionId,
        repo: &Path,
        turn: &str,
    ) -> Result<(TranscriptFile, AgentTranscript), Failure> {
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
        (&file).take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(unreadable)?;
        let mut lines = text.split_inclusive(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let mut end = first.len();
        let Ok(TranscriptHeader { repo: other, .. }) = serde_json::from_slice(first) else {
            let message = format!("the session {session} cannot be resumed: its file is damaged");
            return Err(lost(message));
        };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if real(&other) != real(repo) {
            let message = format!("the session {session} belongs to {}, not to {}", other.display(), repo.display());
            return Err(Failure::new(Category::Validation, message).hint("leave the session out to start a new one"));
        }
        let mut transcript = AgentTranscript::default();
        for line in lines {
            if serde_json::from_slice(line).is_ok_and(|mark: TurnMark| mark.turn == turn) {
                break;
            }
            end += line.len();
            transcript.extend(serde_json::from_slice(line).ok().map(message));
        }
        if end < text.len() {
            file.set_len(end as u64).map_err(unreadable)?;
        }
        if !text[..end].ends_with(b"\n") {
            // Ends an incomplete line, so that the next message starts a line of its own.
            (&file).write_all(b"\n").map_err(unreadable)?;
        }
        let written = transcript.messages().len();
        let (session, turn) = (session.clone(), Some(turn.to_owned()));
        let file = TranscriptFile { session, path, repo: repo.to_owned(), file: Some(file), written, turn };
        Ok((file, transcript))
    }

    /// Removes transcripts that have not been extended for `age`. Returns their number.
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

/// A failure to resume a session whose transcript is missing or damaged.
fn lost(message: String) -> Failure {
    Failure::new(Category::Validation, message).hint("leave the session out to start a new one").session_lost()
}

/// Checks that an id from a client can be a session id of the agent, which is also a file name.
pub fn check(session: &SessionId) -> Result<(), Failure> {
    match Uuid::try_parse(&session.0) {
        Ok(id) if id.hyphenated().to_string() == *session.0 => Ok(()),
        Ok(_) | Err(_) => {
            let message = format!("{:?} is not a session of the agent: those are UUIDs", session.0);
            Err(Failure::new(Category::Validation, message))
        }
    }
}

impl TranscriptFile {
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Appends the messages that are not in the file yet. `messages` contains all messages of the session.
    pub fn save(&mut self, messages: &[Message]) -> io::Result<()> {
        let fresh = messages.get(self.written..).unwrap_or_default();
        if fresh.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        let mut file = match self.file.take() {
            Some(file) => file,
            None => {
                append_line(&TranscriptHeader { session: self.session.clone(), repo: self.repo.clone() }, &mut text)?;
                self.create()?
            }
        };
        if let Some(turn) = &self.turn {
            append_line(&TurnMark { turn: turn.clone() }, &mut text)?;
        }
        for message in fresh {
            append_line(&line(message), &mut text)?;
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

/// Appends a value as one line of JSON.
fn append_line(value: &impl Serialize, text: &mut Vec<u8>) -> io::Result<()> {
    serde_json::to_writer(&mut *text, value)?;
    text.push(b'\n');
    Ok(())
}

fn line(message: &Message) -> TranscriptLine {
    let call = |call: &ToolCall| LineCall {
        id: call.id.clone(),
        kind: "function".to_owned(),
        function: LineFunction { name: call.name.clone(), arguments: call.arguments.clone() },
    };
    // Pictures are not saved: only the turn that they came with needs them.
    let pictures = "\n[a picture]".repeat(message.images.len());
    TranscriptLine {
        role: message.role,
        content: format!("{}{pictures}", message.text),
        tool_calls: message.calls.iter().map(call).collect(),
        tool_call_id: message.call_id.clone(),
    }
}

fn message(line: TranscriptLine) -> Message {
    let call = |call: LineCall| ToolCall { id: call.id, name: call.function.name, arguments: call.function.arguments };
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

    fn messages() -> Vec<Message> {
        vec![
            Message::new(Role::User, "go\n\"on\" \u{1f980}"),
            Message { calls: vec![call("a")], ..Message::new(Role::Assistant, "") },
            Message { call_id: Some("a".into()), ..Message::new(Role::Tool, "[exit code: 1]") },
            Message::new(Role::Assistant, "done"),
        ]
    }

    #[test]
    fn saved_messages_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let files = TranscriptFiles::new(folder.path().join("agent"));
        let mut file = files.begin(Path::new("/repo"), "t1");
        let path = file.path.clone();
        file.save(&[]).unwrap();
        assert!(!path.exists(), "there are no messages");
        file.save(&messages()[..1]).unwrap();
        file.save(&messages()[..3]).unwrap();
        file.save(&messages()[..3]).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let session = file.session().clone();
        drop(file);
        let (mut again, transcript) = files.resume(&session, Path::new("/repo"), "t2").unwrap();
        assert_eq!(transcript.messages(), &messages()[..3]);
        again.save(&messages()).unwrap();
        assert_eq!(files.resume(&session, Path::new("/repo"), "t3").unwrap().1.messages(), messages());
        let (mut once_more, transcript) = files.resume(&session, Path::new("/repo"), "t2").unwrap();
        assert_eq!(transcript.messages(), &messages()[..3], "a second attempt starts where the turn started");
        once_more.save(&messages()).unwrap();
        assert_eq!(files.resume(&session, Path::new("/repo"), "t3").unwrap().1.messages(), messages());
    }

    #[test]
    fn incomplete_last_line_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let files = TranscriptFiles::new(folder.path().to_owned());
        let mut file = files.begin(Path::new("/repo"), "t1");
        file.save(&messages()[..1]).unwrap();
        let session = file.session().clone();
        OpenOptions::new()
            .append(true)
            .open(&file.path)
            .unwrap()
            .write_all(b"{\"role\":\"user\",\"content\":\"caf\xc3")
            .unwrap();
        let (mut again, transcript) = files.resume(&session, Path::new("/repo"), "t2").unwrap();
        assert_eq!(transcript.messages(), &messages()[..1]);
        again.save(&messages()[..2]).unwrap();
        assert_eq!(files.resume(&session, Path::new("/repo"), "t3").unwrap().1.messages(), &messages()[..2]);
        std::fs::write(&again.path, "").unwrap();
        let broken = files.resume(&session, Path::new("/repo"), "t3").unwrap_err();
        assert!(broken.message.ends_with("its file is damaged"), "{broken}");
    }

    #[test]
    fn prune_removes_old_transcripts_only() {
        let folder = tempfile::tempdir().unwrap();
        let files = TranscriptFiles::new(folder.path().join("agent"));
        assert_eq!(files.prune(Duration::ZERO).unwrap(), 0, "there are none");
        let mut file = files.begin(Path::new("/repo"), "t1");
        file.save(&messages()).unwrap();
        fs::write(folder.path().join("agent/other.txt"), "").unwrap();
        assert_eq!(files.prune(Duration::from_secs(3600)).unwrap(), 0, "the transcript is new");
        assert_eq!(files.prune(Duration::ZERO).unwrap(), 1);
        assert!(!file.path.exists() && folder.path().join("agent/other.txt").exists());
    }

    #[test]
    fn failure_says_why_session_cannot_be_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let files = TranscriptFiles::new(folder.path().to_owned());
        let mut file = files.begin(Path::new("/repo"), "t1");
        file.save(&messages()).unwrap();
        let known = file.session().0.clone();
        let unknown = "01a1dc9b-98ad-7900-b3ff-2cd667be397c";
        for (session, repo, message) in [
            ("../../etc/passwd", "/repo", "\"../../etc/passwd\" is not a session of the agent: those are UUIDs"),
            (
                &unknown.replace('-', ""),
                "/repo",
                "\"01a1dc9b98ad7900b3ff2cd667be397c\" is not a session of the agent: those are UUIDs",
            ),
            (unknown, "/repo", "the agent has no session 01a1dc9b-98ad-7900-b3ff-2cd667be397c"),
            (&known, "/other", &format!("the session {known} belongs to /repo, not to /other")),
        ] {
            let failure = files.resume(&SessionId(session.into()), Path::new(repo), "t2").unwrap_err();
            assert_eq!((failure.category, failure.message.as_str()), (Category::Validation, message));
        }
    }
}
