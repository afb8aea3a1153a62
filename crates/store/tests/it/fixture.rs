//! Helpers for the tests.

use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trunkline_core::event::{Event, Usage};
use trunkline_store::{
    ArchiveRecord, ArchiveTotals, ClientId, NewSession, RunOutcome, SessionKey, SessionRow, Store, Surface, Time,
    TurnBegun, TurnEnded, Writer,
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

pub(crate) fn begun(run: &str, session: Option<&SessionKey>) -> ArchiveRecord {
    ArchiveRecord::Begun(TurnBegun {
        run: run.into(),
        session: session.cloned(),
        owner: ClientId::local(),
        surface: Surface::Http,
        place: "/repo".into(),
        model: "m".into(),
        prompt: format!("prompt of {run}"),
        time: Time::now(),
        ..TurnBegun::default()
    })
}

pub(crate) fn event(run: &str, sequence: u64, event: Event) -> ArchiveRecord {
    ArchiveRecord::Event { run: run.into(), sequence, event }
}

pub(crate) fn ended(run: &str) -> ArchiveRecord {
    ArchiveRecord::Ended(TurnEnded {
        run: run.into(),
        provider: "codex".into(),
        outcome: RunOutcome::Ok,
        answer: format!("answer of {run}"),
        usage: Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 2, estimated: false },
        duration: Duration::from_millis(1234),
        time: Time::now(),
        attempts: 1,
        ..TurnEnded::default()
    })
}

/// A writer and its running task.
pub(crate) struct TestArchive {
    pub(crate) writer: Writer,
    pub(crate) stop: CancellationToken,
    task: JoinSet<ArchiveTotals>,
}

impl TestArchive {
    pub(crate) fn new(store: &Store) -> Self {
        let ((writer, writer_task), stop, mut task) = (store.writer(), CancellationToken::new(), JoinSet::new());
        task.spawn(writer_task.run(stop.clone()));
        Self { writer, stop, task }
    }

    pub(crate) async fn send_all(&self, records: impl IntoIterator<Item = ArchiveRecord>) {
        for record in records {
            self.writer.send(record).await.unwrap();
        }
    }

    pub(crate) async fn end(mut self) -> ArchiveTotals {
        self.stop.cancel();
        self.task.join_next().await.unwrap().unwrap()
    }
}
