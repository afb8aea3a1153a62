//! Runs over HTTP: rows, logs, following a run, cancellation, detached runs and idempotency keys.

use std::fs;

use serde_json::{Value, json};

use crate::http::{PendingReply, Reply, send_raw};
use crate::observe::{exists, until, until_gone};
use crate::test_gateway::TestGateway;

/// Prints a message, waits for the test, and prints another one.
const SLOW: &str = "tell pid $$; counted >/dev/null; codex_says one; await go; codex_says two; codex_ends";

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).args(&["--grace", "500ms"])
}

fn ask(gateway: &TestGateway, method: &str, path: &str, headers: &str) -> PendingReply {
    let address = gateway.address();
    send_raw(address, &format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n"))
}

fn runs(gateway: &TestGateway, query: &str) -> Vec<Value> {
    let reply = gateway.get(&format!("/v1/runs{query}"));
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["data"].as_array().unwrap().clone()
}

/// The only run of the gateway.
fn only_run(gateway: &TestGateway) -> Value {
    let mut runs = runs(gateway, "");
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.remove(0)
}

/// Waits until the only run is in this state, and returns it.
fn wait_for_state(gateway: &TestGateway, state: &str) -> Value {
    until(&format!("a run is {state}"), || runs(gateway, &format!("?state={state}")).len() == 1);
    only_run(gateway)
}

fn id(run: &Value) -> &str {
    run["id"].as_str().unwrap()
}

/// The events of an SSE body with their sequence numbers.
fn events(reply: &Reply) -> Vec<(u64, Value)> {
    let numbers = reply.body.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap());
    numbers
        .zip(reply.frames())
        .map(|(number, frame): (u64, Value)| {
            assert_eq!(frame["seq"], number);
            (number, frame["event"].clone())
        })
        .collect()
}

fn text(events: &[(u64, Value)]) -> String {
    events.iter().filter_map(|(_, event)| event["delta"].as_str()).collect()
}

#[test]
fn run_has_a_row_and_events_that_can_be_read_from_any_position() {
    let gateway = gateway("codex_answers 'Hi there.'").start();
    let reply = gateway.chat("hello you").send();
    assert_eq!(reply.content(), "Hi there.");
    let run = only_run(&gateway);
    assert_eq!(reply.header("x-trunkline-run"), Some(id(&run)));
    assert_eq!(reply.json()["id"], format!("cmpl-{}", id(&run)));
    assert_eq!((&run["state"], &run["model"], &run["provider"]), (&json!("finished"), &json!("m"), &json!("codex")));
    assert_eq!((&run["attempts"], &run["log"], &run["error"]), (&json!(1), &json!("complete"), &json!(null)));
    assert_eq!((&run["prompt"], &run["object"]), (&json!("hello you"), &json!("run")));
    assert!(run["ended"].as_u64() >= run["started"].as_u64() && run["started"].as_u64() >= run["begun"].as_u64());
    assert_eq!(gateway.get(&format!("/v1/runs/{}", id(&run))).json(), run);
    assert_eq!(gateway.get(&format!("/runs/{}/", id(&run))).json(), run);

    let path = format!("/v1/runs/{}/events", id(&run));
    let all = events(&gateway.get(&path));
    assert_eq!(text(&all), "Hi there.");
    assert_eq!(all.last().unwrap().1["type"], "finished");
    assert!(all.iter().enumerate().all(|(at, (number, _))| at as u64 == *number), "{all:?}");
    for last in 0..all.len() - 1 {
        let rest = ask(&gateway, "GET", &path, &format!("last-event-id: {last}\r\n")).finish();
        assert_eq!(events(&rest), all[last + 1..]);
    }
    // 204 tells a client that has every event not to reconnect.
    assert_eq!(ask(&gateway, "GET", &path, &format!("last-event-id: {}\r\n", all.len() - 1)).finish().status, 204);
}

#[test]
fn follower_receives_past_and_future_events() {
    let gateway = gateway(SLOW).start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let run = wait_for_state(&gateway, "running");
    let path = format!("/v1/runs/{}/events", id(&run));
    let mut early = ask(&gateway, "GET", &path, "");
    early.read_until("one");
    let left = ask(&gateway, "GET", &path, "");
    drop(left);
    gateway.leave_note("go");
    let early = events(&early.finish());
    assert_eq!(text(&early), "one\n\ntwo");
    assert_eq!(stream.finish().streamed_text(), "one\n\ntwo");
    assert_eq!(events(&gateway.get(&path)), early);
}

#[test]
fn runs_are_listed_with_pages_and_filters() {
    let gateway = gateway("case $(cat) in *fail*) exit 3 ;; esac; codex_answers ok")
        .model("n", json!({"driver": "codex"}))
        .start();
    for n in 0..5 {
        gateway.chat(&format!("number {n}")).model("n").send().content();
    }
    gateway.chat("fail").send().error(500);
    let prompts =
        |runs: &[Value]| runs.iter().map(|run| run["prompt"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(prompts(&runs(&gateway, "?state=failed")), ["fail"]);
    assert_eq!(runs(&gateway, "?state=failed")[0]["error"]["category"], "unknown");
    assert_eq!(runs(&gateway, "?model=n").len(), 5);
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = gateway.get(&format!("/v1/runs?limit=2{after}")).json();
        seen.extend(prompts(page["data"].as_array().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, ["fail", "number 4", "number 3", "number 2", "number 1", "number 0"]);
    assert_eq!(gateway.get("/v1/runs?state=lost").error(400)["param"], "state");
    assert_eq!(gateway.get("/v1/runs?limit=0").error(400)["param"], "limit");
    gateway.get("/v1/runs?colour=red").error(400);
    assert_eq!(gateway.get("/v1/runs/01a1e236-cb98-7728-9788-183752c3d846").error(404)["code"], "run_not_found");
    assert_eq!(gateway.get("/v1/runs/..%2f..%2fetc/events").error(404)["code"], "run_not_found");
}

#[test]
fn case_36_run_is_not_found_when_api_key_differs() {
    let gateway = gateway("codex_answers ok").env("TRUNKLINE_API_KEYS", "first-key-1,other-key-2").start();
    let first = "authorization: Bearer first-key-1\r\n";
    let other = "authorization: Bearer other-key-2\r\n";
    let run = gateway.chat("hi").header("authorization", "Bearer first-key-1").send();
    let run = run.header("x-trunkline-run").unwrap().to_owned();
    assert_eq!(ask(&gateway, "GET", &format!("/v1/runs/{run}"), first).finish().json()["id"], *run);
    for (method, path) in [("GET", ""), ("GET", "/events"), ("GET", "/diff"), ("DELETE", "")] {
        ask(&gateway, method, &format!("/v1/runs/{run}{path}"), other).finish().error(404);
    }
    assert_eq!(ask(&gateway, "GET", "/v1/runs", other).finish().json()["data"], json!([]));
    gateway.get("/v1/runs").error(401);
}

#[test]
fn all_processes_are_gone_when_cancel_by_id_returns() {
    let gateway = gateway("sleep 1000 & tell tool $!; tell pid $$; codex_says one; wait").start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    let pids = ["pid", "tool"].map(|name| gateway.wait_for_pid(name));
    let run = wait_for_state(&gateway, "running");
    let path = format!("/v1/runs/{}", id(&run));
    let stopped = ask(&gateway, "DELETE", &path, "").finish();
    assert!(!pids.iter().any(|&pid| exists(pid)), "the response came before the processes were gone");
    assert_eq!((stopped.status, &stopped.json()["state"]), (200, &json!("cancelled")), "{stopped:?}");
    let reply = stream.finish();
    assert!(!reply.is_done() && reply.body.contains("\"code\":\"cancelled\""), "{reply:?}");
    assert_eq!(ask(&gateway, "DELETE", &path, "").finish().status, 200, "cancelling again is not an error");
    let last = events(&gateway.get(&format!("{path}/events"))).pop().unwrap().1;
    assert_eq!((&last["type"], &last["category"]), (&json!("failed"), &json!("cancelled")));
}

#[test]
fn queued_run_can_be_cancelled_but_a_finished_one_cannot() {
    let gateway = gateway(SLOW).args(&["--max-runs", "1"]).start();
    let first = gateway.chat("first").open();
    gateway.wait_for_note("pid");
    let second = gateway.chat("second").open();
    let queued = {
        until("a run is queued", || runs(&gateway, "?state=queued").len() == 1);
        runs(&gateway, "?state=queued").remove(0)
    };
    assert_eq!(queued["prompt"], "second");
    let stopped = ask(&gateway, "DELETE", &format!("/v1/runs/{}", id(&queued)), "").finish();
    assert_eq!(stopped.json()["state"], "cancelled");
    assert_eq!(second.finish().error(500)["code"], "cancelled");
    gateway.leave_note("go");
    let run = first.finish().header("x-trunkline-run").unwrap().to_owned();
    until("the run is finished", || gateway.get(&format!("/v1/runs/{run}")).json()["state"] == "finished");
    let refused = ask(&gateway, "DELETE", &format!("/v1/runs/{run}"), "").finish();
    assert_eq!(refused.error(409)["code"], "run_over");
}

#[test]
fn case_01_run_is_cancelled_and_recorded_when_client_disconnects() {
    let gateway = gateway(SLOW).start();
    let mut stream = gateway.chat("hi").streamed().open();
    stream.read_until("one");
    drop(stream);
    until_gone(&[gateway.wait_for_pid("pid")]);
    let run = wait_for_state(&gateway, "cancelled");
    let all = events(&gateway.get(&format!("/v1/runs/{}/events", id(&run))));
    assert_eq!((text(&all).as_str(), &all.last().unwrap().1["category"]), ("one", &json!("cancelled")));
}

#[test]
fn detached_run_continues_and_is_recorded_when_client_disconnects() {
    for way in ["header", "body", "model"] {
        let model = if way == "model" {
            json!({"driver": "codex", "onDisconnect": "detach"})
        } else {
            json!({"driver": "codex"})
        };
        let gateway = TestGateway::new().cli("codex", SLOW).model("m", model).start();
        let ask = gateway.chat("hi").streamed();
        let ask = match way {
            "header" => ask.header("x-trunkline-on-disconnect", "detach"),
            "body" => ask.with("trunkline", json!({"on_disconnect": "detach"})),
            _ => ask,
        };
        let mut stream = ask.open();
        stream.read_until("one");
        drop(stream);
        let run = wait_for_state(&gateway, "running");
        assert_eq!(run["detached"], true, "{way}");
        assert!(exists(gateway.wait_for_pid("pid")));
        gateway.leave_note("go");
        let run = wait_for_state(&gateway, "finished");
        assert_eq!(text(&events(&gateway.get(&format!("/v1/runs/{}/events", id(&run))))), "one\n\ntwo");
    }
    let gateway = gateway(SLOW).start();
    let refused = gateway.chat("hi").header("x-trunkline-on-disconnect", "maybe").send();
    assert_eq!(refused.error(400)["param"], "x-trunkline-on-disconnect");
    gateway.chat("hi").with("trunkline", json!({"colour": "red"})).send().error(400);
}

#[test]
fn detached_run_is_answered_normally_when_client_stays() {
    let gateway = gateway("codex_answers 'Hi.'").start();
    let detached = |ask: crate::http::RequestBuilder| ask.header("x-trunkline-on-disconnect", "detach").send();
    let whole = detached(gateway.chat("hi"));
    assert_eq!(whole.content(), "Hi.");
    assert_eq!(whole.header("x-trunkline-provider"), Some("codex"));
    let streamed = detached(gateway.chat("hi").streamed());
    assert!(streamed.is_done() && streamed.streamed_text() == "Hi.", "{streamed:?}");
    let unknown = detached(gateway.chat("hi").model("mm"));
    assert_eq!(unknown.error(400)["code"], "model_not_found");
}

#[test]
fn drain_waits_for_detached_runs_and_then_cancels_them() {
    use rustix::process::Signal;
    let mut gateway =
        gateway("tell pid $$; trap 'tell stopped yes; exit 1' TERM INT; codex_says one; while :; do sleep 0.05; done")
            .args(&["--drain", "300ms"])
            .start();
    let mut stream = gateway.chat("hi").streamed().header("x-trunkline-on-disconnect", "detach").open();
    stream.read_until("one");
    drop(stream);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    until_gone(&[gateway.wait_for_pid("pid")]);
    gateway.restart();
    assert_eq!(only_run(&gateway)["state"], "cancelled");
}

#[test]
fn case_16_request_runs_once_when_it_is_repeated_with_the_same_key() {
    let mut gateway = gateway(SLOW).start();
    let ask = |gateway: &TestGateway| gateway.chat("hi").header("idempotency-key", "k-1");
    let first = ask(&gateway).open();
    gateway.wait_for_note("pid");
    let second = ask(&gateway).open();
    let other = gateway.chat("something else").header("idempotency-key", "k-1").send();
    assert_eq!(other.error(422)["code"], "idempotency_key_reused");
    gateway.leave_note("go");
    let (first, second) = (first.finish(), second.finish());
    assert_eq!((first.content(), first.header("idempotent-replayed")), ("two".into(), None));
    assert_eq!((first.json(), second.header("idempotent-replayed")), (second.json(), Some("true")));
    assert_eq!(ask(&gateway).send().json(), first.json(), "replayed after its end");
    gateway.kill();
    gateway.restart();
    let again = ask(&gateway).send();
    assert_eq!((again.json(), again.header("idempotent-replayed")), (first.json(), Some("true")));
    assert_eq!(gateway.read_note("codex.runs").lines().count(), 1, "it ran once");
    gateway.chat("hi").header("idempotency-key", &"k".repeat(256)).send().error(400);
}

#[test]
fn stream_is_replayed_when_request_is_repeated_with_the_same_key() {
    let gateway = gateway("codex_says one; codex_says two; codex_ends").start();
    let ask = || gateway.chat("hi").streamed().header("idempotency-key", "k").send();
    let first = ask();
    assert_eq!((first.streamed_text().as_str(), first.is_done()), ("one\n\ntwo", true));
    let again = ask();
    assert_eq!((&again.body, again.header("idempotent-replayed")), (&first.body, Some("true")));
}

#[test]
fn run_continues_when_first_client_leaves_but_another_has_joined() {
    let gateway = gateway(SLOW).start();
    let ask = || gateway.chat("hi").streamed().header("idempotency-key", "k");
    let mut first = ask().open();
    first.read_until("one");
    let mut second = ask().open();
    second.read_until("one");
    drop(first);
    gateway.leave_note("go");
    assert_eq!(second.finish().streamed_text(), "one\n\ntwo");
    assert_eq!(gateway.read_note("codex.runs").lines().count(), 1);
}

#[test]
fn run_is_cancelled_and_its_key_released_when_all_clients_leave() {
    let gateway = gateway(SLOW).start();
    let ask = || gateway.chat("hi").streamed().header("idempotency-key", "k");
    let mut first = ask().open();
    first.read_until("one");
    drop(first);
    until_gone(&[gateway.wait_for_pid("pid")]);
    until("the run is cancelled", || runs(&gateway, "?state=cancelled").len() == 1);
    gateway.leave_note("go");
    until("a repeated request runs again", || {
        let reply = ask().send();
        reply.is_done() && reply.header("idempotent-replayed").is_none()
    });
}

#[test]
fn simultaneous_requests_with_the_same_key_are_one_run() {
    let gateway = gateway("counted >/dev/null; codex_answers ok").start();
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let ask = || gateway.chat("hi").header("idempotency-key", "k").send();
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(replies.iter().all(|reply| reply.json() == replies[0].json()), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| reply.header("idempotent-replayed").is_none()).count(), 1);
    assert_eq!(gateway.read_note("codex.runs").lines().count(), 1);
}

#[test]
fn request_is_not_replayed_when_it_never_ran() {
    let gateway = TestGateway::new().model("m", json!({"driver": "codex"})).start();
    let ask = || gateway.chat("hi").header("idempotency-key", "k").send();
    let first = ask().status;
    assert!(first >= 500, "{first}");
    let gateway = gateway.cli("codex", "codex_answers ok");
    let again = gateway.chat("hi").header("idempotency-key", "k").send();
    assert_eq!((again.content(), again.header("idempotent-replayed")), ("ok".into(), None));
}

#[test]
fn case_04_run_can_be_cancelled_when_its_client_does_not_read() {
    let flood = "tell pid $$; trap 'exit 0' TERM INT
        line=$(printf '%08000d' 0)
        while :; do codex_says \"$line\"; done";
    let gateway = TestGateway::new().cli("codex", flood).model("m", json!({"driver": "codex"})).start();
    let mut unread = gateway.chat("hi").streamed().open();
    unread.read_until("x-trunkline-run: ");
    let log_size = || -> u64 {
        let files = fs::read_dir(gateway.path("state/log")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    // The log stops growing once every buffer between the CLI and the client is full.
    let mut sizes = (0, 0);
    until("the log stops growing", || {
        let size = log_size();
        sizes = if size == sizes.0 { (size, sizes.1 + 1) } else { (size, 0) };
        sizes.1 == 100
    });
    let run = gateway.get("/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
    let stopped = ask(&gateway, "DELETE", &format!("/v1/runs/{run}"), "").finish();
    assert_eq!((stopped.status, &stopped.json()["state"]), (200, &json!("cancelled")), "{stopped:?}");
    until_gone(&[gateway.wait_for_pid("pid")]);
}
