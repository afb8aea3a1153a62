//! Allocations of the gateway in a turn, counted by a library that replaces `malloc` and its relatives.

use anyhow::{Context, Result};

use super::calls::{turns, warm_up};
use super::counter::read_counter;
use super::programs::COUNT_ALLOCATIONS;
use super::recipe::{ProfileRecipe, configured_folder};
use super::{COUNTED_TURNS, ProfilePrograms};
use crate::bench::gateway::{BenchGateway, GatewayCommand};

/// Calls of malloc, calloc, realloc and aligned allocation, per turn.
pub(super) async fn count(programs: &ProfilePrograms, recipe: ProfileRecipe) -> Result<f64> {
    let library = COUNT_ALLOCATIONS.build(&programs.folder)?;
    let scratch = tempfile::tempdir()?;
    let counter = scratch.path().join("allocations");
    let command = GatewayCommand::new(&programs.gateway).env("LD_PRELOAD", library).env("ALLOCATION_COUNTER", &counter);
    let gateway = BenchGateway::start_in(configured_folder(&programs.agent)?, &command).await?;
    let counter = counter.with_extension(gateway.pid()?.to_string());
    let mut client = gateway.client().await?;
    warm_up(&mut client, recipe.model()).await?;
    let before = read_counter(&counter).context("the gateway does not use the C library's malloc")?;
    turns(&mut client, recipe.model(), COUNTED_TURNS).await?;
    let after = read_counter(&counter)?;
    gateway.stop().await?;
    Ok((after - before) as f64 / COUNTED_TURNS as f64)
}
