//! The table of `read`, `edit` and `full` in docs/SANDBOX.md, row by row: a file inside the workspace and one outside, by
//! the CLI's own tool and by a command. Whatever is refused, the turn goes on and ends with an answer.

use anyhow::{Context, Result};

use crate::conformance::scene::{Scene, content, equal, holds};

/// Who must hold a run, as its answer says.
const HOLDERS: [&str; 2] = ["kernel", "cli"];

/// The files that are there afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    inside: bool,
    outside: bool,
    command_inside: bool,
    command_outside: bool,
}

const NOTHING: Written = Written { inside: false, outside: false, command_inside: false, command_outside: false };

pub(super) fn read(scene: &Scene<'_>) -> Result<()> {
    let written = try_all(scene, true)?;
    equal("what was written", written, NOTHING)
}

pub(super) fn edit(scene: &Scene<'_>) -> Result<()> {
    let written = try_all(scene, true)?;
    equal("what was written", written, Written { inside: true, command_inside: true, ..NOTHING })
}

/// Without the kernel, whether commands run is the CLI's own affair.
pub(super) fn edit_unconfined(scene: &Scene<'_>) -> Result<()> {
    let written = try_all(scene, false)?;
    let outside = written.outside && !scene.world.cli.stays_inside;
    equal("files written by the CLI's own tool", (written.inside, written.outside), (true, outside))
}

/// Some CLIs keep their file tools inside the workspace even then; commands go anywhere.
pub(super) fn full(scene: &Scene<'_>) -> Result<()> {
    let written = try_all(scene, false)?;
    let expected = Written { inside: true, outside: written.outside, command_inside: true, command_outside: true };
    equal("what was written", written, expected)
}

fn try_all(scene: &Scene<'_>, held: bool) -> Result<Written> {
    let reply = scene.ask("Try everything that you may do.")?;
    // What is said on the way comes before it where the CLI does not tell that it tried a tool.
    let answer = content(&reply)?;
    holds(&format!("the answer ends with the last step: {answer}"), answer.ends_with("I have tried everything."))?;
    if held {
        let by = reply.json()["trunkline"]["attempts"][0]["sandbox"].clone();
        let by = by.as_str().unwrap_or("nobody");
        holds(&format!("the run is held by the kernel or the CLI's own sandbox, not by {by}"), HOLDERS.contains(&by))?;
    }
    let (repo, outside) = (scene.repo(), scene.repo().parent().context("a repository has a parent")?);
    Ok(Written {
        inside: repo.join("tried.txt").exists(),
        outside: outside.join("tried.txt").exists(),
        command_inside: repo.join("tried-by-command.txt").exists(),
        command_outside: outside.join("tried-by-command.txt").exists(),
    })
}
