//! Cases about the user's own configuration: behind the gateway a CLI has the same tools, MCP servers and memory files as
//! when it is started by hand.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use trunkline_core::provider::Told;

use crate::conformance::by_hand;
use crate::conformance::clis::MEMORY;
use crate::conformance::context::{CaseContext, content, equal, holds};
use crate::conformance::environment::INSTRUCTIONS;
use crate::conformance::tap::TappedCall;

const PROMPT: &str = "What do you have at hand?";

/// Tool of the user's MCP server. Some CLIs offer it to the model, some mention its name, some make it searchable.
const MCP_TOOL: &str = "lamp_status";

/// The user's configuration as far as the first call of the model shows it.
#[derive(Debug, PartialEq, Eq)]
struct CliSetup {
    tools: BTreeSet<String>,
    /// Occurrences of the memory file.
    memory: usize,
}

pub(super) fn edit(context: &CaseContext<'_>) -> Result<()> {
    as_by_hand(context, Told::EditConfined)
}

pub(super) fn read(context: &CaseContext<'_>) -> Result<()> {
    as_by_hand(context, Told::Read)
}

fn as_by_hand(context: &CaseContext<'_>, permissions: Told) -> Result<()> {
    let reply = context.ask(PROMPT)?;
    equal("the answer", content(&reply)?.as_str(), "All that you see.")?;
    let gateway = first_call(context, 0)?;
    holds("AGENTS.md reaches the model once", gateway.count(INSTRUCTIONS) == 1)?;
    let before = context.tap.calls().len();
    by_hand::ask(context, permissions, PROMPT)?;
    let hand = first_call(context, before)?;
    equal("the user's own memory file by hand", hand.count(MEMORY), 1)?;
    // By hand, the MCP server may start too late for the first call; behind the gateway it must not.
    holds("the model knows the MCP server if it does by hand", knows_server(&gateway) || !knows_server(&hand))?;
    equal("the configuration", setup(context, &gateway), setup(context, &hand))
}

/// The first call with the prompt, without calls that only generate a title, which some CLIs make by hand.
fn first_call(context: &CaseContext<'_>, after: usize) -> Result<TappedCall> {
    let is_turn = |call: &TappedCall| call.contains(PROMPT) && !call.tools().is_empty();
    let call = context.tap.calls().into_iter().skip(after).find(is_turn);
    call.context("the CLI did not call the model")
}

fn setup(context: &CaseContext<'_>, call: &TappedCall) -> CliSetup {
    let mut tools = call.tools();
    tools.retain(|tool| !tool.contains(MCP_TOOL) && !context.world.cli.uncertain.contains(&tool.as_str()));
    CliSetup { tools, memory: call.count(MEMORY) }
}

fn knows_server(call: &TappedCall) -> bool {
    call.contains(MCP_TOOL) || call.tools().iter().any(|tool| tool.contains(MCP_TOOL))
}
