//! Provider statuses that only the running gateway knows: circuits, unknown events, warm processes.

use std::collections::BTreeMap;

use serde::Deserialize;
use trunkline_engine::WarmStats;
use trunkline_engine::router::CircuitState;

use crate::commands::gateway::GatewayClient;

/// Reply of `/health/providers`.
#[derive(Deserialize)]
struct ProvidersReply {
    providers: Vec<ProviderReply>,
}

#[derive(Deserialize)]
struct ProviderReply {
    name: String,
    #[serde(flatten)]
    status: ProviderStatus,
}

/// Status of a provider in the running gateway.
#[derive(Deserialize)]
pub(super) struct ProviderStatus {
    pub(super) circuit: CircuitState,
    #[serde(default)]
    pub(super) unknown_events: BTreeMap<String, u64>,
    #[serde(default)]
    pub(super) warm: Option<WarmStats>,
}

/// Asks the gateway for the statuses, by provider; `None` if no gateway answers.
pub(super) async fn provider_statuses(gateway: &GatewayClient) -> Option<BTreeMap<String, ProviderStatus>> {
    let reply = gateway.send("GET", "/health/providers", &[], "").await.ok()?;
    let reply: ProvidersReply = serde_json::from_str(&reply.body).ok()?;
    Some(reply.providers.into_iter().map(|provider| (provider.name, provider.status)).collect())
}
