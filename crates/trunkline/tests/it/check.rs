//! Configuration mistakes that `trunkline check` finds before a run.

use std::fs;

use serde_json::json;

use crate::test_gateway::{CommandOutput, TestGateway};

/// The rows of `check` with this heading, joined with `|`.
fn row(check: &str, heading: &str) -> String {
    let rows = check.lines().filter_map(|row| row.strip_prefix("  ")?.strip_prefix(heading));
    rows.map(str::trim).collect::<Vec<_>>().join("|")
}

#[test]
fn error_suggests_similar_names_when_a_model_is_unknown() {
    let gateway = TestGateway::new().cli("codex", "").model("shop", json!({"driver": "codex"}));
    for (args, message) in [
        (&["check", "shpo"][..], "unknown model \"shpo\"; did you mean shop?"),
        (&["check", "claude"], "unknown model \"claude\": claude is not installed (npm install -g"),
        (&["check", "--route", "shpo"], "unknown model \"shpo\"; did you mean shop?"),
        (&["check", "nothing-like-it"], "see: trunkline models"),
    ] {
        let ran = gateway.run(args).exits(3);
        assert!(ran.stderr.contains(message), "{args:?} {ran:?}");
    }
    gateway.run(&["check", "shop"]).exits(0);
    gateway.run(&["check", "agent"]).exits(0);
}

#[test]
fn check_explains_the_route_when_the_name_is_one_of_the_router() {
    let router = "providers: [{name: p, type: cli, config: {path: p}, models: {fast: small}}]\n";
    let gateway = TestGateway::new().cli("p", "answers \"$1\" done").config("router.yaml", router);
    for name in ["auto", "auto:fast", "p/large"] {
        let shown = gateway.run(&["check", name]).exits(0).stdout;
        assert!(shown.contains(&format!("{name} would be tried in this order:")), "{shown}");
    }
    gateway.run(&["check", "auto:slow"]).exits(3);
}

#[test]
fn placeholder_is_an_error_when_it_is_mistyped() {
    let assert_refused = |ran: CommandOutput| {
        let ran = ran.exits(3);
        assert!(ran.stderr.contains("{promt}") && ran.stderr.contains("did you mean {prompt}?"), "{ran:?}");
    };
    let own = json!({"driver": "text", "command": "codex", "args": ["--ask={promt}"]});
    assert_refused(TestGateway::new().cli("codex", "").model("m", own).run(&["check"]));
    let added = json!({"driver": "codex", "args": ["{promt}"]});
    assert_refused(TestGateway::new().cli("codex", "").model("m", added).run(&["check"]));
    let toml = "[mine]\nprogram = \"codex\"\nformat = \"text\"\nargs = [[\"--ask\", \"{promt}\"]]\n";
    assert_refused(TestGateway::new().cli("codex", "").config("providers.toml", toml).run(&["check"]));
    for args in ["args: [\"{promt}\"]", "args: [[--ask, \"{promt}\"]]"] {
        let yaml = format!("providers: [{{name: p, type: agent, config: {{program: codex, format: text, {args}}}}}]\n");
        assert_refused(TestGateway::new().cli("codex", "").config("router.yaml", &yaml).run(&["check"]));
    }
}

#[test]
fn text_in_braces_is_passed_on_with_a_warning_when_it_is_no_placeholder() {
    let own = json!({"driver": "text", "command": "codex", "args": ["--format={hash}", "{\"a\":1}", "{prompt}"]});
    let shown = TestGateway::new().cli("codex", "").model("m", own).run(&["check"]).exits(0).stdout;
    assert!(shown.contains("warning: model m: \"{hash}\" in the arguments is not a placeholder"), "{shown}");
    assert_eq!(shown.matches("warning: ").count(), 1, "{shown}");
    let added = json!({"driver": "codex", "args": ["--note={model}"]});
    let shown = TestGateway::new().cli("codex", "").model("m", added).run(&["check"]).exits(0).stdout;
    assert!(shown.contains("\"--note={model}\" in `args` is passed unchanged"), "{shown}");
}

#[test]
fn an_old_key_is_reported_when_a_providers_file_has_it() {
    let toml = "[mine]\nprogram = \"my-agent\"\nformat = \"text\"\nargs = []\nlitters = true\n";
    let gateway = TestGateway::new().cli("my-agent", "echo mine").config("providers.toml", toml);
    let warning =
        "provider mine: `litters` is now called `private_tmp`; the old name stops working in the next release";
    let shown = gateway.run(&["check"]).exits(0).stdout;
    assert!(shown.contains(&format!("warning: {warning}")), "{shown}");
    let gateway = gateway.start();
    assert!(gateway.log().contains(warning), "{}", gateway.log());
    let twice = format!("{toml}private_tmp = true\n");
    let ran = TestGateway::new().config("providers.toml", &twice).run(&["check"]).exits(3);
    assert!(ran.stderr.contains("duplicate field `private_tmp`"), "{ran:?}");
}

#[test]
fn timeouts_are_shown_for_every_kind_of_model() {
    let router = "providers:\n  - {name: exe, type: cli, config: {path: exe, timeout: 90s}}\n  \
                  - {name: api, type: api, config: {base_url: 'http://127.0.0.1:1', model: m}}\n";
    let gateway = TestGateway::new()
        .cli("codex", "")
        .cli("exe", "answers \"$1\" done")
        .config("router.yaml", router)
        .model("usual", json!({"driver": "codex"}))
        .model("short", json!({"driver": "codex", "timeout": "5m", "idleTimeout": "30s"}))
        .model("own", json!({"driver": "agent", "timeout": "1h"}));
    for (model, timeout) in [
        ("usual", "30m in all, 2m until the first output, 10m of silence, 15m of silence while compacting"),
        ("short", "5m in all, 2m until the first output, 30s of silence"),
        ("own", "1h in all, 2m of silence"),
        ("exe", "90s in all"),
        ("api", "2m in all"),
    ] {
        let shown = gateway.run(&["check", model]).exits(0).stdout;
        assert_eq!(row(&shown, "timeout"), timeout, "{shown}");
    }
}

#[test]
fn worktree_is_shown_when_the_agent_has_one() {
    let gateway = TestGateway::new().model("m", json!({"driver": "agent", "worktree": true}));
    let shown = gateway.run(&["check", "m"]).exits(0).stdout;
    let worktree = gateway.path("worktrees/<run>").display().to_string();
    assert_eq!(row(&shown, "cwd"), worktree, "{shown}");
    let writes = row(&shown, "writes");
    let repo = gateway.repo().display().to_string();
    assert!(!writes.split(' ').any(|place| place.trim_matches('\'') == repo), "{writes}");
}

#[test]
fn worktree_is_an_error_when_it_cannot_be_created() {
    let gateway = TestGateway::new().cli("codex", "");
    for name in ["plain", "empty", "bare.git"] {
        fs::create_dir(gateway.path(name)).unwrap();
    }
    let at = |name: &str| gateway.path(name).display().to_string();
    gateway.git(&["-C", &at("empty"), "init", "--quiet", "--initial-branch=main"]);
    gateway.git(&["-C", &at("bare.git"), "init", "--quiet", "--bare"]);
    for (folder, message, remedy) in [
        ("plain", "is not in a git repository", "git init"),
        ("empty", "has no commit", "git commit"),
        ("bare.git", "is a bare repository", "clone it"),
    ] {
        for driver in ["codex", "agent"] {
            let entry = json!({"m": {"driver": driver, "repoPath": gateway.path(folder), "worktree": true}});
            fs::write(gateway.path("config/models.json"), entry.to_string()).unwrap();
            let ran = gateway.run(&["check", "m"]).exits(3);
            assert!(ran.stdout.contains(message) && ran.stdout.contains(remedy), "{folder} {driver} {ran:?}");
        }
    }
    let entry = json!({"m": {"driver": "codex", "repoPath": gateway.path("plain")}});
    fs::write(gateway.path("config/models.json"), entry.to_string()).unwrap();
    gateway.run(&["check", "m"]).exits(0);
}

#[test]
fn helpers_policy_is_warned_about_when_there_is_no_worktree() {
    let policy = json!({"createHelpers": false, "commitHelpers": true});
    let gateway = TestGateway::new().cli("codex", "").model("m", json!({"driver": "codex", "policy": policy}));
    let shown = gateway.run(&["check"]).exits(0).stdout;
    for warning in [
        "policy.commitHelpers needs `worktree: true`",
        "policy.createHelpers: false is only an instruction to the agent",
    ] {
        assert!(shown.contains(warning), "{shown}");
    }
    let gateway = gateway.model("m", json!({"driver": "codex", "policy": policy, "worktree": true}));
    assert!(!gateway.run(&["check"]).exits(0).stdout.contains("warning"));
}
