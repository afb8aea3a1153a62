//! Health reports, and the cache of the last ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tokio::time::Instant;
use trunkline_core::failure::Category;

use crate::router::CircuitState;
use crate::router::models::Models;
use crate::warm::Figures;

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Costs nothing but some processes.
    Look,
    /// Costs tokens.
    Probe,
}

#[derive(Debug, Clone, Serialize)]
pub struct HealthReport {
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
    pub(super) circuit_name: String,
    #[serde(skip)]
    pub(super) provider: String,
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
pub(crate) struct HealthCache {
    pub(super) looked: tokio::sync::Mutex<Option<Found>>,
    pub(super) probed: tokio::sync::Mutex<Option<Found>>,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) at: Instant,
    /// Of which configuration.
    pub(super) of: Arc<Models>,
    pub(super) providers: Vec<Examined>,
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
