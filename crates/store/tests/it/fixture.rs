//! What the tests are made of.

use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trunkline_core::event::{Event, Usage};
use trunkline_store::{
    Kept, NewSession, Outcome, Owner, Record, SessionKey, SessionRow, Store, Surface, Time, TurnBegun, TurnEnded,
    Writer,
};

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new(name)
}

pub(crate) fn new<'a>(owner: &'a Owner, model: &'a str) -> NewSession<'a> {
    NewSession { owner, model, provider: "codex", repo: Path::new("/repo"), begins: "Hello there\nmore", parent: None }
}

pub(crate) async fn begin(store: &Store, owner: &Owner) -> SessionRow {
    store.session_begin(&new(owner, "m")).await.unwrap()
}

pub(crate) fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

pub(crate) fn begun(run: &str, session: Option<&SessionKey>) -> Record {
    Record::Begun(TurnBegun {
        run: run.into(),
        session: session.cloned(),
        owner: Owner::local(),
        surface: Surface::Http,
        place: "/repo".into(),
        model: "m".into(),
        prompt: format!("prompt of {run}"),
        time: Time::now(),
        ..TurnBegun::default()
    })
}

pub(crate) fn event(run: &str, sequence: u64, event: Event) -> Record {
    Record::Event { run: run.into(), sequence, event }
}

pub(crate) fn ended(run: &str) -> Record {
    Record::Ended(TurnEnded {
        run: run.into(),
        provider: "codex".into(),
        outcome: Outcome::Ok,
        answer: format!("answer of {run}"),
        usage: Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 2, estimated: false },
        duration: Duration::from_millis(1234),
        time: Time::now(),
        attempts: 1,
        ..TurnEnded::default()
    })
}

/// A writer whose task is joined.
pub(crate) struct Archive {
    pub(crate) writer: Writer,
    pub(crate) stop: CancellationToken,
    task: JoinSet<Kept>,
}

impl Archive {
    pub(crate) fn new(store: &Store) -> Self {
        let ((writer, keeping), stop, mut task) = (store.writer(), CancellationToken::new(), JoinSet::new());
        task.spawn(keeping.run(stop.clone()));
        Self { writer, stop, task }
    }

    pub(crate) async fn send_all(&self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            self.writer.send(record).await.unwrap();
        }
    }

    pub(crate) async fn end(mut self) -> Kept {
        self.stop.cancel();
        self.task.join_next().await.unwrap().unwrap()
    }
}
