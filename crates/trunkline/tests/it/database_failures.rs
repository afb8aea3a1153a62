//! A database that cannot be opened or written. At startup it is an error; later the gateway continues without it. Also
//! the report of `doctor`.

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

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn case_74_serve_refuses_with_a_remedy_when_the_database_cannot_be_used() {
    let newer = |path: &Path| Database::open(path).run("PRAGMA user_version = 99");
    let damaged = |path: &Path| fs::write(path, "no database ".repeat(1000)).unwrap();
    let read_only = |path: &Path| set_mode(path, 0o400);
    let read_only_folder = |path: &Path| {
        for suffix in ["-wal", "-shm", "-lock"] {
            // Not all of them exist.
            let _ = fs::remove_file(format!("{}{suffix}", path.display()));
        }
        set_mode(path.parent().unwrap(), 0o500);
    };
    let a_folder = |path: &Path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    type Spoil<'a> = &'a dyn Fn(&Path);
    for (case, spoil, message) in [
        ("newer", &newer as Spoil<'_>, "newer version of trunkline"),
        ("damaged", &damaged, "sqlite3"),
        ("read-only", &read_only, "choose another --state"),
        ("a read-only folder", &read_only_folder, "choose another --state"),
        ("a folder", &a_folder, "choose another --state"),
    ] {
        let gateway = gateway();
        gateway.run(&["run", "-m", "m", "hi"]).exits(0);
        let path = gateway.path("state/trunkline.db");
        spoil(&path);
        gateway.chown_to_user(&gateway.path("state"));
        let content = fs::read(&path).ok();
        for command in [&["serve", "--port", "0"][..], &["serve", "--port", "0"]] {
            let ran = gateway.run(command).exits(3);
            assert!(ran.stdout.is_empty() && ran.stderr.contains(message), "{case}: {ran:?}");
            assert!(ran.stderr.contains(path.to_str().unwrap()), "{case}: {ran:?}");
        }
        assert_eq!(fs::read(&path).ok(), content, "{case}: the file is unchanged");
        let ran = gateway.run(&["run", "-m", "m", "hi"]).exits(0);
        assert!(ran.stdout.contains("done"), "{case}: a single turn works without the database: {ran:?}");
        let doctor = gateway.run(&["doctor", "--port", "1"]).exits(3);
        assert!(doctor.stdout.contains("✗ memory: "), "{case}: {doctor:?}");
        set_mode(path.parent().unwrap(), 0o700);
    }
}

#[test]
fn doctor_shows_the_state_of_the_database() {
    let gateway = gateway();
    let none = gateway.run(&["doctor", "--port", "1"]).exits(0);
    assert!(none.stdout.contains("- memory: none yet"), "{none:?}");
    gateway.run(&["run", "-m", "m", "hi"]).exits(0);
    let healthy = gateway.run(&["doctor", "--port", "1"]).exits(0);
    let row = healthy.stdout.lines().find(|line| line.starts_with("✓ memory: format ")).unwrap();
    assert!(row.contains(" KiB, ") && row.contains(" free  ") && row.ends_with("/trunkline.db"), "{row}");
}

#[test]
fn turns_succeed_when_the_database_cannot_be_written() {
    let gateway = gateway().start();
    gateway.chat("first").send().content();
    let path = gateway.path("state/trunkline.db");
    let mut other = Database::open(&path);
    until("the first turn is stored", || other.all("SELECT prompt FROM turns WHERE outcome = 'ok'") == ["first"]);
    // Every write fails, as on a full disk; reads still work.
    for (table, trigger) in [("turns", "full_turns"), ("sessions", "full_sessions")] {
        other.refuse(table, trigger);
    }
    let id = gateway.chat("lost").send().header("x-trunkline-session").unwrap().to_owned();
    for _ in 0..3 {
        assert_eq!(gateway.chat("lost").header("x-trunkline-session", &id).send().content(), "done");
    }
    until("the failure is logged", || gateway.log().contains("the index of runs cannot be written"));
    let listed = gateway.get("/v1/runs").json()["data"].as_array().unwrap().len();
    assert_eq!(listed, 5, "runs are found in memory");
    for trigger in ["full_turns", "full_sessions"] {
        other.allow(trigger);
    }
    gateway.chat("kept again").header("x-trunkline-session", &id).send().content();
    until("all turns are stored", || other.all("SELECT prompt FROM turns WHERE outcome = 'ok'").len() == 6);
    until("the session is stored, too", || other.all("SELECT id FROM sessions").contains(&id));
    let log = gateway.log();
    for message in ["the index of runs cannot be written", "the database is written again"] {
        assert_eq!(log.matches(message).count(), 1, "{message}: {log}");
    }
}
