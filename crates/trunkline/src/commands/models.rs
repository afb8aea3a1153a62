//! `trunkline models`: lists the models that clients can ask for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use trunkline_core::model::{Backend, Model};
use trunkline_engine::router::Router;

use crate::engine_args::EngineArgs;
use crate::output::{say, tell};
use crate::setup::LoadedConfig;

/// List the models and what each of them runs
#[derive(Debug, Args)]
#[command(name = "models")]
pub(crate) struct ModelsArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
}

impl ModelsArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = LoadedConfig::new(&self.engine_args)?;
        let models = &loaded.config.models;
        let rows: Vec<(String, String)> = models
            .names()
            .into_iter()
            .map(|name| match models.iter().chain(models.built_in()).find(|model| model.name == name) {
                Some(model) => (name, describe(model)),
                None if let Some(alias) = models.alias(&name) => {
                    let about = format!("alias of {}", alias.target);
                    (name, about)
                }
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

/// The model of a name like `provider/model`, for a provider of the router.
fn offered(router: &Router, name: &str) -> Option<Model> {
    let (provider, upstream) = name.split_once('/')?;
    Some(router.providers.iter().find(|routed| routed.name == provider)?.model.on(upstream))
}

/// Description of a name of the router: a provider, one of its models, or `auto`.
fn routed(router: &Router, name: &str) -> String {
    match router.providers.iter().find(|routed| routed.name == name) {
        Some(routed) => describe(&routed.model),
        None if let Some(model) = offered(router, name) => describe(&model),
        None => "the first provider of the router that answers; see: trunkline check --route ".to_owned() + name,
    }
}
