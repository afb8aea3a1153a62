//! Reading, writing and editing of files.

use std::future::poll_fn;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::task::Poll;

use super::*;

#[tokio::test]
async fn read_file_returns_text_and_notes() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    workspace.put("bin.dat", b"a\0b");
    workspace.put("latin.txt", b"caf\xe9");
    workspace.put("empty", "");
    for text in ["one\ntwo\n", "no newline", "\r\n", "\u{feff}größe\r\n", "\n"] {
        workspace.put("a.txt", text);
        assert_eq!(workspace.read("a.txt").await, ok(text));
    }
    assert_eq!(workspace.read("empty").await, ok("[`empty` is empty: 0 bytes]"));
    let binary = "`bin.dat` is a binary file of 3 bytes, not text; inspect it with bash (file, xxd, iconv)";
    assert_eq!(workspace.read("bin.dat").await, Err(binary.into()));
    let latin = "caf\u{fffd}\n[`latin.txt` is not UTF-8 throughout: each U+FFFD above stands for other bytes]\n";
    assert_eq!(workspace.read("latin.txt").await, ok(latin));
}

#[tokio::test]
async fn long_files_are_truncated_with_a_command_for_the_rest() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    let lines: String = (1..=50_000).map(|n| format!("line {n}\n")).collect();
    for (name, text) in [("it's long.txt", lines), ("one line.txt", "€".repeat(200_000))] {
        workspace.put(name, &text);
        let output = workspace.read(name).await.unwrap();
        let (shown, note) = output.rsplit_once('[').unwrap();
        let shown = text.strip_prefix(shown.trim_end()).map(|rest| text.len() - rest.len()).unwrap();
        assert!((256 * 1024 - 4096..=256 * 1024).contains(&shown), "{shown}");
        let (_, command) = note.strip_suffix("]\n").unwrap().split_once("continue with bash: ").unwrap();
        let more = workspace.bash(command).await.unwrap();
        let more = more.split("\n[").next().unwrap();
        assert!(
            text[shown..].trim_start().starts_with(more.trim_end_matches('\u{fffd}').trim_end()),
            "{command}: {more}"
        );
        assert!(more.len() > 1000, "{command}: {more}");
    }
    let exact = format!("{}\n", "x".repeat(256 * 1024 - 1));
    workspace.put("exact.txt", &exact);
    assert_eq!(workspace.read("exact.txt").await, Ok(exact));
}

#[tokio::test]
async fn bash_is_not_recommended_when_it_is_not_allowed() {
    let workspace = TestWorkspace::new(Permissions::Read);
    workspace.put("long.txt", "x\n".repeat(200_000));
    workspace.put("bin.dat", b"\0");
    let note = "\n[`long.txt` is cut here: 262144 of 400000 bytes are shown; there is no way to see the rest]\n";
    assert!(workspace.read("long.txt").await.unwrap().ends_with(note));
    assert_eq!(workspace.read("bin.dat").await, Err("`bin.dat` is a binary file of 1 bytes, not text".into()));
}

#[tokio::test]
async fn folders_are_listed() {
    let workspace = TestWorkspace::new(Permissions::Read);
    workspace.put("src/b.rs", "");
    workspace.put("src/a/c.rs", "");
    assert_eq!(workspace.read("src").await, ok("[`src` is a folder; entries: 2]\na/\nb.rs\n"));
    assert_eq!(workspace.read(".").await, ok("[`.` is a folder; entries: 1]\nsrc/\n"));
    for n in 0..600 {
        workspace.put(&format!("many/{n:03}"), "");
    }
    let output = workspace.read("many/").await.unwrap();
    assert!(output.starts_with("[`many/` is a folder; entries: 600]\n000\n001\n"), "{output}");
    assert!(output.ends_with("\n499\n[500 of 600 entries are shown]\n"), "{output}");
}

#[tokio::test]
async fn special_files_and_folders_are_refused() {
    let workspace = TestWorkspace::new(Permissions::Full);
    assert_eq!(workspace.bash("mkfifo pipe").await, ok("(no output)"));
    let _listener = UnixListener::bind(workspace.path("socket")).unwrap();
    fs::create_dir(workspace.path("folder")).unwrap();
    for (path, kind) in [("pipe", "a named pipe"), ("socket", "a socket"), ("/dev/null", "a device")] {
        assert_eq!(workspace.read(path).await, Err(format!("`{path}` is {kind}, not a file, and cannot be read")));
        assert_eq!(
            workspace.write(path, "x").await,
            Err(format!("`{path}` is {kind}, not a file, and cannot be written"))
        );
        assert_eq!(
            workspace.edit(path, "a", "b").await,
            Err(format!("`{path}` is {kind}, not a file, and cannot be edited"))
        );
    }
    for path in ["folder", "folder/", "."] {
        let refused = Err(format!("`{path}` is a folder; name a file in it"));
        assert_eq!(workspace.write(path, "x").await, refused);
        assert_eq!(workspace.edit(path, "a", "b").await, refused);
    }
    assert_eq!(workspace.write("new/", "x").await, Err("`new/` is a folder; name a file in it".into()));
}

#[tokio::test]
async fn write_file_creates_files_and_folders() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    for (path, content) in [("a.txt", "one\r\n"), ("a.txt", ""), ("new/deep/b.txt", "größe"), ("./new/c.txt", "c\n")]
    {
        assert_eq!(workspace.write(path, content).await, ok("OK"));
        assert_eq!(workspace.get(path), content);
    }
    assert_eq!(workspace.files(), ["a.txt", "new/c.txt", "new/deep/b.txt"]);
    let refused = "cannot write `a.txt/b/c.txt`: `a.txt` is not a folder";
    assert_eq!(workspace.write("a.txt/b/c.txt", "x").await, Err(refused.into()));
}

#[tokio::test]
async fn mode_is_kept_and_new_files_get_the_default_mode() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    let mode = |name: &str| workspace.path(name).metadata().unwrap().mode() & 0o7777;
    workspace.put("ordinary", "");
    workspace.write("new", "x").await.unwrap();
    assert_eq!(mode("new"), mode("ordinary"));
    for wanted in [0o600, 0o755, 0o666] {
        workspace.put("a.sh", "echo a");
        fs::set_permissions(workspace.path("a.sh"), fs::Permissions::from_mode(wanted)).unwrap();
        assert_eq!(workspace.edit("a.sh", "a", "b").await, ok("OK"));
        assert_eq!(mode("a.sh"), wanted);
        workspace.write("a.sh", "echo c").await.unwrap();
        assert_eq!(mode("a.sh"), wanted);
    }
}

#[tokio::test]
async fn write_protected_file_is_not_replaced() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    workspace.put("a.txt", "old");
    fs::set_permissions(workspace.path("a.txt"), fs::Permissions::from_mode(0o444)).unwrap();
    if fs::OpenOptions::new().write(true).open(workspace.path("a.txt")).is_ok() {
        return; // root may do anything
    }
    let refused = Err("cannot write `a.txt`: Permission denied (os error 13)".to_owned());
    assert_eq!(workspace.write("a.txt", "new").await, refused);
    assert_eq!(workspace.edit("a.txt", "old", "new").await, refused);
    assert_eq!(workspace.files(), ["a.txt"]);
}

#[tokio::test]
async fn links_are_followed_and_not_replaced() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    workspace.put("real/a.txt", "one");
    symlink("real/a.txt", workspace.path("link")).unwrap();
    symlink("real/new/b.txt", workspace.path("dangling")).unwrap();
    assert_eq!(workspace.write("link", "two").await, ok("OK"));
    assert_eq!(workspace.get("real/a.txt"), "two");
    assert_eq!(workspace.edit("link", "two", "three").await, ok("OK"));
    assert_eq!(workspace.get("real/a.txt"), "three");
    assert_eq!(workspace.write("dangling", "b").await, ok("OK"));
    assert_eq!(workspace.get("real/new/b.txt"), "b");
    for link in ["link", "dangling"] {
        assert!(workspace.path(link).is_symlink(), "{link}");
    }
}

#[tokio::test]
async fn edit_file_keeps_bytes_outside_the_match() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    workspace.put("a.txt", b"\xef\xbb\xbfone\r\ntwo\r\n\xff no newline");
    assert_eq!(workspace.edit("a.txt", "one\ntwo", "1\n2\n3").await, ok("OK"));
    assert_eq!(fs::read(workspace.path("a.txt")).unwrap(), b"\xef\xbb\xbf1\r\n2\r\n3\r\n\xff no newline");
    assert_eq!(workspace.files(), ["a.txt"]);
}

#[tokio::test]
async fn file_is_unchanged_when_edit_is_refused() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    workspace.put("a.txt", "x\nx\n");
    let before = workspace.path("a.txt").metadata().unwrap();
    for (path, old, new, expected) in [
        (
            "a.txt",
            "x",
            "y",
            "`a.txt` was not edited: old_string occurs 2 times, at lines 1 and 2; \
             include more of the text around the one you mean",
        ),
        ("a.txt", "x", "x", "`a.txt` was not edited: old_string and new_string are the same"),
        ("b.txt", "x", "y", "`b.txt` does not exist; perhaps you mean `a.txt`; write_file creates new files"),
    ] {
        assert_eq!(workspace.edit(path, old, new).await, Err(expected.into()));
    }
    let after = workspace.path("a.txt").metadata().unwrap();
    assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()));
    let huge = fs::File::create(workspace.path("huge")).unwrap();
    huge.set_len((16 << 20) + 1).unwrap();
    let refused = "`huge` has 16777217 bytes, too many to edit; use bash (sed)";
    assert_eq!(workspace.edit("huge", "x", "y").await, Err(refused.into()));
}

#[tokio::test]
async fn blocking_file_work_is_cancelled_when_future_is_dropped() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    let ((start, started), (report, reported)) = (mpsc::channel::<()>(), mpsc::channel());
    let work = workspace.tools.run_blocking(move |_, cancelled| {
        started.recv().unwrap();
        report.send(cancelled.is_cancelled()).unwrap();
        ok("")
    });
    let mut work = Box::pin(work);
    assert!(poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await);
    drop(work);
    start.send(()).unwrap();
    assert!(reported.recv().unwrap());
}
