//! `trunkline check`: whether the configuration is right, and exactly how each model would run.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use trunkline_core::provider::Delivery;
use trunkline_core::secret::Secrets;
use trunkline_engine::{Caps, Plan};

use crate::Exit;
use crate::cli::Places;
use crate::setup::{Loaded, runtime, say};

/// Validate the configuration and show the exact command of each model
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    places: Places,
    /// Only this model
    model: Option<String>,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = Loaded::new(&self.places)?;
        match loaded.place.folder() {
            Some(folder) => say(format!("configuration: {}", folder.display()))?,
            None => say("configuration: none; a model for each CLI on the PATH")?,
        }
        let runtime = runtime()?;
        let engine = runtime.block_on(async { loaded.engine(Caps::default(), None) })?;
        let mut broken = false;
        for model in
            loaded.config.models.iter().filter(|model| self.model.as_ref().is_none_or(|name| *name == model.name))
        {
            say(format!("\n{}", model.name))?;
            match engine.plan(model) {
                Ok(plan) => {
                    broken |= plan.program.is_err() || !model.repo.is_dir();
                    show(&plan, engine.secrets())?;
                }
                Err(failure) => {
                    broken = true;
                    say(format!("  error   {failure}"))?;
                }
            }
        }
        runtime.block_on(engine.shutdown());
        for warning in &loaded.config.warnings {
            say(format!("\nwarning: {warning}"))?;
        }
        Ok(if broken { Exit::Configuration.into() } else { ExitCode::SUCCESS })
    }
}

fn show(plan: &Plan, secrets: &Secrets) -> io::Result<()> {
    let program = match &plan.program {
        Ok(path) => quote(&path.to_string_lossy()),
        Err(failure) => {
            say(format!("  error   {failure}"))?;
            if let Some(hint) = &failure.hint {
                say(format!("  hint    {hint}"))?;
            }
            "?".to_owned()
        }
    };
    let args: Vec<String> = plan.args.iter().map(|arg| quote(arg)).collect();
    say(format!("  argv    {program} {}", args.join(" ")))?;
    say(format!("  cwd     {}", plan.cwd.display()))?;
    for (name, value) in &plan.env {
        say(format!("  env     {}={}", name.display(), quote(&secrets.mask(&value.to_string_lossy()))))?;
    }
    say(match plan.delivery {
        Delivery::Stdin => "  prompt  on stdin, then closed",
        Delivery::Arg => "  prompt  as an argument, at most 128 KiB",
    })
}

/// An argument as a shell would need it.
fn quote(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("'{}'", arg.replace('\'', "'\\''")) }
}
