//! Health of providers on three levels: available (the program is found, the key is set), healthy (`--version`, an executable's own
//! `health`, a service's list of models), and answering (one tiny turn, which costs tokens and is made only on demand).
//!
//! All providers are examined concurrently, each with a deadline. Results are cached for some seconds, so that a monitor that polls
//! every second does not start processes each time.

mod idle;
mod login;
pub(crate) mod metrics;
mod probe;
pub(crate) mod report;
pub(crate) mod unknown_events;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use trunkline_core::ansi;
use trunkline_core::api::Api;
use trunkline_core::model::{Backend, Model};
use trunkline_core::provider::Provider;
use trunkline_core::turn::Turn;
use trunkline_process::Cut;

use self::report::{Depth, Examined, Found, HealthReport, Status};
use crate::attempt::launch::LaunchRequest;
use crate::attempt::program::locate;
use crate::health::login::is_logged_in;
use crate::router::circuit_of;
use crate::router::explain::{kind, problem};
use crate::router::models::Models;
use crate::shared::Shared;

/// Time for which a report is cached.
const CACHE_TTL: Duration = Duration::from_secs(10);

/// Time limit of `--version`: some CLIs take seconds to start.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Time limit of an executable's `health` and of a service's list of models.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a program's message in a report.
const MAX_MESSAGE_CHARS: usize = 200;

pub(crate) async fn of_all(shared: &Arc<Shared>, models: &Arc<Models>, depth: Depth) -> HealthReport {
    let mut memory = match depth {
        Depth::Look => shared.health.cache.looked.lock().await,
        Depth::Probe => shared.health.cache.probed.lock().await,
    };
    let (at, mut providers) = match &*memory {
        Some(found) if found.at.elapsed() < CACHE_TTL && Arc::ptr_eq(&found.of, models) => {
            (found.at, found.providers.clone())
        }
        Some(_) | None => {
            let providers = join_all(distinct(models).iter().map(|model| examine(shared, models, model, depth))).await;
            let at = Instant::now();
            *memory = Some(Found { at, of: Arc::clone(models), providers: providers.clone() });
            (at, providers)
        }
    };
    drop(memory);
    for examined in &mut providers {
        examined.circuit = shared.routing.circuits.state(&examined.circuit_name);
        examined.unknown_events = shared.health.unknown_events.of(&examined.provider);
        examined.warm = shared.warm.stats(&examined.provider);
    }
    let only_stand_ins = providers.iter().all(|examined| examined.stand_in);
    let counted: Vec<&Examined> = providers.iter().filter(|examined| only_stand_ins || !examined.stand_in).collect();
    let status = match counted.iter().filter(|examined| examined.is_well()).count() {
        0 => Status::Down,
        well if well == counted.len() => Status::Ok,
        _ => Status::Degraded,
    };
    HealthReport { status, age_ms: millis(at.elapsed()), providers }
}

/// One model for each provider: several models may share one.
fn distinct(models: &Models) -> Vec<Arc<Model>> {
    let mut found: Vec<Arc<Model>> = Vec::new();
    for model in models.all() {
        if found.iter().all(|known| circuit_of(known) != circuit_of(model)) {
            found.push(Arc::clone(model));
        }
    }
    found
}

/// Name of a provider, with the program if the model sets its own.
fn shown_name(model: &Model) -> String {
    let name = model.backend.name();
    model.command.as_ref().map_or_else(|| name.to_owned(), |command| format!("{name} ({command})"))
}

async fn examine(shared: &Arc<Shared>, models: &Models, model: &Arc<Model>, depth: Depth) -> Examined {
    let circuit_name = circuit_of(model);
    let problem = problem(&shared.settings, model);
    let mut examined = Examined {
        name: shown_name(model),
        kind: kind(model),
        available: problem.is_none(),
        path: None,
        version: None,
        healthy: None,
        error: problem,
        logged_in: is_logged_in(model, &shared.settings.env),
        login: model.backend.program().and_then(|provider| provider.login.as_ref()?.hint.clone()),
        probe: None,
        circuit: shared.routing.circuits.state(&circuit_name),
        stand_in: false,
        circuit_name,
        provider: model.backend.name().to_owned(),
        unknown_events: BTreeMap::new(),
        warm: None,
        install: model.backend.program().and_then(|provider| provider.install.clone()),
    };
    let said = match &model.backend {
        Backend::Program(provider) => {
            let Ok(located) = locate(provider, model.command.as_deref(), shared.settings.variable("PATH")) else {
                return examined;
            };
            examined.path = Some(located.path.display().to_string());
            of_program(shared, models, model, provider, located.path).await
        }
        Backend::Api(api) => {
            examined.path = Some(api.shown_url());
            if !examined.available {
                return examined;
            }
            of_service(shared, api).await
        }
        Backend::Agent(llm) => match llm.api() {
            Some(api) => {
                examined.path = Some(api.shown_url());
                of_service(shared, api).await
            }
            None => {
                examined.stand_in = true;
                Ok(Some("on the built-in mock; set LLM_BASE_URL for a real LLM".to_owned()))
            }
        },
    };
    let mask = |text: &str| shared.settings.secrets.mask(text);
    examined.healthy = Some(said.is_ok());
    match said {
        Ok(version) => examined.version = version.map(|version| mask(&version)),
        Err(error) => examined.error = Some(mask(&error)),
    }
    if depth == Depth::Probe && examined.available {
        examined.probe = Some(probe::probe(shared, models, model).await);
    }
    examined
}

/// Second level of a service: whether it lists its models.
async fn of_service(shared: &Shared, api: &Api) -> Result<Option<String>, String> {
    let listed = shared.upstream.models(api, HEALTH_TIMEOUT).await;
    listed
        .map(|count| Some(if count == 1 { "1 model".to_owned() } else { format!("{count} models") }))
        .map_err(|failure| failure.message)
}

/// Second level of a program: its version, or its own health report.
async fn of_program(
    shared: &Shared,
    models: &Models,
    model: &Model,
    provider: &Provider,
    program: PathBuf,
) -> Result<Option<String>, String> {
    let (args, limit) = match &provider.health {
        Some(args) => (args, HEALTH_TIMEOUT),
        None => (&provider.version, VERSION_TIMEOUT),
    };
    let turn = Turn::default();
    let (settings, owner) = (&shared.settings, shared.identity.mark.as_str());
    let launch = LaunchRequest { settings, turn: &turn, models, run: "health", owner }.once(model, provider);
    let output = shared.keepers.output(launch.question(program, args, limit)).await;
    let output = output.map_err(|error| format!("does not start: {error}"))?;
    let asked = args.join(" ");
    let first_line = |text: &str| {
        let plain = ansi::strip(text);
        let line = plain.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE_CHARS).collect::<String>())
    };
    let printed = first_line(&String::from_utf8_lossy(&output.stdout));
    if output.success() {
        return Ok(printed);
    }
    let said = first_line(&output.stderr).or(printed).unwrap_or_else(|| "no output".to_owned());
    Err(match output.cut {
        Some(Cut::Limit(_)) => format!("{asked} did not end within {} s", limit.as_secs()),
        Some(Cut::TooLong) => format!("{asked} printed without end"),
        None => format!("{asked} failed: {said}"),
    })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
