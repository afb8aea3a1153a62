//! Providers that fail at random, from a fixed seed. Every request gets a correct answer or an error with a code, no
//! request is answered twice, no process is left running, and the reported attempts match what the providers did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use crate::http::Reply;
use crate::observe::{processes_of, until};
use crate::test_gateway::TestGateway;

const REQUESTS: usize = 500;
const SEED: usize = 20_261;

/// Draws an action from the seed, the provider's number, the request's number and the attempt's number, performs it,
/// and records it in `actions.N`.
const PROVIDER: &str = r#"
[ "$1" = health ] && exit 0
read -r request
n=${request#*'"prompt":"'}; n=${n%%'"'*}
echo >>"$seen/$cli.$n"; try=$(wc -l <"$seen/$cli.$n" | tr -d ' ')
draw=$((SEED + n * 7919 + ME * 104729 + try * 1299709))
for _ in 1 2 3; do draw=$(((draw * 1103515245 + 12345) % 2147483648)); done
draw=$((draw / 65536 % 11))
note_it() { printf '%s %s\n' "$cli" "$1" >>"$seen/actions.$n"; }
case $draw in
0 | 1 | 2 | 3) note_it ok; answers "$1" "$n by $cli" ;;
4) note_it rate_limit; refuses "$1" 'rate limit exceeded, retry after 1ms' ;;
5) note_it server; refuses "$1" '503 Service Unavailable' ;;
6) note_it network; echo 'Error: read ECONNRESET' >&2; exit 1 ;;
7) note_it unknown; kill -SEGV $$ ;;
8) note_it unknown; answers "$1" "$n by $cli"; exit 3 ;;
9) note_it quota; setsid sleep 1000 & refuses "$1" insufficient_quota ;;
10) note_it validation; refuses "$1" 'invalid_request_error: no' ;;
esac
"#;

const ROUTER: &str = "
providers:
- {name: a, type: cli, priority: 3, config: {path: a, env: {ME: '1', SEED: '${SEED}'}}}
- {name: b, type: cli, priority: 2, config: {path: b, env: {ME: '2', SEED: '${SEED}'}}}
- {name: c, type: cli, priority: 1, config: {path: c, env: {ME: '3', SEED: '${SEED}'}}}
routing:
  backoff: {initial: 1ms, max: 1s}
  fallback_on: [rate_limit]
  breaker: {failures: 8, window: 1s, cooldown: 20ms}
";

/// The outcome of a request as the client sees it.
#[derive(Debug)]
struct RequestOutcome {
    /// The text, or the code of the error.
    result: Result<String, String>,
    attempts: Vec<String>,
    /// The value of the `x-trunkline-attempts` header.
    attempts_header: usize,
}

#[test]
fn every_request_is_answered_correctly_or_fails_with_a_code_when_providers_fail_at_random() {
    let gateway = ["a", "b", "c"].iter().fold(TestGateway::new(), |gateway, name| gateway.cli(name, PROVIDER));
    let gateway = gateway.env("SEED", SEED.to_string()).config("router.yaml", ROUTER).start();
    let next = AtomicUsize::new(0);
    let outcomes: BTreeMap<usize, RequestOutcome> = thread::scope(|scope| {
        let worker = || {
            let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
            let numbers = numbers.take_while(|&n| n < REQUESTS);
            numbers.map(|n| (n, outcome(&gateway, n))).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..8).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });

    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (n, outcome) in &outcomes {
        let actions = std::fs::read_to_string(gateway.path("seen").join(format!("actions.{n}"))).unwrap_or_default();
        let actions: Vec<&str> = actions.lines().collect();
        assert_eq!(outcome.attempts, actions, "{n}: the reported attempts differ from those made: {outcome:?}");
        assert!(
            outcome.attempts_header <= actions.len() && (actions.is_empty() || outcome.attempts_header > 0),
            "{n}: {outcome:?}"
        );
        let answered = actions.iter().filter(|action| action.ends_with(" ok")).count();
        match &outcome.result {
            Ok(text) => {
                let by = actions.last().and_then(|last| last.strip_suffix(" ok"));
                assert_eq!((Some(text.as_str()), answered), (by.map(|by| format!("{n} by {by}")).as_deref(), 1));
                *counts.entry("ok".to_owned()).or_default() += 1;
            }
            Err(code) => {
                assert_eq!(answered, 0, "{n}: there was an answer: {outcome:?}");
                let last = actions.last().and_then(|last| last.split(' ').nth(1)).unwrap_or("circuit_open");
                assert_eq!(code, last, "{n}: {outcome:?}");
                *counts.entry(code.clone()).or_default() += 1;
            }
        }
    }
    assert_eq!(outcomes.len(), REQUESTS);
    // Makes sure that the seed produces enough of each kind.
    for kind in ["ok", "validation"] {
        assert!(counts.get(kind).is_some_and(|count| *count > 5), "{counts:?}");
    }
    assert!(outcomes.values().any(|outcome| outcome.result.is_ok() && outcome.attempts.len() > 3), "{counts:?}");
    let stray = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != gateway.gateway_pid()
            && !command.is_empty()
            && !command.split(|byte| *byte == 0).any(|word| word == b"__keeper")
    };
    until("no orphan is left", || !processes_of(gateway.path("repo").parent().unwrap()).iter().any(stray));
}

/// Sends the nth request and collects its outcome. Odd requests are streamed.
fn outcome(gateway: &TestGateway, n: usize) -> RequestOutcome {
    let request = gateway.chat(&n.to_string()).model("auto");
    let reply = if n.is_multiple_of(2) { request.send() } else { request.streamed().send() };
    let frames = if reply.status == 200 && n % 2 == 1 { reply.frames() } else { vec![reply.json()] };
    let extension = frames.iter().find_map(|frame| frame.get("trunkline")).cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or("ok").to_owned();
    let attempts = extension["attempts"].as_array().cloned().unwrap_or_default();
    let attempts = attempts.iter().map(|a| format!("{} {}", word(&a["provider"]), word(&a["category"])));
    let error = frames.iter().find_map(|frame| frame["error"]["code"].as_str()).map(str::to_owned);
    let result = match error {
        Some(code) => Err(code),
        None => Ok(text(&reply, &frames, n)),
    };
    let attempts_header = reply.header("x-trunkline-attempts").map_or(0, |count| count.parse().unwrap());
    RequestOutcome { result, attempts: attempts.collect(), attempts_header }
}

fn text(reply: &Reply, frames: &[Value], n: usize) -> String {
    if n.is_multiple_of(2) {
        return reply.content();
    }
    assert!(reply.is_done(), "{n}: the stream ended without [DONE] and without an error: {reply:?}");
    frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str()).collect()
}
