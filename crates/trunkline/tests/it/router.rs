//! The router: who is asked, again or elsewhere, and what the answer says about it.

use serde_json::{Value, json};

use crate::http::Reply;
use crate::line::Line;
use crate::look::{all_gone, processes_of, until};

/// A router's file: name, priority and hints of each; all are executables of their own name.
fn yaml(providers: &[(&str, i64, &str)], routing: &str) -> String {
    let provider = |(name, priority, hints): &(&str, i64, &str)| {
        format!(
            "- name: {name}\n  type: cli\n  priority: {priority}\n  config: {{path: {name}}}\n  models: {{{hints}}}\n"
        )
    };
    let providers: String = providers.iter().map(provider).collect();
    format!("providers:\n{providers}routing: {{backoff: {{initial: 1ms, max: 5s}}{routing}}}\n")
}

/// Who was tried, and how it went.
fn attempts(body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("ok").to_owned();
    let list = body["trunkline"]["attempts"].as_array().unwrap_or_else(|| panic!("{body}"));
    list.iter().map(|attempt| (text(&attempt["provider"]), text(&attempt["category"]))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(provider, outcome)| ((*provider).to_owned(), (*outcome).to_owned())).collect()
}

fn header(reply: &Reply) -> (Option<&str>, Option<&str>) {
    (reply.header("x-trunkline-provider"), reply.header("x-trunkline-attempts"))
}

#[test]
fn an_answer_although_the_first_is_limited_the_second_is_not_there_and_the_third_dies() {
    let file = yaml(
        &[
            ("limited", 100, "codegen: a"),
            ("absent", 90, "codegen: b"),
            ("dies", 80, "codegen: c"),
            ("good", 10, "codegen: d"),
        ],
        ", fallback_on: [rate_limit]",
    );
    let line = Line::new()
        .cli("limited", "cat >/dev/null; refuses \"$1\" 'rate limit exceeded, retry after 5ms'")
        .cli("dies", "cat >/dev/null; kill -SEGV $$")
        .cli("good", "note \"$@\"; answers \"$1\" done")
        .config("router.yaml", &file)
        .start();
    let expected = pairs(&[
        ("limited", "rate_limit"),
        ("limited", "rate_limit"),
        ("limited", "rate_limit"),
        ("absent", "not_found"),
        ("dies", "unknown"),
        ("good", "ok"),
    ]);
    let reply = line.chat("hi").model("auto:codegen").send();
    assert_eq!((reply.content().as_str(), attempts(&reply.json())), ("done", expected.clone()));
    assert_eq!(header(&reply), (Some("good"), Some("6")));
    assert!(line.noted("good.stdin").contains("\"model\":\"d\""));
    let streamed = line.chat("hi").model("auto:codegen").streamed().send();
    assert_eq!((streamed.streamed_text().as_str(), streamed.is_done()), ("done", true));
    assert_eq!(header(&streamed), (Some("good"), Some("6")));
    let last = streamed.frames().into_iter().find(|frame| frame["trunkline"].is_object()).unwrap();
    assert_eq!(attempts(&last), expected);
    assert!(streamed.body.contains("dies/c failed (unknown); trying good/d"), "{}", streamed.body);
}

/// Each category: what a provider says, how often it is tried, whether another takes over, and the status if none does.
const MATRIX: [(&str, &str, usize, bool, u16); 10] = [
    ("quota", "insufficient_quota: check your plan", 1, true, 429),
    ("rate_limit", "429 Too Many Requests, retry after 2ms", 3, false, 429),
    ("authentication", "401 Unauthorized: invalid api key", 1, false, 500),
    ("validation", "invalid_request_error: messages", 1, false, 500),
    ("network", "connect ECONNREFUSED 127.0.0.1:1", 3, true, 500),
    ("server", "503 Service Unavailable", 3, true, 500),
    ("timeout", "the request timed out", 3, true, 504),
    ("not_found", "model_not_found: x", 1, true, 500),
    ("configuration", "the provider is not configured", 1, false, 500),
    ("unknown", "something odd", 1, true, 500),
];

/// A provider for each category that always fails with it (`bad_…`), one that fails once and then answers (`once_…`),
/// and one that answers.
fn matrix(routing: &str) -> Line {
    let mut line = Line::new().cli("backup", "cat >/dev/null; answers \"$1\" backup");
    let mut file = String::from("providers:\n");
    for (category, message, ..) in MATRIX {
        let (bad, once) = (format!("bad_{category}"), format!("once_{category}"));
        line = line.cli(&bad, &format!("cat >/dev/null; counted >/dev/null; refuses \"$1\" '{message}'"));
        line = line.cli(
            &once,
            &format!("cat >/dev/null; [ \"$(counted)\" = 1 ] && refuses \"$1\" '{message}'; answers \"$1\" 'at last'"),
        );
        for name in [bad, once] {
            file += &format!(
                "- {{name: {name}, type: cli, priority: 9, config: {{path: {name}}}, models: {{{name}: x}}}}\n"
            );
        }
    }
    let hints: Vec<String> = MATRIX
        .iter()
        .flat_map(|(category, ..)| [format!("bad_{category}: x"), format!("once_{category}: x")])
        .collect();
    file += &format!("- {{name: backup, type: cli, config: {{path: backup}}, models: {{{}}}}}\n", hints.join(", "));
    file += &format!("routing: {{backoff: {{initial: 1ms, max: 5s}}{routing}}}\n");
    line.config("router.yaml", &file).start()
}

#[test]
fn each_category_is_tried_again_passed_on_or_ends_as_its_policy_says() {
    let line = matrix("");
    for (category, _, tries, falls_back, status) in MATRIX {
        let bad = format!("bad_{category}");
        let mut expected = vec![(bad.clone(), category.to_owned()); tries];
        // With somebody to take over.
        let reply = line.chat("hi").model(&format!("auto:{bad}")).send();
        if falls_back {
            expected.push(("backup".to_owned(), "ok".to_owned()));
            assert_eq!(reply.content(), "backup", "{category}");
        } else {
            assert_eq!(reply.error(status)["code"], category);
        }
        assert_eq!(attempts(&reply.json()), expected, "{category}");
        assert_eq!(line.noted(&format!("{bad}.runs")).lines().count(), tries, "{category}");
        // Alone.
        let reply = line.chat("hi").model(&bad).send();
        assert_eq!(reply.error(status)["code"], category);
        assert_eq!(attempts(&reply.json()), vec![(bad.clone(), category.to_owned()); tries], "{category}");
        // One that gets over it: only a second try finds out.
        let once = format!("once_{category}");
        let reply = line.chat("hi").model(&once).streamed().send();
        match tries {
            1 => assert_eq!(reply.error(status)["code"], category),
            _ => {
                assert_eq!(reply.streamed_text(), "at last", "{category}");
                assert_eq!(header(&reply), (Some(once.as_str()), Some("2")), "{category}");
            }
        }
    }
}

#[test]
fn more_categories_may_be_passed_on() {
    let all: Vec<&str> = MATRIX.iter().map(|(category, ..)| *category).collect();
    let line = matrix(&format!(", max_retries: 0, fallback_on: [{}]", all.join(", ")));
    for (category, ..) in MATRIX {
        let bad = format!("bad_{category}");
        let reply = line.chat("hi").model(&format!("auto:{bad}")).send();
        assert_eq!(reply.content(), "backup", "{category}");
        assert_eq!(attempts(&reply.json()), pairs(&[(&bad, category), ("backup", "ok")]));
    }
}

#[test]
fn nothing_is_tried_again_once_something_was_shown() {
    let line = Line::new()
        .cli("half", "cat >/dev/null; printf '{\"content\":\"Hal\",\"delta\":\"Hal\",\"done\":false}\\n'; refuses \"$1\" '503 Service Unavailable'")
        .cli("good", "cat >/dev/null; answers \"$1\" whole")
        .config("router.yaml", &yaml(&[("half", 9, ""), ("good", 1, "")], ""))
        .start();
    let streamed = line.chat("hi").model("auto").streamed().send();
    assert!(!streamed.is_done(), "{}", streamed.body);
    let last = streamed.frames().pop().unwrap();
    assert_eq!((&last["error"]["code"], attempts(&last)), (&json!("server"), pairs(&[("half", "server")])));
    assert!(last["error"]["hint"].as_str().unwrap().contains("not tried again"), "{last}");
    // Who waits for the whole answer has seen nothing.
    let whole = line.chat("hi").model("auto").send();
    assert_eq!(whole.content(), "whole");
    let failed = ("half", "server");
    assert_eq!(attempts(&whole.json()), pairs(&[failed, failed, failed, ("good", "ok")]));
}

/// A codex that runs a tool, changes a file and fails.
const FAILS_AFTER_A_TOOL: &str = "cat >/dev/null; printf 'half\\n' >half.txt; \
    printf '{\"type\":\"item.started\",\"item\":{\"id\":\"i\",\"type\":\"command_execution\",\"command\":\"make\",\"status\":\"in_progress\"}}\\n'; \
    printf '{\"type\":\"turn.failed\",\"error\":{\"message\":\"503 Service Unavailable\"}}\\n'; exit 1";

#[test]
fn nor_after_a_tool_has_run() {
    let line = Line::new()
        .cli("codex", FAILS_AFTER_A_TOOL)
        .cli("gemini", "tell asked 1; replay gemini/ansi-stream-json")
        .model("m", json!({"driver": "codex", "fallback": ["other"]}))
        .model("other", json!({"driver": "gemini"}))
        .start();
    let reply = line.chat("hi").send();
    assert_eq!(reply.error(500)["code"], "server");
    assert_eq!(attempts(&reply.json()), pairs(&[("codex", "server")]));
    assert_eq!(reply.header("x-should-retry"), Some("false"), "the agent would work on its own half-done work");
    assert!(!line.path("seen/asked").exists());
}

#[test]
fn but_in_a_worktree_of_its_own_it_starts_over_in_a_fresh_one_and_says_so() {
    let script = format!(
        "[ \"$(counted)\" = 1 ] || {{ cat >/dev/null; ls >\"$seen/found\"; printf 'whole\\n' >whole.txt; codex_answers done; exit; }}; {FAILS_AFTER_A_TOOL}"
    );
    let line = Line::new().cli("codex", &script).model("m", json!({"driver": "codex", "worktree": true})).start();
    let reply = line.chat("hi").streamed().send();
    assert!(reply.is_done() && reply.streamed_text().ends_with("done"), "{}", reply.body);
    assert!(reply.body.contains("m failed (server); trying again"), "{}", reply.body);
    let last = reply.frames().into_iter().find(|frame| frame["trunkline"].is_object()).unwrap();
    assert_eq!(attempts(&last), pairs(&[("codex", "server"), ("codex", "ok")]));
    let (first, second) = (&last["trunkline"]["attempts"][0]["workspace"], &last["trunkline"]["workspace"]);
    let (first, second) = (first["branch"].as_str().unwrap(), second["branch"].as_str().unwrap());
    assert_eq!(line.noted("found").trim(), "README.md", "a fresh one");
    assert_eq!(line.git(&["show", &format!("{first}:half.txt")]), "half");
    assert_eq!(line.git(&["show", &format!("{second}:whole.txt")]), "whole");
    assert_eq!(second, format!("{first}-2"));
    assert!(!line.repo().join("half.txt").exists());
}

#[test]
fn a_model_falls_back_to_other_models_and_to_the_router() {
    let line = Line::new()
        .cli("codex", "cat >/dev/null; echo 'stream error: insufficient_quota' >&2; exit 1")
        .cli("good", "cat >/dev/null; answers \"$1\" routed")
        .config("router.yaml", &yaml(&[("good", 1, "fast: x")], ""))
        .model("m", json!({"driver": "codex", "fallback": ["absent", "auto:fast"]}))
        .model("absent", json!({"driver": "gemini"}))
        .start();
    let reply = line.chat("hi").model("m").send();
    assert_eq!(reply.content(), "routed");
    assert_eq!(attempts(&reply.json()), pairs(&[("codex", "quota"), ("gemini", "not_found"), ("good", "ok")]));
    assert!(!line.log().contains("not used yet"), "{}", line.log());
}

/// Says that it tries again by itself, as claude does, and would go on with that for minutes.
const KEEPS_TRYING: &str = "cat >/dev/null; counted >/dev/null; for attempt in 1 2 3 4; do \
    printf '{\"type\":\"system\",\"subtype\":\"api_retry\",\"attempt\":%s,\"max_retries\":10,\"retry_delay_ms\":9000,\"error_status\":529,\"error\":\"overloaded\"}\\n' $attempt; done; hang";

#[test]
fn a_cli_that_keeps_trying_is_not_waited_for_while_another_could_answer() {
    let line = Line::new()
        .cli("claude", KEEPS_TRYING)
        .cli("codex", "cat >/dev/null; codex_answers done")
        .config("router.yaml", "providers: []\nrouting: {fallback_on: [rate_limit]}\n")
        .model("m", json!({"driver": "claude", "fallback": ["other"]}))
        .model("other", json!({"driver": "codex"}))
        .start();
    let reply = line.chat("hi").model("m").send();
    assert_eq!(
        (reply.content().as_str(), attempts(&reply.json())),
        ("done", pairs(&[("claude", "rate_limit"), ("codex", "ok")]))
    );
    assert_eq!(line.noted("claude.runs").lines().count(), 1, "it has tried again itself");
}

#[test]
fn but_with_nobody_to_take_over_it_may_go_on() {
    let gets_there = KEEPS_TRYING.replace("hang", "replay claude/slow_streamjson_partial");
    let line = Line::new().cli("claude", &gets_there).model("m", json!({"driver": "claude"})).start();
    let reply = line.chat("hi").send();
    assert_eq!((reply.status, attempts(&reply.json())), (200, pairs(&[("claude", "ok")])));
}

#[test]
fn another_try_in_the_same_folder_waits_until_nothing_of_the_last_one_lives() {
    let script = "if [ -e \"$seen/last\" ] && kill -0 \"$(cat \"$seen/last\")\" 2>/dev/null; then tell overlap 1; fi; \
                  printf %s $$ >\"$seen/last\"; [ \"$(counted)\" = 1 ] || { cat >/dev/null; codex_answers done; exit; }; \
                  trap '' TERM INT; hang";
    let line = Line::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex", "timeout": "500ms"}))
        .config("router.yaml", "providers: []\nrouting: {backoff: 1ms}\n")
        .args(&["--grace", "700ms"])
        .start();
    assert_eq!(line.chat("hi").model("m").send().content(), "done");
    assert!(!line.path("seen/overlap").exists(), "two agents worked in one folder");
}

#[test]
fn a_conversation_goes_to_whom_it_was_with() {
    let session = "01a1dc95-8353-7ee2-acbd-3e299086500f";
    let line = Line::new()
        .cli("claude", "cat >/dev/null; echo 'Error: insufficient_quota' >&2; exit 1")
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .model("a", json!({"driver": "claude", "fallback": ["b"]}))
        .model("b", json!({"driver": "codex"}))
        .start();
    let first = line.chat("hi").model("a").send();
    assert_eq!(first.header("x-trunkline-session"), Some(session), "{first:?}");
    let second = line.chat("and now?").model("a").header("x-trunkline-session", session).send();
    assert_eq!((second.status, attempts(&second.json())), (200, pairs(&[("codex", "ok")])));
    assert!(line.argv("codex").contains(&session.to_owned()));
}

#[test]
fn nobodys_turn_comes_between_the_tries_of_anothers() {
    let session = "01a1dc95-8353-7ee2-acbd-3e299086500f";
    let script = "note \"$@\"; tail=$(cat \"$seen/codex.stdin\"); printf '%s\\n' \"${tail##* }\" >>\"$seen/order\"; \
                  [ \"$(counted)\" = 1 ] && { tell started 1; await go; echo 'Error: 503 Service Unavailable' >&2; exit 1; }; \
                  replay codex/reasoning";
    let line = Line::new()
        .cli("codex", script)
        .model("m", json!({"driver": "codex"}))
        .config("router.yaml", "providers: []\nrouting: {backoff: 50ms}\n")
        .start();
    let first = line.chat("the FIRST").model("m").header("x-trunkline-session", session).open();
    line.told("started");
    let second = line.chat("the SECOND").model("m").header("x-trunkline-session", session).open();
    line.tell("go");
    assert_eq!((first.finish().status, second.finish().status), (200, 200));
    assert_eq!(line.noted("order"), "FIRST\nFIRST\nSECOND\n");
}

#[test]
fn another_try_of_a_conversation_has_a_worktree_where_the_turn_began() {
    let session = "01a1dc95-8353-7ee2-acbd-3e299086500f";
    let script = format!(
        "case \"$(counted)\" in 1) cat >/dev/null; printf 'one\\n' >one.txt; replay codex/reasoning;; 2) {FAILS_AFTER_A_TOOL};; esac; \
         cat >/dev/null; ls >\"$seen/found\"; printf 'two\\n' >two.txt; replay codex/reasoning"
    );
    let line = Line::new().cli("codex", &script).model("m", json!({"driver": "codex", "worktree": true})).start();
    let first = line.chat("hi").send().json();
    let tip = first["trunkline"]["workspace"]["commit"].as_str().unwrap().to_owned();
    let second = line.chat("and now?").header("x-trunkline-session", session).send().json();
    assert_eq!(attempts(&second), pairs(&[("codex", "server"), ("codex", "ok")]));
    assert_eq!(line.noted("found"), "README.md\none.txt\n", "not what the failed try left");
    let workspace = &second["trunkline"]["workspace"];
    assert_eq!((workspace["base"].as_str(), workspace["files_changed"].as_u64()), (Some(tip.as_str()), Some(1)));
}

#[test]
fn who_hangs_up_while_a_worktree_is_made_leaves_none() {
    let mut line = Line::new()
        .cli("codex", "cat >/dev/null; codex_answers done")
        .model("m", json!({"driver": "codex", "worktree": true}))
        .start();
    for pause in 0..24 {
        let asked = line.chat("hi").open();
        // Somewhere between the first git and the last.
        std::thread::sleep(std::time::Duration::from_millis(pause));
        drop(asked);
    }
    let folders = |line: &Line, name: &str| std::fs::read_dir(line.path(name)).into_iter().flatten().count();
    until("none is left", || folders(&line, "worktrees") == 0 && folders(&line, "state/worktrees") == 0);
    assert_eq!(line.git(&["branch", "--list", "trunkline/*"]), "", "nobody has worked");
    line.signal(rustix::process::Signal::TERM);
    assert_eq!(line.ended(), Some(0));
}

#[test]
fn who_hangs_up_ends_the_whole_ladder() {
    let slow =
        "cat >/dev/null; counted >/dev/null; tell pid $$; refuses \"$1\" 'rate limit exceeded, retry after 4 seconds'";
    let line = Line::new().cli("slow", slow).config("router.yaml", &yaml(&[("slow", 1, "")], "")).start();
    for streamed in [false, true] {
        let ask = line.chat("hi").model("slow");
        let exchange = if streamed { ask.streamed().open() } else { ask.open() };
        line.told("pid");
        until("it waits for another try", || line.log().contains("trying again in"));
        drop(exchange);
        let runs = line.noted("slow.runs").lines().count();
        assert_eq!(runs, if streamed { 2 } else { 1 });
        std::fs::remove_file(line.path("seen/pid")).unwrap();
        std::fs::write(line.path("log"), "").unwrap();
    }
    // While one runs, too.
    let line = Line::new()
        .cli("bad", "cat >/dev/null; refuses \"$1\" 'something odd'")
        .cli("hangs", "cat >/dev/null; tell pid $$; hang")
        .config("router.yaml", &yaml(&[("bad", 9, ""), ("hangs", 1, "")], ""))
        .start();
    let exchange = line.chat("hi").model("auto").open();
    let pid = line.told_pid("pid");
    drop(exchange);
    all_gone(&[pid]);
    let gateway = line.gateway_pid();
    let strays = || processes_of(&line.path("repo")).into_iter().filter(|&pid| pid != gateway).count();
    until("nothing else runs", || strays() <= 2);
}

/// Fails until it is told to be well.
const ILL: &str = "[ \"$1\" = health ] || cat >/dev/null; counted >/dev/null; [ -e \"$seen/well\" ] || refuses \"$1\" 'something odd'; \
    answers \"$1\" done";

#[test]
fn one_that_fails_again_and_again_is_left_alone_and_everyone_can_see_it() {
    let file = yaml(&[("p", 1, "")], ", breaker: {failures: 3, cooldown: 1h}");
    let line = Line::new().cli("p", ILL).config("router.yaml", &file).start();
    for _ in 0..3 {
        assert_eq!(line.chat("hi").model("p").send().error(500)["code"], "unknown");
    }
    let refused = line.chat("hi").model("p").send();
    assert_eq!(refused.error(503)["code"], "circuit_open");
    assert_eq!(refused.header("retry-after"), Some("120"), "never more, or clients do not heed it");
    assert_eq!(line.noted("p.runs").lines().count(), 3, "it was not asked");
    let state = |path: &str, pointer: &str| line.get(path).json().pointer(pointer).unwrap().clone();
    assert_eq!(state("/v1/route?model=p", "/candidates/0/circuit/state"), "open");
    assert_eq!(state("/health/providers", "/providers/0/circuit/state"), "open");
    let port = line.address().rsplit(':').next().unwrap();
    let shown = line.run(&["doctor", "--port", port]).exits(0).stdout;
    assert!(shown.lines().any(|row| row.starts_with("✗ p ") && row.contains("open for another")), "{shown}");
}

#[test]
fn and_then_tried_once() {
    let file = yaml(&[("p", 1, "")], ", breaker: {failures: 3, cooldown: 50ms}");
    let line = Line::new().cli("p", ILL).config("router.yaml", &file).start();
    for _ in 0..3 {
        line.chat("hi").model("p").send().error(500);
    }
    line.tell("well");
    until("one may try", || line.chat("hi").model("p").send().status == 200);
    let route = line.get("/v1/route?model=p").json();
    assert_eq!(route["candidates"][0]["circuit"], json!({"state": "closed", "failures": 0}));
    assert_eq!(line.chat("hi").model("p").send().content(), "done");
}

#[test]
fn the_order_is_explained() {
    let file = yaml(&[("low", 1, "codegen: x"), ("high", 9, ""), ("absent", 5, "codegen: y")], ", max_retries: 1");
    let line = Line::new()
        .cli("low", "answers \"$1\" low")
        .cli("high", "answers \"$1\" high")
        .config("router.yaml", &file)
        .start();
    let explained = line.get("/v1/route?model=auto%3Acodegen").json();
    let order: Vec<&str> =
        explained["candidates"].as_array().unwrap().iter().map(|c| c["model"].as_str().unwrap()).collect();
    assert_eq!(order, ["absent/y", "low/x", "high"]);
    assert_eq!(explained["candidates"][1]["why"], "has a model for codegen, priority 1");
    assert!(explained["candidates"][0]["problem"].as_str().unwrap().contains("not found"), "{explained}");
    assert_eq!(explained["max_retries"], 1);
    assert!(explained["fallback_on"].as_array().unwrap().contains(&json!("not_found")));
    let unknown = line.get("/v1/route?model=auto:codgen").error(400);
    assert!(unknown["detail"].as_str().unwrap().contains("auto:codegen"), "{unknown}");
    assert_eq!(line.get("/v1/route").error(400)["param"], "model");
    let shown = line.run(&["check", "--route", "auto:codegen"]).exits(0).stdout;
    let places: Vec<usize> =
        ["1. absent/y", "2. low/x", "3. high"].iter().map(|row| shown.find(row).unwrap()).collect();
    assert!(places.is_sorted(), "{shown}");
    let listed = line.get("/v1/models").json();
    let names: Vec<&str> = listed["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["auto", "auto:codegen", "low", "high", "absent"]);
}

#[test]
fn how_providers_are_is_looked_up_at_most_every_few_seconds_and_asked_only_on_demand() {
    let well = "[ \"$1\" = health ] && { counted >/dev/null; echo fine; exit; }; cat >/dev/null; tell asked 1; answers \"$1\" OK";
    let line = Line::new()
        .cli("well", well)
        .cli(
            "ill",
            "[ \"$1\" = health ] && { echo 'no connection to the model'; exit 1; }; cat >/dev/null; refuses \"$1\" odd",
        )
        .cli("claude", "[ \"$1\" = --version ] && echo '2.1.0 (Claude Code)'")
        .config("router.yaml", &yaml(&[("well", 3, ""), ("ill", 2, ""), ("absent", 1, "")], ""))
        .model("m", json!({"driver": "claude"}))
        .start();
    let report = line.get("/health/providers").json();
    let one = |report: &Value, name: &str| {
        report["providers"].as_array().unwrap().iter().find(|p| p["name"] == name).unwrap().clone()
    };
    assert_eq!(report["status"], "degraded");
    let levels = |p: &Value| (p["available"].clone(), p["healthy"].clone(), p["version"].clone(), p["probe"].clone());
    assert_eq!(levels(&one(&report, "claude")), (json!(true), json!(true), json!("2.1.0 (Claude Code)"), json!(null)));
    assert_eq!(levels(&one(&report, "well")), (json!(true), json!(true), json!("fine"), json!(null)));
    assert_eq!(levels(&one(&report, "ill")), (json!(true), json!(false), json!(null), json!(null)));
    assert_eq!(one(&report, "ill")["error"], "health failed: no connection to the model");
    assert_eq!(levels(&one(&report, "absent")), (json!(false), json!(null), json!(null), json!(null)));
    assert_eq!(one(&report, "well")["circuit"], json!({"state": "closed", "failures": 0}));
    for _ in 0..5 {
        line.get("/health/providers").json();
    }
    assert_eq!(line.noted("well.runs").lines().count(), 1, "looked at once");
    assert!(!line.path("seen/asked").exists(), "and not asked");
    let probed = line.get("/health/providers?probe=true").json();
    let probe = |name: &str| one(&probed, name)["probe"].clone();
    assert_eq!((&probe("well")["ok"], &probe("well")["message"]), (&json!(true), &json!("OK")));
    assert_eq!((&probe("ill")["ok"], &probe("ill")["category"]), (&json!(false), &json!("unknown")));
    assert_eq!(probe("absent"), json!(null));
    assert_eq!(line.get("/health/providers?probe=maybe").error(400)["param"], "probe");
    let shown = line.run(&["doctor", "--port", "1"]).exits(0).stdout;
    let row = |name: &str| shown.lines().find(|row| row.contains(name)).unwrap_or_else(|| panic!("{shown}"));
    assert!(row("well").starts_with("✓ well") && row("well").contains("fine"), "{shown}");
    assert!(row("ill").starts_with("✗ ill") && row("ill").contains("no connection"), "{shown}");
}
