//! Effect of a failed turn on its session: none, unless the CLI reports that the session cannot be resumed.

use std::fs;

use serde_json::{Value, json};
use trunkline_core::failure::Category;

use crate::test_gateway::TestGateway;

const CLAUDE: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";
const CODEX: &str = "01a1dc95-8353-7ee2-acbd-3e299086500f";

/// A CLI, a recording of its answer, its arguments to resume a session, and its error if it cannot.
const CLIS: [(&str, &str, [&str; 2], &str); 2] = [
    ("claude", "claude/slow_streamjson_partial", ["--resume", CLAUDE], "No conversation found with session ID: x"),
    ("codex", "codex/reasoning", ["resume", CODEX], "Error: no rollout found for thread id x"),
];

/// A gateway that never retries and never opens a circuit breaker.
fn gateway(cli: &str, script: &str) -> TestGateway {
    TestGateway::new()
        .cli(cli, script)
        .model("m", json!({"driver": cli}))
        .config("router.yaml", "providers: []\nrouting: {max_retries: 0, breaker: {failures: 100}}\n")
        .start()
}

fn runs(gateway: &TestGateway, cli: &str) -> usize {
    gateway.read_note(&format!("{cli}.runs")).lines().count()
}

/// Starts a session and returns its id.
fn start_session(gateway: &TestGateway) -> String {
    gateway.chat("the keeper is Ingrid").model("m").send().header("x-trunkline-session").unwrap().to_owned()
}

/// Fails a turn of the session, sends another one at once, and returns the latter's `session` object.
fn session_after_failure(gateway: &TestGateway, id: &str) -> Value {
    gateway.leave_note("fail");
    gateway.chat("hi").model("m").header("x-trunkline-session", id).send().error(500);
    fs::remove_file(gateway.path("seen/fail")).unwrap();
    gateway.chat("who is it?").model("m").header("x-trunkline-session", id).send().json()["trunkline"]["session"].take()
}

#[test]
fn resumes_session_at_once_when_previous_turn_failed() {
    for (cli, answers, resume, lost) in CLIS {
        let fails = "[ -e \"$seen/fail\" ] && { echo 'boom' >&2; exit 1; }";
        let is_resumed = format!("case \" $* \" in *' {} '*) true;; *) false;; esac", resume.join(" "));
        for script in [
            format!("note \"$@\"; {fails}; replay {answers}"),
            // The session cannot be resumed, and the retry with the whole history fails too.
            format!(
                "note \"$@\"; [ -e \"$seen/fail\" ] && {is_resumed} && {{ echo '{lost}' >&2; exit 1; }}; {fails}; replay {answers}"
            ),
        ] {
            let gateway = gateway(cli, &script);
            let id = start_session(&gateway);
            for _ in 0..8 {
                let session = session_after_failure(&gateway, &id);
                let expected = json!({"id": id, "native": resume[1], "resumed": true, "how": "id"});
                assert_eq!(session, expected, "{script}");
                let argv = gateway.argv(cli);
                assert!(argv.windows(2).any(|two| two == resume), "{cli}: {argv:?}");
            }
        }
    }
}

#[test]
fn resumes_session_at_once_when_previous_turn_was_cancelled() {
    for (cli, answers, resume, _) in CLIS {
        let gateway =
            gateway(cli, &format!("note \"$@\"; [ -e \"$seen/fail\" ] && {{ tell pid $$; hang; }}; replay {answers}"));
        let id = start_session(&gateway);
        for _ in 0..3 {
            gateway.leave_note("fail");
            let cancelled = gateway.chat("hi").model("m").header("x-trunkline-session", &id).open();
            gateway.wait_for_note("pid");
            drop(cancelled);
            for note in ["fail", "pid"] {
                fs::remove_file(gateway.path("seen").join(note)).unwrap();
            }
            let reply = gateway.chat("and now?").model("m").header("x-trunkline-session", &id).send();
            let session = reply.json()["trunkline"]["session"].take();
            assert_eq!((&session["resumed"], &session["native"]), (&json!(true), &json!(resume[1])), "{reply:?}");
        }
    }
}

/// An error message for each failure category, if a message can have that category.
const fn message_for(category: Category) -> Option<&'static str> {
    match category {
        Category::Quota => Some("insufficient_quota"),
        Category::RateLimit => Some("429 Too Many Requests"),
        Category::Authentication => Some("401 Unauthorized"),
        Category::Validation => Some("invalid_request: the session has too many messages to resume"),
        Category::Network => Some("connect ECONNREFUSED 127.0.0.1:1"),
        Category::Server => Some("503 FakeLlm Unavailable"),
        Category::Timeout => Some("request timed out"),
        Category::NotFound => Some("model not found"),
        Category::Configuration => Some("invalid config"),
        Category::Unknown => Some("the session is in a bad mood"),
        Category::SchemaMismatch | Category::Cancelled => None,
    }
}

#[test]
fn runs_cli_once_when_turn_of_a_session_fails_in_any_category() {
    for (cli, answers, resume, _) in CLIS {
        let script = format!(
            "note \"$@\"; counted >/dev/null; [ -e \"$seen/fail\" ] && {{ echo \"Error: $(cat \"$seen/fail\")\" >&2; exit 1; }}; \
             replay {answers}"
        );
        let gateway = gateway(cli, &script);
        let id = start_session(&gateway);
        for (category, message) in
            Category::ALL.into_iter().filter_map(|category| Some((category, message_for(category)?)))
        {
            fs::write(gateway.path("seen/fail"), message).unwrap();
            let before = runs(&gateway, cli);
            let reply = gateway.chat(category.name()).model("m").header("x-trunkline-session", &id).send();
            assert_eq!(reply.json()["error"]["code"], category.name(), "{cli}: {reply:?}");
            assert_eq!(runs(&gateway, cli) - before, 1, "{cli}: {category:?}");
            assert!(gateway.argv(cli).windows(2).any(|two| two == resume), "{cli}: {:?}", gateway.argv(cli));
        }
    }
}

#[test]
fn retries_once_when_rule_of_a_recipe_marks_session_as_lost() {
    let recipe = |lost: &str| {
        format!(
            "[mine]\nprogram = \"mine\"\nformat = \"codex\"\nargs = [[\"run\"], [\"resume\", \"{{session}}\"]]\nsession = \"uuid\"\n\
             failures = [{{ contains = \"who are you\", is = \"validation\"{lost} }}]\n"
        )
    };
    let script = format!(
        "note \"$@\"; counted >/dev/null; case \" $* \" in *' resume '*) echo 'Who are you?' >&2; exit 1;; esac; \
         echo '{{\"type\":\"thread.started\",\"thread_id\":\"{CODEX}\"}}'; codex_answers done"
    );
    for (lost, status, expected) in [(", session_lost = true", 200, 3), ("", 500, 2)] {
        let gateway = TestGateway::new()
            .cli("mine", &script)
            .model("m", json!({"driver": "mine"}))
            .config("providers.toml", &recipe(lost))
            .start();
        let id = start_session(&gateway);
        let reply = gateway.chat("who is it?").model("m").header("x-trunkline-session", &id).send();
        assert_eq!((reply.status, runs(&gateway, "mine")), (status, expected), "{reply:?}");
    }
}

#[test]
fn retries_once_when_session_file_of_built_in_agent_is_gone() {
    let gateway = TestGateway::new().start();
    let first = gateway.chat("the keeper is Ingrid").model("agent").send();
    let id = first.header("x-trunkline-session").unwrap().to_owned();
    for record in fs::read_dir(gateway.path("state/agent")).unwrap() {
        fs::remove_file(record.unwrap().path()).unwrap();
    }
    let reply = gateway.chat("who is it?").model("agent").header("x-trunkline-session", &id).send();
    let session = reply.json()["trunkline"]["session"].take();
    assert_eq!((&session["id"], &session["resumed"]), (&json!(id), &json!(false)), "{reply:?}");
    assert!(session["note"].as_str().unwrap().contains("could not be resumed"), "{session}");
    let again = gateway.chat("and now?").model("agent").header("x-trunkline-session", &id).send();
    assert_eq!(again.json()["trunkline"]["session"]["resumed"], true, "{again:?}");
}
