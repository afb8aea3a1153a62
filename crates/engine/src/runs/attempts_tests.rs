//! Retries and fallback on a paused clock. No process can be started here, so every attempt fails with `server`.

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

/// Creates an engine whose keepers cannot be started, with providers of these names in order of priority.
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
        durability: trunkline_store::Durability::Process,
        secrets: Secrets::default(),
        embedded_llm: None,
    };
    let keepers = Keepers::new(KeeperProgram { path: "/no/such/keeper".into(), args: Vec::new() }, 0).unwrap();
    (Engine::new(settings, Models::default().with_router(router, policy), keepers), folder)
}

fn turn(model: &str) -> Turn {
    Turn { model: model.to_owned(), messages: vec![Message::new(Role::User, "hi")], ..Turn::default() }
}

/// Starts a turn. Returns the providers that were tried and the time it took.
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
async fn retry_delays_grow_and_have_jitter() {
    let backoff = Backoff { initial: Duration::from_secs(10), factor: 3.0, max: Duration::from_secs(60) };
    let policy = RetryPolicy { max_retries: 3, backoff, ..RetryPolicy::default() };
    let mut took = Vec::new();
    for _ in 0..4 {
        let (engine, _folder) = engine(&["a"], policy.clone());
        let (providers, elapsed) = tried(&engine, "a").await;
        assert_eq!(providers, ["a"; 4]);
        // Delays of 10, 30 and 60 seconds, each between half and all of it.
        assert!((50..=101).contains(&elapsed.as_secs()), "{elapsed:?}");
        took.push(elapsed);
    }
    took.dedup();
    assert!(took.len() > 1, "no jitter: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn each_candidate_has_its_own_retries() {
    let (engine, _folder) = engine(&["a", "b"], RetryPolicy::default());
    let (providers, elapsed) = tried(&engine, "auto").await;
    assert_eq!(providers, ["a", "a", "a", "b", "b", "b"]);
    assert!((1400..=3100).contains(&elapsed.as_millis()), "{elapsed:?}");
    let (engine, _folder) = self::engine(&["a"], RetryPolicy { max_retries: 0, ..RetryPolicy::default() });
    assert_eq!(tried(&engine, "a").await.0, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn case_67_open_circuit_is_skipped_then_tried_once_when_its_time_is_over() {
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
        Ok(_) => panic!("its circuit is open"),
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "an open circuit is refused at once");
    assert_eq!(tried(&engine, "auto").await.0, ["b"; 3], "the other provider is tried");
    tokio::time::advance(Duration::from_secs(31)).await;
    assert_eq!(state("a"), CircuitState::HalfOpen);
    assert_eq!(tried(&engine, "a").await.0, ["a"], "one trial without retries");
    assert!(matches!(state("a"), CircuitState::Open { .. }));
}

#[tokio::test(start_paused = true)]
async fn stops_retrying_when_the_client_disconnects() {
    let backoff = Backoff { initial: Duration::from_secs(10), ..Backoff::default() };
    let (engine, _folder) = engine(&["a"], RetryPolicy { backoff, ..RetryPolicy::default() });
    let timed_out = tokio::time::timeout(Duration::from_secs(1), engine.start(turn("a"))).await;
    assert!(timed_out.is_err());
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(engine.explain("a").unwrap().candidates[0].circuit, CircuitState::Closed { failures: 0 });
}

#[tokio::test(start_paused = true)]
async fn case_70_retries_are_bounded_when_every_turn_fails() {
    let never = Breaker { failures: 1000, ..Breaker::default() };
    let backoff = Backoff { initial: Duration::ZERO, factor: 1.0, max: Duration::ZERO };
    let (engine, _folder) = engine(&["a"], RetryPolicy { backoff, breaker: never, ..RetryPolicy::default() });
    let (mut attempts, began) = (0, Instant::now());
    for _ in 0..100 {
        attempts += tried(&engine, "a").await.0.len();
    }
    // 30 saved retries, one for every five turns, and one for each second that passed.
    let max = 100 + 30 + 20 + began.elapsed().as_secs() as usize + 1;
    assert!((130..=max).contains(&attempts), "{attempts} of {max}");
}
