//! Cases for the permissions `read`, `edit` and `full`, as documented in docs/SANDBOX.md: the model writes a file inside and
//! a file outside the workspace, with the CLI's own tool and with a command. The turn ends with an answer even if some of
//! them are refused.

use anyhow::{Context, Result};

use crate::conformance::context::{CaseContext, content, equal, holds};

/// Sandboxes that may confine a run, as named in its answer.
const SANDBOXES: [&str; 2] = ["kernel", "cli"];

/// Files that exist after the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WrittenFiles {
    inside: bool,
    outside: bool,
    command_inside: bool,
    command_outside: bool,
}

const NOTHING: WrittenFiles =
    WrittenFiles { inside: false, outside: false, command_inside: false, command_outside: false };

pub(super) fn read(context: &CaseContext<'_>) -> Result<()> {
    let written = try_all(context, true)?;
    equal("what was written", written, NOTHING)
}

pub(super) fn edit(context: &CaseContext<'_>) -> Result<()> {
    let written = try_all(context, true)?;
    equal("what was written", written, WrittenFiles { inside: true, command_inside: true, ..NOTHING })
}

/// Without the kernel sandbox, each CLI decides by itself whether commands may run.
pub(super) fn edit_unconfined(context: &CaseContext<'_>) -> Result<()> {
    let written = try_all(context, false)?;
    let outside = written.outside && !context.world.cli.stays_inside;
    equal("files written by the CLI's own tool", (written.inside, written.outside), (true, outside))
}

/// Some CLIs restrict their file tools to the workspace even with `full`; commands may write anywhere.
pub(super) fn full(context: &CaseContext<'_>) -> Result<()> {
    let written = try_all(context, false)?;
    let expected = WrittenFiles { inside: true, outside: written.outside, command_inside: true, command_outside: true };
    equal("what was written", written, expected)
}

fn try_all(context: &CaseContext<'_>, confined: bool) -> Result<WrittenFiles> {
    let reply = context.ask("Try everything that you may do.")?;
    // If the CLI does not report its tool calls, intermediate messages precede the last one.
    let answer = content(&reply)?;
    holds(&format!("the answer ends with the last step: {answer}"), answer.ends_with("I have tried everything."))?;
    if confined {
        let by = reply.json()["trunkline"]["attempts"][0]["sandbox"].clone();
        let by = by.as_str().unwrap_or("none");
        holds(
            &format!("the run is confined by the kernel or the CLI's own sandbox, not by {by}"),
            SANDBOXES.contains(&by),
        )?;
    }
    let (repo, outside) = (context.repo(), context.repo().parent().context("a repository has a parent")?);
    Ok(WrittenFiles {
        inside: repo.join("tried.txt").exists(),
        outside: outside.join("tried.txt").exists(),
        command_inside: repo.join("tried-by-command.txt").exists(),
        command_outside: outside.join("tried-by-command.txt").exists(),
    })
}
