//! Example files and the router they are resolved to.

mod errors;
mod examples;
mod properties;
mod schema;

use std::fs;
use std::time::Duration;

use serde_json::json;
use trunkline_core::api::ServiceKey;
use trunkline_core::failure::Category;
use trunkline_core::limits::RequestedLimits;
use trunkline_core::model::Sandbox;
use trunkline_core::parse::Format;
use trunkline_core::provider::{self};
use trunkline_core::vocabulary::{Permissions, PromptDelivery};
use trunkline_engine::router::{Backoff, Breaker};

use super::*;
use examples::{EXAMPLE, FULL};

/// A folder with a `router.yaml`, a current folder next to it, and an environment.
struct RouterFolder {
    root: tempfile::TempDir,
    environment: Environment,
}

impl RouterFolder {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["conf", "here"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let env = [("HOME", "/home/u"), ("KEY", "secret"), ("HOST", "gpu.local"), ("LIST", "[a, b]"), ("EMPTY", "")];
        let env = env.map(|(name, value)| (name.into(), value.into())).to_vec();
        let environment = Environment { env, folder: root.path().join("here") };
        Self { root, environment }
    }

    fn with_file(self, path: &str) -> Self {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        self
    }

    fn load(&self, text: impl AsRef<[u8]>) -> Result<(RouterFile, Vec<String>), String> {
        let path = self.root.path().join("conf/router.yaml");
        fs::write(&path, text).unwrap();
        let recipes = provider::built_in().into_iter().map(|(name, provider)| (name, Arc::new(provider))).collect();
        let mut warnings = Vec::new();
        match load(&path, &recipes, &self.environment, &mut warnings) {
            Ok(router) => Ok((router, warnings.iter().map(|warning| self.plain(warning)).collect())),
            Err(error) => Err(self.plain(&error.to_string())),
        }
    }

    /// `text` without the path of the temporary folder.
    fn plain(&self, text: &str) -> String {
        text.replace(self.root.path().to_str().unwrap(), "")
    }
}

fn load_text(text: &str) -> Result<(RouterFile, Vec<String>), String> {
    RouterFolder::new().load(text)
}

/// Loads a file with one provider of this type and configuration.
fn provider_of(kind: &str, config: &str) -> RouterProvider {
    let text = format!("providers: [{{name: p, type: {kind}, config: {{{config}}}}}]");
    let (mut router, _) = load_text(&text).unwrap();
    router.providers.pop().unwrap()
}

fn recipe_of(provider: &RouterProvider) -> &Provider {
    let RouterProviderKind::Agent { provider, .. } = &provider.kind else { panic!("{provider:?}") };
    provider
}

#[test]
fn reads_the_example_of_the_protocol() {
    let (router, warnings) = load_text(EXAMPLE).unwrap();
    let pair = |hint: &str, model: &str| (hint.to_owned(), model.to_owned());
    let ollama = RouterProvider {
        name: "ollama".to_owned(),
        priority: 50,
        kind: RouterProviderKind::Executable {
            path: "/path/to/ollama-provider".to_owned(),
            args: Vec::new(),
            request_config: serde_json::Map::new(),
        },
        options: ModelOptions {
            model: Some("llama3.2:latest".to_owned()),
            limits: RequestedLimits { total: Some(Duration::from_secs(120)), ..RequestedLimits::default() },
            ..ModelOptions::default()
        },
        models: vec![
            pair("fast", "llama3.2:latest"),
            pair("capable", "qwen3:8b"),
            pair("codegen", "deepseek-coder:6.7b"),
        ],
        offered: Vec::new(),
    };
    assert_eq!(router, RouterFile { providers: vec![ollama], disabled: Vec::new(), ..RouterFile::default() });
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn reads_every_key() {
    let folder = RouterFolder::new();
    let (router, warnings) = folder.load(FULL).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let names: Vec<&str> = router.providers.iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(names, ["local", "cloud", "fable", "mine"], "in the order of the file");
    assert_eq!(router.disabled, ["off"], "and its variables are not expanded");

    let local = &router.providers[0];
    assert_eq!(
        (local.priority, local.options.model.as_deref()),
        (-3, Some("3.10")),
        "a number is read as the text that was written"
    );
    assert_eq!(local.options.limits.total, Some(Duration::from_secs(120)));
    let hints: Vec<&str> = local.models.iter().map(|(hint, _)| hint.as_str()).collect();
    assert_eq!(hints, ["zeta", "alpha"]);
    let RouterProviderKind::Executable { path, args, request_config } = &local.kind else { panic!("{local:?}") };
    assert_eq!(
        (folder.plain(path).as_str(), &args[..]),
        ("/conf/bin/provider", &["--verbose".to_owned(), "3".to_owned()][..])
    );
    let expected = json!({"seed": 7, "stop": ["a", "gpu.local"], "deep": {"on": true, "none": null}});
    assert_eq!(json!(request_config), expected);
    assert_eq!(json!(local.options.env), json!({"DEBUG": "1", "HOST": "gpu.local"}));

    let cloud = &router.providers[1];
    let key = ServiceKey { variable: "KEY".to_owned(), value: Some("secret".to_owned()) };
    assert_eq!(
        cloud.kind,
        RouterProviderKind::Api { base_url: "https://gpu.local:8443/v1".to_owned(), key: Some(key) }
    );
    assert_eq!((cloud.priority, cloud.options.limits.total), (5, Some(Duration::from_secs(90))));
    assert!(!format!("{cloud:?}").contains("secret"));

    let fable = &router.providers[2];
    let expected = RouterProviderKind::Agent {
        provider: Arc::new(provider::built_in().remove("claude").unwrap()),
        command: Some("/home/u/bin/claude".to_owned()),
        args: vec!["--debug".to_owned()],
        repo: folder.root.path().join("shop"),
    };
    assert_eq!(fable.kind, expected);
    let expected = ModelOptions {
        model: Some("opus".to_owned()),
        agent_file: Some("RULES.md".to_owned()),
        worktree: true,
        keep_worktree: true,
        permissions: Permissions::Full,
        limits: RequestedLimits {
            startup: Some(Duration::from_secs(60)),
            idle: Some(Duration::from_secs(300)),
            tool: Some(Duration::from_secs(7200)),
            compact: Some(Duration::from_secs(1200)),
            total: Some(Duration::from_secs(3600)),
        },
        sandbox: Some(Sandbox::Off),
        writable: vec!["/home/u/out".into(), folder.root.path().join("conf/more")],
        max_turns: Some(40),
        max_tokens: None,
        allowed_tools: vec!["Read".to_owned(), "Bash".to_owned()],
        system_prompt: Some("Be brief.".to_owned()),
        warm: Some(2),
        own_tools: None,
        park_timeout: None,
        env: [("A".to_owned(), "b".to_owned())].into(),
    };
    assert_eq!(fable.options, expected);

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
    assert_eq!(router.policy, RetryPolicy { max_retries: 4, backoff, fallback_on, breaker });
}

#[test]
fn missing_keys_have_defaults() {
    let folder = RouterFolder::new();
    let (router, _) = folder.load("providers:\n- {name: codex, type: agent}").unwrap();
    let codex = &router.providers[0];
    assert_eq!((codex.priority, &codex.options), (0, &ModelOptions::default()));
    let expected = RouterProviderKind::Agent {
        provider: Arc::new(provider::built_in().remove("codex").unwrap()),
        command: None,
        args: Vec::new(),
        repo: folder.environment.folder.clone(),
    };
    assert_eq!(codex.kind, expected);
    let seconds = Duration::from_secs;
    let routing = RetryPolicy {
        max_retries: 2,
        backoff: Backoff { initial: Duration::from_millis(500), factor: 2.0, max: seconds(60) },
        fallback_on: Vec::new(),
        breaker: Breaker { failures: 5, window: seconds(60), cooldown: seconds(30) },
    };
    assert_eq!(router.policy, routing);
}

#[test]
fn warns_when_a_file_has_no_providers() {
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
fn program_is_searched_next_to_the_file_first() {
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
        let folder = files.iter().fold(RouterFolder::new(), |folder, file| folder.with_file(file));
        let text = format!(
            "providers:\n- {{name: a, type: cli, config: {{path: {written}}}}}\n\
             - {{name: claude, type: agent, config: {{path: {written}}}}}\n\
             - {{name: c, type: agent, config: {{program: {written}, format: text}}}}"
        );
        let (router, _) = folder.load(text).unwrap();
        let [
            RouterProviderKind::Executable { path: executable, .. },
            RouterProviderKind::Agent { command: Some(command), .. },
            RouterProviderKind::Agent { provider, .. },
        ] = [0, 1, 2].map(|index| router.providers[index].kind.clone())
        else {
            panic!("{router:?}")
        };
        let found = [&executable, &command, &provider.program].map(|found| folder.plain(found));
        assert_eq!(found, [path; 3], "{written} with {files:?}");
    }
}

#[test]
fn fields_of_a_recipe_can_be_replaced() {
    let claude = provider::built_in().remove("claude").unwrap();
    let changed = provider_of(
        "agent",
        "recipe: claude, program: my-claude, permissions: {full: {args: [--yes]}}, failures: [{contains: nap, is: quota}]",
    );
    let recipe = recipe_of(&changed);
    assert_eq!((recipe.name.as_str(), recipe.program.as_str()), ("p", "my-claude"));
    assert!(recipe.aliases.is_empty(), "an alias means the original recipe");
    assert_eq!((recipe.format, &recipe.args), (Format::Claude, &claude.args));
    assert_eq!(
        (recipe.permissions.full.args.as_slice(), &recipe.permissions.read),
        (&["--yes".to_owned()][..], &claude.permissions.read)
    );
    assert_eq!((recipe.failures[0].is, recipe.failures.len()), (Category::Quota, claude.failures.len() + 1));
    assert_eq!(changed.options.permissions, Permissions::Edit);
}

#[test]
fn custom_program_needs_no_recipe() {
    let own = provider_of("agent", "program: ask, format: text, args: [--ask, '{prompt}']");
    let recipe = recipe_of(&own);
    assert_eq!((recipe.name.as_str(), recipe.prompt), ("p", PromptDelivery::Arg));
    assert_eq!(recipe.args, [["--ask"], ["{prompt}"]]);
    let RouterProviderKind::Agent { args, .. } = &own.kind else { panic!() };
    assert!(args.is_empty(), "the arguments are the recipe");
    let by_stdin = provider_of("agent", "program: ask, format: json");
    assert_eq!((recipe_of(&by_stdin).prompt, recipe_of(&by_stdin).format), (PromptDelivery::Stdin, Format::Json));
}

#[test]
fn api_key_is_named_by_its_variable() {
    for (variable, value) in [("KEY", Some("secret")), ("EMPTY", None), ("NOT_SET", None)] {
        let text = format!(
            "providers: [{{name: p, type: api, config: {{base_url: 'http://h', api_key_env: {variable}, model: m}}}}]"
        );
        let (router, warnings) = load_text(&text).unwrap();
        let key = ServiceKey { variable: variable.to_owned(), value: value.map(str::to_owned) };
        assert_eq!(
            router.providers[0].kind,
            RouterProviderKind::Api { base_url: "http://h".to_owned(), key: Some(key) }
        );
        let warning = format!("provider p: the variable {variable} of its API key is not set");
        assert_eq!(warnings, if value.is_some() { vec![] } else { vec![warning] });
    }
}

#[test]
fn expanded_value_cannot_change_the_structure() {
    let local = provider_of("cli", "path: /p, model: '${LIST}', args: ['${LIST}', $$x, '${NONE:-d}']");
    assert_eq!(local.options.model.as_deref(), Some("[a, b]"));
    let RouterProviderKind::Executable { args, .. } = local.kind else { panic!() };
    assert_eq!(args, ["[a, b]", "$x", "d"]);
}

#[test]
fn yaml_aliases_and_merges_are_resolved() {
    let text = "providers:\n- &a {name: a, type: cli, config: &c {path: /p, timeout: 1s}}\n- {<<: *a, name: b}\n\
                - name: c\n  type: cli\n  config:\n    <<: *c\n    timeout: 2s\n";
    let (router, _) = load_text(text).unwrap();
    let read: Vec<_> =
        router.providers.iter().map(|p| (p.name.as_str(), p.options.limits.total.unwrap().as_secs())).collect();
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
    let RouterProviderKind::Executable { request_config, .. } = &router.providers[0].kind else { panic!() };
    assert_eq!(request_config["quiet"], true, "an executable gets its own keys as they are written");
}
