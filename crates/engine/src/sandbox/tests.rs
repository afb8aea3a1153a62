use std::process::Command;

use trunkline_core::model::Backend;
use trunkline_core::provider::{built_in, executable};

use super::*;
use crate::router::test_models::model;

fn bounds(model: &Model, usual: Sandbox) -> Bounds {
    let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/u"));
    let recipe = model.backend.program().map(|recipe| &**recipe);
    if let Some(free) = freedom(model, usual, recipe).unwrap() {
        return Bounds::Free(free);
    }
    let places = usual_places(model, recipe, vec!["/own".into()], &home).into();
    Bounds::Within(Scene { permissions: model.permissions, workspace: vec!["/repo".into()], usual: &places }.writable())
}

fn of(provider: &str) -> Model {
    Model { backend: Backend::Program(built_in()[provider].clone().into()), ..model("m") }
}

#[test]
fn confinement_depends_on_permissions_and_sandbox_setting() {
    let executable = Model { backend: Backend::Program(executable("x", "x", &[]).into()), ..model("x") };
    let off = Model { sandbox: Some(Sandbox::Off), ..of("claude") };
    for (model, usual, free) in [
        (Model { permissions: Permissions::Full, ..of("claude") }, Sandbox::Required, Free::Full),
        (off, Sandbox::Required, Free::Off),
        (of("claude"), Sandbox::Off, Free::Off),
        (of("codex"), Sandbox::On, Free::Own),
        (of("codex"), Sandbox::Off, Free::Own),
        (executable, Sandbox::On, Free::Executable),
    ] {
        assert_eq!(bounds(&model, usual), Bounds::Free(free));
    }
}

#[test]
fn cli_with_own_sandbox_gets_full_permissions_when_ours_is_required() {
    let codex = of("codex");
    let recipe = codex.backend.program().unwrap();
    assert_eq!(told(&codex, Sandbox::On, recipe), CliPermissions::Edit);
    if let Err(missing) = Landlock::here() {
        return eprintln!("skipped: {missing}");
    }
    assert_eq!(told(&codex, Sandbox::Required, recipe), CliPermissions::Full);
    let Bounds::Within(places) = bounds(&codex, Sandbox::Required) else { panic!("it is free") };
    assert!(places.contains(&"/repo".into()) && !places.contains(&"/home/u".into()));
    let read = Model { permissions: Permissions::Read, ..codex };
    let Bounds::Within(places) = bounds(&read, Sandbox::Required) else { panic!("it is free") };
    assert!(!places.contains(&"/repo".into()));
}

#[test]
fn edit_includes_commands_only_when_the_kernel_confines_the_run() {
    if let Err(missing) = Landlock::here() {
        return eprintln!("skipped: {missing}");
    }
    for name in ["claude", "gemini", "qwen", "opencode"] {
        let model = of(name);
        let recipe = model.backend.program().unwrap();
        let as_told = |permissions, sandbox| told(&Model { permissions, ..model.clone() }, sandbox, recipe);
        for (permissions, sandbox, expected) in [
            (Permissions::Read, Sandbox::On, CliPermissions::Read),
            (Permissions::Edit, Sandbox::On, CliPermissions::EditConfined),
            (Permissions::Edit, Sandbox::Required, CliPermissions::EditConfined),
            (Permissions::Edit, Sandbox::Off, CliPermissions::Edit),
            (Permissions::Full, Sandbox::On, CliPermissions::Full),
        ] {
            assert_eq!(as_told(permissions, sandbox), expected, "{name} {permissions:?} {sandbox:?}");
        }
        assert!(recipe.permissions.edit_confined.is_some(), "{name} has no flags for it");
    }
}

#[test]
fn writable_paths_of_each_kind_of_run() {
    if let Err(missing) = Landlock::here() {
        return eprintln!("skipped: {missing}");
    }
    let within = |model: &Model| match bounds(model, Sandbox::Off) {
        Bounds::Within(places) => places,
        Bounds::Free(free) => panic!("{free}"),
    };
    let edit = Model { sandbox: Some(Sandbox::On), writable: vec!["/more".into()], ..of("claude") };
    let read = Model { permissions: Permissions::Read, ..edit.clone() };
    for (model, workspace) in [(&edit, true), (&read, false)] {
        let places = within(model);
        let has = |path: &str| places.contains(&PathBuf::from(path));
        assert_eq!(has("/repo"), workspace);
        for path in ["/own", "/more", "/home/u/.claude", "/home/u/.claude.json", "/home/u/.cache", "/tmp", "/dev/null"]
        {
            assert!(has(path), "{path}");
        }
        for path in ["/", "/home/u", "/home/u/.cargo", "/home/u/.config", "/dev", "/proc"] {
            assert!(!has(path), "{path}");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test makes its repository by hand")]
fn git(folder: &Path, args: &[&str]) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=T", "-c", "user.email=t@localhost", "-C"]).arg(folder).args(args);
    assert!(git.output().unwrap().status.success(), "{args:?}");
}

/// The `.git` file of a worktree may have been written by an agent.
#[test]
fn case_33_forged_worktree_opens_no_path() {
    let folder = tempfile::tempdir().unwrap();
    let (main, tree) = (folder.path().join("main"), folder.path().join("tree"));
    fs::create_dir(&main).unwrap();
    git(&main, &["init", "-q"]);
    git(&main, &["commit", "-q", "--allow-empty", "-m", "x"]);
    git(&main, &["worktree", "add", "-q", &tree.to_string_lossy()]);
    let common = main.join(".git").canonicalize().unwrap();
    let parts = ["worktrees/tree", "objects", "refs", "logs", "reftable", "lfs"].map(|part| common.join(part));
    assert_eq!(checkout(&tree), [&[tree.clone()][..], &parts].concat());
    assert_eq!(checkout(&main), std::slice::from_ref(&main));

    let victim = folder.path().join("victim/worktrees/x");
    fs::create_dir_all(&victim).unwrap();
    let forged = folder.path().join("forged");
    fs::create_dir(&forged).unwrap();
    for said in
        [format!("gitdir: {}\n", victim.display()), format!("gitdir: {}\n", parts[0].display()), "gitdir: /".into()]
    {
        fs::write(forged.join(".git"), said).unwrap();
        assert_eq!(checkout(&forged), std::slice::from_ref(&forged));
    }
}

#[test]
fn checkout_is_found_behind_a_symlink_when_a_part_of_its_path_becomes_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (repo, moved) = (root.join("in/repo"), root.join("elsewhere"));
    fs::create_dir_all(repo.join(".git")).unwrap();
    assert_eq!(checkout(&repo), std::slice::from_ref(&repo));
    fs::rename(root.join("in"), &moved).unwrap();
    std::os::unix::fs::symlink(&moved, root.join("in")).unwrap();
    assert_eq!(checkout(&repo), [moved.join("repo")]);
    assert_eq!(checkout(&moved.join("repo/../repo")), [moved.join("repo")]);
    assert_eq!(checkout(&root.join("missing")), [root.join("missing")]);
}

#[test]
fn workspace_is_pinned_when_it_is_among_the_paths_of_the_model() {
    let usual: Arc<[PathBuf]> = ["/repo".into(), "/more".into()].into();
    for (permissions, pinned) in [(Permissions::Read, vec!["/repo"]), (Permissions::Edit, vec!["/repo", "/git"])] {
        let workspace = vec!["/repo".into(), "/git".into()];
        let confinement = Scene { permissions, workspace, usual: &usual }.confinement();
        assert_eq!(confinement.pinned, pinned.into_iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!((&*confinement.shared, confinement.writable), (&["/more".into()][..], Vec::new()));
    }
}
