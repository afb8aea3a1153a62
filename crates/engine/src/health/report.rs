//! Health reports, and the cache of the last ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tokio::time::Instant;
use trunkline_core::failure::Category;

use crate::router::CircuitState;
use crate::router::models::Models;
use crate::warm::Figures;

/// Depth of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Starts some processes, and costs nothing else.
    Look,
    /// Also asks each provider to answer a turn, which costs tokens.
    Probe,
}

#[derive(Debug, Clone, Serialize)]
pub struct HealthReport {
    pub status: Status,
    /// Age of the cached results. The states of circuits are always current.
    pub age_ms: u64,
    pub providers: Vec<Examined>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    /// Some providers can answer, others cannot.
    Degraded,
    /// No provider can answer.
    Down,
}

/// Health of one provider.
#[derive(Debug, Clone, Serialize)]
pub struct Examined {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// First level: the program is found, the key is set.
    pub available: bool,
    /// Path of the program, or address of the service.
    pub path: Option<String>,
    /// Second level: version, or the provider's own report.
    pub version: Option<String>,
    /// Result of the second level; `None` if the first failed.
    pub healthy: Option<bool>,
    /// Error of the first or second level.
    pub error: Option<String>,
    /// Whether credentials are found in its files and variables; `None` if the recipe does not say where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logged_in: Option<bool>,
    /// Instruction for logging in.
    #[serde(skip)]
    pub login: Option<String>,
    /// Third level; `None` if it was not requested.
    pub probe: Option<Probed>,
    pub circuit: CircuitState,
    /// Event types that our decoder does not know, with counts: the CLI has changed its format.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_events: BTreeMap<String, u64>,
    /// Figures of its warm processes; `None` if there never was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm: Option<Figures>,
    /// Whether it is the embedded mock, which does not count for the overall status.
    #[serde(skip)]
    pub stand_in: bool,
    #[serde(skip)]
    pub(super) circuit_name: String,
    #[serde(skip)]
    pub(super) provider: String,
    /// Command that installs it.
    #[serde(skip)]
    pub install: Option<String>,
}

/// Result of a probe turn.
#[derive(Debug, Clone, Serialize)]
pub struct Probed {
    pub ok: bool,
    /// The answer, or the error.
    pub message: String,
    pub category: Option<Category>,
    pub duration_ms: u64,
}

/// Last results for each depth. A request that comes during a check waits for its result.
#[derive(Debug, Default)]
pub(crate) struct HealthCache {
    pub(super) looked: tokio::sync::Mutex<Option<Found>>,
    pub(super) probed: tokio::sync::Mutex<Option<Found>>,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) at: Instant,
    /// The configuration that was examined.
    pub(super) of: Arc<Models>,
    pub(super) providers: Vec<Examined>,
}

impl Examined {
    /// Whether the CLI is installed and lacks credentials. A CLI that has answered a probe has credentials, wherever they are.
    pub fn lacks_login(&self) -> bool {
        self.available && self.logged_in == Some(false) && !self.probe.as_ref().is_some_and(|probe| probe.ok)
    }

    /// Whether a turn would be tried on the provider and, as far as is known, answered.
    pub fn is_well(&self) -> bool {
        self.healthy == Some(true)
            && self.probe.as_ref().is_none_or(|probe| probe.ok || probe.category == Some(Category::Cancelled))
            && !matches!(self.circuit, CircuitState::Open { .. })
    }
}
