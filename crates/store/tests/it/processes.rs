//! Several processes on one file, and one that is killed in the middle of it.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use trunkline_core::event::Event;
use trunkline_store::{FILE, Outcome, Owner, Selection, SessionKey, Store};

use crate::world::{Archive, begin, begun, ended, event, text};

const PLACE: &str = "TRUNKLINE_STORE_TEST_FILE";

/// Not a test by itself: what the tests below start, in a process of its own. It writes turn after turn, and says of
/// each that it is kept only after the store has said so.
#[test]
#[ignore = "the other tests start it"]
#[expect(clippy::disallowed_methods, reason = "this is how the tests tell it where the file is")]
fn writes_for_ever() {
    let Some(path) = std::env::var_os(PLACE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(Path::new(&path)).await.unwrap();
        let archive = Archive::new(&store);
        for at in 0.. {
            let session = begin(&store, &Owner::local()).await.id;
            let run = format!("{}-{at}", std::process::id());
            archive.send_all([begun(&run, Some(&session))]).await;
            for sequence in 0..EVENTS {
                let record = if sequence % 5 == 0 { text("some text") } else { output(&"x".repeat(500)) };
                archive.send_all([event(&run, sequence, record)]).await;
            }
            archive.send_all([ended(&run)]).await;
            archive.writer.flush().await.unwrap();
            store.session_succeeded(&session, None).await.unwrap();
            println!("kept {run} {session}");
        }
    });
}

const EVENTS: u64 = 20;

fn output(output: &str) -> Event {
    Event::ToolFinished { id: "1".into(), output: output.into(), ok: true }
}

/// A process that writes.
struct Other {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    kept: Vec<(String, SessionKey)>,
}

impl Other {
    #[expect(clippy::disallowed_methods, reason = "another process is what this is about")]
    fn start(path: &PathBuf) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["processes::writes_for_ever", "--exact", "--ignored", "--nocapture"]).env(PLACE, path);
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said, kept: Vec::new() }
    }

    /// Reads what it says; false once it says no more. The test harness talks on the same line.
    fn hear(&mut self) -> bool {
        for line in self.said.by_ref() {
            let line = line.unwrap();
            if let Some((_, kept)) = line.split_once("kept ") {
                let (run, session) = kept.split_once(' ').unwrap();
                self.kept.push((run.to_owned(), SessionKey(session.to_owned())));
                return true;
            }
        }
        false
    }

    /// Kills it, as nothing can be done about, and gives what it had said by then.
    fn kill(mut self) -> Vec<(String, SessionKey)> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while self.hear() {}
        std::mem::take(&mut self.kept)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _already = self.child.kill();
        let _already = self.child.wait();
    }
}

#[tokio::test]
async fn case_73_nothing_that_was_acknowledged_is_lost_when_writers_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let mut kept = Vec::new();
    for _ in 0..3 {
        // Three at it at once; they are killed wherever they are just then.
        let mut others = [(); 3].map(|()| Other::start(&path));
        for other in &mut others {
            for _ in 0..10 {
                assert!(other.hear(), "it ended by itself");
            }
        }
        for other in others {
            kept.extend(other.kill());
        }
        let store = Store::open(&path).await.unwrap();
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
        store.close().await;
    }
    assert!(kept.len() >= 90, "{}", kept.len());
    let store = Store::open(&path).await.unwrap();
    for (run, session) in &kept {
        let turn = store.turn(run).await.unwrap().unwrap_or_else(|| panic!("{run} is lost"));
        assert_eq!((turn.outcome, turn.session.as_ref()), (Some(Outcome::Ok), Some(session)), "{run}");
        assert_eq!(store.events(run, 0).await.unwrap().len() as u64, EVENTS, "{run}");
    }
    let all = store.export(&Selection::default(), &mut std::io::sink()).await.unwrap();
    assert!(all >= kept.len() as u64);
}

#[tokio::test]
async fn two_stores_write_at_once_and_neither_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let stores = [Store::open(&path).await.unwrap(), Store::open(&path).await.unwrap()];
    let mut tasks = tokio::task::JoinSet::new();
    for (at, store) in stores.iter().enumerate() {
        for task in 0..4 {
            let store = store.clone();
            tasks.spawn(async move {
                let owner = Owner::new(format!("{at}-{task}"));
                for step in 0..25_u8 {
                    let session = begin(&store, &owner).await.id;
                    store.chain_remember(&owner, "m", &[step; 32], 1, &session).await.unwrap();
                    store.session_succeeded(&session, None).await.unwrap();
                    let message = format!("{at}{task}{step}");
                    assert!(store.inbox_add("c", &message, &serde_json::json!({})).await.unwrap());
                    let found = store.chain_find(&owner, "m", &[[step; 32]]).await.unwrap();
                    assert_eq!(found, Some((0, session)), "one reads what one wrote");
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(stores[0].sessions(&trunkline_store::Filter::default()).await.unwrap().len(), 200);
    assert_eq!(stores[1].check().await.unwrap(), Vec::<String>::new());
}
