//! `trunkline doctor`: which providers are here, which versions, where from; and on demand, whether they answer.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use trunkline_core::model::Backend;
use trunkline_engine::{Caps, Depth, Examined, Models};

use super::check::circuit;
use crate::Exit;
use crate::cli::Places;
use crate::config::plain_model;
use crate::setup::{Loaded, runtime, say};

/// Show which agent CLIs and providers are installed, their versions, and whether they are well
#[derive(Debug, Args)]
#[command(after_help = "A gateway that runs says the same of itself at /health/providers, with its circuits.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    places: Places,
    /// Ask each of them one tiny question; this costs tokens
    #[arg(long)]
    probe: bool,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = Loaded::new(&self.places)?;
        let depth = if self.probe { Depth::Probe } else { Depth::Look };
        let report = runtime()?.block_on(async {
            let engine = loaded.engine(Caps::default(), None)?;
            engine.replace_models(everything(&loaded));
            let report = engine.health(depth).await;
            engine.shutdown().await;
            anyhow::Ok(report)
        })?;
        let width = |cell: fn(&Examined) -> String| {
            report.providers.iter().map(|examined| cell(examined).chars().count()).max().unwrap_or(0)
        };
        let (names, kinds, versions) =
            (width(|examined| examined.name.clone()), width(|examined| examined.kind.to_owned()), width(said));
        for examined in &report.providers {
            let mark = if examined.is_well() { "✓" } else { "✗" };
            let row = format!(
                "{mark} {:names$}  {:kinds$}  {:versions$}  {}",
                examined.name,
                examined.kind,
                said(examined),
                examined.path.as_deref().unwrap_or_default()
            );
            say(row.trim_end())?;
            let circuit = circuit(&examined.circuit);
            if circuit != "closed" {
                say(format!("  {:names$}  circuit {circuit}", ""))?;
            }
            if let Some(probe) = &examined.probe {
                let seconds = probe.duration_ms as f64 / 1000.0;
                let category = probe.category.map(|category| format!(" ({})", category.name())).unwrap_or_default();
                let verdict = if probe.ok { "answers" } else { "does not answer" };
                say(format!("  {:names$}  {verdict}: {:?}{category} in {seconds:.1} s", "", probe.message))?;
            }
        }
        if report.providers.iter().all(|examined| !examined.available) {
            say("\nno agent CLI was found, nor any other provider; install one with the command shown beside it")?;
            return Ok(Exit::Provider.into());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What is known of a provider without asking it anything that costs.
fn said(examined: &Examined) -> String {
    match (&examined.error, &examined.version) {
        (Some(_), _) if !examined.available && examined.install.is_some() => {
            format!("not installed; {}", examined.install.as_deref().unwrap_or_default())
        }
        (Some(error), _) => error.clone(),
        (None, Some(version)) => version.clone(),
        (None, None) => "no version".to_owned(),
    }
}

/// Every CLI there is a recipe for, and what the configuration adds: its models' own programs, and the router.
fn everything(loaded: &Loaded) -> Models {
    let known = loaded
        .config
        .providers
        .values()
        .map(|provider| plain_model(&provider.name, Backend::Program(Arc::clone(provider)), &loaded.around.folder));
    let own = loaded.config.models.iter().map(|model| (**model).clone());
    let router = loaded.config.models.router().clone();
    Models::new(known.chain(own)).with_router(router, (**loaded.config.models.policy()).clone())
}
