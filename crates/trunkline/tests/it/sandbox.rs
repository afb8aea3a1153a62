//! Sandbox: what a run can write, whatever its CLI does with the permissions. Fake CLIs try everything.
//!
//! The test folders are outside of the temporary folders, because every run may write to those.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use trunkline_process::Landlock;

use crate::agent::{request_messages, text_reply, tool_calls_reply, with_llm};
use crate::fake_llm::FakeLlm;
use crate::test_gateway::TestGateway;

/// Shell functions for the fake CLI: `can` and `cannot` print a line if the command does not behave as expected.
const FUNCTIONS: &str = r#"
g() { git -c user.name=A -c user.email=a@localhost "$@"; }
can() { output=$(LC_ALL=C "$@" 2>&1 >/dev/null) || echo "cannot: $*: $output"; }
cannot() {
    if output=$(LC_ALL=C "$@" 2>&1 >/dev/null); then echo "can: $*"; return; fi
    case "$output" in *"Permission denied"*|*"denied"*|*"Operation not permitted"*) ;; *) echo "cannot otherwise: $*: $output" ;; esac
}
write() { echo written > "$1"; }
"#;

/// A gateway whose fake CLI runs this script, or `None` if the kernel does not support the sandbox.
fn sandboxed(entry: Value, script: &str) -> Option<TestGateway> {
    if let Err(missing) = Landlock::here() {
        eprintln!("skipped: {missing}");
        return None;
    }
    let gateway = TestGateway::outside_tmp()?;
    let mut entry = entry;
    for (key, value) in [("driver", json!("text")), ("command", json!("tries"))] {
        if entry.get("driver").is_none() || entry["driver"] == "text" {
            entry[key] = value;
        }
    }
    let home = gateway.path("home");
    for folder in [".npm", ".ssh", ".cargo/bin", ".cargo/registry"] {
        fs::create_dir_all(home.join(folder)).unwrap();
    }
    fs::write(home.join(".bashrc"), "# mine\n").unwrap();
    fs::create_dir(gateway.path("sibling")).unwrap();
    let name = if entry["driver"] == "text" { "tries" } else { entry["driver"].as_str().unwrap() }.to_owned();
    let script = format!("all='{}'\n{FUNCTIONS}\n{script}\necho tried", gateway.path("").display());
    Some(gateway.cli(&name, &script).model("m", entry))
}

/// Starts the gateway and fails the test unless every `can` and `cannot` of the script holds.
fn assert_script_holds(gateway: TestGateway) -> TestGateway {
    let gateway = gateway.start();
    assert_eq!(gateway.chat("try").send().content(), "tried");
    gateway
}

const OUTSIDE: &str = r#"
cannot write ~/.bashrc
cannot write ~/.ssh/authorized_keys
cannot write ~/.cargo/bin/cargo
cannot write ~/new
cannot write /etc/trunkline-was-here
cannot write "$all/sibling/new"
cannot write "$all/state/new"
cannot write "$all/config/models.json"
cannot mkdir ~/folder
cannot mv ~/.bashrc ~/.cache/bashrc
cannot sh -c 'echo x > ~/escape & wait $!'
cannot setsid -w sh -c 'echo x > ~/escape'
cannot kill -9 $PPID
can write ~/.cache/new
can write ~/.npm/new
can write ~/.cargo/registry/new
can write /dev/null
can sh -c 'f=/tmp/trunkline-sandbox-$$; echo x > $f && rm $f'
can cat ~/.bashrc
"#;

#[test]
fn case_34_run_can_only_edit_its_checkout() {
    let script =
        "can write new; can mkdir folder; can mv new folder/new; can g add .; can g commit -m done; can g stash list";
    let Some(gateway) = sandboxed(json!({}), &format!("{script}\n{OUTSIDE}")) else { return };
    let gateway = assert_script_holds(gateway);
    assert!(gateway.repo().join("folder/new").exists());
    assert_eq!(fs::read_to_string(gateway.path("home/.bashrc")).unwrap(), "# mine\n");
}

#[test]
fn case_34_run_cannot_write_the_workspace_when_permissions_are_read() {
    let script = "cannot write new; cannot write README.md; cannot write .git/HEAD; can cat README.md; can g status";
    let Some(gateway) = sandboxed(json!({"permissions": "read"}), &format!("{script}\n{OUTSIDE}")) else { return };
    let gateway = assert_script_holds(gateway);
    assert_eq!(gateway.git(&["status", "--porcelain"]), "");
}

#[test]
fn case_33_run_in_a_worktree_cannot_write_the_checkout_its_hooks_or_config() {
    let script = r#"
can write new
can g add .
can g commit -m 'from inside'
can write newer
can g add .
can g stash
can g stash pop
can g checkout -b branch
can g log
cannot write "$all/repo/README.md"
cannot write "$all/repo/.git/hooks/post-checkout"
cannot write "$all/repo/.git/config"
cannot write "$all/repo/.git/HEAD"
cannot write "$all/repo/.git/index"
cannot write "$all/repo/.git/info/attributes"
cannot g config core.fsmonitor evil
cannot write "$all/worktrees/other/new"
"#;
    let Some(gateway) = sandboxed(json!({"worktree": true}), &format!("{script}\n{OUTSIDE}")) else { return };
    fs::create_dir_all(gateway.path("worktrees/other")).unwrap();
    let gateway = assert_script_holds(gateway);
    assert_eq!(gateway.git(&["status", "--porcelain"]), "");
    let log = gateway.git(&["log", "--format=%s", "--branches=trunkline/*"]);
    assert!(log.contains("from inside"), "{log}");
}

#[test]
fn run_can_write_folders_that_its_model_lists_as_writable() {
    let script = "can write \"$all/sibling/new\"; cannot write ~/new";
    let Some(gateway) = sandboxed(json!({"permissions": "read", "writable": ["../sibling"]}), script) else { return };
    assert_script_holds(gateway);
}

#[test]
fn cli_can_write_its_own_state() {
    let script = r#"
can write ~/.claude/projects
can write ~/.claude.json
cannot write ~/.config/x
printf '{"type":"result","subtype":"success","is_error":false,"result":"%s","session_id":"x"}\n' "$output"
exit
"#;
    let Some(gateway) = sandboxed(json!({"driver": "claude"}), script) else { return };
    fs::create_dir(gateway.path("home/.config")).unwrap();
    fs::write(gateway.path("home/.claude.json"), "{}").unwrap();
    let gateway = gateway.start();
    gateway.chat("try").send().content();
    assert!(gateway.path("home/.claude/projects").exists() && !gateway.path("home/.config/x").exists());
    assert_eq!(fs::read_to_string(gateway.path("home/.claude.json")).unwrap(), "written\n");
}

#[test]
fn run_is_not_sandboxed_when_disabled_or_permissions_are_full() {
    for (entry, flag) in [
        (json!({"permissions": "full"}), "on"),
        (json!({"permissions": "read", "sandbox": "off"}), "on"),
        (json!({}), "off"),
    ] {
        let Some(gateway) = sandboxed(entry, "can write ~/new; can write \"$all/sibling/new\"") else { return };
        assert_script_holds(gateway.args(&["--sandbox", flag]));
    }
}

#[test]
fn case_34_bash_of_the_agent_is_sandboxed_and_check_shows_how() {
    if let Err(missing) = Landlock::here() {
        return eprintln!("skipped: {missing}");
    }
    let Some(gateway) = TestGateway::outside_tmp() else { return };
    let command = |text: &str| json!({"command": text});
    let asked = tool_calls_reply(
        "",
        &[
            ("1", "bash", command("echo in > inside && echo done")),
            ("2", "bash", command("echo out > ~/outside || echo refused")),
        ],
    );
    let llm = FakeLlm::new([asked, text_reply("tried")]);
    let gateway = with_llm(gateway, &llm).start();
    assert_eq!(gateway.chat("try").model("agent").send().content(), "tried");
    let messages = request_messages(&llm, 1);
    let outcomes: Vec<&str> =
        messages.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    assert!(outcomes[0].contains("done") && outcomes[1].contains("refused"), "{outcomes:?}");
    assert!(gateway.repo().join("inside").exists() && !gateway.path("home/outside").exists());
    let shown = gateway.run(&["check", "agent"]).exits(0).stdout;
    let writes = shown.lines().find(|line| line.trim_start().starts_with("writes")).unwrap();
    assert!(writes.contains(gateway.repo().to_str().unwrap()) && writes.contains("/dev/null"), "{writes}");
    assert!(Path::new("/tmp").exists() && writes.contains(" /tmp"), "{writes}");
}

#[test]
fn case_34_response_names_the_sandbox_of_each_attempt() {
    let required = if Landlock::here().is_ok() { "required" } else { "on" };
    let gateway = TestGateway::new()
        .cli("claude", r#"printf '{"type":"result","subtype":"success","is_error":false,"result":"done"}\n'"#)
        .cli("codex", "codex_answers done")
        .model("confined", json!({"driver": "claude", "permissions": "edit"}))
        .model("off", json!({"driver": "claude", "permissions": "read", "sandbox": "off"}))
        .model("full", json!({"driver": "claude", "permissions": "full"}))
        .model("own", json!({"driver": "codex", "permissions": "edit"}))
        .model("ours", json!({"driver": "codex", "permissions": "read", "sandbox": required}))
        .start();
    let here = if Landlock::here().is_ok() { "kernel" } else { "off" };
    let ours = if Landlock::here().is_ok() { "kernel" } else { "cli" };
    let models = [("confined", json!(here)), ("off", json!("off")), ("full", json!(null)), ("own", json!("cli"))];
    for (model, sandbox) in models.into_iter().chain([("ours", json!(ours))]) {
        let answer = gateway.chat("hi").model(model).send().json();
        assert_eq!(answer["trunkline"]["attempts"][0]["sandbox"], sandbox, "{model}: {answer}");
    }
}
