//! What a run can write, whatever its CLI does with the permissions: fake CLIs that try everything.
//!
//! Their world lies outside of the folders for temporary files, which every run may write.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use trunkline_process::Landlock;

use crate::agent::{request_messages, text_reply, tool_calls_reply, with_llm};
use crate::fake_llm::FakeLlm;
use crate::test_gateway::TestGateway;

/// The words of a CLI that tries: `can` and `cannot` print what did not go as they say.
const TRIES: &str = r#"
g() { git -c user.name=A -c user.email=a@localhost "$@"; }
can() { said=$(LC_ALL=C "$@" 2>&1 >/dev/null) || echo "cannot: $*: $said"; }
cannot() {
    if said=$(LC_ALL=C "$@" 2>&1 >/dev/null); then echo "can: $*"; return; fi
    case "$said" in *"Permission denied"*|*"denied"*|*"Operation not permitted"*) ;; *) echo "cannot otherwise: $*: $said" ;; esac
}
write() { echo written > "$1"; }
"#;

/// A line whose fake CLI tries these things; none where the kernel cannot hold it.
fn tries(entry: Value, script: &str) -> Option<TestGateway> {
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
    let script = format!("all='{}'\n{TRIES}\n{script}\necho tried", gateway.path("").display());
    Some(gateway.cli(&name, &script).model("m", entry))
}

/// The answer says that everything went as the script says.
fn goes_as_said(gateway: TestGateway) -> TestGateway {
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
fn case_34_a_checkout_is_all_that_a_run_may_edit() {
    let script =
        "can write new; can mkdir folder; can mv new folder/new; can g add .; can g commit -m done; can g stash list";
    let Some(line) = tries(json!({}), &format!("{script}\n{OUTSIDE}")) else { return };
    let line = goes_as_said(line);
    assert!(line.repo().join("folder/new").exists());
    assert_eq!(fs::read_to_string(line.path("home/.bashrc")).unwrap(), "# mine\n");
}

#[test]
fn case_34_who_may_only_read_writes_nothing_in_the_workspace() {
    let script = "cannot write new; cannot write README.md; cannot write .git/HEAD; can cat README.md; can g status";
    let Some(line) = tries(json!({"permissions": "read"}), &format!("{script}\n{OUTSIDE}")) else { return };
    let line = goes_as_said(line);
    assert_eq!(line.git(&["status", "--porcelain"]), "");
}

#[test]
fn case_33_from_a_worktree_the_checkout_its_hooks_and_settings_are_out_of_reach() {
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
    let Some(line) = tries(json!({"worktree": true}), &format!("{script}\n{OUTSIDE}")) else { return };
    fs::create_dir_all(line.path("worktrees/other")).unwrap();
    let line = goes_as_said(line);
    assert_eq!(line.git(&["status", "--porcelain"]), "");
    let log = line.git(&["log", "--format=%s", "--branches=trunkline/*"]);
    assert!(log.contains("from inside"), "{log}");
}

#[test]
fn what_a_model_adds_may_be_written_too() {
    let script = "can write \"$all/sibling/new\"; cannot write ~/new";
    let Some(line) = tries(json!({"permissions": "read", "writable": ["../sibling"]}), script) else { return };
    goes_as_said(line);
}

#[test]
fn a_cli_keeps_its_own_state() {
    let script = r#"
can write ~/.claude/projects
can write ~/.claude.json
cannot write ~/.config/x
printf '{"type":"result","subtype":"success","is_error":false,"result":"%s","session_id":"x"}\n' "$said"
exit
"#;
    let Some(line) = tries(json!({"driver": "claude"}), script) else { return };
    fs::create_dir(line.path("home/.config")).unwrap();
    fs::write(line.path("home/.claude.json"), "{}").unwrap();
    let line = line.start();
    line.chat("try").send().content();
    assert!(line.path("home/.claude/projects").exists() && !line.path("home/.config/x").exists());
    assert_eq!(fs::read_to_string(line.path("home/.claude.json")).unwrap(), "written\n");
}

#[test]
fn it_can_be_switched_off_and_full_is_free() {
    for (entry, flag) in [
        (json!({"permissions": "full"}), "on"),
        (json!({"permissions": "read", "sandbox": "off"}), "on"),
        (json!({}), "off"),
    ] {
        let Some(line) = tries(entry, "can write ~/new; can write \"$all/sibling/new\"") else { return };
        goes_as_said(line.args(&["--sandbox", flag]));
    }
}

#[test]
fn case_34_the_agents_bash_is_confined_and_check_says_how() {
    if let Err(missing) = Landlock::here() {
        return eprintln!("skipped: {missing}");
    }
    let Some(line) = TestGateway::outside_tmp() else { return };
    let command = |text: &str| json!({"command": text});
    let asked = tool_calls_reply(
        "",
        &[
            ("1", "bash", command("echo in > inside && echo done")),
            ("2", "bash", command("echo out > ~/outside || echo refused")),
        ],
    );
    let llm = FakeLlm::new([asked, text_reply("tried")]);
    let line = with_llm(line, &llm).start();
    assert_eq!(line.chat("try").model("agent").send().content(), "tried");
    let told = request_messages(&llm, 1);
    let outcomes: Vec<&str> = told.iter().filter(|(role, _)| role == "tool").map(|(_, text)| text.as_str()).collect();
    assert!(outcomes[0].contains("done") && outcomes[1].contains("refused"), "{outcomes:?}");
    assert!(line.repo().join("inside").exists() && !line.path("home/outside").exists());
    let shown = line.run(&["check", "agent"]).exits(0).stdout;
    let writes = shown.lines().find(|line| line.trim_start().starts_with("writes")).unwrap();
    assert!(writes.contains(line.repo().to_str().unwrap()) && writes.contains("/dev/null"), "{writes}");
    assert!(Path::new("/tmp").exists() && writes.contains(" /tmp"), "{writes}");
}

#[test]
fn case_34_every_answer_says_who_held_it() {
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
    for (model, held) in models.into_iter().chain([("ours", json!(ours))]) {
        let answer = gateway.chat("hi").model(model).send().json();
        assert_eq!(answer["trunkline"]["attempts"][0]["sandbox"], held, "{model}: {answer}");
    }
}
