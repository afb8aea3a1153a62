//! `trunkline doctor`: which CLIs are here, which versions, where from; and on demand, whether they answer.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use trunkline_core::provider::Provider;
use trunkline_core::turn::{Message, Role, Turn};
use trunkline_engine::{Caps, Engine, locate};
use trunkline_process::{KeeperProgram, Keepers, Limits, Spec, StopSignal};

use crate::Exit;
use crate::cli::Places;
use crate::config::{Surroundings, plain_model};
use crate::setup::{Loaded, runtime, say};

/// Show which agent CLIs are installed, their versions, and where they are
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    places: Places,
    /// Ask each installed CLI one tiny question; this costs tokens
    #[arg(long)]
    probe: bool,
}

/// Slow starters take seconds for `--version` alone.
const VERSION_LIMIT: Duration = Duration::from_secs(30);

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = Loaded::new(&self.places)?;
        let runtime = runtime()?;
        let installed = runtime.block_on(self.examine(&loaded))?;
        if installed == 0 {
            say("\nno agent CLI was found on your PATH; install one with the command shown beside it")?;
            return Ok(Exit::Provider.into());
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn examine(&self, loaded: &Loaded) -> Result<usize> {
        let keepers = Keepers::new(KeeperProgram::this_binary(), 1)?;
        let engine = if self.probe { Some(loaded.engine(Caps::default(), None)?) } else { None };
        let mut installed = 0;
        for provider in loaded.config.providers.values() {
            let located = match locate(provider, None, loaded.around.search_path()) {
                Ok(located) => located,
                Err(_) => {
                    say(format!(
                        "✗ {:9} not installed; {}",
                        provider.name,
                        provider.install.as_deref().unwrap_or("not on the PATH")
                    ))?;
                    continue;
                }
            };
            installed += 1;
            let version = version(&keepers, provider, &located.path, &loaded.around).await;
            let through = located.launcher.map(|launcher| format!(" (for {})", launcher.display())).unwrap_or_default();
            say(format!("✓ {:9} {version:28} {}{through}", provider.name, located.path.display()))?;
            if let Some(engine) = &engine {
                say(format!("  {:9} {}", "", probe(engine, provider, loaded).await))?;
            }
        }
        if let Some(engine) = engine {
            engine.shutdown().await;
        }
        keepers.shutdown().await;
        Ok(installed)
    }
}

async fn version(keepers: &Keepers, provider: &Provider, program: &std::path::Path, around: &Surroundings) -> String {
    let spec = Spec {
        program: program.to_owned(),
        args: provider.version.iter().map(Into::into).collect(),
        env: around.env.clone(),
        cwd: around.folder.clone(),
        stdin: Vec::new(),
        stop: StopSignal::Term,
        grace: Duration::from_secs(1),
        limits: Limits { total: VERSION_LIMIT, idle: VERSION_LIMIT, startup: VERSION_LIMIT },
    };
    match keepers.output(spec).await {
        Ok(output) if output.success() => {
            let text = trunkline_core::ansi::strip(&String::from_utf8_lossy(&output.stdout));
            text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no version").trim().to_owned()
        }
        Ok(output) => format!("--version failed: {}", output.stderr.lines().next().unwrap_or("no message")),
        Err(error) => format!("does not start: {error}"),
    }
}

/// One tiny turn, in an empty folder of its own.
async fn probe(engine: &Engine, provider: &Arc<Provider>, loaded: &Loaded) -> String {
    let folder = loaded.state.join("probe");
    if let Err(error) = std::fs::create_dir_all(&folder) {
        return format!("no probe: {}: {error}", folder.display());
    }
    engine.replace_models(trunkline_engine::Models::new([plain_model(&provider.name, provider, &folder)]));
    let began = Instant::now();
    let turn = Turn {
        model: provider.name.clone(),
        messages: vec![Message::new(Role::User, "Reply with the single word OK.")],
        ..Turn::default()
    };
    let mut run = match engine.start(turn).await {
        Ok(run) => run,
        Err(error) => return format!("does not answer: {error}"),
    };
    let mut verdict = "does not answer".to_owned();
    while let Some(event) = run.next().await {
        match event.end() {
            Some(Ok(answer)) => verdict = format!("answers: {:?} in {:.1?}", answer.content, began.elapsed()),
            Some(Err(failure)) => verdict = format!("does not answer: {failure} ({})", failure.category.name()),
            None => {}
        }
    }
    verdict
}
