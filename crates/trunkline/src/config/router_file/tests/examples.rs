//! Files that are right.

/// The example of the protocol's description, as it stands there.
pub(super) const EXAMPLE: &str = "\
providers:
  # CLI provider example
  - name: ollama
    type: cli
    enabled: true
    priority: 50
    config:
      path: /path/to/ollama-provider  # Absolute or relative path
      args: []                        # Optional additional arguments
      timeout: 120s                   # Request timeout
      model: llama3.2:latest         # Default model

    # Model hints routing
    models:
      fast: llama3.2:latest          # Fast, simple tasks
      capable: qwen3:8b              # Complex reasoning
      codegen: deepseek-coder:6.7b   # Code generation
";

/// Every key there is.
pub(super) const FULL: &str = "\
providers:
  - name: local
    type: cli
    enabled: true
    priority: -3
    config:
      path: ./bin/provider
      args: [--verbose, 3]
      timeout: 2m
      model: 3.10
      options: {seed: 7, stop: [a, '${HOST}'], deep: {on: true, none: ~}}
      env: {DEBUG: 1, HOST: '${HOST}'}
    models:
      zeta: z
      alpha: a
  - name: cloud
    type: api
    priority: 5
    config:
      base_url: https://${HOST}:8443/v1//
      api_key_env: KEY
      model: big
      timeout: 90
  - name: fable
    type: agent
    config:
      recipe: claude-code
      model: opus
      timeout: 1h
      startup_timeout: 1m
      idle_timeout: 5m
      tool_timeout: 2h
      compact_timeout: 20m
      path: ~/bin/claude
      args: [--debug]
      repo: ../shop
      agent_file: RULES.md
      worktree: true
      keep_worktree: true
      permissions: full
      sandbox: off
      writable: [~/out, more]
      max_turns: 40
      allowed_tools: [Read, Bash]
      system_prompt: Be brief.
      warm: 2
      env: {A: b}
  - name: mine
    type: agent
    config:
      program: my-agent
      format: stream-json
      args: [[run], [--model, '{model}'], ['{extra}']]
      whole: [[run, --json]]
      live: {protocol: acp, args: [[serve]], modes: {read: look}, reads: [RULES.md]}
      prompt: stdin
      native: [lib/agent]
      install: ask me
      state: [~/.mine/]
      own_sandbox: true
      permissions: {read: {args: [--look]}, full: {args: [--all], env: {ALL: '1'}}}
      keys: [MY_KEY]
      home: {env: MY_HOME, default: .mine, link: [auth.json]}
      settings: {env: MY_SETTINGS, content: '{}', system: /etc/mine.json}
      escape: {slash: true}
      node_compile_cache: true
      private_tmp: true
      buffers_output: true
      stop: INT
      session: word
      usage: session
      version: [version]
      noise: [hello]
      failures: [{contains: come back tomorrow, is: quota}]
  - name: off
    type: api
    enabled: false
    config: {base_url: '${NOT_SET}'}
routing:
  max_retries: 4
  backoff: {initial: 250ms, factor: 1.5, max: 10s}
  fallback_on: [rate_limit, authentication]
  breaker: {failures: 3, window: 30s, cooldown: 1m}
";
