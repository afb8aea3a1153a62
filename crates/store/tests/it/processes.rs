//! Tests several processes on one file, some of which are killed while they write.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use trunkline_core::event::Event;
use trunkline_store::{ClientId, DATABASE_FILE, ExportFilter, RunOutcome, SessionKey, Store};

use crate::fixture::{TestProcess, accepted, begin, delete_database, end, event, finished, open, started, state, text};

const PLACE: &str = "TRUNKLINE_STORE_TEST_FOLDER";

/// Not a test by itself: the tests below start it in a process of its own. It writes turn after turn, and prints the name of
/// each once the store has acknowledged it.
#[test]
#[ignore = "the other tests start it"]
#[expect(clippy::disallowed_methods, reason = "the tests pass the path of the folder in it")]
fn writes_forever() {
    let Some(path) = std::env::var_os(PLACE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let process = TestProcess::start(Path::new(&path)).await;
        for at in 0.. {
            let (run, session) = (format!("{}-{at}", std::process::id()), format!("s-{}-{at}", std::process::id()));
            let key = SessionKey(session.clone());
            process.write(&run, accepted(&run, Some(&key)));
            process.write(&run, started());
            for sequence in 0..EVENTS {
                let piece = if sequence % 5 == 0 { text("some text") } else { output(&"x".repeat(500)) };
                process.write(&run, event(sequence, piece));
            }
            process.write(&run, event(EVENTS, finished("answer")));
            process.write(&run, state(&session, 1, &[]));
            process.write(&run, end());
            println!("acknowledged {run} {session}");
            if at % 7 == 0 {
                // Otherwise the process would write much faster than the index.
                process.feed.flush().await.unwrap();
            }
        }
    });
}

const EVENTS: u64 = 20;

fn output(output: &str) -> Event {
    Event::ToolFinished { id: "1".into(), output: output.into(), ok: true }
}

/// A process that runs [`writes_forever`].
struct WriterProcess {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    acknowledged: Vec<(String, SessionKey)>,
}

impl WriterProcess {
    #[expect(clippy::disallowed_methods, reason = "the test needs another process")]
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["processes::writes_forever", "--exact", "--ignored", "--nocapture"]).env(PLACE, folder);
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdout, acknowledged: Vec::new() }
    }

    /// Reads the next acknowledged turn. False at the end of the output. The test harness prints on the same line.
    fn read_turn(&mut self) -> bool {
        for line in self.stdout.by_ref() {
            let line = line.unwrap();
            if let Some((_, acknowledged)) = line.split_once("acknowledged ") {
                let (run, session) = acknowledged.split_once(' ').unwrap();
                self.acknowledged.push((run.to_owned(), SessionKey(session.to_owned())));
                return true;
            }
        }
        false
    }

    /// Kills the process with SIGKILL, and returns the turns that it had acknowledged.
    fn kill(mut self) -> Vec<(String, SessionKey)> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while self.read_turn() {}
        std::mem::take(&mut self.acknowledged)
    }
}

impl Drop for WriterProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn case_73_no_acknowledged_turn_is_lost_when_writers_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        // Three at once, killed at an arbitrary moment.
        let mut others = [(); 3].map(|()| WriterProcess::start(folder.path()));
        for other in &mut others {
            for _ in 0..10 {
                assert!(other.read_turn(), "the process ended by itself");
            }
        }
        for other in others {
            acknowledged.extend(other.kill());
        }
        let store = open(folder.path()).await;
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
        check_all(&store, &acknowledged).await;
        store.close().await;
    }
    assert!(acknowledged.len() >= 90, "{}", acknowledged.len());
    delete_database(folder.path());
    check_all(&open(folder.path()).await, &acknowledged).await;
}

async fn check_all(store: &Store, acknowledged: &[(String, SessionKey)]) {
    for (run, session) in acknowledged {
        let turn = store.turn(run).await.unwrap().unwrap_or_else(|| panic!("{run} is lost"));
        assert_eq!((turn.outcome, turn.session.as_ref()), (Some(RunOutcome::Ok), Some(session)), "{run}");
        assert_eq!(store.events(run, 0).await.unwrap().len() as u64, EVENTS, "{run}");
    }
    let all = store.export(&ExportFilter::default(), &mut std::io::sink()).await.unwrap();
    assert!(all >= acknowledged.len() as u64);
}

#[tokio::test]
async fn two_stores_write_to_one_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DATABASE_FILE);
    let stores = [Store::open(&path).await.unwrap(), Store::open(&path).await.unwrap()];
    let mut tasks = tokio::task::JoinSet::new();
    for (at, store) in stores.iter().enumerate() {
        for task in 0..4 {
            let store = store.clone();
            tasks.spawn(async move {
                let owner = ClientId::new(format!("{at}-{task}"));
                for step in 0..25_u8 {
                    let session = begin(&store, &owner).await.id;
                    store.chain_remember(&owner, "m", &[step; 32], 1, &session).await.unwrap();
                    store.session_succeeded(&session, None).await.unwrap();
                    let message = format!("{at}{task}{step}");
                    let bridge = store.bridge().await.unwrap();
                    assert!(bridge.inbox_add("c", &message, &serde_json::json!({})).await.unwrap());
                    let found = store.chain_find(&owner, "m", &[[step; 32]]).await.unwrap();
                    assert_eq!(found, Some((0, session)), "a store reads its own writes");
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(stores[0].sessions(&trunkline_store::SessionFilter::default()).await.unwrap().len(), 200);
    assert_eq!(stores[1].check().await.unwrap(), Vec::<String>::new());
}
