//! What is read, written and edited.

use std::future::poll_fn;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::task::Poll;

use super::*;

#[tokio::test]
async fn reading() {
    let stage = Stage::new(Permissions::Edit);
    stage.put("bin.dat", b"a\0b");
    stage.put("latin.txt", b"caf\xe9");
    stage.put("empty", "");
    for text in ["one\ntwo\n", "no newline", "\r\n", "\u{feff}größe\r\n", "\n"] {
        stage.put("a.txt", text);
        assert_eq!(stage.read("a.txt").await, ok(text));
    }
    assert_eq!(stage.read("empty").await, ok("[`empty` is empty: 0 bytes]"));
    let binary = "`bin.dat` is a binary file of 3 bytes, not text; look at it with bash (file, xxd, iconv)";
    assert_eq!(stage.read("bin.dat").await, Err(binary.into()));
    let latin = "caf\u{fffd}\n[`latin.txt` is not UTF-8 throughout: each U+FFFD above stands for other bytes]\n";
    assert_eq!(stage.read("latin.txt").await, ok(latin));
}

#[tokio::test]
async fn long_files_are_cut_and_the_note_tells_how_to_go_on() {
    let stage = Stage::new(Permissions::Edit);
    let lines: String = (1..=50_000).map(|n| format!("line {n}\n")).collect();
    for (name, text) in [("it's long.txt", lines), ("one line.txt", "€".repeat(200_000))] {
        stage.put(name, &text);
        let said = stage.read(name).await.unwrap();
        let (shown, note) = said.rsplit_once('[').unwrap();
        let shown = text.strip_prefix(shown.trim_end()).map(|rest| text.len() - rest.len()).unwrap();
        assert!((256 * 1024 - 4096..=256 * 1024).contains(&shown), "{shown}");
        let (_, command) = note.strip_suffix("]\n").unwrap().split_once("go on with bash: ").unwrap();
        let more = stage.bash(command).await.unwrap();
        let more = more.split("\n[").next().unwrap();
        assert!(
            text[shown..].trim_start().starts_with(more.trim_end_matches('\u{fffd}').trim_end()),
            "{command}: {more}"
        );
        assert!(more.len() > 1000, "{command}: {more}");
    }
    let exact = format!("{}\n", "x".repeat(256 * 1024 - 1));
    stage.put("exact.txt", &exact);
    assert_eq!(stage.read("exact.txt").await, Ok(exact));
}

#[tokio::test]
async fn a_reader_without_bash_is_not_sent_there() {
    let stage = Stage::new(Permissions::Read);
    stage.put("long.txt", "x\n".repeat(200_000));
    stage.put("bin.dat", b"\0");
    let note = "\n[`long.txt` is cut here: 262144 of 400000 bytes are shown; there is no way to see the rest]\n";
    assert!(stage.read("long.txt").await.unwrap().ends_with(note));
    assert_eq!(stage.read("bin.dat").await, Err("`bin.dat` is a binary file of 1 bytes, not text".into()));
}

#[tokio::test]
async fn folders_are_listed() {
    let stage = Stage::new(Permissions::Read);
    stage.put("src/b.rs", "");
    stage.put("src/a/c.rs", "");
    assert_eq!(stage.read("src").await, ok("[`src` is a folder; entries: 2]\na/\nb.rs\n"));
    assert_eq!(stage.read(".").await, ok("[`.` is a folder; entries: 1]\nsrc/\n"));
    for n in 0..600 {
        stage.put(&format!("many/{n:03}"), "");
    }
    let said = stage.read("many/").await.unwrap();
    assert!(said.starts_with("[`many/` is a folder; entries: 600]\n000\n001\n"), "{said}");
    assert!(said.ends_with("\n499\n[500 of 600 entries are shown]\n"), "{said}");
}

#[tokio::test]
async fn what_is_no_file_is_left_alone() {
    let stage = Stage::new(Permissions::Full);
    assert_eq!(stage.bash("mkfifo pipe").await, ok("(no output)"));
    let _listener = UnixListener::bind(stage.path("socket")).unwrap();
    fs::create_dir(stage.path("folder")).unwrap();
    for (path, kind) in [("pipe", "a named pipe"), ("socket", "a socket"), ("/dev/null", "a device")] {
        assert_eq!(stage.read(path).await, Err(format!("`{path}` is {kind}, not a file, and cannot be read")));
        assert_eq!(stage.write(path, "x").await, Err(format!("`{path}` is {kind}, not a file, and cannot be written")));
        assert_eq!(
            stage.edit(path, "a", "b").await,
            Err(format!("`{path}` is {kind}, not a file, and cannot be edited"))
        );
    }
    for path in ["folder", "folder/", "."] {
        let refused = Err(format!("`{path}` is a folder; name a file in it"));
        assert_eq!(stage.write(path, "x").await, refused);
        assert_eq!(stage.edit(path, "a", "b").await, refused);
    }
    assert_eq!(stage.write("new/", "x").await, Err("`new/` is a folder; name a file in it".into()));
}

#[tokio::test]
async fn writing() {
    let stage = Stage::new(Permissions::Edit);
    for (path, content) in [("a.txt", "one\r\n"), ("a.txt", ""), ("new/deep/b.txt", "größe"), ("./new/c.txt", "c\n")]
    {
        assert_eq!(stage.write(path, content).await, ok("OK"));
        assert_eq!(stage.get(path), content);
    }
    assert_eq!(stage.files(), ["a.txt", "new/c.txt", "new/deep/b.txt"]);
    let refused = "cannot write `a.txt/b/c.txt`: `a.txt` is not a folder";
    assert_eq!(stage.write("a.txt/b/c.txt", "x").await, Err(refused.into()));
}

#[tokio::test]
async fn modes_are_kept_and_new_files_are_like_any_other() {
    let stage = Stage::new(Permissions::Edit);
    let mode = |name: &str| stage.path(name).metadata().unwrap().mode() & 0o7777;
    stage.put("ordinary", "");
    stage.write("new", "x").await.unwrap();
    assert_eq!(mode("new"), mode("ordinary"));
    for wanted in [0o600, 0o755, 0o666] {
        stage.put("a.sh", "echo a");
        fs::set_permissions(stage.path("a.sh"), fs::Permissions::from_mode(wanted)).unwrap();
        assert_eq!(stage.edit("a.sh", "a", "b").await, ok("OK"));
        assert_eq!(mode("a.sh"), wanted);
        stage.write("a.sh", "echo c").await.unwrap();
        assert_eq!(mode("a.sh"), wanted);
    }
}

#[tokio::test]
async fn a_protected_file_is_not_replaced() {
    let stage = Stage::new(Permissions::Edit);
    stage.put("a.txt", "old");
    fs::set_permissions(stage.path("a.txt"), fs::Permissions::from_mode(0o444)).unwrap();
    if fs::OpenOptions::new().write(true).open(stage.path("a.txt")).is_ok() {
        return; // root may do anything
    }
    let refused = Err("cannot write `a.txt`: Permission denied (os error 13)".to_owned());
    assert_eq!(stage.write("a.txt", "new").await, refused);
    assert_eq!(stage.edit("a.txt", "old", "new").await, refused);
    assert_eq!(stage.files(), ["a.txt"]);
}

#[tokio::test]
async fn links_stay_links() {
    let stage = Stage::new(Permissions::Edit);
    stage.put("real/a.txt", "one");
    symlink("real/a.txt", stage.path("link")).unwrap();
    symlink("real/new/b.txt", stage.path("dangling")).unwrap();
    assert_eq!(stage.write("link", "two").await, ok("OK"));
    assert_eq!(stage.get("real/a.txt"), "two");
    assert_eq!(stage.edit("link", "two", "three").await, ok("OK"));
    assert_eq!(stage.get("real/a.txt"), "three");
    assert_eq!(stage.write("dangling", "b").await, ok("OK"));
    assert_eq!(stage.get("real/new/b.txt"), "b");
    for link in ["link", "dangling"] {
        assert!(stage.path(link).is_symlink(), "{link}");
    }
}

#[tokio::test]
async fn editing() {
    let stage = Stage::new(Permissions::Edit);
    stage.put("a.txt", b"\xef\xbb\xbfone\r\ntwo\r\n\xff no newline");
    assert_eq!(stage.edit("a.txt", "one\ntwo", "1\n2\n3").await, ok("OK"));
    assert_eq!(fs::read(stage.path("a.txt")).unwrap(), b"\xef\xbb\xbf1\r\n2\r\n3\r\n\xff no newline");
    assert_eq!(stage.files(), ["a.txt"]);
}

#[tokio::test]
async fn what_cannot_be_edited_stays_as_it_is() {
    let stage = Stage::new(Permissions::Edit);
    stage.put("a.txt", "x\nx\n");
    let before = stage.path("a.txt").metadata().unwrap();
    for (path, old, new, expected) in [
        (
            "a.txt",
            "x",
            "y",
            "`a.txt` was not edited: old_string is there 2 times, at lines 1 and 2; \
             include more of the text around the one you mean",
        ),
        ("a.txt", "x", "x", "`a.txt` was not edited: old_string and new_string are the same"),
        ("b.txt", "x", "y", "`b.txt` does not exist; perhaps you mean `a.txt`; write_file creates new files"),
    ] {
        assert_eq!(stage.edit(path, old, new).await, Err(expected.into()));
    }
    let after = stage.path("a.txt").metadata().unwrap();
    assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()));
    let huge = fs::File::create(stage.path("huge")).unwrap();
    huge.set_len((16 << 20) + 1).unwrap();
    let refused = "`huge` has 16777217 bytes, too many to edit; use bash (sed)";
    assert_eq!(stage.edit("huge", "x", "y").await, Err(refused.into()));
}

#[tokio::test]
async fn file_work_hears_that_nobody_waits_for_it_any_more() {
    let stage = Stage::new(Permissions::Edit);
    let ((go, begin), (tell, told)) = (mpsc::channel::<()>(), mpsc::channel());
    let work = stage.tools.in_files(move |_, gone| {
        begin.recv().unwrap();
        tell.send(gone.is_cancelled()).unwrap();
        ok("")
    });
    let mut work = Box::pin(work);
    assert!(poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await);
    drop(work);
    go.send(()).unwrap();
    assert!(told.recv().unwrap());
}
