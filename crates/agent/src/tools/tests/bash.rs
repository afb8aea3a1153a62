//! Output and end of commands, and that no process is left.

use std::os::unix::fs::symlink;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::*;

/// Long enough for a loaded machine to start a shell, short enough for a test.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);

#[tokio::test]
async fn commands_report_output_and_exit_code() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    workspace.put("a.txt", "hello");
    for (command, expected) in [
        ("cat a.txt", ok("hello")),
        ("true", ok("(no output)")),
        ("echo one; echo two >&2; echo three", ok("one\ntwo\nthree\n")),
        ("exit 3", Err("[exit code: 3]".into())),
        ("printf x; false", Err("x\n[exit code: 1]".into())),
        ("cat", ok("(no output)")),
        (r"printf '\033[31mred\033[0m \377\n'", ok("red \u{fffd}\n")),
        // The text reaches bash unchanged.
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
        assert_eq!(workspace.bash(command).await, expected, "{command}");
    }
    // The message depends on the shell.
    for (command, code) in [("-x", 127), ("if", 2), ("kill -KILL $$", 137)] {
        let output = workspace.bash(command).await.unwrap_err();
        assert!(output.ends_with(&format!("\n[exit code: {code}]")), "{command}: {output}");
    }
    let here = workspace.path("").canonicalize().unwrap().display().to_string();
    assert_eq!(
        workspace.bash("pwd; env | grep -vE '^(PWD|OLDPWD|SHLVL|_)='").await,
        Ok(format!("{here}\nPATH=/usr/local/bin:/usr/bin:/bin\n"))
    );
}

#[tokio::test]
async fn user_may_run_commands_when_the_model_may_not() {
    let workspace = TestWorkspace::new(Permissions::Read);
    assert!(workspace.bash("echo a").await.unwrap_err().starts_with("bash is not allowed"));
    assert_eq!(result(workspace.tools.bash("echo a").await), ok("a\n"));
}

#[tokio::test]
async fn uses_sh_when_bash_is_missing() {
    let mut workspace = TestWorkspace::new(Permissions::Edit);
    symlink("/bin/sh", workspace.path("sh")).unwrap();
    workspace.tools.shell.env = vec![("PATH".into(), workspace.path("").into())];
    assert_eq!(workspace.bash("echo \"$0\" ${BASH_VERSION:-none}").await, ok("sh none\n"));
}

#[tokio::test]
async fn background_processes_are_killed_when_command_ends() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    let start = Instant::now();
    for command in ["sleep 1000 & echo $!", "setsid sleep 1000 & echo $!", "(trap '' TERM; sleep 1000) & echo $!"] {
        let output = workspace.bash(command).await.unwrap();
        assert!(!exists(&output), "{command}");
    }
    assert!(start.elapsed() < COMMAND_TIMEOUT);
}

#[tokio::test]
async fn command_and_children_are_killed_when_time_limit_is_reached() {
    let mut workspace = TestWorkspace::new(Permissions::Edit);
    workspace.tools = workspace.tools.with_time_limit(SHORT_TIMEOUT);
    let output = workspace
        .bash("trap '' TERM; setsid sleep 1000 & echo $!; echo waiting >&2; wait; echo never")
        .await
        .unwrap_err();
    let (pid, rest) = output.split_once('\n').unwrap();
    assert_eq!(rest, "waiting\n[timed out after 2s]");
    assert!(!exists(pid));
}

#[tokio::test]
async fn endless_command_is_stopped_and_its_output_truncated() {
    let mut workspace = TestWorkspace::new(Permissions::Edit);
    workspace.tools = workspace.tools.with_time_limit(SHORT_TIMEOUT);
    let output = workspace.bash("echo first; yes").await.unwrap_err();
    assert!(output.starts_with("first\ny\ny\n") && output.ends_with("\ny\n[timed out after 2s]"));
    assert!(output.contains(" bytes left out here;") && output.len() < 70_000, "{} bytes", output.len());
}

#[tokio::test]
async fn command_with_redirected_output_runs_until_its_time_limit() {
    let mut workspace = TestWorkspace::new(Permissions::Edit);
    // Longer than the time after which a process with a closed output counts as hanging.
    workspace.tools = workspace.tools.with_time_limit(Duration::from_secs(6));
    assert_eq!(workspace.bash("exec sleep 1000 >log 2>&1").await, Err("[timed out after 6s]".into()));
}

#[tokio::test]
async fn command_is_killed_when_future_is_dropped() {
    let workspace = TestWorkspace::new(Permissions::Edit);
    assert_eq!(workspace.bash("mkfifo pipe").await, ok("(no output)"));
    let command = workspace.bash("setsid sh -c 'echo $$; exec sleep 1000' >pipe & wait");
    let first_line = async {
        let mut pipe = BufReader::new(tokio::fs::File::open(workspace.path("pipe")).await.unwrap());
        let mut pid = String::new();
        pipe.read_line(&mut pid).await.unwrap();
        (pid, pipe)
    };
    let (pid, mut pipe) = tokio::select! {
        output = command => panic!("ended by itself: {output:?}"),
        first = first_line => first,
    };
    // The pipe ends when no process has it open for writing.
    let mut rest = String::new();
    let end = tokio::time::timeout(COMMAND_TIMEOUT, pipe.read_to_string(&mut rest));
    end.await.expect("the command is still running").unwrap();
    workspace.keepers.shutdown().await;
    assert!(!exists(&pid));
    assert_eq!(workspace.bash("true").await, Err("cannot start a command: shutting down".into()));
}

/// Whether the process exists, even as a zombie.
fn exists(pid: &str) -> bool {
    let pid: u32 = pid.trim().parse().unwrap();
    Path::new(&format!("/proc/{pid}")).exists()
}
