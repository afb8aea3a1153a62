//! `trunkline models`: the names a client can ask for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use trunkline_core::model::{Backend, Model};
use trunkline_engine::router::Router;

use crate::cli::Places;
use crate::setup::{Loaded, say, tell};

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
        let rows: Vec<(String, String)> = models
            .names()
            .into_iter()
            .map(|name| match models.iter().chain(models.built_in()).find(|model| model.name == name) {
                Some(model) => (name, describe(model)),
                None => {
                    let about = routed(models.router(), &name);
                    (name, about)
                }
            })
            .collect();
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, about) in &rows {
            say(format!("{name:width$}  {about}"))?;
        }
        if rows.is_empty() {
            tell("no models: write a models.json, or install an agent CLI (trunkline doctor shows which are known)");
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe(model: &Model) -> String {
    let upstream = match (model.upstream.as_deref(), model.display_name()) {
        (Some(upstream), Some(name)) => format!(" ({name}: {upstream})"),
        (Some(upstream), None) => format!(" ({upstream})"),
        (None, _) => String::new(),
    };
    let worktree = if model.worktree { ", in a worktree" } else { "" };
    match &model.backend {
        Backend::Program(provider) => format!("{}{upstream} in {}{worktree}", provider.name, model.repo.display()),
        Backend::Api(api) => format!("{}{upstream} at {}", api.name, api.shown_url()),
        Backend::Agent(llm) => {
            let llm = llm.api().map_or_else(|| "the built-in mock LLM".to_owned(), |api| api.shown_url());
            format!("the built-in agent{upstream} on {llm} in {}{worktree}", model.repo.display())
        }
    }
}

/// A model that a provider of the router says it has.
fn offered(router: &Router, name: &str) -> Option<Model> {
    let (provider, upstream) = name.split_once('/')?;
    Some(router.providers.iter().find(|routed| routed.name == provider)?.model.on(upstream))
}

/// A name of the router: one provider, or whoever answers first.
fn routed(router: &Router, name: &str) -> String {
    match router.providers.iter().find(|routed| routed.name == name) {
        Some(routed) => describe(&routed.model),
        None if let Some(model) = offered(router, name) => describe(&model),
        None => "the first of the router that answers; see: trunkline check --route ".to_owned() + name,
    }
}
