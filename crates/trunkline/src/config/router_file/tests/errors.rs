//! Invalid files and the exact error for each.

use std::fmt::Write;

use super::{RouterFolder, load_text};

#[test]
fn errors_have_position_and_reason() {
    for (text, expected) in ERRORS {
        let error = load_text(text).map(|_| ()).unwrap_err();
        assert_eq!(error.strip_prefix("/conf/router.yaml:"), Some(*expected), "{text}");
    }
}

#[test]
fn rejects_a_file_that_is_too_expensive_to_parse() {
    let large = format!("# {}\n", "x".repeat(1024 * 1024));
    let huge = vec![b' '; 5 * 1024 * 1024];
    let deep = "[".repeat(100_000);
    let wide = format!("a: [{}]", "x,".repeat(100_000));
    // Each anchor repeats the previous one ten times.
    let mut laughs = "a0: &a0 [lol]\n".to_owned();
    for n in 1..10 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        writeln!(laughs, "a{n}: &a{n} [{aliases}]").unwrap();
    }
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(100_000), vec!["*a"; 500].join(", "));
    for (file, expected) in [
        (large.as_bytes(), "larger than 1 MiB"),
        (&huge, "larger than 4 MiB"),
        (deep.as_bytes(), "recursion limit exceeded"),
        (wide.as_bytes(), "too large or too deeply nested"),
        (laughs.as_bytes(), "too large or too deeply nested"),
        (long.as_bytes(), "too large or too deeply nested"),
        (b"providers: \xff", "stream did not contain valid UTF-8"),
    ] {
        let error = RouterFolder::new().load(file).unwrap_err();
        assert!(error.starts_with("/conf/router.yaml:") && error.ends_with(&format!(": {expected}")), "{error}");
    }
}

/// Text of the file, and the error after its name.
const ERRORS: &[(&str, &str)] = &[
    // The file itself.
    ("providers: [\n", "1:12: unclosed bracket '['"),
    ("a: b: c", "1:5: mapping values are not allowed in this context"),
    ("providers: []\nproviders: []", "2:1: the key `providers` appears twice"),
    ("providers: []\n---\nrouting: {}", "3:1: a second document begins (remove the line `---`)"),
    ("aliases: [a]", "1:10: `aliases` must be a map, not a list"),
    ("aliases:\n  a: b\n  c: [d]", "3:6: `aliases.c` must be text, not a list (put it in quotes if text is meant)"),
    ("aliases: {a: 'b-*'}", "1:11: alias \"a\" leads to \"b-*\": write the name of one model, without `*`"),
    ("- name: a", "1:1: expected a map of keys and values, not a list"),
    ("just text", "1:1: expected a map of keys and values, not text"),
    ("provider: []", "1:1: unknown key `provider` (did you mean `providers`?)"),
    (
        "providers: [{name: a, type: cli, config: {path: ${HOME}/p}}]",
        "1:50: while parsing a flow mapping, did not find expected ',' or '}' (a text with `${…}` in braces needs quotes)",
    ),
    ("zzzzzzzz: []", "1:1: unknown key `zzzzzzzz` (known: providers, routing, aliases)"),
    (
        "providers: {ollama: {}}",
        "1:12: `providers` must be a list, not a map (begin each provider with a dash: `- name: …`)",
    ),
    ("providers: [a]", "1:13: a provider: expected a map of keys and values, not text"),
    ("providers: *x", "1:12: alias references unknown anchor"),
    ("providers: &x [*x]", "1:16: an alias refers to itself"),
    ("providers: !secret []", "1:20: unsupported tag `!secret`"),
    ("? [a]\n: b", "1:3: a key must be text"),
    ("~: b", "1:1: a key must be text"),
    ("providers:\n\t- a", "2:2: tabs disallowed within this context (block indentation)"),
    // Names.
    ("providers:\n- type: cli", "2:3: a provider: `name` is missing"),
    ("providers:\n- {name: '', type: cli}", r#"2:10: "" cannot be a provider's name (it is empty)"#),
    (
        "providers:\n- {name: a/b, type: cli}",
        r#"2:10: "a/b" cannot be a provider's name (the part after a `/` is a model)"#,
    ),
    (
        "providers:\n- {name: \"a\\tb\", type: cli}",
        r#"2:10: "a\tb" cannot be a provider's name (it contains a control character)"#,
    ),
    (
        "providers:\n- name: auto\n  type: cli",
        r#"2:9: "auto" cannot be a provider's name (`auto` lets the router choose)"#,
    ),
    (
        "providers:\n- {name: 'auto:fast', type: cli}",
        r#"2:10: "auto:fast" cannot be a provider's name (`auto` lets the router choose)"#,
    ),
    (
        "providers:\n- {name: [a], type: cli}",
        "2:10: a provider: `name` must be text, not a list (put it in quotes if text is meant)",
    ),
    ("providers:\n- {name: ~, type: cli}", "2:10: a provider: `name` is empty (write a value, or remove the key)"),
    (
        "providers:\n- {name: '${NOT_SET}', type: cli}",
        "2:10: the variable NOT_SET is not set (set it, or write ${NOT_SET:-default})",
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: p}}\n- {name: a, type: cli, config: {path: p}}",
        "3:3: provider a appears twice",
    ),
    (
        "providers:\n- {name: codex, type: agent}\n- {name: codex, type: api, enabled: false}",
        "3:3: provider codex appears twice",
    ),
    // Keys of a provider.
    (
        "providers:\n- {name: a}",
        "2:3: provider a: `type` is missing (cli: a provider executable, agent: a coding agent, api: an HTTP API)",
    ),
    ("providers:\n- {name: a, type: cil}", r#"2:19: provider a: unknown type "cil" (did you mean `cli`?)"#),
    (
        "providers:\n- {name: a, type: executable}",
        r#"2:19: provider a: unknown type "executable" (known: cli, agent, api)"#,
    ),
    (
        "providers:\n- {name: a, type: cli, path: /p}",
        "2:24: provider a: unknown key `path` (`path` belongs under `config`)",
    ),
    (
        "providers:\n- {name: a, type: cli, prioriti: 1}",
        "2:24: provider a: unknown key `prioriti` (did you mean `priority`?)",
    ),
    ("providers:\n- {name: a, type: cli, enabled: yes}", "2:33: provider a: `enabled` must be true or false, not text"),
    (
        "providers:\n- {name: a, type: cli, enabled: false, nonsense: 1}",
        "2:40: provider a: unknown key `nonsense` (known: name, type, enabled, priority, config, models)",
    ),
    (
        "providers:\n- {name: codex, type: agent, priority: high}",
        "2:40: provider codex: `priority` must be a whole number, not text",
    ),
    (
        "providers:\n- {name: codex, type: agent, priority: 1.5}",
        "2:40: provider codex: `priority` must be a whole number, not 1.5",
    ),
    (
        "providers:\n- {name: codex, type: agent, models: [{name: A}]}",
        "2:38: provider codex: `models`: each is a model's id, or a table with `id` and `name`",
    ),
    (
        "providers:\n- {name: codex, type: agent, models: {fast: [a]}}",
        "2:45: provider codex: `models.fast` must be text, not a list (put it in quotes if text is meant)",
    ),
    (
        "providers:\n- name: codex\n  type: agent\n  models:\n    fast: ''",
        "5:11: provider codex: `models.fast` is empty",
    ),
    (
        "providers:\n- {name: a, type: cli, config: []}",
        "2:32: provider a: expected a map of keys and values, not a list",
    ),
    // type: cli
    ("providers:\n- {name: a, type: cli}", "2:3: provider a: `path` is missing (add it under `config`)"),
    (
        "providers:\n- name: a\n  type: cli\n  config:\n    pth: /p",
        "5:5: provider a: unknown key `pth` (did you mean `path`?)",
    ),
    ("providers:\n- {name: a, type: cli, config: {path: ''}}", "2:39: provider a: `path` is empty"),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, api_key: x}}",
        "2:43: provider a: unknown key `api_key` (a key does not belong in a file: pass the variable that holds it on, with `env`)",
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, x: 1, options: {x: 2}}}",
        "2:43: provider a: `x` appears twice: in `config` and in its `options`",
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, command: /q}}",
        "2:43: provider a: `path` and `command` are the same field (keep one of them; it is `path` here)",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {litters: true, private_tmp: true}}",
        "2:54: provider codex: `litters` and `private_tmp` are the same field (keep one of them; it is `private_tmp` here)",
    ),
    (
        "providers:\n- name: a\n  type: cli\n  config:\n    path: /p\n    timeout: soon",
        r#"6:14: provider a: `timeout`: "soon" is not a time: write 500ms, 120s, 2m or 1h"#,
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, timeout: 0}}",
        r#"2:52: provider a: `timeout`: "0" is not a time: write 500ms, 120s, 2m or 1h"#,
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, timeout: true}}",
        "2:52: provider a: `timeout` must be a time, not true or false",
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, args: --x}}",
        "2:49: provider a: `args` must be a list, not text",
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, args: [{a: b}]}}",
        "2:50: provider a: `args` must be text, not a map (put it in quotes if text is meant)",
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, options: [a]}}",
        "2:52: provider a: `options` must be a map, not a list",
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, env: {'A=B': c}}}",
        r#"2:49: provider a: `env`: "A=B" cannot be a variable's name"#,
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, model: }}",
        "2:48: provider a: `model` is empty (write a value, or remove the key)",
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: /p, model: 1e999}}",
        "2:50: 1e999 is not a finite number (put text in quotes)",
    ),
    (
        "providers:\n- name: a\n  type: cli\n  config:\n    path: /p\n    options: {x: ['${NOT_SET}']}",
        "6:19: the variable NOT_SET is not set (set it, or write ${NOT_SET:-default})",
    ),
    (
        "providers:\n- {name: a, type: cli, config: {path: '${HOST'}}",
        "2:39: `${` without its `}` (write $$ for a dollar sign)",
    ),
    // type: api
    ("providers:\n- {name: a, type: api}", "2:3: provider a: `base_url` is missing (add it under `config`)"),
    (
        "providers:\n- {name: a, type: api, config: {base_url: 'http://h'}}",
        "2:3: provider a: no model is named (an API needs one: add `model` to its config, or `models`)",
    ),
    (
        "providers:\n- {name: a, type: api, config: {base_url: 'http://h', api_key: sk-1, model: m}}",
        "2:55: provider a: unknown key `api_key` (a key does not belong in a file: name the variable that holds it, with `api_key_env`)",
    ),
    (
        "providers:\n- {name: a, type: api, config: {base_url: 'http://h', api_key_env: sk-1, model: m}}",
        "2:68: provider a: `api_key_env` is not a variable's name in capital letters (write the name of the variable that holds the key, without `${}`)",
    ),
    (
        "providers:\n- {name: a, type: api, config: {base_url: 'ftp://h', model: m}}",
        "2:43: provider a: `base_url` must begin with http:// or https://",
    ),
    (
        "providers:\n- {name: a, type: api, config: {base_url: localhost, model: m}}",
        "2:43: provider a: `base_url` must begin with http:// or https://",
    ),
    (
        "providers:\n- {name: a, type: api, config: {base_url: 'http://', model: m}}",
        "2:43: provider a: `base_url` names no host",
    ),
    (
        "providers:\n- {name: a, type: api, config: {base_url: 'http://h/v1?k=v', model: m}}",
        "2:43: provider a: `base_url` must not have a query",
    ),
    (
        "providers:\n- {name: a, type: api, config: {base_url: 'http://u:p@h', model: m}}",
        "2:43: provider a: `base_url` must not contain a password: use `api_key_env`",
    ),
    (
        "providers:\n- {name: a, type: api, config: {base_url: 'http://h:99999', model: m}}",
        "2:43: provider a: `base_url` has no valid port",
    ),
    (
        "providers:\n- {name: a, type: api, config: {base_url: 'http://h h', model: m}}",
        "2:43: provider a: `base_url` contains a space",
    ),
    // type: agent
    (
        "providers:\n- {name: missing, type: agent}",
        r#"2:3: provider missing: there is no recipe named "missing" (add `recipe` (claude, codex, gemini, glm, grok, opencode, qwen), or `program` and `format`, to its config)"#,
    ),
    (
        "providers:\n- {name: a, type: agent, config: {recipe: cluade}}",
        r#"2:43: provider a: unknown recipe "cluade" (did you mean `claude`?)"#,
    ),
    (
        "providers:\n- {name: a, type: agent, config: {recipe: zzzzzzz}}",
        r#"2:43: provider a: unknown recipe "zzzzzzz" (known: claude, codex, gemini, glm, grok, opencode, qwen)"#,
    ),
    (
        "providers:\n- {name: a, type: agent, config: {program: x}}",
        r#"2:34: provider a: there is no recipe named "a" (add `recipe` (claude, codex, gemini, glm, grok, opencode, qwen), or `program` and `format`, to its config)"#,
    ),
    (
        "providers:\n- {name: a, type: agent, config: {program: x, format: text, live: {protocol: acp, args: []}}}",
        "2:55: provider a: format \"text\" cannot read the protocol \"acp\" of `live` (use one of the formats claude, codex, gemini, qwen, opencode, ax, stream-json, or remove `live`)",
    ),
    (
        "providers:\n- {name: gemini, type: agent, config: {format: json, live: {protocol: acp, args: []}}}",
        "2:48: provider gemini: format \"json\" cannot read the protocol \"acp\" of `live` (use one of the formats claude, codex, gemini, qwen, opencode, ax, stream-json, or remove `live`)",
    ),
    (
        "providers:\n- {name: a, type: agent, config: {program: x, format: xml}}",
        "2:55: provider a: `format`: unknown variant `xml`, expected one of `claude`, `codex`, `gemini`, `qwen`, `opencode`, `ax`, `text`, `json`, `stream-json`, `protocol`",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {permissions: root}}",
        r#"2:52: provider codex: unknown permissions "root" (known: read, edit, full)"#,
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {permissions: [full]}}",
        "2:52: provider codex: `permissions` must be read, edit or full, not a list",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {permissions: {root: {}}}}",
        "2:53: provider codex: `permissions`: unknown field `root`, expected one of `read`, `edit`, `edit_confined`, `full`",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {worktree: 1}}",
        "2:49: provider codex: `worktree` must be true or false, not a number",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {max_turns: -1}}",
        "2:50: provider codex: `max_turns` is -1, and must be from 0 to 4294967295",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {args: [[a], b]}}",
        r#"2:51: provider codex: `args`: invalid type: string "b", expected a sequence"#,
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {noise: [3]}}",
        "2:47: provider codex: `noise`: invalid type: integer `3`, expected a string (put it in quotes)",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {prompt: arg}}",
        "2:47: provider codex: no argument holds {prompt} (add it to `args`, or write `prompt: stdin`)",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {stop: HUP}}",
        "2:45: provider codex: `stop`: unknown variant `HUP`, expected `TERM` or `INT`",
    ),
    (
        "providers:\n- name: codex\n  type: agent\n  config:\n    failures: [{contains: x, is: quotta}]",
        "5:34: provider codex: `failures`: unknown variant `quotta`, expected one of `quota`, `rate_limit`, `authentication`, `validation`, `network`, `server`, `timeout`, `not_found`, `configuration`, `unknown`, `schema_mismatch`, `cancelled` (did you mean `quota`?)",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {failures: }}",
        "2:47: provider codex: `failures` is empty (write a value, or remove the key)",
    ),
    (
        "providers:\n- {name: codex, type: agent, config: {repoPath: x}}",
        "2:39: provider codex: unknown key `repoPath` (did you mean `repo`?)",
    ),
    // routing
    ("routing: fast", "1:10: routing: expected a map of keys and values, not text"),
    ("routing: {retries: 1}", "1:11: routing: unknown key `retries` (did you mean `max_retries`?)"),
    ("routing: {max_retries: 11}", "1:24: routing: `max_retries` is 11, and must be from 0 to 10"),
    ("routing: {max_retries: '2'}", "1:24: routing: `max_retries` must be a whole number, not text"),
    ("routing: {backoff: never}", r#"1:20: routing: `backoff`: "never" is not a time: write 500ms, 120s, 2m or 1h"#),
    ("routing: {backoff: true}", "1:20: routing: backoff: expected a map of keys and values, not true or false"),
    ("routing: {backoff: {initial: 10s, max: 1s}}", "1:20: routing: backoff: `max` is shorter than `initial`"),
    ("routing: {backoff: {factor: 0.5}}", "1:29: routing: backoff: `factor` is 0.5, and must be from 1 to 100"),
    ("routing: {backoff: {factor: two}}", "1:29: routing: backoff: `factor` must be a number, not text"),
    ("routing: {backoff: {first: 1s}}", "1:21: routing: backoff: unknown key `first` (known: initial, factor, max)"),
    ("routing: {fallback_on: quota}", "1:24: routing: `fallback_on` must be a list, not text"),
    (
        "routing:\n  fallback_on:\n  - quota\n  - rate-limit",
        r#"4:5: routing: `fallback_on`: unknown failure category "rate-limit" (did you mean `rate_limit`?)"#,
    ),
    (
        "routing: {fallback_on: [cancelled]}",
        r#"1:25: routing: `fallback_on`: unknown failure category "cancelled" (known: quota, rate_limit, authentication, validation, network, server, timeout, not_found, configuration, unknown, schema_mismatch)"#,
    ),
    ("routing: {breaker: {failures: 0}}", "1:31: routing: breaker: `failures` is 0, and must be from 1 to 1000"),
    (
        "routing: {breaker: {window: 0s}}",
        r#"1:29: routing: breaker: `window`: "0s" is not a time: write 500ms, 120s, 2m or 1h"#,
    ),
    ("routing: {breaker: 5}", "1:20: routing: breaker: expected a map of keys and values, not a number"),
];
