//! What a failed turn does to its session: nothing, unless the CLI says that the session cannot be resumed.

use std::fs;

use serde_json::{Value, json};
use trunkline_core::failure::Category;

use crate::test_gateway::TestGateway;

const CLAUDE: &str = "0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f";
const CODEX: &str = "01a1dc95-8353-7ee2-acbd-3e299086500f";

/// A CLI, a recording of its answer, how it is told to resume, and how it says that it cannot.
const SHAPES: [(&str, &str, [&str; 2], &str); 2] = [
    ("claude", "claude/slow_streamjson_partial", ["--resume", CLAUDE], "No conversation found with session ID: x"),
    ("codex", "codex/reasoning", ["resume", CODEX], "Error: no rollout found for thread id x"),
];

/// A gateway that tries nothing again by itself, however often it fails.
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

/// Begins a session; its name.
fn begun(gateway: &TestGateway) -> String {
    gateway.chat("the keeper is Ingrid").model("m").send().header("x-trunkline-session").unwrap().to_owned()
}

/// Fails a turn of the session, and at once sends another; what is said of the session then.
fn after_a_failure(gateway: &TestGateway, id: &str) -> Value {
    gateway.leave_note("fail");
    gateway.chat("hi").model("m").header("x-trunkline-session", id).send().error(500);
    fs::remove_file(gateway.path("seen/fail")).unwrap();
    gateway.chat("who is it?").model("m").header("x-trunkline-session", id).send().json()["trunkline"]["session"].take()
}

#[test]
fn continues_the_session_at_once_when_the_turn_before_failed() {
    for (cli, answers, resume, lost) in SHAPES {
        let fails = "[ -e \"$seen/fail\" ] && { echo 'boom' >&2; exit 1; }";
        let is_resumed = format!("case \" $* \" in *' {} '*) true;; *) false;; esac", resume.join(" "));
        for script in [
            format!("note \"$@\"; {fails}; replay {answers}"),
            // The session is lost, and so is the turn that is told everything.
            format!(
                "note \"$@\"; [ -e \"$seen/fail\" ] && {is_resumed} && {{ echo '{lost}' >&2; exit 1; }}; {fails}; replay {answers}"
            ),
        ] {
            let gateway = gateway(cli, &script);
            let id = begun(&gateway);
            for _ in 0..8 {
                let session = after_a_failure(&gateway, &id);
                let expected = json!({"id": id, "native": resume[1], "resumed": true, "how": "id"});
                assert_eq!(session, expected, "{script}");
                let argv = gateway.argv(cli);
                assert!(argv.windows(2).any(|two| two == resume), "{cli}: {argv:?}");
            }
        }
    }
}

#[test]
fn continues_the_session_at_once_when_the_turn_before_was_given_up() {
    for (cli, answers, resume, _) in SHAPES {
        let line =
            gateway(cli, &format!("note \"$@\"; [ -e \"$seen/fail\" ] && {{ tell pid $$; hang; }}; replay {answers}"));
        let id = begun(&line);
        for _ in 0..3 {
            line.leave_note("fail");
            let given_up = line.chat("hi").model("m").header("x-trunkline-session", &id).open();
            line.wait_for_note("pid");
            drop(given_up);
            for note in ["fail", "pid"] {
                fs::remove_file(line.path("seen").join(note)).unwrap();
            }
            let reply = line.chat("and now?").model("m").header("x-trunkline-session", &id).send();
            let session = reply.json()["trunkline"]["session"].take();
            assert_eq!((&session["resumed"], &session["native"]), (&json!(true), &json!(resume[1])), "{reply:?}");
        }
    }
}

/// How a CLI would word a failure of each category; none where no wording means it.
const fn wording(category: Category) -> Option<&'static str> {
    match category {
        Category::Quota => Some("insufficient_quota"),
        Category::RateLimit => Some("429 Too Many Requests"),
        Category::Authentication => Some("401 Unauthorized"),
        Category::Validation => Some("invalid_request: the session has too many messages to resume"),
        Category::Network => Some("connect ECONNREFUSED 127.0.0.1:1"),
        Category::Server => Some("503 Service Unavailable"),
        Category::Timeout => Some("request timed out"),
        Category::NotFound => Some("model not found"),
        Category::Configuration => Some("invalid config"),
        Category::Unknown => Some("the session is in a bad mood"),
        Category::Cancelled => None,
    }
}

#[test]
fn runs_the_cli_once_when_a_turn_of_a_session_fails_in_any_category() {
    for (cli, answers, resume, _) in SHAPES {
        let script = format!(
            "note \"$@\"; counted >/dev/null; [ -e \"$seen/fail\" ] && {{ echo \"Error: $(cat \"$seen/fail\")\" >&2; exit 1; }}; \
             replay {answers}"
        );
        let gateway = gateway(cli, &script);
        let id = begun(&gateway);
        for (category, words) in Category::ALL.into_iter().filter_map(|category| Some((category, wording(category)?))) {
            fs::write(gateway.path("seen/fail"), words).unwrap();
            let before = runs(&gateway, cli);
            let reply = gateway.chat("hi").model("m").header("x-trunkline-session", &id).send();
            assert_eq!(reply.json()["error"]["code"], category.name(), "{cli}: {reply:?}");
            assert_eq!(runs(&gateway, cli) - before, 1, "{cli}: {category:?}");
            assert!(gateway.argv(cli).windows(2).any(|two| two == resume), "{cli}: {:?}", gateway.argv(cli));
        }
    }
}

#[test]
fn retries_once_when_a_recipes_own_wording_says_that_the_session_cannot_be_resumed() {
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
        let id = begun(&gateway);
        let reply = gateway.chat("who is it?").model("m").header("x-trunkline-session", &id).send();
        assert_eq!((reply.status, runs(&gateway, "mine")), (status, expected), "{reply:?}");
    }
}

#[test]
fn retries_once_when_the_record_of_the_built_in_agent_is_gone() {
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
