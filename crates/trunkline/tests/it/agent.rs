//! The built-in agent: a model like any other, on an LLM of the user's or on the embedded mock.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fake_llm::{FakeLlm, Script, refusal, stream};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// What the LLM says with calls of these names and arguments.
pub(crate) fn tool_calls_reply(text: &str, calls: &[(&str, &str, Value)]) -> Script {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, (id, name, arguments))| {
            let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
            json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    stream(&[json!({"role": "assistant", "content": text}), json!({"tool_calls": calls})], "tool_calls")
}

pub(crate) fn text_reply(text: &str) -> Script {
    stream(&[json!({"role": "assistant", "content": text})], "stop")
}

/// The line, with this LLM for its agent.
pub(crate) fn with_llm(gateway: TestGateway, llm: &FakeLlm) -> TestGateway {
    gateway.env("LLM_BASE_URL", &llm.url).env("LLM_AUTH_TOKEN", "sk-secret-token").env("LLM_DEFAULT_MODEL", "big")
}

/// The messages of the service's nth request: who said what.
pub(crate) fn request_messages(llm: &FakeLlm, nth: usize) -> Vec<(String, String)> {
    let seen = llm.seen();
    let messages = seen[nth].1["messages"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

#[test]
fn a_fresh_machine_has_an_agent_that_answers() {
    let gateway = TestGateway::new().start();
    let answer = gateway.chat("how are you?").model("agent").send();
    assert_eq!(answer.content(), "I'm doing well, thank you for asking!");
    assert_eq!(answer.json()["trunkline"]["provider"], "agent");
    let streamed = gateway.chat("please make a hello world script").model("agent").streamed().send();
    assert!(streamed.is_done(), "{}", streamed.body);
    let text = streamed.streamed_text();
    assert!(text.starts_with("I'll create") && text.contains("\n\nDone!"), "{text}");
    let activity: String = streamed
        .frames()
        .iter()
        .filter_map(|frame| frame["choices"][0]["delta"]["reasoning_content"].as_str().map(str::to_owned))
        .collect();
    assert!(activity.contains("[tool] write_file") && activity.contains("[tool] bash"), "{activity}");
    assert!(fs::read_to_string(gateway.repo().join("hello.py")).unwrap().contains("Hello, World!"));
    assert_eq!(gateway.get("/health/providers").json()["status"], "ok");
    let ran = gateway.run(&["run", "-m", "agent", "how are you"]).exits(0);
    assert_eq!(ran.stdout, "I'm doing well, thank you for asking!\n");
    assert!(gateway.run(&["check", "agent"]).exits(0).stdout.contains("the built-in mock; set LLM_BASE_URL"));
}

#[test]
fn the_llm_is_asked_as_the_environment_says() {
    let llm = FakeLlm::new([text_reply("hello")]);
    let gateway = with_llm(TestGateway::new(), &llm).file("AGENTS.md", "Speak softly.").start();
    let answer = gateway.chat("hi").model("agent").with("temperature", 0.5).send();
    assert_eq!(answer.content(), "hello");
    assert_eq!(answer.json()["usage"]["prompt_tokens"], 7);
    let (head, body) = llm.seen().remove(0);
    assert!(head.starts_with("POST /v1/chat/completions ") && head.contains("Bearer sk-secret-token"), "{head}");
    assert_eq!((&body["model"], &body["max_tokens"], &body["stream"]), (&json!("big"), &json!(4096), &json!(true)));
    let tools: Vec<&str> =
        body["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(tools, ["read_file", "write_file", "edit_file", "bash"]);
    let told = request_messages(&llm, 0);
    assert_eq!(told.len(), 2);
    assert!(told[0].1.starts_with("You are a coding assistant.") && told[0].1.ends_with("Speak softly."), "{told:?}");
    assert_eq!(told[1], ("user".to_owned(), "hi".to_owned()));
}

#[test]
fn another_model_of_the_llm_can_be_asked_for() {
    let llm = FakeLlm::new([text_reply("1"), text_reply("2")]);
    let gateway = with_llm(TestGateway::new(), &llm).env("LLM_SMALL_FAST_MODEL", "azure/mini").start();
    for name in ["agent/azure/mini", "agent/other"] {
        gateway.chat("hi").model(name).send().content();
    }
    let models: Vec<Value> = llm.seen().into_iter().map(|(_, body)| body["model"].clone()).collect();
    assert_eq!(models, ["azure/mini", "other"]);
    assert_eq!(gateway.get("/v1/models/agent/azure/mini").status, 200);
}

#[test]
fn its_tools_work_and_what_it_does_wrong_it_is_told() {
    let llm = FakeLlm::new([
        tool_calls_reply(
            "Let me see.",
            &[
                ("a", "write_file", json!({"path": "notes/a.txt", "content": "one\n"})),
                ("a", "edit_file", json!({"path": "notes/a.txt", "old_string": "one", "new_string": "two"})),
                ("", "bash", json!({"command": "cat notes/a.txt; echo no >&2; exit 3"})),
                ("d", "read_file", json!("{\"path\": \"no")),
                ("e", "browse", json!({})),
            ],
        ),
        text_reply("Done."),
    ]);
    let gateway = with_llm(TestGateway::new(), &llm).start();
    let answer = gateway.chat("go").model("agent").send();
    assert_eq!(answer.content(), "Done.");
    assert_eq!(answer.json()["usage"]["prompt_tokens"], 14, "of both questions");
    let told = request_messages(&llm, 1);
    let results: Vec<&str> = told.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    assert_eq!(results.len(), 5);
    assert_eq!(results[..3], ["OK", "OK", "two\nno\n[exit code: 3]"]);
    assert!(results[3].contains("end in the middle") && results[4].contains("browse"), "{results:?}");
    let messages = llm.seen()[1].1["messages"].clone();
    let id = |message: &Value| message["id"].as_str().or(message["tool_call_id"].as_str()).unwrap().to_owned();
    let asked: Vec<String> = messages[2]["tool_calls"].as_array().unwrap().iter().map(id).collect();
    let answered: Vec<String> = messages.as_array().unwrap()[3..].iter().map(id).collect();
    assert_eq!(asked, answered);
    assert_eq!(fs::read_to_string(gateway.repo().join("notes/a.txt")).unwrap(), "two\n");
}

#[test]
fn who_may_only_read_can_only_read() {
    let llm = FakeLlm::new([
        tool_calls_reply(
            "",
            &[
                ("a", "write_file", json!({"path": "a.txt", "content": "x"})),
                ("b", "bash", json!({"command": "touch b.txt"})),
                ("c", "read_file", json!({"path": "README.md"})),
            ],
        ),
        text_reply("I could not."),
    ]);
    let gateway = with_llm(TestGateway::new(), &llm)
        .file("README.md", "read me")
        .model("m", json!({"driver": "agent", "permissions": "read"}))
        .start();
    gateway.chat("go").model("m").send().content();
    assert_eq!(llm.seen()[0].1["tools"].as_array().unwrap().len(), 1);
    let told = request_messages(&llm, 1);
    let results: Vec<&str> = told.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    assert!(results[0].contains("read-only") && results[1].contains("read-only"), "{results:?}");
    assert_eq!(results[2], "read me");
    assert!(!gateway.repo().join("a.txt").exists() && !gateway.repo().join("b.txt").exists());
}

#[test]
fn in_a_worktree_it_leaves_a_branch_and_the_checkout_alone() {
    let llm = FakeLlm::new([
        tool_calls_reply("", &[("a", "write_file", json!({"path": "new.txt", "content": "new\n"}))]),
        text_reply("Done."),
    ]);
    let gateway = with_llm(TestGateway::new(), &llm)
        .file("old.txt", "old")
        .model("m", json!({"driver": "agent", "worktree": true}));
    gateway.commit("first");
    let gateway = gateway.start();
    let answer = gateway.chat("go").model("m").send().json();
    let workspace = &answer["trunkline"]["workspace"];
    assert_eq!(workspace["files_changed"], 1, "{answer}");
    let branch = workspace["branch"].as_str().unwrap();
    assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]).trim_end(), "new");
    assert!(!gateway.repo().join("new.txt").exists());
}

#[test]
fn a_session_remembers_its_tools_too() {
    let llm = FakeLlm::new([
        tool_calls_reply("Look.", &[("a", "bash", json!({"command": "echo seen"}))]),
        text_reply("One."),
        text_reply("Two."),
    ]);
    let mut gateway = with_llm(TestGateway::new(), &llm).start();
    let first = gateway.chat("one").model("agent").send();
    let session = first.header("x-trunkline-session").unwrap().to_owned();
    gateway.signal(Signal::TERM);
    gateway.wait_for_exit();
    gateway.restart();
    let second = gateway.chat("two").model("agent").header("x-trunkline-session", &session).send();
    assert_eq!((second.content().as_str(), second.header("x-trunkline-session")), ("Two.", Some(session.as_str())));
    let said: Vec<String> = request_messages(&llm, 2).into_iter().skip(1).map(|(_, text)| text).collect();
    assert_eq!(said, ["one", "Look.", "seen\n", "One.", "two"]);
    let unknown = gateway.chat("x").model("agent").header("x-trunkline-session", "../../etc/passwd").send().error(400);
    assert!(unknown["message"].as_str().unwrap().contains("not a session of the agent"), "{unknown}");
}

#[test]
fn what_was_said_before_a_tool_that_was_stopped_is_kept_once() {
    let llm = FakeLlm::new([tool_calls_reply("Wait.", &[("a", "bash", json!({"command": "touch begun; sleep 600"}))])]);
    let line = with_llm(TestGateway::new(), &llm).start();
    let mut stream = line.chat("one").model("agent").streamed().open();
    stream.read_until("[tool] bash");
    until("the command runs", || line.repo().join("begun").exists());
    drop(stream);
    let kept = || {
        let file = fs::read_dir(line.path("state/agent")).ok()?.next()?.ok()?;
        fs::read_to_string(file.path()).ok().filter(|text| text.contains("[interrupted]"))
    };
    until("what was said is kept", || kept().is_some());
    let roles: Vec<Value> = kept().unwrap().lines().skip(2).map(|line| json_of(line)["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
}

fn json_of(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn who_hangs_up_in_the_middle_of_a_tool_ends_it_and_the_session_goes_on() {
    let llm = FakeLlm::new([
        tool_calls_reply(
            "Wait.",
            &[
                ("a", "bash", json!({"command": "echo begun; echo $$ > pid; sleep 600 & echo $! > child; wait"})),
                ("b", "bash", json!({"command": "touch never"})),
            ],
        ),
        text_reply("Two."),
    ]);
    let line = with_llm(TestGateway::new(), &llm).start();
    let mut stream = line.chat("one").model("agent").streamed().open();
    stream.read_until("[tool] bash");
    let session = line.path("state/agent");
    until("the command runs", || fs::read_to_string(line.repo().join("child")).is_ok_and(|pid| pid.ends_with('\n')));
    let pid = |name: &str| fs::read_to_string(line.repo().join(name)).unwrap().trim().parse::<u32>().unwrap();
    let pids = [pid("pid"), pid("child")];
    drop(stream);
    until_gone(&pids);
    let kept = || fs::read_dir(&session).ok()?.next()?.ok().map(|file| file.path());
    until("what was said is kept", || {
        kept().and_then(|path| fs::read_to_string(path).ok()).is_some_and(|text| text.lines().count() == 6)
    });
    let listed = || line.run(&["sessions", "--all", "--json"]).exits(0).stdout;
    until("the session is known", || listed().contains("\"native\""));
    let listed: Value = serde_json::from_str(listed().lines().next().unwrap()).unwrap();
    let native = kept().unwrap().file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(listed["native"], native, "what the agent kept can be gone on with");
    let reply = line.chat("two").model("agent").header("x-trunkline-session", listed["id"].as_str().unwrap()).send();
    assert_eq!((reply.content().as_str(), reply.header("x-trunkline-session")), ("Two.", listed["id"].as_str()));
    let said: Vec<String> = request_messages(&llm, 1).into_iter().skip(1).map(|(_, text)| text).collect();
    assert_eq!(said[..2], ["one", "Wait."]);
    assert!(said[2].starts_with("begun") && said[2].contains("[interrupted]"), "{said:?}");
    assert_eq!(said[3..], ["[interrupted]", "two"]);
    assert!(!line.repo().join("never").exists());
}

#[test]
fn a_turn_that_is_tried_again_is_remembered_once() {
    let half = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": "half"}}]}));
    let cut = || Script::Says(200, "content-type: text/event-stream\r\n", half.clone());
    let llm = FakeLlm::new([text_reply("One."), cut(), text_reply("Two."), text_reply("Three.")]);
    let gateway =
        with_llm(TestGateway::new(), &llm).config("router.yaml", "providers: []\nrouting: {backoff: 1ms}\n").start();
    let first = gateway.chat("one").model("agent").send();
    let session = first.header("x-trunkline-session").unwrap().to_owned();
    let say = |text: &str| gateway.chat(text).model("agent").header("x-trunkline-session", &session).send();
    let second = say("two");
    assert_eq!((second.content().as_str(), second.header("x-trunkline-attempts")), ("Two.", Some("2")));
    say("three").content();
    let said: Vec<String> = request_messages(&llm, 3).into_iter().skip(1).map(|(_, text)| text).collect();
    assert_eq!(said, ["one", "One.", "two", "Two.", "three"]);
}

#[test]
fn what_the_model_got_wrong_is_not_said_back_to_the_service() {
    let llm = FakeLlm::new([tool_calls_reply("", &[("a", "my tool", json!("{\"path"))]), text_reply("Done.")]);
    let gateway = with_llm(TestGateway::new(), &llm).start();
    gateway.chat("go").model("agent").send().content();
    let call = llm.seen()[1].1["messages"][2]["tool_calls"][0]["function"].clone();
    assert_eq!(call, json!({"name": "my_tool", "arguments": "{}"}));
}

#[test]
fn nothing_secret_in_the_llms_address_is_shown() {
    let gateway = TestGateway::new().env("LLM_BASE_URL", "http://bob:hunter2pass@127.0.0.1:9/v1?api-key=hunter3key");
    let gateway =
        gateway.env("LLM_DEFAULT_MODEL", "m").config("router.yaml", "providers: []\nrouting: {max_retries: 0}\n");
    for (args, code) in [(&["check"][..], 0), (&["models"], 0), (&["run", "-m", "agent", "hi"], 4)] {
        let ran = gateway.run(args).exits(code);
        assert!(!format!("{ran:?}").contains("hunter"), "{ran:?}");
    }
}

#[test]
fn what_the_agent_cannot_honour_is_warned_of() {
    let entry =
        json!({"driver": "agent", "allowedTools": ["Bash", "read_file"], "command": "x", "normalize": "last_block"});
    let gateway = TestGateway::new().model("m", entry);
    let shown = gateway.run(&["check", "m"]).exits(0).stdout;
    for words in ["no tool \"Bash\"", "cannot honour command, normalize", "  tools   read_file\n"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn a_failure_of_the_llm_is_told_in_its_own_words_with_what_to_do() {
    for (status, headers, category, code, hint) in [
        (401, "", "authentication", 500, "LLM_AUTH_TOKEN"),
        (429, "retry-after: 7\r\n", "rate_limit", 429, ""),
        (500, "", "server", 500, ""),
    ] {
        let refused = || refusal(status, headers, json!({"message": "its own words"}));
        let llm = FakeLlm::new([refused(), refused(), refused(), refused()]);
        let gateway = with_llm(TestGateway::new(), &llm)
            .config("router.yaml", "providers: []\nrouting: {max_retries: 0}\n")
            .start();
        let reply = gateway.chat("hi").model("agent").send();
        let error = reply.error(code);
        assert_eq!(error["code"], category, "{error}");
        assert!(error["detail"].as_str().unwrap().contains("its own words"), "{error}");
        assert!(error["hint"].as_str().unwrap_or_default().contains(hint), "{error}");
        assert!(!reply.body.contains("sk-secret-token"));
    }
    let gateway = TestGateway::new().env("LLM_BASE_URL", "http://127.0.0.1:9/v1").env("LLM_DEFAULT_MODEL", "m");
    let ran =
        gateway.config("router.yaml", "providers: []\nrouting: {max_retries: 0}\n").run(&["run", "-m", "agent", "hi"]);
    let ran = ran.exits(4);
    assert!(ran.stderr.contains("cannot connect to 127.0.0.1:9"), "{ran:?}");
}

#[test]
fn it_asks_so_often_and_no_more() {
    let again = || tool_calls_reply("", &[("a", "bash", json!({"command": "true"}))]);
    let llm = FakeLlm::new([again(), again(), again()]);
    let gateway = with_llm(TestGateway::new(), &llm).model("m", json!({"driver": "agent", "maxTurns": 2})).start();
    let error = gateway.chat("go").model("m").send().error(500);
    assert_eq!(error["detail"], "the model was asked 2 times and still wants to go on", "{error}");
    assert_eq!(llm.seen().len(), 2);
}

#[test]
fn an_agent_on_an_agent() {
    let inner = TestGateway::new()
        .cli("codex", "cat >/dev/null; codex_answers inner")
        .model("m", json!({"driver": "codex"}))
        .start();
    let outer = TestGateway::new()
        .env("LLM_BASE_URL", format!("http://{}/v1", inner.address()))
        .env("LLM_DEFAULT_MODEL", "m")
        .start();
    assert_eq!(outer.chat("hi").model("agent").send().content(), "inner");
}

#[test]
fn its_commands_see_no_keys() {
    let llm = FakeLlm::new([tool_calls_reply("", &[("a", "bash", json!({"command": "env"}))]), text_reply("Done.")]);
    let gateway = with_llm(TestGateway::new(), &llm)
        .env("OPENAI_API_KEY", "sk-openai")
        .env("TRUNKLINE_API_KEYS", "sk-ours")
        .env("MINE", "kept")
        .start();
    gateway.chat("go").model("agent").header("authorization", "Bearer sk-ours").send().content();
    let environment = request_messages(&llm, 1).pop().unwrap().1;
    assert!(environment.contains("MINE=kept"), "{environment}");
    for secret in ["sk-secret-token", "sk-openai", "sk-ours"] {
        assert!(!environment.contains(secret), "{secret}: {environment}");
    }
}

/// The repository's own settings are not the agent's to write, nor is what says whose folder a worktree is.
#[test]
fn what_belongs_to_git_is_left_to_git() {
    let write =
        |id: &'static str, path: &str, content: &str| (id, "write_file", json!({"path": path, "content": content}));
    let filter = "[filter \"x\"]\n\tclean = \"env > \\\"$HOME/leak\\\"; cat\"\n";
    let llm = FakeLlm::new([
        tool_calls_reply(
            "",
            &[
                write("a", ".git/hooks/post-checkout", "#!/bin/sh\n"),
                write("b", ".git", "gitdir: g\n"),
                write("c", "x/.GIT/config", "x"),
            ],
        ),
        text_reply("Done."),
        tool_calls_reply(
            "",
            &[
                ("d", "bash", json!({"command": "mkdir -p g/objects g/refs; echo 'ref: refs/heads/x' > g/HEAD"})),
                write("e", "g/config", filter),
                write("f", ".gitattributes", "* filter=x\n"),
                ("g", "bash", json!({"command": "echo 'gitdir: g' > .git"})),
            ],
        ),
        text_reply("Done."),
    ]);
    let entry = json!({"driver": "agent", "worktree": true});
    let gateway = with_llm(TestGateway::new(), &llm)
        .file("old.txt", "old")
        .model("m", json!({"driver": "agent"}))
        .model("w", entry);
    gateway.commit("first");
    let gateway = gateway.start();
    gateway.chat("go").model("m").send().content();
    let told = request_messages(&llm, 1);
    let results: Vec<&str> = told.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    assert!(results.iter().all(|result| result.contains("belongs to git")), "{results:?}");
    let head = gateway.git(&["rev-parse", "HEAD"]);
    let answer = gateway.chat("go").model("w").send().json();
    let workspace = &answer["trunkline"]["workspace"];
    let branch = workspace["branch"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(gateway.git(&["ls-tree", "-r", "--name-only", branch]).contains("g/config"), "its work is kept");
    assert!(!gateway.path("home/leak").exists() && workspace["path"].is_null(), "{answer}");
    assert_eq!((gateway.git(&["rev-parse", "HEAD"]), gateway.git(&["status", "--porcelain"])), (head, String::new()));
}
