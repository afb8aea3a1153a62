//! `trunkline check`: whether the configuration is right, and exactly how each model would run.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use trunkline_core::provider::Delivery;
use trunkline_engine::{Caps, Plan};

use crate::Exit;
use crate::cli::Places;
use crate::setup::{Loaded, runtime};

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
            Some(folder) => println!("configuration: {}", folder.display()),
            None => println!("configuration: none; a model for each CLI on the PATH"),
        }
        let runtime = runtime()?;
        let engine = runtime.block_on(async { loaded.engine(Caps::default(), None) })?;
        let mut broken = false;
        for model in
            loaded.config.models.iter().filter(|model| self.model.as_ref().is_none_or(|name| *name == model.name))
        {
            println!("\n{}", model.name);
            match engine.plan(model) {
                Ok(plan) => {
                    broken |= plan.program.is_err() || !model.repo.is_dir();
                    show(&plan);
                }
                Err(failure) => {
                    broken = true;
                    println!("  error   {failure}");
                }
            }
        }
        runtime.block_on(engine.shutdown());
        for warning in &loaded.config.warnings {
            println!("\nwarning: {warning}");
        }
        Ok(if broken { Exit::Configuration.into() } else { ExitCode::SUCCESS })
    }
}

fn show(plan: &Plan) {
    let program = match &plan.program {
        Ok(path) => quote(&path.to_string_lossy()),
        Err(failure) => {
            println!("  error   {failure}");
            if let Some(hint) = &failure.hint {
                println!("  hint    {hint}");
            }
            "?".to_owned()
        }
    };
    let args: Vec<String> = plan.args.iter().map(|arg| quote(arg)).collect();
    println!("  argv    {program} {}", args.join(" "));
    println!("  cwd     {}", plan.cwd.display());
    for (name, value) in &plan.env {
        println!("  env     {name}={}", quote(value));
    }
    println!(
        "  prompt  {}",
        match plan.delivery {
            Delivery::Stdin => "on stdin, then closed",
            Delivery::Arg => "as an argument, at most 128 KiB",
        }
    );
}

/// An argument as a shell would need it.
fn quote(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("'{}'", arg.replace('\'', "'\\''")) }
}
