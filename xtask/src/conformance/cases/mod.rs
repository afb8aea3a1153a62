//! The cases: a prompt for every CLI behind the gateway, and what a client must receive. A case is a function. Its prompt is
//! a trigger in `conformance/scenarios.json`, and its model has the name of the case.

mod answers;
mod conversation;
mod faults;
mod mcp_servers;
mod parked;
mod permits;
mod schemas;
mod secrets;
mod setup;
mod tool_choice;
mod tools;
mod work;

use anyhow::Result;
use serde_json::{Value, json};

use super::clis::CliUnderTest;
use super::context::CaseContext;

pub(crate) struct ConformanceCase {
    pub(crate) name: &'static str,
    /// Title in the table.
    pub(crate) title: &'static str,
    /// Settings of the model in addition to the CLI and the repository.
    pub(crate) model: fn(&CliUnderTest) -> Value,
    /// The model service is an address without a listener.
    pub(crate) refused: bool,
    /// The case has a repository of its own, because it writes to the checkout or next to it.
    pub(crate) own_repo: bool,
    pub(crate) schedule: CaseSchedule,
    /// Warm processes of the model in warm mode: one for each conversation. 0 if the gateway decides how many it keeps.
    pub(crate) warm_processes: u64,
    /// A `--short` run leaves the case out.
    pub(crate) full_only: bool,
    pub(crate) run: fn(&CaseContext<'_>) -> Result<()>,
}

/// When a case runs, depending on its load on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaseSchedule {
    /// Before all others: the first run of a CLI initialises its home, which OpenCode corrupts when several do so at once.
    First,
    /// With a few others.
    Usual,
    /// With all others, because it mostly waits.
    Waits,
    /// Alone, because it uses the whole machine.
    Alone,
    /// After all others, with all CLIs at the same time, because it waits for minutes.
    AllClis,
}

impl ConformanceCase {
    const fn new(name: &'static str, title: &'static str, run: fn(&CaseContext<'_>) -> Result<()>) -> Self {
        Self {
            name,
            title,
            model: |_| json!({}),
            refused: false,
            own_repo: false,
            schedule: CaseSchedule::Usual,
            warm_processes: 1,
            full_only: false,
            run,
        }
    }

    const fn with(mut self, model: fn(&CliUnderTest) -> Value) -> Self {
        self.model = model;
        self
    }

    const fn at(mut self, schedule: CaseSchedule) -> Self {
        self.schedule = schedule;
        self
    }

    const fn on(mut self, warm_processes: u64) -> Self {
        self.warm_processes = warm_processes;
        self
    }

    const fn in_own_repo(mut self) -> Self {
        self.own_repo = true;
        self
    }

    const fn full_only(mut self) -> Self {
        self.full_only = true;
        self
    }

    const fn refused(mut self) -> Self {
        self.refused = true;
        self
    }
}

const OWN_TOOLS_OFF: fn(&CliUnderTest) -> Value = |_| json!({"ownTools": "off"});

const READ: fn(&CliUnderTest) -> Value = |_| json!({"permissions": "read"});

const WORKTREE: fn(&CliUnderTest) -> Value = |_| json!({"worktree": true});

pub(crate) static ALL: [ConformanceCase; 49] = [
    ConformanceCase::new("whole", "whole answer", answers::whole).at(CaseSchedule::First),
    ConformanceCase::new("streamed", "streamed answer", answers::streamed),
    ConformanceCase::new("deltas", "streamed while the model generates", answers::deltas),
    ConformanceCase::new("edit", "edits a file in a worktree", work::edit).with(WORKTREE),
    ConformanceCase::new("resume", "session resumed", answers::resume),
    ConformanceCase::new("memory", "session recognised by its history", answers::memory),
    ConformanceCase::new("secrets", "no leak between conversations", secrets::secrets).on(secrets::CONVERSATIONS),
    ConformanceCase::new("instructions", "AGENTS.md reaches the model", answers::instructions),
    ConformanceCase::new("set-up", "tools, MCP servers and memory files as by hand", setup::edit),
    ConformanceCase::new("set-up-read", "the same with `read`", setup::read).with(READ),
    ConformanceCase::new("permits-read", "`read`: nothing is written", permits::read).with(READ).in_own_repo(),
    ConformanceCase::new("permits-edit", "`edit`: files and commands write inside only", permits::edit).in_own_repo(),
    ConformanceCase::new(
        "permits-edit-off",
        "`edit`, no sandbox: a refusal does not end the turn",
        permits::edit_unconfined,
    )
    .with(|_| json!({"sandbox": "off"}))
    .in_own_repo(),
    ConformanceCase::new("permits-full", "`full`: commands write anywhere", permits::full)
        .with(|_| json!({"permissions": "full"}))
        .in_own_repo(),
    ConformanceCase::new("wrong-key", "401 → 500 `authentication`", faults::wrong_key),
    ConformanceCase::new("rate-limit", "429 → 429 `rate_limit`", faults::rate_limit).at(CaseSchedule::Waits),
    ConformanceCase::new("server-error", "500 → 500 `server`", faults::server_error).at(CaseSchedule::Waits),
    ConformanceCase::new("refused", "connection refused → 500 `network`", faults::refused)
        .refused()
        .at(CaseSchedule::Waits),
    ConformanceCase::new("stall", "stall ended by our limit → 504 `timeout`", faults::stall)
        .with(|cli| json!({"timeout": cli.stall_limit}))
        .at(CaseSchedule::Waits),
    ConformanceCase::new("hang-up", "client disconnects mid-tool: no process left", work::hang_up)
        .with(|_| json!({"worktree": true, "permissions": "full"})),
    ConformanceCase::new("long-prompt", "prompt of 300 kB", answers::long_prompt),
    ConformanceCase::new("unicode", "unicode both ways", answers::unicode),
    ConformanceCase::new("five", "five concurrent runs in one repository", work::five)
        .with(WORKTREE)
        .at(CaseSchedule::Alone),
    ConformanceCase::new("usage", "usage equals the counts of the model", answers::usage),
    ConformanceCase::new("tool-call", "client tool: one call, with `read`", tools::one_call).with(READ).on(0),
    ConformanceCase::new("tool-two", "client tool: two calls in one response", tools::two_calls).on(0),
    ConformanceCase::new("tool-chain", "client tool: chained calls", tools::chained_calls).on(0).full_only(),
    ConformanceCase::new("tool-error", "client tool: error as result", tools::error_result).on(0).full_only(),
    ConformanceCase::new("tool-large", "client tool: result of 200 kB", tools::large_result).on(0),
    ConformanceCase::new("tool-many", "client tools: 25 with large schemas", tools::many_tools).on(0).full_only(),
    ConformanceCase::new("tool-names", "client tools: names with dots and 64 characters", tools::names).on(0),
    ConformanceCase::new("tool-unicode", "client tool: unicode both ways", tools::unicode).on(0).full_only(),
    ConformanceCase::new("tool-none", "client tool: not offered with `tool_choice: none`", tools::choice_none),
    ConformanceCase::new("tool-cancel", "client gone while parked: listed, ends by DELETE", tools::cancel_parked).on(0),
    ConformanceCase::new("tool-split", "client tool: results in two requests", tools::split_results).on(0).full_only(),
    ConformanceCase::new("tool-own-off", "`ownTools: off`: only client tools", tools::own_tools_off)
        .with(OWN_TOOLS_OFF)
        .in_own_repo()
        .on(0),
    ConformanceCase::new("mcp-model", "MCP server of the model, with `read`", mcp_servers::of_model)
        .with(mcp_servers::HTTP),
    ConformanceCase::new("mcp-resume", "the same: session resumed", answers::resume)
        .with(mcp_servers::HTTP)
        .full_only(),
    ConformanceCase::new("mcp-stdio", "MCP server over stdio, `ownTools: off`", mcp_servers::of_model_over_stdio)
        .with(mcp_servers::STDIO_ONLY),
    ConformanceCase::new("mcp-request", "MCP server of a request, limited to one tool", mcp_servers::of_request)
        .with(mcp_servers::ALLOWED)
        .on(0),
    ConformanceCase::new(
        "tool-required",
        "`tool_choice: required`: told once more, then obeyed",
        tool_choice::required,
    )
    .on(0)
    .full_only(),
    ConformanceCase::new("tool-in-vain", "`tool_choice: required`: never obeyed", tool_choice::required_in_vain)
        .on(0)
        .full_only(),
    ConformanceCase::new("tool-named", "`tool_choice` names a tool: only that one", tool_choice::named)
        .on(0)
        .full_only(),
    ConformanceCase::new(
        "tool-restart",
        "gateway killed while parked: results start a new turn",
        parked::restarted_gateway,
    )
    .on(0),
    ConformanceCase::new("tool-parked", "client tool: result after six minutes", parked::long_wait)
        .on(0)
        .full_only()
        .at(CaseSchedule::AllClis),
    ConformanceCase::new("schema", "answer with a schema", schemas::obeyed),
    ConformanceCase::new("schema-repaired", "answer with a schema: broken, then repaired", schemas::repaired),
    ConformanceCase::new("schema-never", "answer with a schema: never obeyed → 422", schemas::never_obeyed).full_only(),
    ConformanceCase::new("schema-tools", "answer with a schema after a client tool", schemas::with_tools).on(0),
];
