//! `trunkline doctor`: which providers are here, which versions, where from; and on demand, whether they answer.

mod running;
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
use trunkline_store::{Condition, FILE};

use super::check::circuit;
use super::gateway::Running;
use crate::Exit;
use crate::cli::Places;
use crate::config::plain_model;
use crate::setup::{Loaded, runtime, say};
use running::Known;

/// Show which agent CLIs and providers are installed, their versions, and whether they are well
#[derive(Debug, Args)]
#[command(after_help = "Circuits are those of the gateway that runs on this machine, if one does; it says more at \
    /health/providers.\n\nExit status: 0 when at least one provider could answer, the built-in agent included; 4 when none \
    could; 3 when the database is damaged.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    places: Places,
    /// Ask each of them one tiny question; this costs tokens
    #[arg(long)]
    probe: bool,
    /// Port of the gateway whose circuits to show
    #[arg(long, value_name = "N", env = "TRUNKLINE_PORT", default_value_t = 8765)]
    port: u16,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let loaded = Loaded::new(&self.places)?;
        let depth = if self.probe { Depth::Probe } else { Depth::Look };
        let gateway = Running::on_port(self.port, &loaded.around);
        let path = loaded.state.join(FILE);
        let (report, known, store) = runtime()?.block_on(async {
            let engine = loaded.engine(Caps::default(), None)?;
            engine.replace_models(everything(&loaded));
            let all = tokio::join!(engine.health(depth), running::known(&gateway), Condition::of(&path));
            engine.shutdown().await;
            anyhow::Ok(all)
        })?;
        for row in table(&report.providers, known.as_ref()) {
            say(row)?;
        }
        for (index, line) in sandbox::told(loaded.sandbox, Landlock::here(), &loaded.worktrees).iter().enumerate() {
            say(if index == 0 { format!("\nsandbox: {line}") } else { format!("         {line}") })?;
        }
        say("")?;
        for line in memory(&path, store.as_ref()) {
            say(line)?;
        }
        if report.providers.iter().all(|examined| !examined.available || examined.stand_in) {
            say("\nno agent CLI was found, nor any other provider; install one with the command shown beside it")?;
        }
        if store.is_some_and(|store| !store.wrong.is_empty()) {
            return Ok(Exit::Configuration.into());
        }
        // The built-in agent answers on a fresh machine, too: that is no failure.
        let answers = report.providers.iter().any(Examined::is_well);
        Ok(if answers { ExitCode::SUCCESS } else { Exit::Provider.into() })
    }
}

/// How the database is: sessions and the archive are in it.
fn memory(path: &Path, store: Option<&Condition>) -> Vec<String> {
    let path = path.display();
    let Some(store) = store else { return vec![format!("- memory: none yet; {path} is made when it is needed")] };
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

/// A row for each provider, below a head; what a probe brought stands under its row.
fn table(providers: &[Examined], running: Option<&BTreeMap<String, Known>>) -> Vec<String> {
    let known = |examined: &Examined| running.and_then(|running| running.get(&examined.name));
    let state = |examined: &Examined| known(examined).map_or_else(|| "-".to_owned(), |known| circuit(&known.circuit));
    let head = ["provider", "type", "version", "circuit"].map(str::to_owned);
    let cells =
        |examined: &Examined| [examined.name.clone(), examined.kind.to_owned(), said(examined), state(examined)];
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
        for (kind, count) in known(examined).iter().flat_map(|known| &known.unknown_events) {
            let name = widths[0];
            rows.push(format!("  {:name$}  has printed an event that is not known here: {kind:?}, {count} times", ""));
        }
        if let Some(figures) = known(examined).and_then(|known| known.warm.as_ref()) {
            let name = widths[0];
            rows.push(format!("  {:name$}  {}", "", kept_ready(figures)));
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

/// How processes that are kept ready have done.
fn kept_ready(figures: &Figures) -> String {
    let turns = figures.hits + figures.resumed;
    let rate = figures.hit_rate().map(|rate| format!(" ({rate} %)")).unwrap_or_default();
    let start = figures.mean_boot_ms.map(|mean| format!(", {mean} ms to start")).unwrap_or_default();
    let error = figures.error.as_ref().map(|error| format!("; the last did not come up: {error}")).unwrap_or_default();
    let now = format!("now {} and {} held, {} MiB", figures.ready, figures.held, figures.resident_mib);
    format!("kept ready for {turns} turns{rate}{start}; {now}{error}")
}

/// What is known of a provider without asking it anything that costs.
fn said(examined: &Examined) -> String {
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

/// Every CLI there is a recipe for, and what the configuration adds: its models' own programs, and the router.
fn everything(loaded: &Loaded) -> Models {
    let known = loaded
        .config
        .providers
        .values()
        .map(|provider| plain_model(&provider.name, Backend::Program(Arc::clone(provider)), &loaded.around.folder));
    let own = loaded.config.models.iter().map(|model| (**model).clone());
    let router = loaded.config.models.router().clone();
    let built_in = loaded.config.models.built_in().map(|model| (**model).clone());
    let policy = (**loaded.config.models.policy()).clone();
    Models::new(known.chain(own)).with_router(router, policy).with_built_in(built_in)
}
