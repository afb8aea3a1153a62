//! Resolution of paths, and which of them may be used.

use std::os::unix::fs::symlink;

use super::*;

#[tokio::test]
async fn case_32_paths_that_leave_the_workspace_are_refused() {
    for permissions in [Permissions::Read, Permissions::Edit] {
        let workspace = TestWorkspace::new(permissions);
        let base = workspace.folder.path().canonicalize().unwrap();
        let (root, outside) = (base.join("work").display().to_string(), base.display().to_string());
        workspace.put("in/a.txt", "a");
        symlink("../secret.txt", workspace.path("link")).unwrap();
        symlink("link", workspace.path("in/chain")).unwrap();
        symlink(workspace.path("link"), workspace.path("in/absolute")).unwrap();
        symlink("..", workspace.path("up")).unwrap();
        symlink("../../new.txt", workspace.path("in/dangling")).unwrap();
        for (path, leads_to) in [
            ("../secret.txt", "secret.txt"),
            ("in/../../secret.txt", "secret.txt"),
            ("new/../../secret.txt", "secret.txt"),
            (&format!("{outside}/secret.txt"), "secret.txt"),
            ("link", "secret.txt"),
            ("in/absolute", "secret.txt"),
            ("up/secret.txt", "secret.txt"),
            ("up/new/deep.txt", "new/deep.txt"),
            ("in/dangling", "new.txt"),
            ("..", ""),
        ] {
            let leads_to = if leads_to.is_empty() { outside.clone() } else { format!("{outside}/{leads_to}") };
            let refused = Err(format!(
                "`{path}` leads to {leads_to}, outside the workspace {root}; only files inside it may be used"
            ));
            assert_eq!(workspace.read(path).await, refused);
            if permissions == Permissions::Edit {
                assert_eq!(workspace.write(path, "x").await, refused);
                assert_eq!(workspace.edit(path, "secret", "x").await, refused);
            }
        }
        // The target is relative to the folder of the link, where it does not exist.
        assert_eq!(workspace.read("in/chain").await, Err("`in/chain` does not exist".into()));
        assert_eq!(fs::read_to_string(workspace.folder.path().join("secret.txt")).unwrap(), "secret");
        assert!(!workspace.folder.path().join("new.txt").exists() && !workspace.folder.path().join("new").exists());
    }
}

#[tokio::test]
async fn files_outside_can_be_read_but_not_written_when_their_folder_is_readable() {
    for permissions in [Permissions::Read, Permissions::Edit] {
        let mut workspace = TestWorkspace::new(permissions);
        let outside = workspace.folder.path().canonicalize().unwrap();
        let docs = outside.join("docs");
        fs::create_dir(&docs).unwrap();
        fs::write(docs.join("a.md"), "notes").unwrap();
        symlink(outside.join("secret.txt"), docs.join("way-out")).unwrap();
        workspace.tools = workspace.tools.clone().reading(std::slice::from_ref(&docs));
        let file = docs.join("a.md").display().to_string();
        for path in [file.as_str(), "../docs/a.md"] {
            assert_eq!(workspace.read(path).await, Ok("notes".into()), "{path}");
        }
        assert!(workspace.read(docs.to_str().unwrap()).await.is_ok_and(|names| names.contains("a.md")));
        for path in ["../secret.txt", "../docs/way-out", "../docs/../secret.txt", "../docs-too"] {
            assert!(
                workspace.read(path).await.is_err_and(|message| message.contains("outside the workspace")),
                "{path}"
            );
        }
        if permissions == Permissions::Edit {
            for message in [workspace.write(&file, "x").await, workspace.edit(&file, "notes", "x").await] {
                assert!(message.is_err_and(|message| message.contains("outside the workspace")));
            }
        }
        assert_eq!(fs::read_to_string(docs.join("a.md")).unwrap(), "notes");
    }
}

#[tokio::test]
async fn paths_with_links_and_dots_are_allowed_when_they_stay_inside() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    workspace.put("src/a.txt", "a");
    symlink("src", workspace.path("alias")).unwrap();
    symlink(workspace.path("src/a.txt"), workspace.path("absolute")).unwrap();
    let whole = workspace.path("src/a.txt").display().to_string();
    let around = format!("../{}/src/a.txt", "work");
    for path in [
        "src/a.txt",
        "./src//a.txt",
        "alias/a.txt",
        "absolute",
        "src/../src/a.txt",
        "new/../src/a.txt",
        &whole,
        &around,
    ] {
        assert_eq!(workspace.read(path).await, ok("a"), "{path}");
    }
}

#[tokio::test]
async fn full_permissions_allow_every_path() {
    let workspace = TestWorkspace::new(Permissions::Full);
    assert_eq!(workspace.read("../secret.txt").await, ok("secret"));
    let path = workspace.folder.path().join("new/a.txt").display().to_string();
    assert_eq!(workspace.write(&path, "a").await, ok("OK"));
    assert_eq!(workspace.edit("../new/a.txt", "a", "b").await, ok("OK"));
    assert_eq!(fs::read_to_string(path).unwrap(), "b");
}

#[tokio::test]
async fn invalid_paths_are_refused() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    symlink("loop", workspace.path("loop")).unwrap();
    for (path, expected) in [
        ("", "the path is empty; name a file"),
        ("~/a.txt", "`~/a.txt`: `~` is not expanded here; use a path relative to the workspace"),
        ("~", "`~`: `~` is not expanded here; use a path relative to the workspace"),
        ("a\0b", "the path is not a path: it has a NUL byte or more than 4096 bytes"),
        (&"../".repeat(2000), "the path is not a path: it has a NUL byte or more than 4096 bytes"),
        ("loop", "cannot resolve `loop`: too many symbolic links"),
    ] {
        assert_eq!(workspace.read(path).await, Err(expected.into()), "{path:?}");
        assert_eq!(workspace.write(path, "x").await, Err(expected.into()), "{path:?}");
    }
    assert_eq!(workspace.write("~x", "an ordinary name").await, ok("OK"));
}

#[tokio::test]
async fn tools_fail_when_workspace_does_not_exist() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    fs::remove_dir(workspace.path("")).unwrap();
    let root = workspace.tools.workspace.root.display();
    let reason = "No such file or directory (os error 2)";
    assert_eq!(workspace.read("a").await, Err(format!("cannot find the workspace {root}: {reason}")));
    assert_eq!(workspace.bash("ls").await, Err(format!("cannot run a command in the workspace {root}: {reason}")));
}

#[tokio::test]
async fn similar_names_are_suggested_when_file_does_not_exist() {
    let workspace = TestWorkspace::new(Permissions::Read);
    workspace.put("src/main.rs", "");
    workspace.put("README.md", "");
    for (path, expected) in [
        ("src/mian.rs", "`src/mian.rs` does not exist; perhaps you mean `src/main.rs`"),
        ("readme.md", "`readme.md` does not exist; perhaps you mean `README.md`"),
        ("scr/main.rs", "`scr/main.rs` does not exist: there is no folder `scr`; perhaps you mean `src`"),
        ("README.md/a", "`README.md/a` does not exist: `README.md` is not a folder"),
        ("src/zzzzzzzz", "`src/zzzzzzzz` does not exist"),
    ] {
        assert_eq!(workspace.read(path).await, Err(expected.into()));
    }
}
