//! Which paths may be used.

use std::os::unix::fs::symlink;

use super::*;

#[tokio::test]
async fn case_32_ways_out_of_the_workspace() {
    for permissions in [Permissions::Read, Permissions::Edit] {
        let stage = Stage::new(permissions);
        let base = stage.folder.path().canonicalize().unwrap();
        let (root, outside) = (base.join("work").display().to_string(), base.display().to_string());
        stage.put("in/a.txt", "a");
        symlink("../secret.txt", stage.path("link")).unwrap();
        symlink("link", stage.path("in/chain")).unwrap();
        symlink(stage.path("link"), stage.path("in/absolute")).unwrap();
        symlink("..", stage.path("up")).unwrap();
        symlink("../../new.txt", stage.path("in/dangling")).unwrap();
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
            assert_eq!(stage.read(path).await, refused);
            if permissions == Permissions::Edit {
                assert_eq!(stage.write(path, "x").await, refused);
                assert_eq!(stage.edit(path, "secret", "x").await, refused);
            }
        }
        // Its target would be in the folder of the link, and is not there.
        assert_eq!(stage.read("in/chain").await, Err("`in/chain` does not exist".into()));
        assert_eq!(fs::read_to_string(stage.folder.path().join("secret.txt")).unwrap(), "secret");
        assert!(!stage.folder.path().join("new.txt").exists() && !stage.folder.path().join("new").exists());
    }
}

#[tokio::test]
async fn files_elsewhere_are_read_and_not_written_when_their_folder_is_allowed() {
    for permissions in [Permissions::Read, Permissions::Edit] {
        let mut stage = Stage::new(permissions);
        let outside = stage.folder.path().canonicalize().unwrap();
        let docs = outside.join("docs");
        fs::create_dir(&docs).unwrap();
        fs::write(docs.join("a.md"), "notes").unwrap();
        symlink(outside.join("secret.txt"), docs.join("way-out")).unwrap();
        stage.tools = stage.tools.clone().reading(std::slice::from_ref(&docs));
        let file = docs.join("a.md").display().to_string();
        for path in [file.as_str(), "../docs/a.md"] {
            assert_eq!(stage.read(path).await, Ok("notes".into()), "{path}");
        }
        assert!(stage.read(docs.to_str().unwrap()).await.is_ok_and(|names| names.contains("a.md")));
        for path in ["../secret.txt", "../docs/way-out", "../docs/../secret.txt", "../docs-too"] {
            assert!(stage.read(path).await.is_err_and(|said| said.contains("outside the workspace")), "{path}");
        }
        if permissions == Permissions::Edit {
            for said in [stage.write(&file, "x").await, stage.edit(&file, "notes", "x").await] {
                assert!(said.is_err_and(|said| said.contains("outside the workspace")));
            }
        }
        assert_eq!(fs::read_to_string(docs.join("a.md")).unwrap(), "notes");
    }
}

#[tokio::test]
async fn ways_that_stay_inside() {
    let stage = Stage::new(Permissions::Edit);
    stage.put("src/a.txt", "a");
    symlink("src", stage.path("alias")).unwrap();
    symlink(stage.path("src/a.txt"), stage.path("absolute")).unwrap();
    let whole = stage.path("src/a.txt").display().to_string();
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
        assert_eq!(stage.read(path).await, ok("a"), "{path}");
    }
}

#[tokio::test]
async fn full_permissions_go_anywhere() {
    let stage = Stage::new(Permissions::Full);
    assert_eq!(stage.read("../secret.txt").await, ok("secret"));
    let path = stage.folder.path().join("new/a.txt").display().to_string();
    assert_eq!(stage.write(&path, "a").await, ok("OK"));
    assert_eq!(stage.edit("../new/a.txt", "a", "b").await, ok("OK"));
    assert_eq!(fs::read_to_string(path).unwrap(), "b");
}

#[tokio::test]
async fn paths_that_are_none() {
    let stage = Stage::new(Permissions::Edit);
    symlink("loop", stage.path("loop")).unwrap();
    for (path, expected) in [
        ("", "the path is empty; name a file"),
        ("~/a.txt", "`~/a.txt`: `~` is not expanded here; use a path relative to the workspace"),
        ("~", "`~`: `~` is not expanded here; use a path relative to the workspace"),
        ("a\0b", "the path is not a path: it has a NUL byte or more than 4096 bytes"),
        (&"../".repeat(2000), "the path is not a path: it has a NUL byte or more than 4096 bytes"),
        ("loop", "cannot tell where `loop` leads: too many symbolic links"),
    ] {
        assert_eq!(stage.read(path).await, Err(expected.into()), "{path:?}");
        assert_eq!(stage.write(path, "x").await, Err(expected.into()), "{path:?}");
    }
    assert_eq!(stage.write("~x", "a name like any other").await, ok("OK"));
}

#[tokio::test]
async fn a_workspace_that_is_gone() {
    let stage = Stage::new(Permissions::Edit);
    fs::remove_dir(stage.path("")).unwrap();
    let root = stage.tools.workspace.root.display();
    let reason = "No such file or directory (os error 2)";
    assert_eq!(stage.read("a").await, Err(format!("cannot find the workspace {root}: {reason}")));
    assert_eq!(stage.bash("ls").await, Err(format!("cannot run a command in the workspace {root}: {reason}")));
}

#[tokio::test]
async fn near_names() {
    let stage = Stage::new(Permissions::Read);
    stage.put("src/main.rs", "");
    stage.put("README.md", "");
    for (path, expected) in [
        ("src/mian.rs", "`src/mian.rs` does not exist; perhaps you mean `src/main.rs`"),
        ("readme.md", "`readme.md` does not exist; perhaps you mean `README.md`"),
        ("scr/main.rs", "`scr/main.rs` does not exist: there is no folder `scr`; perhaps you mean `src`"),
        ("README.md/a", "`README.md/a` does not exist: `README.md` is not a folder"),
        ("src/zzzzzzzz", "`src/zzzzzzzz` does not exist"),
    ] {
        assert_eq!(stage.read(path).await, Err(expected.into()));
    }
}
