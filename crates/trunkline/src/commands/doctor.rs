//! `trunkline doctor`: which providers are installed, their versions and paths; and on demand, whether they answer.

mod gateway_view;
mod sandbox;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use trunkline_core::model::Backend;
use trunkline_engine::{Caps, Depth, Examined, Figures, Models};
use trunkline_process::Landlock;
use trunkline_store::{DATABASE_FILE, DatabaseStatus};

use super::check::circuit;
use super::gateway::GatewayClient;
use crate::config::plain_model;
use crate::engine_args::EngineArgs;
use crate::exit::CliExit;
use crate::output::say;
use crate::setup::{LoadedConfig, runtime};
use gateway_view::ProviderStatus;

/// Show which agent CLIs and providers are installed, their versions, and whether they work
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trunkline doctor           which CLIs are installed, and how to install the others
  trunkline doctor --probe   also ask each of them a question

Circuits and warm processes are shown if a gateway runs on this machine; it reports more at /health/providers.
Exit status: 0 if at least one provider can answer, including the built-in agent; 4 if none can; 3 if the database is damaged.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Ask each provider a tiny question; this costs tokens
    #[arg(long)]
    probe: bool,
    /// Port of the gateway whose circuits to show
    #[arg(long, value_name = "N", env = "TRUNKLINE_PORT", default_value_t = 8765)]
    port: u16,
}

impl DoctorArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = LoadedConfig::new(&self.engine_args)?;
        let depth = if self.probe { Depth::Probe } else { Depth::Look };
        let gateway = GatewayClient::on_port(self.port, &loaded.environment);
        let path = loaded.state.join(DATABASE_FILE);
        let (report, statuses, store) = runtime()?.block_on(async {
            let engine = loaded.engine(Caps::default(), None)?;
            engine.replace_models(all_models(&loaded));
            let all = tokio::join!(
                engine.health(depth),
                gateway_view::provider_statuses(&gateway),
                DatabaseStatus::of(&path)
            );
            engine.shutdown().await;
            anyhow::Ok(all)
        })?;
        for row in table(&report.providers, statuses.as_ref()) {
            say(row)?;
        }
        for (index, line) in sandbox::report(loaded.sandbox, Landlock::here(), &loaded.worktrees).iter().enumerate() {
            say(if index == 0 { format!("\nsandbox: {line}") } else { format!("         {line}") })?;
        }
        say("")?;
        for line in database(&path, store.as_ref()) {
            say(line)?;
        }
        if report.providers.iter().all(|examined| !examined.available || examined.stand_in) {
            say("\nno agent CLI was found, nor any other provider; install one with the command shown in its row")?;
        }
        if store.is_some_and(|store| !store.wrong.is_empty()) {
            return Ok(CliExit::Configuration.into());
        }
        // The built-in agent answers even if no CLI is installed, so that is not a failure.
        let answers = report.providers.iter().any(Examined::is_well);
        Ok(if answers { ExitCode::SUCCESS } else { CliExit::Provider.into() })
    }
}

/// Condition of the database with sessions and the archive.
fn database(path: &Path, store: Option<&DatabaseStatus>) -> Vec<String> {
    let path = path.display();
    let Some(store) = store else { return vec![format!("- memory: none yet; {path} is created when it is needed")] };
    let size = |bytes: u64| match bytes {
        0..0x10_0000 => format!("{} KiB", bytes.div_ceil(0x400)),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    };
    let version = store.version.map_or_else(|| "not readable".to_owned(), |version| format!("format {version}"));
    let free = store.free.map(|free| format!(", {} free", size(free))).unwrap_or_default();
    let mark = if store.wrong.is_empty() { "✓" } else { "✗" };
    let first = format!("{mark} memory: {version}, {}{free}  {path}", size(store.size));
    std::iter::once(first).chain(store.wrong.iter().map(|wrong| format!("  {wrong}"))).collect()
}

/// Rows of the table: a heading, and a row per provider with details below it.
fn table(providers: &[Examined], statuses: Option<&BTreeMap<String, ProviderStatus>>) -> Vec<String> {
    let status = |examined: &Examined| statuses.and_then(|statuses| statuses.get(&examined.name));
    let state =
        |examined: &Examined| status(examined).map_or_else(|| "-".to_owned(), |status| circuit(&status.circuit));
    let head = ["provider", "type", "version", "circuit"].map(str::to_owned);
    let cells = |examined: &Examined| {
        [examined.name.clone(), examined.kind.to_owned(), version_or_error(examined), state(examined)]
    };
    let mut widths = head.clone().map(|cell| cell.len());
    for examined in providers {
        for (width, cell) in widths.iter_mut().zip(cells(examined)) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let row = |mark: &str, cells: &[String; 4], place: &str| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{mark} {}  {place}", padded.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    let mut rows = vec![row(" ", &head, "where")];
    for examined in providers {
        let mark = match (examined.is_well(), examined.lacks_login()) {
            (false, _) => "✗",
            (true, true) => "!",
            (true, false) => "✓",
        };
        rows.push(row(mark, &cells(examined), examined.path.as_deref().unwrap_or_default()));
        for (kind, count) in status(examined).iter().flat_map(|status| &status.unknown_events) {
            let name = widths[0];
            rows.push(format!("  {:name$}  printed an unknown event: {kind:?}, {count} times", ""));
        }
        if let Some(figures) = status(examined).and_then(|status| status.warm.as_ref()) {
            let name = widths[0];
            rows.push(format!("  {:name$}  {}", "", warm_summary(figures)));
        }
        if let Some(probe) = &examined.probe {
            let seconds = probe.duration_ms as f64 / 1000.0;
            let category = probe.category.map(|category| format!(" ({})", category.name())).unwrap_or_default();
            let verdict = if probe.ok { "answers" } else { "does not answer" };
            let name = widths[0];
            rows.push(format!("  {:name$}  {verdict}: {:?}{category} in {seconds:.1} s", "", probe.message));
        }
    }
    rows
}

/// Statistics of the warm processes.
fn warm_summary(figures: &Figures) -> String {
    let turns = figures.hits + figures.resumed;
    let rate = figures.hit_rate().map(|rate| format!(" ({rate} %)")).unwrap_or_default();
    let start = figures.mean_boot_ms.map(|mean| format!(", {mean} ms to start")).unwrap_or_default();
    let error =
        figures.error.as_ref().map(|error| format!("; the last one failed to start: {error}")).unwrap_or_default();
    let now = format!("now {} ready and {} in use, {} MiB", figures.ready, figures.held, figures.resident_mib);
    format!("warm process used for {turns} turns{rate}{start}; {now}{error}")
}

/// Version of a provider, or why it cannot run.
fn version_or_error(examined: &Examined) -> String {
    match (&examined.error, &examined.version) {
        (Some(_), _) if !examined.available && examined.install.is_some() => {
            format!("not installed; {}", examined.install.as_deref().unwrap_or_default())
        }
        (Some(error), _) => error.clone(),
        (None, version) => {
            let version = version.as_deref().unwrap_or("no version");
            let login = examined.login.as_ref().map(|login| format!(": {login}")).unwrap_or_default();
            if examined.lacks_login() {
                format!("{version}, installed, not logged in{login}")
            } else {
                version.to_owned()
            }
        }
    }
}

/// Models for all recipes, and those of the configuration: models with their own programs, and the router.
fn all_models(loaded: &LoadedConfig) -> Models {
    let known = loaded.config.providers.values().map(|provider| {
        plain_model(&provider.name, Backend::Program(Arc::clone(provider)), &loaded.environment.folder)
    });
    let own = loaded.config.models.iter().map(|model| (**model).clone());
    let router = loaded.config.models.router().clone();
    let built_in = loaded.config.models.built_in().map(|model| (**model).clone());
    let policy = (**loaded.config.models.policy()).clone();
    Models::new(known.chain(own)).with_router(router, policy).with_built_in(built_in)
}
