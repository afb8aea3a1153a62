//! The user's own set-up: behind the gateway a CLI has the tools, the MCP servers and the memory files that it has when it
//! is started by hand.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use trunkline_core::provider::Told;

use crate::conformance::by_hand;
use crate::conformance::clis::MEMORY;
use crate::conformance::place::INSTRUCTIONS;
use crate::conformance::scene::{Scene, content, equal, holds};
use crate::conformance::tap::Call;

const PROMPT: &str = "What do you have at hand?";

/// A tool of the user's MCP server. Some CLIs offer it, some say its name, some keep it for a search.
const SERVED: &str = "lamp_status";

/// What a first call of the model shows of the set-up.
#[derive(Debug, PartialEq, Eq)]
struct Setup {
    tools: BTreeSet<String>,
    memory: usize,
}

pub(super) fn edit(scene: &Scene<'_>) -> Result<()> {
    as_by_hand(scene, Told::EditConfined)
}

pub(super) fn read(scene: &Scene<'_>) -> Result<()> {
    as_by_hand(scene, Told::Read)
}

fn as_by_hand(scene: &Scene<'_>, told: Told) -> Result<()> {
    let reply = scene.ask(PROMPT)?;
    equal("the answer", content(&reply)?.as_str(), "All that you see.")?;
    let gateway = first_call(scene, 0)?;
    holds("AGENTS.md reaches the model once", gateway.count(INSTRUCTIONS) == 1)?;
    let before = scene.tap.calls().len();
    by_hand::ask(scene, told, PROMPT)?;
    let hand = first_call(scene, before)?;
    equal("the user's own memory file by hand", hand.count(MEMORY), 1)?;
    // By hand the server may come too late for the first call; behind the gateway it must not.
    holds("the MCP server is known where it is by hand", knows_server(&gateway) || !knows_server(&hand))?;
    equal("the set-up", setup(scene, &gateway), setup(scene, &hand))
}

/// The first call with the prompt that is not for a title: by hand, some CLIs want one.
fn first_call(scene: &Scene<'_>, after: usize) -> Result<Call> {
    let works = |call: &Call| call.says(PROMPT) && !call.tools().is_empty();
    let asked = scene.tap.calls().into_iter().skip(after).find(works);
    asked.context("the model was not asked")
}

fn setup(scene: &Scene<'_>, call: &Call) -> Setup {
    let mut tools = call.tools();
    tools.retain(|tool| !tool.contains(SERVED) && !scene.world.cli.uncertain.contains(&tool.as_str()));
    Setup { tools, memory: call.count(MEMORY) }
}

fn knows_server(call: &Call) -> bool {
    call.says(SERVED) || call.tools().iter().any(|tool| tool.contains(SERVED))
}
