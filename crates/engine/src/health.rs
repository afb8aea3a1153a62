//! How providers are, on three levels: there (the program is found, the key is set), well (`--version`, an executable's
//! own `health`, a service's list of models), and answering (one tiny turn, which costs tokens and so only on demand).
//!
//! All are examined at once, each with a deadline, and what was found is good for some seconds: a monitor that asks
//! every second starts nothing each time.

mod probe;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::Instant;
use trunkline_core::ansi;
use trunkline_core::api::Api;
use trunkline_core::failure::Category;
use trunkline_core::model::{Backend, Model};
use trunkline_core::provider::Provider;
use trunkline_core::turn::Turn;
use trunkline_process::Cut;

use crate::engine::Inner;
use crate::explain::{kind, problem};
use crate::launch::Launch;
use crate::login::is_logged_in;
use crate::models::Models;
use crate::program::locate;
use crate::router::{CircuitState, circuit_of};
use crate::warm::Figures;

/// How long what was found is good for.
const FRESH: Duration = Duration::from_secs(10);

/// Slow starters take seconds for `--version` alone.
const VERSION_LIMIT: Duration = Duration::from_secs(20);

/// An executable's `health`, a service's list.
const HEALTH_LIMIT: Duration = Duration::from_secs(5);

/// The most of what a program says that is kept.
const MAX_WORDS: usize = 200;

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Costs nothing but some processes.
    Look,
    /// Costs tokens.
    Probe,
}

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub status: Status,
    /// How old the answers are; circuits are always those of now.
    pub age_ms: u64,
    pub providers: Vec<Examined>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    /// Some can answer, some cannot.
    Degraded,
    /// Nobody can.
    Down,
}

/// One provider.
#[derive(Debug, Clone, Serialize)]
pub struct Examined {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The first level: it is there.
    pub available: bool,
    /// Where: a path or an address.
    pub path: Option<String>,
    /// The second level: what it says of itself.
    pub version: Option<String>,
    /// Whether the second level went well; none when the first did not.
    pub healthy: Option<bool>,
    /// What is wrong on the first or second level.
    pub error: Option<String>,
    /// Whether it has credentials, as far as its files and variables tell; none where its recipe does not say where to look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logged_in: Option<bool>,
    /// How to log in, where it is not.
    #[serde(skip)]
    pub login: Option<String>,
    /// The third level; none when it was not asked for.
    pub probe: Option<Probed>,
    pub circuit: CircuitState,
    /// Types of events that it has printed and our decoder does not know, and how often: it has changed its words.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_events: BTreeMap<String, u64>,
    /// How processes that are kept ready have done; none where there never was one to want.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm: Option<Figures>,
    /// It only stands in for a real one, and says nothing about how things are.
    #[serde(skip)]
    pub stand_in: bool,
    #[serde(skip)]
    circuit_name: String,
    #[serde(skip)]
    provider: String,
    /// How it is installed, where it is not.
    #[serde(skip)]
    pub install: Option<String>,
}

/// How a tiny turn went.
#[derive(Debug, Clone, Serialize)]
pub struct Probed {
    pub ok: bool,
    /// What it answered, or why it did not.
    pub message: String,
    pub category: Option<Category>,
    pub duration_ms: u64,
}

/// What was found last, for each depth. Who comes while somebody looks waits for what they find.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    looked: tokio::sync::Mutex<Option<Found>>,
    probed: tokio::sync::Mutex<Option<Found>>,
}

#[derive(Debug)]
struct Found {
    at: Instant,
    /// Of which configuration.
    of: Arc<Models>,
    providers: Vec<Examined>,
}

pub(crate) async fn of_all(engine: &Arc<Inner>, models: &Arc<Models>, depth: Depth) -> Report {
    let mut memory = match depth {
        Depth::Look => engine.examined.looked.lock().await,
        Depth::Probe => engine.examined.probed.lock().await,
    };
    let (at, mut providers) = match &*memory {
        Some(found) if found.at.elapsed() < FRESH && Arc::ptr_eq(&found.of, models) => {
            (found.at, found.providers.clone())
        }
        Some(_) | None => {
            let providers = join_all(distinct(models).iter().map(|model| examine(engine, models, model, depth))).await;
            let at = Instant::now();
            *memory = Some(Found { at, of: Arc::clone(models), providers: providers.clone() });
            (at, providers)
        }
    };
    drop(memory);
    for examined in &mut providers {
        examined.circuit = engine.circuits.state(&examined.circuit_name);
        examined.unknown_events = engine.drift.of(&examined.provider);
        examined.warm = engine.warm.figures(&examined.provider);
    }
    let only_stand_ins = providers.iter().all(|examined| examined.stand_in);
    let counted: Vec<&Examined> = providers.iter().filter(|examined| only_stand_ins || !examined.stand_in).collect();
    let status = match counted.iter().filter(|examined| examined.is_well()).count() {
        0 => Status::Down,
        well if well == counted.len() => Status::Ok,
        _ => Status::Degraded,
    };
    Report { status, age_ms: millis(at.elapsed()), providers }
}

impl Examined {
    /// Whether it is installed and lacks credentials. One that has answered a probe has them, wherever they are.
    pub fn lacks_login(&self) -> bool {
        self.available && self.logged_in == Some(false) && !self.probe.as_ref().is_some_and(|probe| probe.ok)
    }

    /// Whether a turn would be tried on it, and as far as is known, answered.
    pub fn is_well(&self) -> bool {
        self.healthy == Some(true)
            && self.probe.as_ref().is_none_or(|probe| probe.ok || probe.category == Some(Category::Cancelled))
            && !matches!(self.circuit, CircuitState::Open { .. })
    }
}

/// A model for each provider: several may have the same.
fn distinct(models: &Models) -> Vec<Arc<Model>> {
    let mut found: Vec<Arc<Model>> = Vec::new();
    for model in models.all() {
        if found.iter().all(|known| circuit_of(known) != circuit_of(model)) {
            found.push(Arc::clone(model));
        }
    }
    found
}

/// A provider's name, and where a model has its own program for it, that.
fn shown_name(model: &Model) -> String {
    let name = model.backend.name();
    model.command.as_ref().map_or_else(|| name.to_owned(), |command| format!("{name} ({command})"))
}

async fn examine(engine: &Arc<Inner>, models: &Models, model: &Arc<Model>, depth: Depth) -> Examined {
    let circuit_name = circuit_of(model);
    let problem = problem(engine, model);
    let mut examined = Examined {
        name: shown_name(model),
        kind: kind(model),
        available: problem.is_none(),
        path: None,
        version: None,
        healthy: None,
        error: problem,
        logged_in: is_logged_in(model, &engine.settings.env),
        login: model.backend.program().and_then(|provider| provider.login.as_ref()?.hint.clone()),
        probe: None,
        circuit: engine.circuits.state(&circuit_name),
        stand_in: false,
        circuit_name,
        provider: model.backend.name().to_owned(),
        unknown_events: BTreeMap::new(),
        warm: None,
        install: model.backend.program().and_then(|provider| provider.install.clone()),
    };
    let said = match &model.backend {
        Backend::Program(provider) => {
            let Ok(located) = locate(provider, model.command.as_deref(), engine.settings.variable("PATH")) else {
                return examined;
            };
            examined.path = Some(located.path.display().to_string());
            of_program(engine, models, model, provider, located.path).await
        }
        Backend::Api(api) => {
            examined.path = Some(api.shown_url());
            if !examined.available {
                return examined;
            }
            of_service(engine, api).await
        }
        Backend::Agent(llm) => match llm.api() {
            Some(api) => {
                examined.path = Some(api.shown_url());
                of_service(engine, api).await
            }
            None => {
                examined.stand_in = true;
                Ok(Some("on the built-in mock; set LLM_BASE_URL for a real LLM".to_owned()))
            }
        },
    };
    let mask = |text: &str| engine.settings.secrets.mask(text);
    examined.healthy = Some(said.is_ok());
    match said {
        Ok(version) => examined.version = version.map(|version| mask(&version)),
        Err(error) => examined.error = Some(mask(&error)),
    }
    if depth == Depth::Probe && examined.available {
        examined.probe = Some(probe::probe(engine, models, model).await);
    }
    examined
}

/// The second level of a service: whether it lists its models.
async fn of_service(engine: &Inner, api: &Api) -> Result<Option<String>, String> {
    let listed = engine.upstream.models(api, HEALTH_LIMIT).await;
    listed
        .map(|count| Some(if count == 1 { "1 model".to_owned() } else { format!("{count} models") }))
        .map_err(|failure| failure.message)
}

/// The second level of a program: its version, or its own word on its health.
async fn of_program(
    engine: &Inner,
    models: &Models,
    model: &Model,
    provider: &Provider,
    program: PathBuf,
) -> Result<Option<String>, String> {
    let (args, limit) = match &provider.health {
        Some(args) => (args, HEALTH_LIMIT),
        None => (&provider.version, VERSION_LIMIT),
    };
    let turn = Turn::default();
    let (settings, owner) = (&engine.settings, engine.mark.as_str());
    let launch = Launch { settings, turn: &turn, model, provider, models, run: "health", owner };
    let output = engine.keepers.output(launch.question(program, args, limit)).await;
    let output = output.map_err(|error| format!("does not start: {error}"))?;
    let asked = args.join(" ");
    let first_line = |text: &str| {
        let plain = ansi::strip(text);
        let line = plain.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect::<String>())
    };
    let printed = first_line(&String::from_utf8_lossy(&output.stdout));
    if output.success() {
        return Ok(printed);
    }
    let said = first_line(&output.stderr).or(printed).unwrap_or_else(|| "it said nothing".to_owned());
    Err(match output.cut {
        Some(Cut::Limit(_)) => format!("{asked} did not end within {} s", limit.as_secs()),
        Some(Cut::TooLong) => format!("{asked} printed without end"),
        None => format!("{asked} failed: {said}"),
    })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
