//! Helpers for the tests.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trunkline_core::event::{Answer, Event, Finish, SessionId, Usage};
use trunkline_store::{
    ClientId, DATABASE_FILE, Durability, HeadCondition, InFlight, IndexFeed, IndexTask, LogRecord, LogWriter,
    NewSession, Purpose, RunAccepted, RunEnded, RunLogEntry, RunOutcome, RunRow, RunStarted, SessionHead, SessionKey,
    SessionRow, SessionState, Store, Time, log_line,
};

pub(crate) fn owner(name: &str) -> ClientId {
    ClientId::new(name)
}

pub(crate) fn new<'a>(owner: &'a ClientId, model: &'a str) -> NewSession<'a> {
    NewSession { owner, model, provider: "codex", repo: Path::new("/repo"), begins: "Hello there\nmore", parent: None }
}

pub(crate) async fn begin(store: &Store, owner: &ClientId) -> SessionRow {
    store.session_begin(&new(owner, "m")).await.unwrap()
}

pub(crate) fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

pub(crate) fn finished(answer: &str) -> Event {
    Event::Finished(Answer::new(answer, Usage::default(), Finish::Stop))
}

/// A turn of the local client.
pub(crate) fn accepted(run: &str, session: Option<&SessionKey>) -> RunAccepted {
    RunAccepted {
        at: Time::now(),
        owner: ClientId::local(),
        place: "/repo".into(),
        model: "m".into(),
        prompt: format!("prompt of {run}"),
        session: session.cloned(),
        ..RunAccepted::default()
    }
}

pub(crate) fn started() -> LogRecord {
    LogRecord::Started(RunStarted { at: Time::now(), provider: "codex".into() })
}

pub(crate) fn event(sequence: u64, event: Event) -> LogRecord {
    LogRecord::Event(Box::new(RunLogEntry { seq: sequence, at: 7, by: None, event }))
}

pub(crate) fn end() -> RunEnded {
    RunEnded {
        at: Time::now(),
        provider: "codex".into(),
        outcome: RunOutcome::Ok,
        message: None,
        interrupted: false,
        usage: Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 2, estimated: false },
        duration: Duration::from_millis(1234),
        session: None,
        attempts: 1,
        log: None,
        key_released: false,
    }
}

/// A session of the local client after its turn number `time`.
pub(crate) fn state(id: &str, time: i64, hashes: &[u8]) -> SessionState {
    SessionState {
        session: SessionRow {
            id: SessionKey(id.into()),
            owner: ClientId::local(),
            model: "m".into(),
            provider: "codex".into(),
            repo: "/repo".into(),
            native: Some(SessionId(format!("native at {time}").into())),
            title: "Hi".into(),
            parent: None,
            created: Time::from_millis(0),
            used: Time::from_millis(time),
            turns: u64::try_from(time).unwrap(),
        },
        asked: "m".into(),
        heads: hashes.iter().map(|hash| SessionHead { hash: [*hash; 32], messages: 2 }).collect(),
    }
}

/// A process that writes runs: a store with a log, a feed and the running task.
pub(crate) struct TestProcess {
    pub(crate) store: Store,
    pub(crate) log: Arc<LogWriter>,
    pub(crate) feed: IndexFeed,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl TestProcess {
    pub(crate) async fn start(folder: &Path) -> Self {
        let store = Store::open(&folder.join(DATABASE_FILE)).await.unwrap();
        Self::start_with(store, LogWriter::new(folder, Durability::Process))
    }

    /// A process whose task does not run, so that records reach the log only.
    pub(crate) async fn without_task(folder: &Path) -> (Self, IndexTask) {
        let log = LogWriter::new(folder, Durability::Process);
        Self::with_log(Store::open(&folder.join(DATABASE_FILE)).await.unwrap(), log)
    }

    /// A process with this store and log.
    pub(crate) fn start_with(store: Store, log: LogWriter) -> Self {
        let (mut process, task) = Self::with_log(store, log);
        process.task.spawn(task.run(process.stop.clone()));
        process
    }

    fn with_log(store: Store, log: LogWriter) -> (Self, IndexTask) {
        let log = Arc::new(log);
        let (feed, task) = store.index(Some(Arc::clone(&log)));
        (Self { store, log, feed, stop: CancellationToken::new(), task: JoinSet::new() }, task)
    }

    /// Writes a record to the log, and its row to the feed, as the engine does.
    pub(crate) fn try_write(&self, run: &str, record: &LogRecord) -> io::Result<()> {
        let mut line = Vec::new();
        log_line(&mut line, run, record);
        let purpose = if matches!(record, LogRecord::Accepted(_)) { Purpose::Accept } else { Purpose::Continue };
        self.log.append(&line, purpose, |at| match record {
            LogRecord::Accepted(accepted) => self.feed.add(RunRow::accepted(run, accepted, at.position())),
            LogRecord::Event(_) => {}
            LogRecord::Session(state) => {
                drop(self.feed.add_session((**state).clone(), HeadCondition::default()));
            }
            LogRecord::Workspace(left) => self.feed.set_workspace(run, &left.receipt),
            LogRecord::Started(_) | LogRecord::Continued(_) | LogRecord::Ended(_) => {
                self.feed.update(run, |row| row.apply(record));
            }
        })
    }

    pub(crate) fn write(&self, run: &str, record: impl Into<TestRecord>) {
        self.try_write(run, &record.into().0).unwrap();
    }

    pub(crate) fn write_session(&self, run: &str, state: SessionState, condition: HeadCondition) -> InFlight {
        let mut line = Vec::new();
        log_line(&mut line, run, &LogRecord::Session(Box::new(state.clone())));
        self.log.append(&line, Purpose::Continue, |_| self.feed.add_session(state, condition)).unwrap()
    }

    /// Writes a run with one text and an answer.
    pub(crate) fn write_run(&self, run: &str, session: Option<&SessionKey>) {
        self.write(run, accepted(run, session));
        self.write(run, started());
        self.write(run, event(0, text("hi")));
        self.write(run, event(1, finished(&format!("answer of {run}"))));
        self.write(run, end());
    }

    /// Ends the process as a signal to stop does: everything is indexed.
    pub(crate) async fn end(mut self) -> Store {
        self.stop.cancel();
        while let Some(done) = self.task.join_next().await {
            done.unwrap();
        }
        self.store
    }

    /// Ends the process as SIGKILL does. Rows that the task has not written are lost, and the lock is released.
    pub(crate) async fn kill(mut self) {
        self.task.abort_all();
        while self.task.join_next().await.is_some() {}
        self.store.close().await;
    }
}

/// A record, or what it contains.
pub(crate) struct TestRecord(pub(crate) LogRecord);

impl From<LogRecord> for TestRecord {
    fn from(record: LogRecord) -> Self {
        Self(record)
    }
}

impl From<RunAccepted> for TestRecord {
    fn from(accepted: RunAccepted) -> Self {
        Self(LogRecord::Accepted(accepted.into()))
    }
}

impl From<RunEnded> for TestRecord {
    fn from(ended: RunEnded) -> Self {
        Self(LogRecord::Ended(ended.into()))
    }
}

impl From<SessionState> for TestRecord {
    fn from(state: SessionState) -> Self {
        Self(LogRecord::Session(state.into()))
    }
}

/// Opens the store of a folder.
pub(crate) async fn open(folder: &Path) -> Store {
    Store::open(&folder.join(DATABASE_FILE)).await.unwrap()
}

/// Paths of all segments, in order.
pub(crate) fn segments(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = all.filter(|path| path.extension().is_some_and(|name| name == "log")).collect();
    paths.sort();
    paths
}

/// Removes the database, but not the log.
pub(crate) fn delete_database(folder: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.join(format!("{DATABASE_FILE}{suffix}")));
    }
}
