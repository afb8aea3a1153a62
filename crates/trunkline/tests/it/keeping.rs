//! The database that cannot be opened, or not written: refused at the start, done without later; and what `doctor` says of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::database::Database;
use crate::observe::until;
use crate::test_gateway::TestGateway;

fn gateway() -> TestGateway {
    let script = "note \"$@\"; echo '{\"type\":\"thread.started\",\"thread_id\":\"0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\"}'; \
        codex_answers done";
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).unprivileged()
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn case_74_one_that_cannot_be_used_is_refused_with_a_word_about_what_to_do() {
    let newer = |path: &Path| Database::open(path).run("PRAGMA user_version = 99");
    let damaged = |path: &Path| fs::write(path, "no database ".repeat(1000)).unwrap();
    let read_only = |path: &Path| mode(path, 0o400);
    let read_only_folder = |path: &Path| {
        for beside in ["-wal", "-shm", "-lock"] {
            let _there_is_none = fs::remove_file(format!("{}{beside}", path.display()));
        }
        mode(path.parent().unwrap(), 0o500);
    };
    let a_folder = |path: &Path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    type Spoil<'a> = &'a dyn Fn(&Path);
    for (case, spoil, said) in [
        ("newer", &newer as Spoil<'_>, "newer version of trunkline"),
        ("damaged", &damaged, "sqlite3"),
        ("read-only", &read_only, "choose another --state"),
        ("a read-only folder", &read_only_folder, "choose another --state"),
        ("a folder", &a_folder, "choose another --state"),
    ] {
        let line = gateway();
        line.run(&["run", "-m", "m", "hi"]).exits(0);
        let path = line.path("state/trunkline.db");
        spoil(&path);
        line.chown_to_user(&line.path("state"));
        let content = fs::read(&path).ok();
        for command in [&["serve", "--port", "0"][..], &["serve", "--port", "0"]] {
            let ran = line.run(command).exits(3);
            assert!(ran.stdout.is_empty() && ran.stderr.contains(said), "{case}: {ran:?}");
            assert!(ran.stderr.contains(path.to_str().unwrap()), "{case}: {ran:?}");
        }
        assert_eq!(fs::read(&path).ok(), content, "{case}: it is left as it was");
        let ran = line.run(&["run", "-m", "m", "hi"]).exits(0);
        assert!(ran.stdout.contains("done"), "{case}: a single turn does without: {ran:?}");
        let doctor = line.run(&["doctor", "--port", "1"]).exits(3);
        assert!(doctor.stdout.contains("✗ memory: "), "{case}: {doctor:?}");
        mode(path.parent().unwrap(), 0o700);
    }
}

#[test]
fn doctor_says_how_the_memory_is() {
    let line = gateway();
    let none = line.run(&["doctor", "--port", "1"]).exits(0);
    assert!(none.stdout.contains("- memory: none yet"), "{none:?}");
    line.run(&["run", "-m", "m", "hi"]).exits(0);
    let well = line.run(&["doctor", "--port", "1"]).exits(0);
    let said = well.stdout.lines().find(|line| line.starts_with("✓ memory: format ")).unwrap();
    assert!(said.contains(" KiB, ") && said.contains(" free  ") && said.ends_with("/trunkline.db"), "{said}");
}

#[test]
fn one_that_takes_nothing_any_more_stops_no_turn() {
    let line = gateway().start();
    line.chat("first").send().content();
    let path = line.path("state/trunkline.db");
    let mut other = Database::open(&path);
    until("it is kept", || other.all("SELECT prompt FROM turns WHERE outcome = 'ok'") == ["first"]);
    // As a full disk does, every write fails; reading goes on.
    for (table, trigger) in [("turns", "full_turns"), ("sessions", "full_sessions")] {
        other.refuse(table, trigger);
    }
    let id = line.chat("lost").send().header("x-trunkline-session").unwrap().to_owned();
    for _ in 0..3 {
        assert_eq!(line.chat("lost").header("x-trunkline-session", &id).send().content(), "done");
    }
    until("both are said", || line.log().contains("the archive lost") && line.log().contains("remembered only until"));
    for trigger in ["full_turns", "full_sessions"] {
        other.allow(trigger);
    }
    line.chat("kept again").header("x-trunkline-session", &id).send().content();
    until("it is kept again", || {
        other.all("SELECT prompt FROM turns WHERE outcome = 'ok'").contains(&"kept again".into())
    });
    until("the session is, too", || other.all("SELECT id FROM sessions").contains(&id));
    let log = line.log();
    for said in ["the archive lost", "remembered only until this process ends", "sessions are remembered again"] {
        assert_eq!(log.matches(said).count(), 1, "{said}: {log}");
    }
}
