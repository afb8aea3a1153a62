use trunkline_core::provider::built_in;

use super::*;
use crate::attempt::file_memo::FileMemo;
use crate::attempt::file_memo::tests::{later, next_tick};

#[test]
fn credentials_are_linked_and_settings_copied() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("auth.json"), "{}").unwrap();
    fs::write(own.join("config.toml"), "model = \"a\"").unwrap();
    let codex = built_in()["codex"].home.clone().unwrap();
    for _ in 0..2 {
        prepare(&codex, folder.path(), "codex", &own, &mut Sources::default()).unwrap();
        let home = super::folder(folder.path(), "codex");
        assert_eq!(fs::read_link(home.join("auth.json")).unwrap(), own.join("auth.json"));
        // A run's changes do not reach the user's file.
        fs::write(home.join("config.toml"), "model = \"a\"\n[projects]").unwrap();
        assert_eq!(fs::read_to_string(own.join("config.toml")).unwrap(), "model = \"a\"");
    }
}

/// A user's folder for codex, with these files.
fn user_folder(parent: &Path, files: &[&str]) -> PathBuf {
    let own = parent.join("own");
    for name in files {
        let file = own.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, *name).unwrap();
    }
    own
}

#[test]
fn configuration_is_linked_and_state_stays_private_when_a_home_is_prepared() {
    let folder = tempfile::tempdir().unwrap();
    let shared = [
        "AGENTS.md",
        "AGENTS.override.md",
        "prompts/review.md",
        "rules/default.rules",
        "skills/lamp/SKILL.md",
        "hooks.json",
        "work.config.toml",
    ];
    let private = [
        "sessions/2026/rollout.jsonl",
        "state_5.sqlite",
        "state_5.sqlite-wal",
        "history.jsonl",
        "skills/.system/x/SKILL.md",
        "installation_id",
        "log/codex.log",
    ];
    let own = user_folder(folder.path(), &[&shared[..], &private[..], &["auth.json", "config.toml"]].concat());
    let codex = built_in()["codex"].home.clone().unwrap();
    let home = super::folder(folder.path(), "codex");
    for _ in 0..2 {
        prepare(&codex, folder.path(), "codex", &own, &mut Sources::default()).unwrap();
        for name in shared {
            assert_eq!(fs::read_to_string(home.join(name)).unwrap(), name);
        }
        for name in private {
            assert!(!home.join(name).exists(), "{name}");
        }
    }
    // Skills that the CLI adds stay in the private home.
    fs::create_dir(home.join("skills/.system")).unwrap();
    assert_eq!(fs::read_to_string(own.join("skills/.system/x/SKILL.md")).unwrap(), "skills/.system/x/SKILL.md");
}

#[test]
fn links_and_copies_follow_when_the_user_removes_or_restores_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let own = user_folder(folder.path(), &["AGENTS.md", "skills/lamp/SKILL.md", "config.toml"]);
    let codex = built_in()["codex"].home.clone().unwrap();
    let home = super::folder(folder.path(), "codex");
    let prepare = || prepare(&codex, folder.path(), "codex", &own, &mut Sources::default()).unwrap();
    prepare();
    // A restored file counts as changed even if its time is older.
    fs::write(own.join("config.toml"), "restored").unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    fs::File::open(own.join("config.toml")).unwrap().set_modified(old).unwrap();
    fs::remove_file(own.join("AGENTS.md")).unwrap();
    fs::remove_dir_all(own.join("skills/lamp")).unwrap();
    prepare();
    assert_eq!(fs::read_to_string(home.join("config.toml")).unwrap(), "restored");
    assert!(!home.join("AGENTS.md").is_symlink() && !home.join("skills/lamp").is_symlink());
    fs::remove_file(own.join("config.toml")).unwrap();
    prepare();
    assert!(!home.join("config.toml").exists());
}

#[test]
fn files_of_a_recipe_are_refused_when_their_names_lead_elsewhere() {
    let state = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let files = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
        write_files(&files, state.path(), "p", &mut Sources::default())
    };
    write("policy.toml").unwrap();
    assert_eq!(fs::read_to_string(files_path(state.path(), "p").join("policy.toml")).unwrap(), "x");
    for name in ["../x", "/etc/x", "a/b", "..", ""] {
        assert!(write(name).unwrap_err().message.contains("not a plain file name"), "{name}");
    }
}

#[test]
fn settings_are_not_rewritten_when_unchanged() {
    let state = tempfile::tempdir().unwrap();
    let qwen = built_in()["qwen"].settings.clone().unwrap();
    let path = settings_path(state.path(), "qwen");
    write_settings(&qwen, state.path(), "qwen", &mut Sources::default()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), qwen.content);
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    write_settings(&qwen, state.path(), "qwen", &mut Sources::default()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
}

#[test]
fn home_is_empty_when_the_user_has_no_folder_for_the_cli() {
    let folder = tempfile::tempdir().unwrap();
    let codex = built_in()["codex"].home.clone().unwrap();
    prepare(&codex, folder.path(), "codex", &folder.path().join("missing"), &mut Sources::default()).unwrap();
    let entries: Vec<_> = fs::read_dir(super::folder(folder.path(), "codex")).unwrap().flatten().collect();
    assert!(entries.iter().all(|entry| entry.file_name() == FILLED_MARK), "{entries:?}");
}

/// A change, and whether the home shows it.
type Step<'a> = (&'a str, &'a dyn Fn(), &'a dyn Fn() -> bool);

#[test]
fn every_change_of_the_user_or_a_run_is_noticed_when_a_home_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let own = user_folder(folder.path(), &["AGENTS.md", "skills/lamp/SKILL.md", "config.toml"]);
    let (elsewhere, hooks) = (folder.path().join("auth.json"), own.join("hooks.json"));
    let codex = built_in()["codex"].home.clone().unwrap();
    let home = super::folder(folder.path(), "codex");
    let memo = FileMemo::default();
    let prepare = || {
        let mut examined = false;
        let ready = memo.get_at(later(), |sources| {
            examined = true;
            super::prepare(&codex, folder.path(), "codex", &own, sources)
        });
        ready.unwrap();
        examined
    };
    let settle = || {
        while prepare() {}
        next_tick(folder.path());
    };
    settle();
    assert!(!prepare());
    let links_to = |name: &str, target: &Path| fs::read_link(home.join(name)).is_ok_and(|found| found == target);
    let text = |name: &str| fs::read_to_string(home.join(name)).unwrap_or_default();
    let log_in_elsewhere = || {
        fs::remove_file(own.join("auth.json")).unwrap();
        symlink(&elsewhere, own.join("auth.json")).unwrap();
    };
    let steps: [Step<'_>; 8] = [
        ("a login", &|| fs::write(own.join("auth.json"), "{}").unwrap(), &|| {
            links_to("auth.json", &own.join("auth.json"))
        }),
        (
            "a run replaced the link",
            &|| fs::write(home.join("x"), "").and(fs::rename(home.join("x"), home.join("auth.json"))).unwrap(),
            &|| links_to("auth.json", &own.join("auth.json")),
        ),
        ("a link without a target", &log_in_elsewhere, &|| !own.join("auth.json").exists()),
        ("the target of that link appears", &|| fs::write(&elsewhere, "{}").unwrap(), &|| text("auth.json") == "{}"),
        ("edited settings", &|| fs::write(own.join("config.toml"), "model = 1").unwrap(), &|| {
            text("config.toml") == "model = 1"
        }),
        ("new configuration", &|| fs::write(&hooks, "{}").unwrap(), &|| links_to("hooks.json", &hooks)),
        ("a new skill", &|| fs::create_dir(own.join("skills/pen")).unwrap(), &|| {
            links_to("skills/pen", &own.join("skills/pen"))
        }),
        ("removed configuration", &|| fs::remove_file(&hooks).unwrap(), &|| !home.join("hooks.json").is_symlink()),
    ];
    for (what, change, is_noticed) in steps {
        change();
        assert!(prepare(), "{what}: not examined");
        assert!(is_noticed(), "{what}");
        settle();
    }
}

#[test]
fn settings_are_restored_when_they_were_changed_after_they_were_ready() {
    let state = tempfile::tempdir().unwrap();
    let qwen = built_in()["qwen"].settings.clone().unwrap();
    let memo = FileMemo::default();
    let write = || memo.get_at(later(), |sources| write_settings(&qwen, state.path(), "qwen", sources)).unwrap();
    write();
    write();
    next_tick(state.path());
    fs::write(settings_path(state.path(), "qwen"), "{}").unwrap();
    write();
    assert_eq!(fs::read_to_string(settings_path(state.path(), "qwen")).unwrap(), qwen.content);
}
