//! `trunkline models`: the names a client can ask for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cli::Places;
use crate::setup::{Loaded, say};

/// List the models and what each of them runs
#[derive(Debug, Args)]
#[command(name = "models")]
pub(crate) struct List {
    #[command(flatten)]
    places: Places,
}

impl List {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = Loaded::new(&self.places)?;
        let models = &loaded.config.models;
        let width = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
        for model in models.iter() {
            let upstream = model.upstream.as_deref().map(|upstream| format!(" ({upstream})")).unwrap_or_default();
            let worktree = if model.worktree { ", in a worktree" } else { "" };
            say(format!(
                "{:width$}  {}{upstream} in {}{worktree}",
                model.name,
                model.backend.name(),
                model.repo.display()
            ))?;
        }
        if models.names().is_empty() {
            eprintln!(
                "no models: write a models.json, or install an agent CLI (trunkline doctor shows which are known)"
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
