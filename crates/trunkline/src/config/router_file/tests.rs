//! Files as people write them, and what they come to.

mod examples;
mod mistakes;
mod properties;
mod schema;

use std::fs;

use serde_json::json;
use trunkline_core::api::Key;
use trunkline_core::failure::Category;
use trunkline_core::limits::Asked;
use trunkline_core::model::Sandbox;
use trunkline_core::parse::Format;
use trunkline_core::provider::{self, Delivery, Permissions};
use trunkline_engine::router::{Backoff, Breaker};

use super::*;
use examples::{EXAMPLE, FULL};

/// A folder with a `router.yaml`, a current folder beside it and an environment.
struct Setting {
    root: tempfile::TempDir,
    around: Surroundings,
}

impl Setting {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["conf", "here"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let env = [("HOME", "/home/u"), ("KEY", "secret"), ("HOST", "gpu.local"), ("LIST", "[a, b]"), ("EMPTY", "")];
        let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
        let around = Surroundings { env, folder: root.path().join("here") };
        Self { root, around }
    }

    fn with_file(self, path: &str) -> Self {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        self
    }

    fn load(&self, text: impl AsRef<[u8]>) -> Result<(Router, Vec<String>), String> {
        let path = self.root.path().join("conf/router.yaml");
        fs::write(&path, text).unwrap();
        let recipes = provider::built_in().into_iter().map(|(name, provider)| (name, Arc::new(provider))).collect();
        let mut warnings = Vec::new();
        match load(&path, &recipes, &self.around, &mut warnings) {
            Ok(router) => Ok((router, warnings.iter().map(|warning| self.plain(warning)).collect())),
            Err(error) => Err(self.plain(&error.to_string())),
        }
    }

    /// Without the folder that differs from run to run.
    fn plain(&self, text: &str) -> String {
        text.replace(self.root.path().to_str().unwrap(), "")
    }
}

fn load_text(text: &str) -> Result<(Router, Vec<String>), String> {
    Setting::new().load(text)
}

/// The one provider of this type and configuration.
fn provider_of(kind: &str, config: &str) -> RouterProvider {
    let text = format!("providers: [{{name: p, type: {kind}, config: {{{config}}}}}]");
    let (mut router, _) = load_text(&text).unwrap();
    router.providers.pop().unwrap()
}

fn recipe_of(provider: &RouterProvider) -> &Provider {
    let Kind::Agent { provider, .. } = &provider.kind else { panic!("{provider:?}") };
    provider
}

#[test]
fn the_example_of_the_protocol() {
    let (router, warnings) = load_text(EXAMPLE).unwrap();
    let pair = |hint: &str, model: &str| (hint.to_owned(), model.to_owned());
    let ollama = RouterProvider {
        name: "ollama".to_owned(),
        priority: 50,
        kind: Kind::Executable {
            path: "/path/to/ollama-provider".to_owned(),
            args: Vec::new(),
            options: serde_json::Map::new(),
            env: BTreeMap::new(),
        },
        model: Some("llama3.2:latest".to_owned()),
        models: vec![
            pair("fast", "llama3.2:latest"),
            pair("capable", "qwen3:8b"),
            pair("codegen", "deepseek-coder:6.7b"),
        ],
        offered: Vec::new(),
        max_tokens: None,
        timeout: Some(Duration::from_secs(120)),
    };
    assert_eq!(router, Router { providers: vec![ollama], disabled: Vec::new(), policy: Policy::default() });
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn every_key_is_read() {
    let setting = Setting::new();
    let (router, warnings) = setting.load(FULL).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let names: Vec<&str> = router.providers.iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(names, ["local", "cloud", "fable", "mine"], "in the order of the file");
    assert_eq!(router.disabled, ["off"], "and its variable is not looked for");

    let local = &router.providers[0];
    assert_eq!((local.priority, local.model.as_deref()), (-3, Some("3.10")), "a number is the text that was written");
    assert_eq!(local.timeout, Some(Duration::from_secs(120)));
    let hints: Vec<&str> = local.models.iter().map(|(hint, _)| hint.as_str()).collect();
    assert_eq!(hints, ["zeta", "alpha"]);
    let Kind::Executable { path, args, options, env } = &local.kind else { panic!("{local:?}") };
    assert_eq!(
        (setting.plain(path).as_str(), &args[..]),
        ("/conf/bin/provider", &["--verbose".to_owned(), "3".to_owned()][..])
    );
    let expected = json!({"seed": 7, "stop": ["a", "gpu.local"], "deep": {"on": true, "none": null}});
    assert_eq!(json!(options), expected);
    assert_eq!(json!(env), json!({"DEBUG": "1", "HOST": "gpu.local"}));

    let cloud = &router.providers[1];
    let key = Key { variable: "KEY".to_owned(), value: Some("secret".to_owned()) };
    assert_eq!(cloud.kind, Kind::Api { base_url: "https://gpu.local:8443/v1".to_owned(), key: Some(key) });
    assert_eq!((cloud.priority, cloud.timeout), (5, Some(Duration::from_secs(90))));
    assert!(!format!("{cloud:?}").contains("secret"));

    let fable = &router.providers[2];
    let expected = Kind::Agent {
        provider: Arc::new(provider::built_in().remove("claude").unwrap()),
        command: Some("/home/u/bin/claude".to_owned()),
        args: vec!["--debug".to_owned()],
        repo: setting.root.path().join("shop"),
        agent_file: Some("RULES.md".to_owned()),
        worktree: true,
        keep_worktree: true,
        permissions: Permissions::Full,
        limits: Asked {
            startup: Some(Duration::from_secs(60)),
            idle: Some(Duration::from_secs(300)),
            tool: Some(Duration::from_secs(7200)),
            compact: Some(Duration::from_secs(1200)),
            total: None,
        },
        sandbox: Some(Sandbox::Off),
        writable: vec!["/home/u/out".into(), setting.root.path().join("conf/more")],
        max_turns: Some(40),
        allowed_tools: vec!["Read".to_owned(), "Bash".to_owned()],
        system_prompt: Some("Be brief.".to_owned()),
        warm: Some(2),
        env: [("A".to_owned(), "b".to_owned())].into(),
    };
    assert_eq!((&fable.kind, fable.model.as_deref()), (&expected, Some("opus")));

    let mine = recipe_of(&router.providers[3]);
    let toml = r#"[mine]
        program = "my-agent"
        format = "stream-json"
        args = [["run"], ["--model", "{model}"], ["{extra}"]]
        whole = [["run", "--json"]]
        live = { protocol = "acp", args = [["serve"]], modes = { read = "look" }, reads = ["RULES.md"] }
        native = ["lib/agent"]
        install = "ask me"
        permissions = { read = { args = ["--look"] }, full = { args = ["--all"], env = { ALL = "1" } } }
        keys = ["MY_KEY"]
        home = { env = "MY_HOME", default = ".mine", link = ["auth.json"] }
        settings = { env = "MY_SETTINGS", content = "{}", system = "/etc/mine.json" }
        state = ["~/.mine/"]
        own_sandbox = true
        escape = { slash = true }
        node_compile_cache = true
        private_tmp = true
        buffers_output = true
        stop = "INT"
        session = "word"
        usage = "session"
        version = ["version"]
        noise = ["hello"]
        failures = [{ contains = "come back tomorrow", is = "quota" }]"#;
    assert_eq!(*mine, provider::parse(toml).unwrap()["mine"], "the same as in a file of providers");

    let seconds = Duration::from_secs;
    let backoff = Backoff { initial: Duration::from_millis(250), factor: 1.5, max: seconds(10) };
    let breaker = Breaker { failures: 3, window: seconds(30), cooldown: seconds(60) };
    let fallback_on = vec![Category::RateLimit, Category::Authentication];
    assert_eq!(router.policy, Policy { max_retries: 4, backoff, fallback_on, breaker });
}

#[test]
fn what_is_left_out() {
    let setting = Setting::new();
    let (router, _) = setting.load("providers:\n- {name: codex, type: agent}").unwrap();
    let codex = &router.providers[0];
    assert_eq!((codex.priority, &codex.model, codex.timeout), (0, &None, None));
    let expected = Kind::Agent {
        provider: Arc::new(provider::built_in().remove("codex").unwrap()),
        command: None,
        args: Vec::new(),
        repo: setting.around.folder.clone(),
        agent_file: None, // codex reads AGENTS.md by itself
        worktree: false,
        keep_worktree: false,
        permissions: Permissions::Edit,
        limits: Asked::default(),
        sandbox: None,
        writable: Vec::new(),
        max_turns: None,
        allowed_tools: Vec::new(),
        system_prompt: None,
        warm: None,
        env: BTreeMap::new(),
    };
    assert_eq!(codex.kind, expected);
    let seconds = Duration::from_secs;
    let routing = Policy {
        max_retries: 2,
        backoff: Backoff { initial: Duration::from_millis(500), factor: 2.0, max: seconds(60) },
        fallback_on: Vec::new(),
        breaker: Breaker { failures: 5, window: seconds(60), cooldown: seconds(30) },
    };
    assert_eq!(router.policy, routing);
}

#[test]
fn a_file_without_providers_is_odd_but_not_wrong() {
    let none = "/conf/router.yaml names no provider";
    for (text, warning) in [
        ("", none),
        ("# nothing yet\n", none),
        ("---\n", none),
        ("providers:\n", none),
        ("providers: []\nrouting:\n", none),
        ("providers: [{name: a, type: cli, enabled: false}]", "/conf/router.yaml enables no provider"),
    ] {
        let (router, warnings) = load_text(text).unwrap();
        assert!(router.providers.is_empty());
        assert_eq!(warnings, [warning], "{text:?}");
    }
}

#[test]
fn a_program_is_looked_for_beside_the_file_first() {
    for (written, files, path) in [
        ("bin/p", &["conf/bin/p", "here/bin/p"][..], "/conf/bin/p"),
        ("./bin/p", &["conf/bin/p"], "/conf/bin/p"),
        ("bin/p", &["here/bin/p"], "/here/bin/p"),
        ("bin/p", &[], "/conf/bin/p"),
        ("p", &["conf/p"], "/conf/p"),
        ("p", &["here/p"], "p"),
        ("/opt/p", &[], "/opt/p"),
        ("~/p", &[], "/home/u/p"),
    ] {
        let setting = files.iter().fold(Setting::new(), |setting, file| setting.with_file(file));
        let text = format!(
            "providers:\n- {{name: a, type: cli, config: {{path: {written}}}}}\n\
             - {{name: claude, type: agent, config: {{path: {written}}}}}\n\
             - {{name: c, type: agent, config: {{program: {written}, format: text}}}}"
        );
        let (router, _) = setting.load(text).unwrap();
        let [
            Kind::Executable { path: executable, .. },
            Kind::Agent { command: Some(command), .. },
            Kind::Agent { provider, .. },
        ] = [0, 1, 2].map(|index| router.providers[index].kind.clone())
        else {
            panic!("{router:?}")
        };
        let found = [&executable, &command, &provider.program].map(|found| setting.plain(found));
        assert_eq!(found, [path; 3], "{written} with {files:?}");
    }
}

#[test]
fn a_recipe_may_be_changed_in_part() {
    let claude = provider::built_in().remove("claude").unwrap();
    let changed = provider_of(
        "agent",
        "recipe: claude, program: my-claude, permissions: {full: {args: [--yes]}}, failures: [{contains: nap, is: quota}]",
    );
    let recipe = recipe_of(&changed);
    assert_eq!((recipe.name.as_str(), recipe.program.as_str()), ("p", "my-claude"));
    assert!(recipe.aliases.is_empty(), "it is no longer what the alias means");
    assert_eq!((recipe.format, &recipe.args), (Format::Claude, &claude.args));
    assert_eq!(
        (recipe.permissions.full.args.as_slice(), &recipe.permissions.read),
        (&["--yes".to_owned()][..], &claude.permissions.read)
    );
    assert_eq!((recipe.failures[0].is, recipe.failures.len()), (Category::Quota, claude.failures.len() + 1));
    let Kind::Agent { permissions, .. } = changed.kind else { panic!() };
    assert_eq!(permissions, Permissions::Edit);
}

#[test]
fn a_program_of_ones_own_needs_no_recipe() {
    let own = provider_of("agent", "program: ask, format: text, args: [--ask, '{prompt}']");
    let recipe = recipe_of(&own);
    assert_eq!((recipe.name.as_str(), recipe.prompt), ("p", Delivery::Arg));
    assert_eq!(recipe.args, [["--ask"], ["{prompt}"]]);
    let Kind::Agent { args, .. } = &own.kind else { panic!() };
    assert!(args.is_empty(), "they are the recipe");
    let by_stdin = provider_of("agent", "program: ask, format: json");
    assert_eq!((recipe_of(&by_stdin).prompt, recipe_of(&by_stdin).format), (Delivery::Stdin, Format::Json));
}

#[test]
fn keys_are_named_by_their_variable() {
    for (variable, value) in [("KEY", Some("secret")), ("EMPTY", None), ("NOT_SET", None)] {
        let text = format!(
            "providers: [{{name: p, type: api, config: {{base_url: 'http://h', api_key_env: {variable}, model: m}}}}]"
        );
        let (router, warnings) = load_text(&text).unwrap();
        let key = Key { variable: variable.to_owned(), value: value.map(str::to_owned) };
        assert_eq!(router.providers[0].kind, Kind::Api { base_url: "http://h".to_owned(), key: Some(key) });
        let warning = format!("provider p: the variable {variable} of its API key is not set");
        assert_eq!(warnings, if value.is_some() { vec![] } else { vec![warning] });
    }
}

#[test]
fn a_value_cannot_change_what_the_file_means() {
    let local = provider_of("cli", "path: /p, model: '${LIST}', args: ['${LIST}', $$x, '${NONE:-d}']");
    assert_eq!(local.model.as_deref(), Some("[a, b]"));
    let Kind::Executable { args, .. } = local.kind else { panic!() };
    assert_eq!(args, ["[a, b]", "$x", "d"]);
}

#[test]
fn aliases_and_merges_are_followed() {
    let text = "providers:\n- &a {name: a, type: cli, config: &c {path: /p, timeout: 1s}}\n- {<<: *a, name: b}\n\
                - name: c\n  type: cli\n  config:\n    <<: *c\n    timeout: 2s\n";
    let (router, _) = load_text(text).unwrap();
    let read: Vec<_> = router.providers.iter().map(|p| (p.name.as_str(), p.timeout.unwrap().as_secs())).collect();
    assert_eq!(read, [("a", 1), ("b", 1), ("c", 2)]);
}

#[test]
fn old_names_of_recipe_keys_are_read_with_a_warning() {
    let config = "litters: true, live: {protocol: acp, args: [], asked: true}, program: x, format: stream-json";
    let text = |kind: &str, config: &str| format!("providers: [{{name: p, type: {kind}, config: {{{config}}}}}]");
    let (router, warnings) = load_text(&text("agent", config)).unwrap();
    let recipe = recipe_of(&router.providers[0]);
    assert!(recipe.private_tmp && recipe.live.as_ref().is_some_and(|live| live.opt_in));
    assert_eq!(
        warnings,
        [
            "provider p: `litters` is now called `private_tmp`; the old name stops working in the next release",
            "provider p: `live.asked` is now called `live.opt_in`; the old name stops working in the next release",
        ]
    );
    let (router, _) = load_text(&text("cli", "path: p, quiet: true")).unwrap();
    let Kind::Executable { options, .. } = &router.providers[0].kind else { panic!() };
    assert_eq!(options["quiet"], true, "an executable gets its own keys as they are written");
}
