//! The way up, on a clock that jumps: nothing here can be started, so every attempt fails as a server would.

use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;
use trunkline_core::failure::Category;
use trunkline_core::model::{Backend, Model, Sandbox};
use trunkline_core::provider;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{Message, Role, Turn};
use trunkline_process::{KeeperProgram, Keepers};

use crate::router::test_models::model;
use crate::router::{Backoff, Breaker, CircuitState, RetryPolicy, Routed, Router};
use crate::{Caps, Engine, EngineSettings, Models, StartError};

/// An engine whose keepers cannot be started, with providers of these names, the first one first.
fn engine(names: &[&str], policy: RetryPolicy) -> (Engine, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let routed = |(index, name): (usize, &&str)| {
        let provider = provider::executable(name, "/bin/sh", &[]);
        let model = Model { backend: Backend::Program(provider.into()), ..model(name) };
        Routed { name: (*name).to_owned(), priority: -(index as i64), model: model.into(), hints: Vec::new() }
    };
    let router = Router { providers: names.iter().enumerate().map(routed).collect() };
    let settings = EngineSettings {
        env: Vec::new(),
        state: folder.path().to_owned(),
        worktrees: folder.path().to_owned(),
        caps: Caps::default(),
        sandbox: Sandbox::On,
        git_timeout: Duration::from_secs(60),
        grace: Duration::ZERO,
        linger: Duration::ZERO,
        secrets: Secrets::default(),
        embedded_llm: None,
    };
    let keepers = Keepers::new(KeeperProgram { path: "/no/such/keeper".into(), args: Vec::new() }, 0).unwrap();
    (Engine::new(settings, Models::default().with_router(router, policy), keepers), folder)
}

fn turn(model: &str) -> Turn {
    Turn { model: model.to_owned(), messages: vec![Message::new(Role::User, "hi")], ..Turn::default() }
}

/// Who was tried, and how long it all took.
async fn tried(engine: &Engine, model: &str) -> (Vec<String>, Duration) {
    let began = Instant::now();
    match engine.start(turn(model)).await {
        Err(StartError::Failed { failure, attempts, run }) => {
            assert_eq!((failure.category, run.len()), (Category::Server, 36));
            assert!(attempts.iter().all(|attempt| attempt.category == Some(Category::Server)), "{attempts:?}");
            (attempts.into_iter().map(|attempt| attempt.provider).collect(), began.elapsed())
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("nothing can be started"),
    }
}

#[tokio::test(start_paused = true)]
async fn waits_grow_and_differ() {
    let backoff = Backoff { initial: Duration::from_secs(10), factor: 3.0, max: Duration::from_secs(60) };
    let policy = RetryPolicy { max_retries: 3, backoff, ..RetryPolicy::default() };
    let mut took = Vec::new();
    for _ in 0..4 {
        let (engine, _folder) = engine(&["a"], policy.clone());
        let (who, elapsed) = tried(&engine, "a").await;
        assert_eq!(who, ["a"; 4]);
        // 10, 30 and 60 seconds, each of them between half and all of it.
        assert!((50..=101).contains(&elapsed.as_secs()), "{elapsed:?}");
        took.push(elapsed);
    }
    took.dedup();
    assert!(took.len() > 1, "all waited the same: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn each_candidate_has_its_own_tries() {
    let (engine, _folder) = engine(&["a", "b"], RetryPolicy::default());
    let (who, elapsed) = tried(&engine, "auto").await;
    assert_eq!(who, ["a", "a", "a", "b", "b", "b"]);
    assert!((1400..=3100).contains(&elapsed.as_millis()), "{elapsed:?}");
    let (engine, _folder) = self::engine(&["a"], RetryPolicy { max_retries: 0, ..RetryPolicy::default() });
    assert_eq!(tried(&engine, "a").await.0, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn case_67_who_is_left_alone_is_not_asked_until_it_is_time_and_then_once() {
    let (engine, _folder) = engine(&["a", "b"], RetryPolicy::default());
    for _ in 0..5 {
        tried(&engine, "a").await;
    }
    let state = |name: &str| engine.explain(name).unwrap().candidates[0].circuit.clone();
    assert!(matches!(state("a"), CircuitState::Open { .. }), "{:?}", state("a"));
    let began = Instant::now();
    match engine.start(turn("a")).await {
        Err(StartError::Unavailable { retry_after, .. }) => assert!(retry_after <= Duration::from_secs(30)),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it is left alone"),
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "nobody waits for it");
    assert_eq!(tried(&engine, "auto").await.0, ["b"; 3], "whoever else there is, is asked");
    tokio::time::advance(Duration::from_secs(31)).await;
    assert_eq!(state("a"), CircuitState::HalfOpen);
    assert_eq!(tried(&engine, "a").await.0, ["a"], "one try, and no second");
    assert!(matches!(state("a"), CircuitState::Open { .. }));
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_ends_it() {
    let backoff = Backoff { initial: Duration::from_secs(10), ..Backoff::default() };
    let (engine, _folder) = engine(&["a"], RetryPolicy { backoff, ..RetryPolicy::default() });
    let given_up = tokio::time::timeout(Duration::from_secs(1), engine.start(turn("a"))).await;
    assert!(given_up.is_err());
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(engine.explain("a").unwrap().candidates[0].circuit, CircuitState::Closed { failures: 0 });
}

#[tokio::test(start_paused = true)]
async fn case_70_a_storm_of_failures_is_not_answered_by_one_of_retries() {
    let never = Breaker { failures: 1000, ..Breaker::default() };
    let backoff = Backoff { initial: Duration::ZERO, factor: 1.0, max: Duration::ZERO };
    let (engine, _folder) = engine(&["a"], RetryPolicy { backoff, breaker: never, ..RetryPolicy::default() });
    let (mut attempts, began) = (0, Instant::now());
    for _ in 0..100 {
        attempts += tried(&engine, "a").await.0.len();
    }
    // Thirty that were put by, a fifth, and one for each second it took.
    let most = 100 + 30 + 20 + began.elapsed().as_secs() as usize + 1;
    assert!((130..=most).contains(&attempts), "{attempts} of {most}");
}
