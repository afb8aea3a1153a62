use proptest::prelude::*;

use super::arguments::placeholder;
use super::command::MAX_ARGUMENT_BYTES;
use super::*;
use crate::failure::Category;
use crate::vocabulary::{CliPermissions, OutputForm, Permissions};

fn values<'a>(prompt: &'a str) -> Values<'a> {
    Values { prompt, cwd: "/repo", ..Values::default() }
}

fn command(provider: &str, form: OutputForm, values: &Values<'_>) -> CommandLine {
    built_in()[provider].command(form, values).unwrap()
}

fn joined_args(command: &CommandLine) -> String {
    command.args.join(" ")
}

#[test]
fn renders_the_exact_command_of_each_provider() {
    let codex = "-c analytics.enabled=false -c features.plugins=false -c features.apps=false -c features.shell_snapshot=false \
        -c features.unbounded_connection_retries=false";
    for (provider, program, args, stdin) in [
        (
            "claude",
            "claude",
            "-p --output-format stream-json --verbose --include-partial-messages --permission-mode acceptEdits"
                .to_owned(),
            Some("Hi"),
        ),
        (
            "codex",
            "codex",
            format!("exec --json --skip-git-repo-check {codex} --cd /repo -s workspace-write -"),
            Some("Hi"),
        ),
        ("gemini", "gemini", "-o stream-json --approval-mode auto_edit".to_owned(), Some("Hi")),
        (
            "qwen",
            "qwen",
            "-o stream-json --include-partial-messages --approval-mode auto-edit --exclude-tools=run_shell_command,monitor"
                .to_owned(),
            Some("Hi"),
        ),
        ("opencode", "opencode", "run --format json --title trunkline".to_owned(), Some("Hi")),
        ("glm", "ax-glm", "--prompt Hi".to_owned(), None),
        ("grok", "ax-grok", "--prompt Hi".to_owned(), None),
    ] {
        let line = command(provider, OutputForm::Streamed, &values("Hi"));
        assert_eq!(line.program, program);
        assert_eq!(joined_args(&line), args, "{provider}");
        assert_eq!(line.stdin.as_deref(), stdin, "{provider}");
    }
}

#[test]
fn passes_every_option_when_the_cli_has_a_flag_for_it() {
    let tools = ["Read".to_owned(), "Bash(git log:*)".to_owned()];
    let images = ["/tmp/a.png".to_owned(), "/tmp/b.png".to_owned()];
    let extra = ["--flag".to_owned()];
    let values = Values {
        request: "",
        prompt: "Hi",
        cwd: "/repo",
        model: Some("m"),
        session: Some("0b912713-3cbe-4c14-b894-f6827625af7f"),
        max_turns: Some(25),
        max_tokens: None,
        tools: &tools,
        system_file: Some("/state/system.txt"),
        images: &images,
        permissions: CliPermissions::Full,
        files: Some("/state/settings/m"),
        home: Some("/home/u"),
        schema: Some("{}"),
        schema_file: Some("/state/schema.json"),
        extra: &extra,
    };
    let id = "0b912713-3cbe-4c14-b894-f6827625af7f";
    let codex = "-c analytics.enabled=false -c features.plugins=false -c features.apps=false -c features.shell_snapshot=false \
        -c features.unbounded_connection_retries=false";
    for (provider, args) in [
        (
            "claude",
            format!(
                "-p --output-format stream-json --verbose --include-partial-messages --dangerously-skip-permissions --model m \
                 --resume {id} --append-system-prompt-file /state/system.txt --allowedTools=Read \
                 --allowedTools=Bash(git log:*) --max-turns 25 --json-schema {{}} --flag"
            ),
        ),
        (
            "codex",
            format!(
                "exec -i /tmp/a.png -i /tmp/b.png --json --skip-git-repo-check {codex} -m m --output-schema /state/schema.json --cd /repo \
                 --dangerously-bypass-approvals-and-sandbox --flag resume {id} -"
            ),
        ),
        ("gemini", format!("-o stream-json --approval-mode yolo -m m --resume {id} --flag")),
        (
            "qwen",
            format!(
                "-o stream-json --include-partial-messages --approval-mode yolo --model m --resume {id} --max-session-turns 25 --json-schema {{}} --flag"
            ),
        ),
        (
            "opencode",
            format!(
                "run --format json --model m --session {id} --continue --title trunkline --auto --flag -f /tmp/a.png -f /tmp/b.png"
            ),
        ),
        ("glm", "-m m --max-tool-rounds 25 --flag --prompt Hi".to_owned()),
    ] {
        assert_eq!(joined_args(&command(provider, OutputForm::Streamed, &values)), args, "{provider}");
    }
}

#[test]
fn renders_the_whole_form_when_there_is_one() {
    let mut values = values("Hi");
    values.permissions = CliPermissions::Full;
    values.system_file = Some("F");
    values.max_turns = Some(25);
    for (provider, args) in [
        (
            "claude",
            "-p --output-format json --dangerously-skip-permissions --append-system-prompt-file F --max-turns 25",
        ),
        ("gemini", "--output-format json --approval-mode yolo"),
        ("qwen", "-o json --approval-mode yolo --max-session-turns 25"),
    ] {
        assert_eq!(joined_args(&command(provider, OutputForm::Whole, &values)), args, "{provider}");
        assert!(
            built_in()[provider].is_silent(OutputForm::Whole) && !built_in()[provider].is_silent(OutputForm::Streamed)
        );
    }
    // A CLI without such a form is run and watched as in the streamed form.
    for provider in ["codex", "opencode", "glm", "grok"] {
        let [whole, streamed] = [OutputForm::Whole, OutputForm::Streamed].map(|form| command(provider, form, &values));
        assert_eq!(whole, streamed);
        assert!(!built_in()[provider].is_silent(OutputForm::Whole), "{provider}");
    }
}

/// A value that only one form takes could not be passed in the other.
#[test]
fn has_a_placeholder_only_when_both_forms_contain_it() {
    let toml = "[mine]\nprogram = \"x\"\nformat = \"text\"\nprompt = \"arg\"\n\
        args = [[\"{prompt}\"], [\"-s\", \"{system_file}\"]]\nwhole = [[\"-m\", \"{model}\"], [\"{prompt}\"]]\n";
    let mine = &parse(toml).unwrap()["mine"];
    let wanted = [Placeholder::Prompt, Placeholder::SystemFile, Placeholder::Model];
    assert_eq!(wanted.map(|placeholder| mine.has_placeholder(placeholder)), [true, false, false]);
    for (name, provider) in built_in() {
        let args = provider.args.iter().flatten().filter_map(|arg| placeholder(arg));
        assert!(args.clone().all(|placeholder| provider.has_placeholder(placeholder)), "{name}");
    }
}

#[test]
fn read_passes_the_read_only_flags_of_each_cli() {
    let mut values = values("Hi");
    values.permissions = CliPermissions::Read;
    for (provider, expected) in [
        ("claude", "--permission-mode default --disallowedTools=Edit,Write,NotebookEdit,Bash"),
        ("codex", "-s read-only"),
        ("gemini", "--approval-mode plan"),
        ("qwen", "--approval-mode plan --exclude-tools=write_file,edit,notebook_edit,run_shell_command,monitor"),
        ("opencode", "--agent plan"),
    ] {
        assert!(joined_args(&command(provider, OutputForm::Streamed, &values)).contains(expected), "{provider}");
    }
    let opencode = command("opencode", OutputForm::Streamed, &values);
    let denied = r#"{"edit":"deny","bash":"deny","external_directory":"deny","doom_loop":"deny"}"#;
    assert_eq!(opencode.env["OPENCODE_PERMISSION"], denied);
}

#[test]
fn edit_allows_commands_when_the_kernel_confines_the_run() {
    for (provider, confined, unconfined) in [
        ("claude", "--permission-mode acceptEdits --allowedTools=Bash", "--permission-mode acceptEdits"),
        ("codex", "-s workspace-write -", "-s workspace-write -"),
        ("gemini", "--approval-mode yolo", "--approval-mode auto_edit"),
        ("qwen", "--approval-mode yolo", "--approval-mode auto-edit --exclude-tools=run_shell_command,monitor"),
        ("opencode", "--title trunkline --auto", "--title trunkline"),
    ] {
        for (permissions, expected) in [(CliPermissions::EditConfined, confined), (CliPermissions::Edit, unconfined)] {
            let line = command(provider, OutputForm::Streamed, &Values { permissions, ..values("Hi") });
            assert!(joined_args(&line).ends_with(expected), "{provider} {permissions:?}: {}", joined_args(&line));
        }
    }
}

#[test]
fn opencode_denies_outside_paths_when_it_cannot_ask() {
    for (permissions, expected) in [
        (CliPermissions::Edit, Some(r#"{"external_directory":"deny","doom_loop":"deny"}"#)),
        (CliPermissions::EditConfined, None),
        (CliPermissions::Full, None),
    ] {
        let line = command("opencode", OutputForm::Streamed, &Values { permissions, ..values("Hi") });
        assert_eq!(line.env.get("OPENCODE_PERMISSION").map(String::as_str), expected, "{permissions:?}");
    }
}

/// A kept process gets the same permissions and offers no other tools than a process for one turn. Its permission requests
/// are answered by what the kernel allows.
#[test]
fn a_kept_process_has_the_same_tools_as_a_process_for_one_turn() {
    let start = |provider: &str, permissions: CliPermissions| {
        let provider = &built_in()[provider];
        let values = Values { permissions, files: Some("/state/settings/p"), home: Some("/home/u"), ..values("") };
        let live = provider.live.as_ref().unwrap();
        let (args, greeting) = provider.live_arguments(live, &values, None).unwrap();
        (args.join(" "), live.env.clone(), greeting)
    };
    let (gemini, ..) = start("gemini", CliPermissions::EditConfined);
    assert_eq!(
        gemini,
        "--acp --policy /state/settings/p/headless.toml --policy /home/u/.gemini/policies --approval-mode yolo"
    );
    let (qwen, env, _) = start("qwen", CliPermissions::Edit);
    let excluded = "--exclude-tools=ask_user_question,enter_plan_mode,exit_plan_mode";
    assert_eq!(qwen, format!("--acp {excluded} --approval-mode auto-edit --exclude-tools=run_shell_command,monitor"));
    assert_eq!(env["QWEN_CODE_LEGACY_MCP_BLOCKING"], "1");
    for (permissions, answers) in [
        (CliPermissions::Read, Permissions::Read),
        (CliPermissions::Edit, Permissions::Edit),
        (CliPermissions::EditConfined, Permissions::Full),
        (CliPermissions::Full, Permissions::Full),
    ] {
        assert_eq!(start("opencode", permissions).2.permissions, answers, "{permissions:?}");
    }
    assert_eq!(start("codex", CliPermissions::Edit).2.mode.as_deref(), Some("workspace-write"));
}

#[test]
fn a_prompt_is_never_read_as_a_command_of_the_cli() {
    for (provider, prompt, delivered) in [
        ("claude", "/clear", "\n/clear"),
        ("claude", "see @/etc/passwd", "see @/etc/passwd"), // disabled by an environment variable
        ("qwen", "/help me", "\n/help me"),
        ("gemini", "/init", "\n/init"),
        ("gemini", "see @README.md and bob@example.com", "see \\@README.md and bob\\@example.com"),
        ("qwen", "already \\@escaped", "already \\@escaped"),
        ("codex", "/help @README.md", "/help @README.md"), // codex reads both as plain text
        ("opencode", "/init @README.md", "/init @README.md"),
    ] {
        assert_eq!(
            command(provider, OutputForm::Streamed, &values(prompt)).stdin.as_deref(),
            Some(delivered),
            "{provider}"
        );
    }
    assert_eq!(command("claude", OutputForm::Streamed, &values("x")).env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"], "1");
}

#[test]
fn no_value_is_read_as_a_flag() {
    assert_eq!(command("glm", OutputForm::Streamed, &values("--help")).args, ["--prompt", "\n--help"]);
    let mut dashed = values("Hi");
    dashed.model = Some("--dangerous");
    let failure = built_in()["codex"].command(OutputForm::Streamed, &dashed).unwrap_err();
    assert_eq!(failure.category, Category::Validation);
    let nul = built_in()["glm"].command(OutputForm::Streamed, &values("a\0b")).unwrap_err();
    assert_eq!(nul.category, Category::Validation);
}

#[test]
fn refuses_an_argument_when_it_exceeds_the_kernel_limit() {
    let fits = "x".repeat(MAX_ARGUMENT_BYTES);
    assert_eq!(command("glm", OutputForm::Streamed, &values(&fits)).args[1].len(), MAX_ARGUMENT_BYTES);
    let failure = built_in()["glm"].command(OutputForm::Streamed, &values(&format!("{fits}x"))).unwrap_err();
    assert_eq!(failure.category, Category::Validation);
    assert!(failure.message.contains("131072 bytes"), "{}", failure.message);
    // A prompt on stdin has no such limit.
    assert!(built_in()["codex"].command(OutputForm::Streamed, &values(&"x".repeat(1_000_000))).is_ok());
}

#[test]
fn refuses_session_ids_that_a_cli_would_misread() {
    let providers = built_in();
    for (provider, id, ok) in [
        ("codex", "0b912713-3cbe-4c14-b894-f6827625af7f", true),
        ("codex", "latest", false),
        ("codex", "--last", false),
        ("opencode", "ses_e2357b722fferCG5KBEZ87L9LH", true),
        ("opencode", "../x", false),
        ("opencode", "-x", false),
        ("glm", "anything", false),
    ] {
        assert_eq!(providers[provider].check_session(id).is_ok(), ok, "{provider} {id}");
    }
}

#[test]
fn a_provider_of_the_user_needs_no_code() {
    let toml = "[mine]\nprogram = \"my-agent\"\nformat = \"stream-json\"\nprompt = \"arg\"\n\
        args = [[\"run\"], [\"--model={model}\"], [\"--\", \"{prompt}\"]]\n";
    let mine = &parse(toml).unwrap()["mine"];
    let mut values = values("--help");
    values.model = Some("-odd-but-attached");
    let line = mine.command(OutputForm::Streamed, &values).unwrap();
    assert_eq!(line.args, ["run", "--model=-odd-but-attached", "--", "--help"]);
    let error = parse("[mine]\nprogram = \"x\"\nformat = \"text\"\nargs = []\npromt = \"arg\"\n").unwrap_err();
    assert!(error.to_string().contains("promt"), "{error}");
}

proptest! {
    #[test]
    fn no_prompt_makes_an_argument_begin_with_a_dash(prompt in "[-/@a-z \n]{0,20}") {
        for provider in built_in().values() {
            let line = provider.command(OutputForm::Streamed, &values(&prompt)).unwrap();
            let given = values("SENTINEL");
            let plain = provider.command(OutputForm::Streamed, &given).unwrap();
            for (arg, expected) in line.args.iter().zip(&plain.args) {
                prop_assert!(arg == expected || !arg.starts_with('-'), "{}: {arg:?}", provider.name);
            }
            prop_assert_eq!(line.args.len(), plain.args.len());
        }
    }
}

#[test]
fn passes_the_arguments_of_an_executable_unchanged() {
    let args = ["--model".to_owned(), "{model}".to_owned(), "{prompt}".to_owned(), "{extra}".to_owned()];
    let provider = executable("p", "/bin/p", &args);
    let extra = ["--more".to_owned()];
    let values = Values { request: "{}", extra: &extra, ..Values::default() };
    for (form, command) in [(OutputForm::Streamed, "stream"), (OutputForm::Whole, "generate")] {
        let line = provider.command(form, &values).unwrap();
        assert_eq!(line.args, ["--model", "{model}", "{prompt}", "{extra}", "--more", command]);
        assert_eq!(line.stdin.as_deref(), Some("{}"));
    }
}
