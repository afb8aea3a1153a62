//! What a gateway that runs on this machine knows and no other process can: which providers it leaves alone, and
//! which of them have said what nobody understood.

use std::collections::BTreeMap;

use serde::Deserialize;
use trunkline_engine::Figures;
use trunkline_engine::router::CircuitState;

use crate::commands::gateway::Running;

#[derive(Deserialize)]
struct Report {
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
struct Provider {
    name: String,
    circuit: CircuitState,
    #[serde(default)]
    unknown_events: BTreeMap<String, u64>,
    #[serde(default)]
    warm: Option<Figures>,
}

/// What the gateway knows of a provider.
pub(super) struct Known {
    pub(super) circuit: CircuitState,
    pub(super) unknown_events: BTreeMap<String, u64>,
    pub(super) warm: Option<Figures>,
}

/// What the gateway knows, by provider; none if there is no gateway, or it does not say.
pub(super) async fn known(gateway: &Running) -> Option<BTreeMap<String, Known>> {
    let reply = gateway.send("GET", "/health/providers", &[], "").await.ok()?;
    let report: Report = serde_json::from_str(&reply.body).ok()?;
    let known = |provider: Provider| {
        let Provider { name, circuit, unknown_events, warm } = provider;
        (name, Known { circuit, unknown_events, warm })
    };
    Some(report.providers.into_iter().map(known).collect())
}
