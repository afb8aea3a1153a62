//! What commands print, how they end, and that nothing is left of them.

use std::os::unix::fs::symlink;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::*;

/// Long enough for a loaded machine to start a shell, short enough to wait for.
const SOON: Duration = Duration::from_secs(2);

#[tokio::test]
async fn commands() {
    let stage = Stage::new(Permissions::Edit);
    stage.put("a.txt", "hello");
    for (command, expected) in [
        ("cat a.txt", ok("hello")),
        ("true", ok("(no output)")),
        ("echo one; echo two >&2; echo three", ok("one\ntwo\nthree\n")),
        ("exit 3", Err("[exit code: 3]".into())),
        ("printf x; false", Err("x\n[exit code: 1]".into())),
        ("cat", ok("(no output)")),
        (r"printf '\033[31mred\033[0m \377\n'", ok("red \u{fffd}\n")),
        // The text reaches bash as it is.
        (r#"echo "$0" '$1' \" "it's""#, ok("bash $1 \" it's\n")),
        ("echo a\necho b # c", ok("a\nb\n")),
        ("[[ a == a ]] && echo <(true) | grep -c /dev/fd", ok("1\n")),
        ("kill -TERM $PPID; sleep 1000", Err("[exit code: 143]".into())),
        ("", Err("the command is empty".into())),
        (" \n", Err("the command is empty".into())),
        ("echo \0", Err("the command has a NUL byte in it, which no shell can take; write \\0 with printf".into())),
        (
            &format!("echo {}", "x".repeat(200_000)),
            Err("the command is too long: 200005 bytes, and the system takes about 128 KiB; \
                 put it, or the data in it, into a file with write_file"
                .into()),
        ),
    ] {
        assert_eq!(stage.bash(command).await, expected, "{command}");
    }
    // In the words of whatever shell there is.
    for (command, code) in [("-x", 127), ("if", 2), ("kill -KILL $$", 137)] {
        let said = stage.bash(command).await.unwrap_err();
        assert!(said.ends_with(&format!("\n[exit code: {code}]")), "{command}: {said}");
    }
    let here = stage.path("").canonicalize().unwrap().display().to_string();
    assert_eq!(
        stage.bash("pwd; env | grep -vE '^(PWD|OLDPWD|SHLVL|_)='").await,
        Ok(format!("{here}\nPATH=/usr/local/bin:/usr/bin:/bin\n"))
    );
}

#[tokio::test]
async fn the_repl_may_do_what_the_model_may_not() {
    let stage = Stage::new(Permissions::Read);
    assert!(stage.bash("echo a").await.unwrap_err().starts_with("bash is not allowed"));
    assert_eq!(said(stage.tools.bash("echo a").await), ok("a\n"));
}

#[tokio::test]
async fn sh_where_there_is_no_bash() {
    let mut stage = Stage::new(Permissions::Edit);
    symlink("/bin/sh", stage.path("sh")).unwrap();
    stage.tools.shell.env = vec![("PATH".into(), stage.path("").into())];
    assert_eq!(stage.bash("echo \"$0\" ${BASH_VERSION:-none}").await, ok("sh none\n"));
}

#[tokio::test]
async fn what_runs_in_the_background_is_not_waited_for_and_ends() {
    let stage = Stage::new(Permissions::Edit);
    let start = Instant::now();
    for command in ["sleep 1000 & echo $!", "setsid sleep 1000 & echo $!", "(trap '' TERM; sleep 1000) & echo $!"] {
        let said = stage.bash(command).await.unwrap();
        assert!(!is_there(&said), "{command}");
    }
    assert!(start.elapsed() < TIME_LIMIT);
}

#[tokio::test]
async fn a_command_whose_time_is_over_is_gone() {
    let mut stage = Stage::new(Permissions::Edit);
    stage.tools = stage.tools.with_time_limit(SOON);
    let said =
        stage.bash("trap '' TERM; setsid sleep 1000 & echo $!; echo waiting >&2; wait; echo never").await.unwrap_err();
    let (pid, rest) = said.split_once('\n').unwrap();
    assert_eq!(rest, "waiting\n[timed out after 2s]");
    assert!(!is_there(pid));
}

#[tokio::test]
async fn an_endless_command_is_cut_in_both_ways() {
    let mut stage = Stage::new(Permissions::Edit);
    stage.tools = stage.tools.with_time_limit(SOON);
    let said = stage.bash("echo first; yes").await.unwrap_err();
    assert!(said.starts_with("first\ny\ny\n") && said.ends_with("\ny\n[timed out after 2s]"));
    assert!(said.contains(" bytes left out here;") && said.len() < 70_000, "{} bytes", said.len());
}

#[tokio::test]
async fn a_command_that_sends_its_output_elsewhere_may_take_its_time() {
    let mut stage = Stage::new(Permissions::Edit);
    // Longer than a program is believed to be alive without its output.
    stage.tools = stage.tools.with_time_limit(Duration::from_secs(6));
    assert_eq!(stage.bash("exec sleep 1000 >log 2>&1").await, Err("[timed out after 6s]".into()));
}

#[tokio::test]
async fn a_dropped_command_is_gone() {
    let stage = Stage::new(Permissions::Edit);
    assert_eq!(stage.bash("mkfifo pipe").await, ok("(no output)"));
    let command = stage.bash("setsid sh -c 'echo $$; exec sleep 1000' >pipe & wait");
    let first_line = async {
        let mut pipe = BufReader::new(tokio::fs::File::open(stage.path("pipe")).await.unwrap());
        let mut pid = String::new();
        pipe.read_line(&mut pid).await.unwrap();
        (pid, pipe)
    };
    let (pid, mut pipe) = tokio::select! {
        said = command => panic!("ended by itself: {said:?}"),
        first = first_line => first,
    };
    // The pipe ends when nobody is left who could write to it.
    let mut rest = String::new();
    let end = tokio::time::timeout(TIME_LIMIT, pipe.read_to_string(&mut rest));
    end.await.expect("the command went on").unwrap();
    stage.keepers.shutdown().await;
    assert!(!is_there(&pid));
    assert_eq!(stage.bash("true").await, Err("cannot start a command: shutting down".into()));
}

/// Whether there is still such a process, be it a zombie.
fn is_there(pid: &str) -> bool {
    let pid: u32 = pid.trim().parse().unwrap();
    Path::new(&format!("/proc/{pid}")).exists()
}
