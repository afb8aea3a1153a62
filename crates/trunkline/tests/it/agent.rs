//! The built-in agent, with a fake LLM or with the embedded mock.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fake_llm::{FakeLlm, Script, refusal, stream};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// An LLM reply with text and tool calls, each given as (id, name, arguments).
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

/// An LLM reply with text only.
pub(crate) fn text_reply(text: &str) -> Script {
    stream(&[json!({"role": "assistant", "content": text})], "stop")
}

/// Configures the agent of the gateway to use this LLM.
pub(crate) fn with_llm(gateway: TestGateway, llm: &FakeLlm) -> TestGateway {
    gateway.env("LLM_BASE_URL", &llm.url).env("LLM_AUTH_TOKEN", "sk-secret-token").env("LLM_DEFAULT_MODEL", "big")
}

/// Role and content of the messages in the nth request to the LLM, counted from 0.
pub(crate) fn request_messages(llm: &FakeLlm, nth: usize) -> Vec<(String, String)> {
    let seen = llm.seen();
    let messages = seen[nth].1["messages"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

#[test]
fn agent_answers_with_the_mock_llm_when_nothing_is_configured() {
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
fn llm_request_follows_the_environment_variables() {
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
    let sent = request_messages(&llm, 0);
    assert_eq!(sent.len(), 2);
    assert!(sent[0].1.starts_with("You are a coding assistant.") && sent[0].1.ends_with("Speak softly."), "{sent:?}");
    assert_eq!(sent[1], ("user".to_owned(), "hi".to_owned()));
}

#[test]
fn model_name_after_the_slash_selects_the_model_of_the_llm() {
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
fn tool_results_and_errors_are_returned_to_the_llm() {
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
    assert_eq!(answer.json()["usage"]["prompt_tokens"], 14, "the sum of both requests");
    let sent = request_messages(&llm, 1);
    let results: Vec<&str> = sent.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    assert_eq!(results.len(), 5);
    assert_eq!(results[..3], ["OK", "OK", "two\nno\n[exit code: 3]"]);
    assert!(results[3].contains("end in the middle") && results[4].contains("browse"), "{results:?}");
    let messages = llm.seen()[1].1["messages"].clone();
    let id = |message: &Value| message["id"].as_str().or(message["tool_call_id"].as_str()).unwrap().to_owned();
    let called: Vec<String> = messages[2]["tool_calls"].as_array().unwrap().iter().map(id).collect();
    let answered: Vec<String> = messages.as_array().unwrap()[3..].iter().map(id).collect();
    assert_eq!(called, answered);
    assert_eq!(fs::read_to_string(gateway.repo().join("notes/a.txt")).unwrap(), "two\n");
}

#[test]
fn agent_cannot_write_when_its_permissions_are_read() {
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
    let sent = request_messages(&llm, 1);
    let results: Vec<&str> = sent.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    assert!(results[0].contains("read-only") && results[1].contains("read-only"), "{results:?}");
    assert_eq!(results[2], "read me");
    assert!(!gateway.repo().join("a.txt").exists() && !gateway.repo().join("b.txt").exists());
}

#[test]
fn agent_leaves_a_branch_and_an_unchanged_checkout_when_it_has_a_worktree() {
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
fn session_remembers_tool_calls_after_a_restart() {
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
    let sent: Vec<String> = request_messages(&llm, 2).into_iter().skip(1).map(|(_, text)| text).collect();
    assert_eq!(sent, ["one", "Look.", "seen\n", "One.", "two"]);
    let unknown = gateway.chat("x").model("agent").header("x-trunkline-session", "../../etc/passwd").send().error(400);
    assert!(unknown["message"].as_str().unwrap().contains("not a session of the agent"), "{unknown}");
}

#[test]
fn messages_before_a_tool_are_saved_once_when_the_tool_is_interrupted() {
    let llm = FakeLlm::new([tool_calls_reply("Wait.", &[("a", "bash", json!({"command": "touch begun; sleep 600"}))])]);
    let gateway = with_llm(TestGateway::new(), &llm).start();
    let mut stream = gateway.chat("one").model("agent").streamed().open();
    stream.read_until("[tool] bash");
    until("the command runs", || gateway.repo().join("begun").exists());
    drop(stream);
    let transcript = || {
        let file = fs::read_dir(gateway.path("state/agent")).ok()?.next()?.ok()?;
        fs::read_to_string(file.path()).ok().filter(|text| text.contains("[interrupted]"))
    };
    until("the transcript is saved", || transcript().is_some());
    let roles: Vec<Value> =
        transcript().unwrap().lines().skip(2).map(|line| parse_json(line)["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
}

fn parse_json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn client_disconnect_mid_tool_kills_child_processes_and_the_session_can_continue() {
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
    let gateway = with_llm(TestGateway::new(), &llm).start();
    let mut stream = gateway.chat("one").model("agent").streamed().open();
    stream.read_until("[tool] bash");
    let transcripts = gateway.path("state/agent");
    until("the command runs", || fs::read_to_string(gateway.repo().join("child")).is_ok_and(|pid| pid.ends_with('\n')));
    let pid = |name: &str| fs::read_to_string(gateway.repo().join(name)).unwrap().trim().parse::<u32>().unwrap();
    let pids = [pid("pid"), pid("child")];
    drop(stream);
    until_gone(&pids);
    let transcript = || fs::read_dir(&transcripts).ok()?.next()?.ok().map(|file| file.path());
    until("the transcript is saved", || {
        transcript().and_then(|path| fs::read_to_string(path).ok()).is_some_and(|text| text.lines().count() == 6)
    });
    let listed = || gateway.run(&["sessions", "--all", "--json"]).exits(0).stdout;
    until("the session is known", || listed().contains("\"native\""));
    let listed: Value = serde_json::from_str(listed().lines().next().unwrap()).unwrap();
    let native = transcript().unwrap().file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(listed["native"], native, "the saved session can be continued");
    let reply = gateway.chat("two").model("agent").header("x-trunkline-session", listed["id"].as_str().unwrap()).send();
    assert_eq!((reply.content().as_str(), reply.header("x-trunkline-session")), ("Two.", listed["id"].as_str()));
    let sent: Vec<String> = request_messages(&llm, 1).into_iter().skip(1).map(|(_, text)| text).collect();
    assert_eq!(sent[..2], ["one", "Wait."]);
    assert!(sent[2].starts_with("begun") && sent[2].contains("[interrupted]"), "{sent:?}");
    assert_eq!(sent[3..], ["[interrupted]", "two"]);
    assert!(!gateway.repo().join("never").exists());
}

#[test]
fn turn_is_remembered_once_when_it_was_retried() {
    let half = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": "half"}}]}));
    let cut_off = || Script::Says(200, "content-type: text/event-stream\r\n", half.clone());
    let llm = FakeLlm::new([text_reply("One."), cut_off(), text_reply("Two."), text_reply("Three.")]);
    let gateway =
        with_llm(TestGateway::new(), &llm).config("router.yaml", "providers: []\nrouting: {backoff: 1ms}\n").start();
    let first = gateway.chat("one").model("agent").send();
    let session = first.header("x-trunkline-session").unwrap().to_owned();
    let ask = |text: &str| gateway.chat(text).model("agent").header("x-trunkline-session", &session).send();
    let second = ask("two");
    assert_eq!((second.content().as_str(), second.header("x-trunkline-attempts")), ("Two.", Some("2")));
    ask("three").content();
    let sent: Vec<String> = request_messages(&llm, 3).into_iter().skip(1).map(|(_, text)| text).collect();
    assert_eq!(sent, ["one", "One.", "two", "Two.", "three"]);
}

#[test]
fn malformed_tool_calls_are_sanitised_before_they_are_sent_back() {
    let llm = FakeLlm::new([tool_calls_reply("", &[("a", "my tool", json!("{\"path"))]), text_reply("Done.")]);
    let gateway = with_llm(TestGateway::new(), &llm).start();
    gateway.chat("go").model("agent").send().content();
    let call = llm.seen()[1].1["messages"][2]["tool_calls"][0]["function"].clone();
    assert_eq!(call, json!({"name": "my_tool", "arguments": "{}"}));
}

#[test]
fn secrets_in_the_llm_address_are_not_shown() {
    let gateway = TestGateway::new().env("LLM_BASE_URL", "http://bob:hunter2pass@127.0.0.1:9/v1?api-key=hunter3key");
    let gateway =
        gateway.env("LLM_DEFAULT_MODEL", "m").config("router.yaml", "providers: []\nrouting: {max_retries: 0}\n");
    for (args, code) in [(&["check"][..], 0), (&["models"], 0), (&["run", "-m", "agent", "hi"], 4)] {
        let ran = gateway.run(args).exits(code);
        assert!(!format!("{ran:?}").contains("hunter"), "{ran:?}");
    }
}

#[test]
fn check_warns_of_settings_that_the_agent_cannot_honour() {
    let entry =
        json!({"driver": "agent", "allowedTools": ["Bash", "read_file"], "command": "x", "normalize": "last_block"});
    let gateway = TestGateway::new().model("m", entry);
    let shown = gateway.run(&["check", "m"]).exits(0).stdout;
    for words in ["no tool \"Bash\"", "cannot honour command, normalize", "  tools   read_file\n"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn llm_failure_is_reported_with_its_message_and_a_hint() {
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
fn run_fails_when_max_turns_is_reached() {
    let tool_call = || tool_calls_reply("", &[("a", "bash", json!({"command": "true"}))]);
    let llm = FakeLlm::new([tool_call(), tool_call(), tool_call()]);
    let gateway = with_llm(TestGateway::new(), &llm).model("m", json!({"driver": "agent", "maxTurns": 2})).start();
    let error = gateway.chat("go").model("m").send().error(500);
    assert_eq!(error["detail"], "the model was called 2 times and has not finished", "{error}");
    assert_eq!(llm.seen().len(), 2);
}

#[test]
fn agent_can_use_another_gateway_as_its_llm() {
    let llm = FakeLlm::new([
        tool_calls_reply("", &[("a", "client_write_file", json!({"path": "a.txt", "content": "A"}))]),
        text_reply("Done."),
    ]);
    let inner = with_llm(TestGateway::new(), &llm).start();
    let outer = TestGateway::new()
        .env("LLM_BASE_URL", format!("http://{}/v1", inner.address()))
        .env("LLM_DEFAULT_MODEL", "agent")
        .start();
    assert_eq!(outer.chat("hi").model("agent").send().content(), "Done.");
    let written = |gateway: &TestGateway| fs::read_to_string(gateway.repo().join("a.txt")).ok();
    assert_eq!(
        (written(&outer).as_deref(), written(&inner)),
        (Some("A"), None),
        "the tools of the outer agent were used"
    );
}

#[test]
fn commands_of_the_agent_see_no_api_keys() {
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

/// The file tools refuse the repository's git folder, and a `.git` file that is rewritten by a command is not followed.
#[test]
fn agent_cannot_write_git_metadata() {
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
    let sent = request_messages(&llm, 1);
    let results: Vec<&str> = sent.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    assert!(results.iter().all(|result| result.contains("belongs to git")), "{results:?}");
    let head = gateway.git(&["rev-parse", "HEAD"]);
    let answer = gateway.chat("go").model("w").send().json();
    let workspace = &answer["trunkline"]["workspace"];
    let branch = workspace["branch"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(gateway.git(&["ls-tree", "-r", "--name-only", branch]).contains("g/config"), "its work is kept");
    assert!(!gateway.path("home/leak").exists() && workspace["path"].is_null(), "{answer}");
    assert_eq!((gateway.git(&["rev-parse", "HEAD"]), gateway.git(&["status", "--porcelain"])), (head, String::new()));
}
