//! The schema that editors use says what the loader says.

use serde_json::Value;

use super::*;

fn schema() -> jsonschema::Validator {
    let schema = include_str!("../../../../../../schemas/router.schema.json");
    jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap()
}

/// A file as an editor sees it.
fn value(text: &str) -> Value {
    yaml::parse(text).map(|node| node.to_json()).unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn the_examples_are_valid() {
    let schema = schema();
    let documented = include_str!("../../../../../../docs/CONFIGURATION.md");
    let documented = documented.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    for text in [EXAMPLE, FULL, documented] {
        let errors: Vec<String> = schema.iter_errors(&value(text)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        load_text(text).unwrap();
    }
}

/// Whole files, and configurations of each type: the schema and the loader take or refuse the same ones.
#[test]
fn the_schema_takes_what_we_take() {
    let schema = schema();
    let (mut taken, mut refused) = (0, 0);
    let cli = CLI.iter().map(|config| format!("providers: [{{name: p, type: cli, config: {{{config}}}}}]"));
    let api = API.iter().map(|config| format!("providers: [{{name: p, type: api, config: {{{config}}}}}]"));
    let agent = AGENT.iter().map(|config| format!("providers: [{{name: codex, type: agent, config: {{{config}}}}}]"));
    let routing = ROUTING.iter().map(|routing| format!("routing: {{{routing}}}"));
    let files = FILES.iter().map(|&file| file.to_owned());
    for text in files.chain(cli).chain(api).chain(agent).chain(routing) {
        let loaded = load_text(&text);
        *(if loaded.is_ok() { &mut taken } else { &mut refused }) += 1;
        assert_eq!(schema.is_valid(&value(&text)), loaded.is_ok(), "{text}: {:?}", loaded.err());
    }
    assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused");
}

const FILES: &[&str] = &[
    "providers: []",
    "providers:",
    "routing:",
    "provider: []",
    "providers: {}",
    "providers: [a]",
    "[]",
    "providers: [{name: codex, type: agent}]",
    "providers: [{name: codex, type: agent, config: , models: }]",
    "providers: [{name: codex, type: agent, enabled: true, priority: -7}]",
    "providers: [{name: codex, type: agent, enabled: 1}]",
    "providers: [{name: codex, type: agent, priority: 1.5}]",
    "providers: [{name: codex, type: agent, priority: high}]",
    "providers: [{name: codex, type: agent, models: {fast: m, other: 3.5}}]",
    "providers: [{name: codex, type: agent, models: {fast: ''}}]",
    "providers: [{name: codex, type: agent, models: {fast: [m]}}]",
    "providers: [{name: codex, type: agent, models: [m]}]",
    "providers: [{name: codex, type: agent, models: [{modelId: m, name: M}, {model_id: n}, {id: o}]}]",
    "providers: [{name: codex, type: agent, models: [{name: M}]}]",
    "providers: [{name: codex, type: agent, models: [{id: m, title: M}]}]",
    "providers: [{name: codex, type: agent, models: ['']}]",
    "providers: [{name: codex, type: agent, models: [[m]]}]",
    "providers: [{name: p, type: api, config: {base_url: 'http://h'}, models: [m]}]",
    "providers: [{name: p, type: api, config: {base_url: 'http://h'}, models: []}]",
    "providers: [{name: codex, type: agent, config: []}]",
    "providers: [{name: codex, type: agent, nonsense: 1}]",
    "providers: [{name: codex}]",
    "providers: [{type: agent}]",
    "providers: [{name: codex, type: executable}]",
    "providers: [{name: codex, type: ~}]",
    "providers: [{name: '', type: agent, config: {recipe: codex}}]",
    "providers: [{name: 7, type: agent, config: {recipe: codex}}]",
    "providers: [{name: a/b, type: agent, config: {recipe: codex}}]",
    "providers: [{name: \"a\\tb\", type: agent, config: {recipe: codex}}]",
    "providers: [{name: auto, type: agent, config: {recipe: codex}}]",
    "providers: [{name: 'auto:x', type: agent, config: {recipe: codex}}]",
    "providers: [{name: automatic, type: agent, config: {recipe: codex}}]",
    "providers: [{name: p, type: cli}]",
    "providers: [{name: p, type: api}]",
    "providers: [{name: p, type: api, config: {base_url: 'http://h'}}]",
    "providers: [{name: p, type: api, config: {base_url: 'http://h'}, models: {}}]",
    "providers: [{name: p, type: api, config: {base_url: 'http://h'}, models: {fast: m}}]",
    "providers: [{name: p, type: api, enabled: false}]",
    "providers: [{name: p, type: api, enabled: false, config: {base_url: nothing}}]",
    "providers: [{name: p, enabled: false, nonsense: 1}]",
];

const CLI: &[&str] = &[
    "path: /p",
    "path: ''",
    "path: [p]",
    "args: [a]",
    "path: p, args: [a, 1, true]",
    "path: p, args: [[a]]",
    "path: p, args: a",
    "path: p, args: ",
    "path: p, timeout: 120s",
    "path: p, timeout: 1.5 h",
    "path: p, timeout: 0.5",
    "path: p, timeout: 0",
    "path: p, timeout: -1",
    "path: p, timeout: soon",
    "path: p, timeout: 10000",
    "path: p, timeout: 30000",
    "path: p, timeout: '30000'",
    "path: p, timeout: 30000ms",
    "path: p, timeout: 120000",
    "command: p",
    "command: p, defaultArgs: [a], defaultModel: m, maxTokens: 5",
    "command: p, default_args: [a], default_model: m, max_tokens: 5",
    "path: p, max_tokens: 0",
    "path: p, max_tokens: many",
    "path: p, api_key: x",
    "path: p, timeout: true",
    "path: p, timeout: '${NONE:-60s}'",
    "path: p, model: m",
    "path: p, model: 3.10",
    "path: p, model: true",
    "path: p, model: ''",
    "path: p, model: ",
    "path: p, model: [m]",
    "path: p, options: {a: [1, {b: ~}]}",
    "path: p, options: ",
    "path: p, options: [a]",
    "path: p, env: {A: b, C: 1}",
    "path: p, env: {A: [b]}",
    "path: p, env: {'A=B': c}",
    "path: p, env: {'': c}",
    "path: p, env: ",
    "path: p, base_url: 'http://h'",
    "path: p, nonsense: 1",
];

const API: &[&str] = &[
    "base_url: 'http://h', model: m",
    "base_url: 'HTTPS://h:8443/v1/', model: m, timeout: 5m, api_key_env: KEY",
    "base_url: 'http://[::1]:80', model: m",
    "base_url: 'http://h:x', model: m",
    "base_url: 'ftp://h', model: m",
    "base_url: h, model: m",
    "base_url: 'http://', model: m",
    "base_url: 'http:///v1', model: m",
    "base_url: 'http://h?a=b', model: m",
    "base_url: 'http://h/v1#x', model: m",
    "base_url: 'http://u@h', model: m",
    "base_url: 'http://h h', model: m",
    "base_url: 5, model: m",
    "base_url: 'http://h', model: ''",
    "base_url: 'http://h', model: m, api_key: x",
    "base_url: 'http://h', model: m, api_key_env: sk-1",
    "base_url: 'http://h', model: m, api_key_env: ''",
    "base_url: 'http://h', model: m, args: []",
    "base_url: 'http://${HOST}/v1', model: m, api_key_env: '${NONE:-KEY}'",
    "base_url: '${NONE:-http://h:80}', model: '${HOST}'",
    "model: m",
    "base_url: 'http://h', defaultModel: m, maxTokens: 9",
    "base_url: 'http://h', default_model: m, max_tokens: 0",
    "base_url: 'http://h', defaultModel: m, defaultArgs: []",
];

const AGENT: &[&str] = &[
    "recipe: claude",
    "recipe: ''",
    "model: m, timeout: 1h, idle_timeout: 5m",
    "startup_timeout: 30s, tool_timeout: 2h, compact_timeout: 20m",
    "tool_timeout: 0",
    "idle_timeout: never",
    "path: x",
    "path: ''",
    "args: [a, b]",
    "args: [[a], ['{model}']]",
    "args: [[a], b]",
    "args: [[1]]",
    "args: a",
    "repo: .",
    "repo: ''",
    "agent_file: ''",
    "agent_file: [x]",
    "worktree: true, keep_worktree: false",
    "worktree: yes",
    "sandbox: required",
    "sandbox: never",
    "sandbox: [on]",
    "writable: [~/a, b]",
    "writable: {a: b}",
    "state: [~/a/]",
    "state: a",
    "own_sandbox: true",
    "confines: true",
    "permissions: read",
    "permissions: root",
    "permissions: '${NONE:-full}'",
    "permissions: {full: {args: [a], env: {A: b}}}",
    "permissions: {edit: {args: [a]}, edit_confined: {args: [b]}}",
    "permissions: {edit_confined: [b]}",
    "permissions: {root: {}}",
    "permissions: {full: {arg: [a]}}",
    "permissions: [full]",
    "max_turns: 3",
    "max_turns: -1",
    "max_turns: 4294967296",
    "warm: 2",
    "warm: -1",
    "allowed_tools: [Read]",
    "allowed_tools: Read",
    "system_prompt: ''",
    "env: {A: b}",
    "program: x, format: text",
    "program: ''",
    "command: x, outputFormat: text, promptStyle: stdin, defaultArgs: [a], defaultModel: m, maxTokens: 5",
    "command: x, output_format: json, prompt_style: stdin, default_args: [[a]], default_model: m, max_tokens: 5",
    "outputFormat: xml",
    "promptStyle: file",
    "maxTokens: 0",
    "models: [{id: a, name: A}]",
    "models: {a: b}",
    "login: {env: [A], files: [{path: ~/a, holds: [b]}], hint: c}",
    "login: {files: [~/a]}",
    "login: {env: A}",
    "format: xml",
    "whole: [[a]]",
    "whole: [a]",
    "live: {protocol: acp, args: [[a]], modes: {read: b}, escape: {slash: true}, usage: turn, opt_in: true, reads: [c]}",
    "live: {protocol: acp, args: [[a]], inert: {slash: true}, asked: true}",
    "live: {protocol: acp}",
    "live: {protocol: lsp, args: []}",
    "live: {protocol: claude, args: [[a]], modes: {root: b}}",
    "prompt: stdin",
    "prompt: file",
    "native: [a]",
    "native: a",
    "install: x",
    "install: 5",
    "keys: [A]",
    "home: {env: A, default: b, link: [c], copy: [d]}",
    "home: {env: A, default: b, state: [c, 'd*']}",
    "home: {env: A, default: b, state: c}",
    "home: {env: A}",
    "files: {a.toml: b}",
    "files: [a]",
    "reads_agents_md: true",
    "reads_agents_md: 1",
    "settings: {env: A, content: b, system: c}",
    "settings: {env: A, content: b, system: c, more: d}",
    "escape: {slash: true, at: false}",
    "escape: {slash: 1}",
    "private_tmp: true, buffers_output: false",
    "node_compile_cache: true",
    "buffers_output: 1",
    "inert: {slash: true}",
    "litters: true, quiet: false, compiles: true",
    "quiet: 1",
    "stop: INT",
    "stop: HUP",
    "session: uuid",
    "session: number",
    "usage: turn",
    "usage: month",
    "version: [-v]",
    "version: ",
    "noise: [a]",
    "noise: [3]",
    "failures: [{contains: a, is: rate_limit, weak: true}]",
    "failures: [{contains: a, is: sadness}]",
    "failures: [{contains: a}]",
    "aliases: [x]",
    "repoPath: x",
];

const ROUTING: &[&str] = &[
    "max_retries: 0",
    "max_retries: 10",
    "max_retries: 11",
    "max_retries: two",
    "backoff: 1s",
    "backoff: 2",
    "backoff: never",
    "backoff: true",
    "backoff: {}",
    "backoff: {initial: 1s, factor: 1, max: 2s}",
    "backoff: {factor: 0.9}",
    "backoff: {factor: 101}",
    "backoff: {factor: '2'}",
    "backoff: {first: 1s}",
    "fallback_on: []",
    "fallback_on: [quota, rate_limit, authentication, validation, network]",
    "fallback_on: [server, timeout, not_found, configuration, unknown]",
    "fallback_on: [cancelled]",
    "fallback_on: quota",
    "breaker: {failures: 1, window: 1s, cooldown: 1s}",
    "breaker: {failures: 0}",
    "breaker: {failures: 1001}",
    "breaker: {window: 0}",
    "breaker: 5",
    "breaker: ",
    "nonsense: 1",
];
