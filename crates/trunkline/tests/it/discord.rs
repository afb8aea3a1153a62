//! `trunkline discord`: the real binary with fake CLIs, against a fake Discord on loopback.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::fake_discord::{CHANNEL, FakeDiscord, GUILD, TOKEN, USER, mention};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

const SESSION: &str = "5e551011-0000-4000-8000-000000000001";

/// A fake claude with one session, which repeats the message.
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

/// A running bridge; killed on drop.
pub(crate) struct Bridge {
    child: Child,
}

impl Bridge {
    pub(crate) fn start(gateway: &TestGateway, discord: &FakeDiscord, args: &[&str]) -> Self {
        let identified = discord.look().identified.len();
        let guild = GUILD.to_string();
        let places = ["discord", "--discord-api", &discord.api, "--discord-gateway", &discord.gateway];
        let child = gateway.launch(&[&places[..], &["--allow-guild", &guild], args].concat());
        let mut bridge = Self { child };
        until("the bridge has identified", || {
            let status = bridge.child.try_wait().unwrap();
            assert!(status.is_none(), "the bridge exited: {status:?}\n{}", gateway.log());
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
        // Both fail if the bridge has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gateway_and_discord() -> (TestGateway, FakeDiscord) {
    (TestGateway::new().cli("claude", CLAUDE).env("DISCORD_TOKEN", TOKEN), FakeDiscord::start())
}

#[test]
fn error_explains_how_to_get_a_token_when_there_is_none() {
    let ran = TestGateway::new().run(&["discord", "--allow-user", "1"]).exits(3);
    for word in ["DISCORD_TOKEN is not set", "discord.com/developers", "Message Content Intent"] {
        assert!(ran.stderr.contains(word), "{word}: {ran:?}");
    }
}

#[test]
fn error_names_the_allow_flags_when_none_is_set() {
    let ran = TestGateway::new().env("DISCORD_TOKEN", TOKEN).run(&["discord"]).exits(3);
    for word in ["--allow-user", "--allow-role", "--allow-guild", "--allow-channel", "--listen-channel"] {
        assert!(ran.stderr.contains(word), "{word}: {ran:?}");
    }
    assert!(!ran.stderr.contains(TOKEN));
    TestGateway::new().env("DISCORD_TOKEN", TOKEN).run(&["discord", "--allow-user", "me"]).exits(2);
}

#[test]
fn bridge_does_not_start_when_its_model_is_unknown() {
    let gateway = TestGateway::new().env("DISCORD_TOKEN", TOKEN);
    let ran = gateway.run(&["discord", "--allow-user", "1", "--model", "missing"]).exits(3);
    assert!(ran.stderr.contains("unknown model \"missing\""), "{ran:?}");
}

/// The CLI gets the expected flags and resumes the channel's session, also after a restart of the bridge.
#[test]
fn r10_4_a_channel_is_a_session() {
    let (gateway, discord) = gateway_and_discord();
    let mut bridge = Bridge::start(&gateway, &discord, &["--system-prompt", "be brief"]);
    let first = discord.say(CHANNEL, &mention("one"));
    discord.answered(first, "heard one");
    let argv = gateway.argv("claude");
    for flag in ["-p", "--dangerously-skip-permissions", "--append-system-prompt-file", "--max-turns"] {
        assert!(argv.iter().any(|arg| arg == flag), "{flag}: {argv:?}");
    }
    assert!(!argv.iter().any(|arg| arg == "--resume"));
    let second = discord.say(CHANNEL, &mention("two"));
    discord.answered(second, "heard two");
    assert!(
        gateway.argv("claude").windows(2).any(|pair| pair == ["--resume", SESSION]),
        "{:?}",
        gateway.argv("claude")
    );
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    let _bridge = Bridge::start(&gateway, &discord, &[]);
    let third = discord.say(CHANNEL, &mention("three"));
    discord.answered(third, "heard three");
    assert!(gateway.argv("claude").windows(2).any(|pair| pair == ["--resume", SESSION]));
}

#[test]
fn every_backend_answers_in_the_channel() {
    for (backend, recording) in
        [("codex", "codex/reasoning"), ("gemini", "gemini/ansi-stream-json"), ("opencode", "opencode/edit")]
    {
        let gateway = TestGateway::new()
            .cli(backend, &format!("note \"$@\"; replay {recording}"))
            .env("DISCORD_TOKEN", TOKEN)
            .env("AGENT_BACKEND", backend);
        let discord = FakeDiscord::start();
        let _bridge = Bridge::start(&gateway, &discord, &[]);
        let message = discord.say(CHANNEL, &mention("hi"));
        let answer = discord.answered(message, "");
        assert!(!answer.content.contains("failed"), "{backend}: {answer:?}\n{}", gateway.log());
    }
}

/// The error of a failing CLI is shown, and a CLI that exceeds the timeout is killed.
#[test]
fn r8_2_r8_3_failures_and_timeouts_are_reported_in_the_channel() {
    let (gateway, discord) = gateway_and_discord();
    let _bridge = Bridge::start(&gateway, &discord, &["--timeout", "3s"]);
    let failing = discord.say(CHANNEL, &mention("fail"));
    let error = discord.answered(failing, "claude failed");
    assert!(error.content.contains("Invalid API key"), "{error:?}");
    let hanging = discord.say(CHANNEL, &mention("hang"));
    discord.answered(hanging, "claude failed: Query timed out");
    until_gone(&[gateway.wait_for_pid("hanging")]);
}

#[test]
fn r8_4_answer_is_shown_while_it_is_written() {
    let (gateway, discord) = gateway_and_discord();
    let _bridge = Bridge::start(&gateway, &discord, &[]);
    let message = discord.say(CHANNEL, &mention("wait"));
    let draft = discord.answered(message, "one moment");
    gateway.leave_note("go");
    let answer = discord.answered(message, "heard wait");
    assert_eq!((answer.id, discord.look().said_by_bot(CHANNEL).len()), (draft.id, 1));
}

#[test]
fn second_bridge_on_the_same_state_is_refused() {
    let (gateway, discord) = gateway_and_discord();
    let _bridge = Bridge::start(&gateway, &discord, &[]);
    let ran = gateway.run(&["discord", "--allow-user", "1"]).exits(3);
    assert!(ran.stderr.contains("another bridge runs with the state folder"), "{ran:?}");
}

#[test]
fn stop_command_ends_the_cli() {
    let (gateway, discord) = gateway_and_discord();
    let _bridge = Bridge::start(&gateway, &discord, &[]);
    let message = discord.say(CHANNEL, &mention("hang"));
    let pid = gateway.wait_for_pid("hanging");
    assert_eq!(discord.command(CHANNEL, USER, "stop", None), "Stopping.");
    discord.answered(message, "Stopped.");
    until_gone(&[pid]);
}

#[test]
fn message_is_answered_once_when_the_bridge_is_killed_before_answering() {
    let (gateway, discord) = gateway_and_discord();
    let mut bridge = Bridge::start(&gateway, &discord, &[]);
    let message = discord.say(CHANNEL, &mention("wait"));
    let pid = gateway.wait_for_pid("waiting");
    assert_eq!(bridge.signal(Signal::KILL), None);
    discord.cut();
    until_gone(&[pid]);
    let missed = discord.say(CHANNEL, &mention("missed"));
    gateway.leave_note("go");
    let _bridge = Bridge::start(&gateway, &discord, &[]);
    discord.answered(message, "heard wait");
    discord.answered(missed, "heard missed");
    assert_eq!(discord.look().said_by_bot(CHANNEL), ["heard wait", "heard missed"]);
}

#[test]
fn sigterm_ends_the_bridge_and_all_its_processes() {
    let (gateway, discord) = gateway_and_discord();
    let mut bridge = Bridge::start(&gateway, &discord, &["--drain", "100ms"]);
    discord.say(CHANNEL, &mention("hang"));
    let pid = gateway.wait_for_pid("hanging");
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    until_gone(&[pid]);
}

#[test]
fn case_30_token_is_not_in_the_log_or_the_environment_of_a_child() {
    let (gateway, discord) = gateway_and_discord();
    let mut bridge = Bridge::start(&gateway, &discord, &["-vv"]);
    let message = discord.say(CHANNEL, &mention("one"));
    discord.answered(message, "heard one");
    discord.cut();
    discord.until("the bridge resumed its connection", |state| (!state.resumed.is_empty()).then_some(()));
    let next = discord.say(CHANNEL, &mention("two"));
    discord.answered(next, "heard two");
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    let log = gateway.log();
    assert!(log.contains("connected to Discord") && log.contains("TRACE"), "{log}");
    assert!(!log.contains(TOKEN) && !log.contains("fake-token"), "{log}");
    assert!(!gateway.read_note("claude.env").contains(TOKEN));
    // A token that Discord refuses is not in the error either.
    discord.look().closes_with = Some(4004);
    let args = ["discord", "--allow-user", "1", "--discord-api", &discord.api, "--discord-gateway", &discord.gateway];
    let ran = gateway.run(&args).exits(3);
    assert!(ran.stderr.contains("Discord refused the token") && !ran.stderr.contains("fake-token"), "{ran:?}");
}
