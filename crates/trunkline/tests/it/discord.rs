//! `trunkline discord`, the real binary with fake CLIs, against a Discord on loopback.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::fake_discord::{CHANNEL, Discord, GUILD, TOKEN, USER, mention};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

const SESSION: &str = "5e551011-0000-4000-8000-000000000001";

/// A claude that remembers one session and repeats what it was asked.
const CLAUDE: &str = r#"note "$@"; said=$(tr -d '\n"' <"$seen/claude.stdin")
printf '{"type":"system","subtype":"init","session_id":"5e551011-0000-4000-8000-000000000001"}\n'
case "$said" in
*hang*) tell hanging $$; hang ;;
*fail*) echo "Invalid API key: please run /login" >&2; exit 1 ;;
*wait*)
    printf '{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one moment"}}}\n'
    tell waiting $$; await go ;;
esac
printf '{"type":"result","subtype":"success","is_error":false,"result":"heard %s","session_id":"5e551011-0000-4000-8000-000000000001"}\n' "${said##*TASK ---}""#;

/// A bridge that runs; it is gone when this is.
pub(crate) struct Bridge {
    child: Child,
}

impl Bridge {
    pub(crate) fn start(line: &TestGateway, discord: &Discord, args: &[&str]) -> Self {
        let identified = discord.look().identified.len();
        let guild = GUILD.to_string();
        let places = ["discord", "--discord-api", &discord.api, "--discord-gateway", &discord.gateway];
        let child = line.launch(&[&places[..], &["--allow-guild", &guild], args].concat());
        let mut bridge = Self { child };
        until("the bridge has identified", || {
            let ended = bridge.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {ended:?}\n{}", line.log());
            discord.look().identified.len() > identified
        });
        bridge
    }

    fn signal(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

fn world() -> (TestGateway, Discord) {
    (TestGateway::new().cli("claude", CLAUDE).env("DISCORD_TOKEN", TOKEN), Discord::start())
}

#[test]
fn without_a_token_it_says_how_to_get_one() {
    let ran = TestGateway::new().run(&["discord", "--allow-user", "1"]).exits(3);
    for word in ["DISCORD_TOKEN is not set", "discord.com/developers", "Message Content Intent"] {
        assert!(ran.stderr.contains(word), "{word}: {ran:?}");
    }
}

#[test]
fn with_nobody_allowed_it_says_what_to_set() {
    let ran = TestGateway::new().env("DISCORD_TOKEN", TOKEN).run(&["discord"]).exits(3);
    for word in ["--allow-user", "--allow-role", "--allow-guild", "--allow-channel", "--listen-channel"] {
        assert!(ran.stderr.contains(word), "{word}: {ran:?}");
    }
    assert!(!ran.stderr.contains(TOKEN));
    TestGateway::new().env("DISCORD_TOKEN", TOKEN).run(&["discord", "--allow-user", "me"]).exits(2);
}

#[test]
fn a_model_that_nobody_knows_is_refused_at_the_start() {
    let gateway = TestGateway::new().env("DISCORD_TOKEN", TOKEN);
    let ran = gateway.run(&["discord", "--allow-user", "1", "--model", "nobody"]).exits(3);
    assert!(ran.stderr.contains("unknown model \"nobody\""), "{ran:?}");
}

/// The CLI is run as it should be, and asked to go on with the channel's session, also after a restart.
#[test]
fn r10_4_a_channel_is_a_session() {
    let (line, discord) = world();
    let mut bridge = Bridge::start(&line, &discord, &["--system-prompt", "be brief"]);
    let first = discord.say(CHANNEL, &mention("one"));
    discord.answered(first, "heard one");
    let argv = line.argv("claude");
    for flag in ["-p", "--dangerously-skip-permissions", "--append-system-prompt-file", "--max-turns"] {
        assert!(argv.iter().any(|arg| arg == flag), "{flag}: {argv:?}");
    }
    assert!(!argv.iter().any(|arg| arg == "--resume"));
    let second = discord.say(CHANNEL, &mention("two"));
    discord.answered(second, "heard two");
    assert!(line.argv("claude").windows(2).any(|pair| pair == ["--resume", SESSION]), "{:?}", line.argv("claude"));
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    let _bridge = Bridge::start(&line, &discord, &[]);
    let third = discord.say(CHANNEL, &mention("three"));
    discord.answered(third, "heard three");
    assert!(line.argv("claude").windows(2).any(|pair| pair == ["--resume", SESSION]));
}

/// The other backends answer in the same way.
#[test]
fn every_backend_answers_as_it_streams() {
    for (backend, recording) in
        [("codex", "codex/reasoning"), ("gemini", "gemini/ansi-stream-json"), ("opencode", "opencode/edit")]
    {
        let gateway = TestGateway::new()
            .cli(backend, &format!("note \"$@\"; replay {recording}"))
            .env("DISCORD_TOKEN", TOKEN)
            .env("AGENT_BACKEND", backend);
        let discord = Discord::start();
        let _bridge = Bridge::start(&gateway, &discord, &[]);
        let asked = discord.say(CHANNEL, &mention("hi"));
        let answer = discord.answered(asked, "");
        assert!(!answer.content.contains("failed"), "{backend}: {answer:?}\n{}", gateway.log());
    }
}

/// What a CLI says when it fails is told; one that takes too long is ended.
#[test]
fn r8_2_r8_3_failures_and_timeouts_are_told_as_it_streams() {
    let (line, discord) = world();
    let _bridge = Bridge::start(&line, &discord, &["--timeout", "3s"]);
    let failing = discord.say(CHANNEL, &mention("fail"));
    let told = discord.answered(failing, "claude failed");
    assert!(told.content.contains("Invalid API key"), "{told:?}");
    let hanging = discord.say(CHANNEL, &mention("hang"));
    discord.answered(hanging, "claude failed: Query timed out");
    until_gone(&[line.wait_for_pid("hanging")]);
}

/// What the CLI says is shown before it has said all of it.
#[test]
fn r8_4_an_answer_is_seen_as_it_grows() {
    let (line, discord) = world();
    let _bridge = Bridge::start(&line, &discord, &[]);
    let asked = discord.say(CHANNEL, &mention("wait"));
    let draft = discord.answered(asked, "one moment");
    line.leave_note("go");
    let answer = discord.answered(asked, "heard wait");
    assert_eq!((answer.id, discord.look().said_by_bot(CHANNEL).len()), (draft.id, 1));
}

#[test]
fn a_second_bridge_is_turned_away() {
    let (line, discord) = world();
    let _bridge = Bridge::start(&line, &discord, &[]);
    let ran = line.run(&["discord", "--allow-user", "1"]).exits(3);
    assert!(ran.stderr.contains("another bridge runs with the state folder"), "{ran:?}");
}

#[test]
fn stop_ends_the_process() {
    let (line, discord) = world();
    let _bridge = Bridge::start(&line, &discord, &[]);
    let asked = discord.say(CHANNEL, &mention("hang"));
    let pid = line.wait_for_pid("hanging");
    assert_eq!(discord.command(CHANNEL, USER, "stop", None), "Stopping.");
    discord.answered(asked, "Stopped.");
    until_gone(&[pid]);
}

#[test]
fn killed_between_hearing_and_answering_it_answers_once() {
    let (line, discord) = world();
    let mut bridge = Bridge::start(&line, &discord, &[]);
    let asked = discord.say(CHANNEL, &mention("wait"));
    let pid = line.wait_for_pid("waiting");
    assert_eq!(bridge.signal(Signal::KILL), None);
    discord.cut();
    until_gone(&[pid]);
    let missed = discord.say(CHANNEL, &mention("missed"));
    line.leave_note("go");
    let _bridge = Bridge::start(&line, &discord, &[]);
    discord.answered(asked, "heard wait");
    discord.answered(missed, "heard missed");
    assert_eq!(discord.look().said_by_bot(CHANNEL), ["heard wait", "heard missed"]);
}

#[test]
fn a_signal_ends_it_and_everything_it_started() {
    let (line, discord) = world();
    let mut bridge = Bridge::start(&line, &discord, &["--drain", "100ms"]);
    discord.say(CHANNEL, &mention("hang"));
    let pid = line.wait_for_pid("hanging");
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    until_gone(&[pid]);
}

#[test]
fn case_30_the_token_is_in_no_log_and_no_child() {
    let (line, discord) = world();
    let mut bridge = Bridge::start(&line, &discord, &["-vv"]);
    let asked = discord.say(CHANNEL, &mention("one"));
    discord.answered(asked, "heard one");
    discord.cut();
    discord.until("it resumed", |state| (!state.resumed.is_empty()).then_some(()));
    let next = discord.say(CHANNEL, &mention("two"));
    discord.answered(next, "heard two");
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    let log = line.log();
    assert!(log.contains("connected to Discord") && log.contains("TRACE"), "{log}");
    assert!(!log.contains(TOKEN) && !log.contains("fake-token"), "{log}");
    assert!(!line.read_note("claude.env").contains(TOKEN));
    // A token that Discord refuses is not in the error either.
    discord.look().closes_with = Some(4004);
    let args = ["discord", "--allow-user", "1", "--discord-api", &discord.api, "--discord-gateway", &discord.gateway];
    let ran = line.run(&args).exits(3);
    assert!(ran.stderr.contains("Discord refused the token") && !ran.stderr.contains("fake-token"), "{ran:?}");
}
