//! Commands other than `serve`.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::observe::until_gone;
use crate::test_gateway::TestGateway;

/// The rows of `check` with this heading.
fn rows(check: &str, heading: &str) -> Vec<String> {
    let rows = check.lines().filter_map(|row| row.strip_prefix("  ")?.strip_prefix(heading));
    rows.map(|row| row.trim_start().to_owned()).collect()
}

#[test]
fn check_shows_exactly_how_a_model_runs() {
    let gateway = TestGateway::new()
        .cli("gemini", "note \"$@\"; replay gemini/ansi-stream-json")
        .cli("ax-glm", "")
        .model("g", json!({"driver": "gemini", "model": "two words", "env": {"MINE": "1"}, "sandbox": "off"}))
        .model("a", json!({"driver": "ax-glm"}))
        .start();
    let (program, repo) = (gateway.path("bin/gemini"), gateway.repo().display().to_string());
    let check = gateway.run(&["check", "g"]).exits(0).stdout;
    let argv = format!("{} -o stream-json --approval-mode auto_edit -m 'two words'", program.display());
    assert_eq!(rows(&check, "argv"), [argv]);
    assert_eq!(rows(&check, "cwd"), [repo.as_str()]);
    assert_eq!(rows(&check, "prompt"), ["on stdin, then closed"]);
    gateway.chat("hi").model("g").send().content();
    assert_eq!(gateway.argv("gemini"), ["-o", "stream-json", "--approval-mode", "auto_edit", "-m", "two words"]);
    assert_eq!(gateway.read_note("gemini.cwd").trim_end(), repo);
    let (env, received) = (rows(&check, "env"), gateway.read_note("gemini.env"));
    assert!(env.contains(&"MINE=1".to_owned()) && env.contains(&"GEMINI_CLI_NO_RELAUNCH=true".to_owned()), "{check}");
    for variable in env.iter().filter(|variable| !variable.starts_with("TRUNKLINE_")) {
        assert!(received.lines().any(|line| line == variable), "{variable} is not in\n{received}");
    }
    let other = gateway.run(&["check", "a"]).exits(0).stdout;
    assert_eq!(rows(&other, "argv"), [format!("{} --prompt '<prompt>'", gateway.path("bin/ax-glm").display())]);
    assert_eq!(rows(&other, "prompt"), ["as an argument, at most 128 KiB"]);
    let both = gateway.run(&["check"]).exits(0).stdout;
    assert_eq!(rows(&both, "argv").len(), 2, "{both}");
}

#[test]
fn check_shows_how_the_instructions_file_reaches_the_model() {
    let gateway = TestGateway::new()
        .cli("codex", "")
        .cli("gemini", "")
        .model("left", json!({"driver": "codex"}))
        .model("named", json!({"driver": "codex", "agentFile": "RULES.md"}))
        .model("carried", json!({"driver": "gemini"}))
        .model("none", json!({"driver": "gemini", "agentFile": ""}));
    for (model, rules) in [
        ("left", "the CLI reads AGENTS.md by itself"),
        ("named", "RULES.md in the prompt; the CLI also reads AGENTS.md by itself"),
        ("carried", "AGENTS.md in the prompt"),
        ("none", "none"),
    ] {
        let check = gateway.run(&["check", model]).exits(0).stdout;
        assert_eq!(rows(&check, "rules"), [rules], "{model}");
    }
}

#[test]
fn check_warns_of_ignored_settings_and_fails_when_a_model_cannot_run() {
    let gateway = TestGateway::new().cli("codex", "").model("m", json!({"driver": "codex", "maxTurns": 3}));
    let shown = gateway.run(&["check"]).exits(0).stdout;
    assert!(shown.contains("warning: model m: codex cannot honour maxTurns; ignored"), "{shown}");
    let gateway = gateway.model("lost", json!({"driver": "codex", "repoPath": "/no/such/folder"}));
    let shown = gateway.run(&["check"]).exits(3).stdout;
    assert!(shown.contains("repoPath /no/such/folder is not a folder"), "{shown}");
}

#[test]
fn doctor_shows_versions_and_paths() {
    let gateway = TestGateway::new()
        .env("ANTHROPIC_API_KEY", "k")
        .cli("claude", "[ \"$1\" = --version ] && echo '2.1.0 (Claude Code)'")
        .cli("codex", "exit 3");
    let shown = gateway.run(&["doctor"]).exits(0).stdout;
    let row =
        |name: &str| shown.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{shown}")).to_owned();
    assert!(row("claude").starts_with('✓') && row("claude").contains("2.1.0 (Claude Code)"), "{shown}");
    assert!(shown.contains("\nsandbox: "), "{shown}");
    assert!(row("claude").ends_with(gateway.path("bin/claude").to_str().unwrap()), "{shown}");
    assert!(row("codex").contains("--version failed"), "{shown}");
    assert!(row("gemini").starts_with('✗') && row("gemini").contains("npm install -g @google/gemini-cli"), "{shown}");
}

#[test]
fn doctor_sends_each_cli_a_question_when_probe_is_given() {
    let gateway = TestGateway::new().cli("codex", "cat >/dev/null; codex_answers OK").cli("gemini", "exit 1");
    let shown = gateway.run(&["doctor", "--probe"]).exits(0).stdout;
    assert!(shown.contains("answers: \"OK\" in "), "{shown}");
    assert!(shown.contains("does not answer: "), "{shown}");
}

#[test]
fn run_prints_the_answer_and_nothing_else() {
    let gateway = TestGateway::new()
        .cli("codex", "note \"$@\"; replay codex/reasoning")
        .model("m", json!({"driver": "codex"}))
        .cli("gemini", "echo broken >&2; exit 1")
        .model("bad", json!({"driver": "gemini"}));
    let answer = "Hello from the mock.\nSecond line éè 你好 🦀.\n";
    assert_eq!(gateway.run(&["run", "-m", "m", "why?"]).exits(0).stdout, answer);
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nwhy?");
    assert_eq!(gateway.run_with(&["run", "-m", "m"], b"from stdin").exits(0).stdout, answer);
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\nfrom stdin");
    let failed = gateway.run(&["run", "-m", "bad", "why?"]).exits(4);
    assert!(failed.stdout.is_empty() && failed.stderr.contains("gemini failed (unknown): broken"), "{failed:?}");
    let unknown = gateway.run(&["run", "-m", "n", "why?"]).exits(1);
    assert!(unknown.stderr.contains("unknown model"), "{unknown:?}");
}

#[test]
fn run_names_the_branch_when_it_has_a_worktree() {
    let gateway = TestGateway::new()
        .cli("codex", "echo new >new.txt; codex_answers done")
        .model("m", json!({"driver": "codex", "worktree": true}));
    let ran = gateway.run(&["run", "-m", "m", "why?"]).exits(0);
    let branch = gateway.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert!(ran.stderr.contains(&format!("1 file changed (+1 -0) on branch {branch}")), "{ran:?}");
}

#[test]
fn run_keeps_the_work_on_a_branch_when_it_is_interrupted() {
    let gateway = TestGateway::new()
        .cli("codex", "echo new >new.txt; tell pid $$; hang")
        .model("m", json!({"driver": "codex", "worktree": true}));
    gateway.signalled_after_note(&["run", "-m", "m", "why?"], "pid", Signal::INT).exits(130);
    until_gone(&[gateway.wait_for_pid("pid")]);
    let branch = gateway.git(&["branch", "--list", "trunkline/*", "--format=%(refname:short)"]);
    assert_eq!(gateway.git(&["show", &format!("{branch}:new.txt")]), "new");
    assert_eq!(gateway.git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn exit_status_is_2_when_a_command_or_flag_is_unknown() {
    let gateway = TestGateway::new();
    gateway.run(&["frobnicate"]).exits(2);
    gateway.run(&["serve", "--no-such-flag"]).exits(2);
    gateway.run(&["serve", "--grace", "5 parsecs"]).exits(2);
}

#[test]
fn case_80_serve_prints_one_line_and_exits_when_its_port_is_taken() {
    let gateway = TestGateway::new().cli("codex", "").start();
    let port = gateway.address().rsplit(':').next().unwrap().to_owned();
    let other = TestGateway::new().run(&["serve", "--port", &port]).exits(1);
    let messages: Vec<&str> = other.stderr.lines().filter(|line| line.starts_with("trunkline: ")).collect();
    assert_eq!(messages.len(), 1, "{}", other.stderr);
    let message = messages[0];
    assert!(message.contains(&format!("cannot listen on 127.0.0.1:{port}: Address already in use")), "{message}");
    assert!(message.contains("a trunkline gateway runs there already") && message.contains("--port N"), "{message}");
}

#[test]
fn serve_names_the_flag_when_another_program_has_its_port() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let ran = TestGateway::new().run(&["serve", "--port", &port]).exits(1);
    assert!(ran.stderr.contains("another program listens there") && ran.stderr.contains("--port N"), "{ran:?}");
    let ran = TestGateway::new().run(&["serve", "--port", "0", "--metrics", &format!("127.0.0.1:{port}")]).exits(1);
    assert!(ran.stderr.contains("--metrics ADDR:PORT"), "{ran:?}");
}

#[test]
fn run_is_refused_when_its_task_is_empty() {
    let gateway = TestGateway::new().cli("codex", "tell ran yes").model("m", json!({"driver": "codex"}));
    for (args, stdin) in [
        (&["run", "-m", "m", ""][..], ""),
        (&["run", "-m", "m", " \n\t"], ""),
        (&["run", "-m", "m"], ""),
        (&["run", "-m", "m", "-"], "\n"),
        (&["run", "-m", "m", "--detach", ""], ""),
        (&["agent", "-m", "m", "-p", " "], ""),
    ] {
        let ran = gateway.run_with(args, stdin.as_bytes()).exits(2);
        assert!(ran.stderr.contains("task"), "{args:?} {ran:?}");
    }
    assert!(!gateway.path("seen/ran").exists());
}

#[test]
fn run_suggests_similar_names_when_a_model_is_unknown() {
    let gateway = TestGateway::new().cli("codex", "codex_answers hi").model("shop", json!({"driver": "codex"}));
    for (args, message) in [
        (["run", "-m", "shp", "hi"], "unknown model \"shp\"; did you mean shop?"),
        (
            ["run", "-m", "clade", "hi"],
            "unknown model \"clade\"; did you mean claude? claude is not installed (npm install -g",
        ),
        (["run", "-m", "claude", "hi"], "unknown model \"claude\": claude is not installed (npm install -g"),
        (["run", "-m", "codex", "hi"], "codex is installed, but the configuration does not name it"),
        (["run", "-m", "zzzzzz", "hi"], "see: trunkline models"),
    ] {
        let ran = gateway.run(&args).exits(1);
        assert!(ran.stderr.contains(message) && ran.stdout.is_empty(), "{args:?} {ran:?}");
    }
    let task = gateway.run(&["agent", "-m", "clade", "-p", "hi"]).exits(1);
    assert!(task.stderr.contains("did you mean claude?"), "{task:?}");
}

#[test]
fn exit_status_is_128_plus_the_signal_when_a_signal_ends_a_command() {
    let gateway = TestGateway::new().cli("codex", "tell pid $$; hang").model("m", json!({"driver": "codex"}));
    for (args, signal, status) in
        [(["run", "-m", "m", "why?"], Signal::TERM, 143), (["agent", "-mm", "-p", "why?"], Signal::INT, 130)]
    {
        gateway.signalled_after_note(&args, "pid", signal).exits(status);
        fs::remove_file(gateway.path("seen/pid")).unwrap();
    }
}

#[test]
fn detach_explains_how_to_start_a_gateway_when_none_answers() {
    let gateway = TestGateway::new().cli("codex", "").model("m", json!({"driver": "codex"}));
    let assert_explained = |ran: crate::test_gateway::CommandOutput| {
        assert!(ran.stderr.contains("trunkline serve --state") && !ran.stderr.contains("os error"), "{ran:?}");
    };
    assert_explained(gateway.run(&["run", "--detach", "-m", "m", "x"]).exits(1));
    // A gateway whose process is alive but whose address nothing listens on.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut gateway = gateway.start();
    let beacons = gateway.path("state/gateways");
    let beacon = fs::read_dir(&beacons).unwrap().next().unwrap().unwrap().path();
    fs::write(&beacon, json!({"address": closed}).to_string()).unwrap();
    assert_explained(gateway.run(&["run", "--detach", "-m", "m", "x"]).exits(1));
    gateway.kill();
}

/// Runs `trunkline decode` on a recording.
fn decode(provider: &str, recording: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(recording);
    let exit = fs::read_to_string(folder.join("exit")).unwrap();
    let stderr = folder.join("stderr");
    let mut args = vec!["decode", "--provider", provider, "--exit", exit.trim()];
    if stderr.exists() {
        args.extend(["--stderr", stderr.to_str().unwrap()]);
    }
    let ran = TestGateway::new().run_with(&args, &fs::read(folder.join("stdout")).unwrap()).exits(0);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn decode_prints_one_object_of_a_fixed_shape() {
    let recordings = [
        ("claude", "claude/tool_streamjson_partial", "Done: the tool ran.", None),
        ("codex", "codex/multi", "Hello from the mock.\nSecond line éè 你好 🦀.", None),
        ("opencode", "opencode/plain_text", "Hello from the mock.\nSecond line éè 你好 🦀.", None),
        ("codex", "codex/err_429", "", Some("rate_limit")),
        ("ax-glm", "ax/glm_401", "", Some("authentication")),
    ];
    for (provider, recording, content, category) in recordings {
        let decoded = decode(provider, recording);
        assert_eq!(keys(&decoded), ["content", "error", "events", "session_id", "usage"], "{recording}");
        assert_eq!(keys(&decoded["usage"]), ["estimated", "input_tokens", "output_tokens"], "{recording}");
        assert_eq!(decoded["content"], content, "{recording}");
        assert!(decoded["events"].is_array(), "{recording}");
        match category {
            None => assert_eq!(decoded["error"], Value::Null, "{recording}"),
            Some(category) => {
                let expected = ["category", "fallback", "message", "retry", "retry_after_ms"];
                assert_eq!(keys(&decoded["error"]), expected, "{recording}");
                assert_eq!(decoded["error"]["category"], category, "{recording}");
            }
        }
    }
    let codex = decode("codex", "codex/multi");
    assert_eq!(codex["usage"], json!({"input_tokens": 2468, "output_tokens": 112, "estimated": false}));
    assert_eq!(codex["session_id"], "01a1dc95-866c-7710-94b6-181fa10fa304");
    let limited = decode("codex", "codex/err_429")["error"].clone();
    assert_eq!(
        (&limited["retry"], &limited["fallback"], &limited["retry_after_ms"]),
        (&json!(true), &json!(false), &json!(1000))
    );
    let timed_out = TestGateway::new().run(&["decode", "--provider", "codex", "--timed-out"]).exits(0);
    let timed_out: Value = serde_json::from_str(&timed_out.stdout).unwrap();
    assert_eq!(timed_out["error"]["message"], "Query timed out");
}

#[test]
fn desktop_runs_the_window_with_all_its_arguments() {
    let gateway = TestGateway::new().cli("trunkline-desktop", "note \"$@\"; exit 7");
    gateway.run(&["desktop", "--port", "1234", "--help"]).exits(7);
    assert_eq!(gateway.argv("trunkline-desktop"), ["--port", "1234", "--help"]);
}

#[test]
fn desktop_explains_how_to_build_the_window_when_it_is_not_installed() {
    if Path::new(env!("CARGO_BIN_EXE_trunkline")).with_file_name("trunkline-desktop").exists() {
        eprintln!("skipped: the window was built next to this binary");
        return;
    }
    let ran = TestGateway::new().run(&["desktop"]).exits(1);
    assert!(ran.stderr.contains("cargo xtask desktop") && ran.stderr.contains("trunkline serve"), "{}", ran.stderr);
}

#[test]
fn desktop_shows_its_help_when_the_window_is_not_installed() {
    if Path::new(env!("CARGO_BIN_EXE_trunkline")).with_file_name("trunkline-desktop").exists() {
        eprintln!("skipped: the window was built next to this binary");
        return;
    }
    for flag in ["--help", "-h"] {
        let ran = TestGateway::new().run(&["desktop", flag]).exits(0);
        let (usage, how) = ("Usage: trunkline desktop", "cargo xtask desktop");
        assert!(ran.stdout.contains(usage) && ran.stdout.contains(how) && ran.stderr.is_empty(), "{ran:?}");
    }
}
