//! Embeddings: a request is passed to the HTTP service of its model.
//!
//! It is no turn: it has no run and no attempts, and nothing about it is recorded. The limits of the client apply, and it takes a
//! slot. It is not repeated on another service, because vectors of different models cannot be compared.

use std::sync::Arc;

use trunkline_core::api::Api;
use trunkline_core::failure::Failure;
use trunkline_core::model::{Backend, Model};
use trunkline_core::turn::{ClientId, Json};
use trunkline_wire::upstream;

use crate::engine::Engine;
use crate::router::models::Models;
use crate::start_error::StartError;

/// Request for embeddings.
#[derive(Debug, Clone)]
pub struct EmbeddingRequest {
    pub owner: ClientId,
    pub model: String,
    /// Members of the body other than `model`, as the client sent them.
    pub members: Vec<(String, Json)>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum EmbeddingError {
    /// The model is unknown, or a limit is reached.
    #[error(transparent)]
    Refused(#[from] StartError),
    /// The model is not an HTTP service.
    #[error("the model has no embeddings")]
    NoService {
        /// Names of the models that are one.
        models: Vec<String>,
    },
    /// The service failed.
    #[error("{0}")]
    Failed(Failure),
}

impl Engine {
    /// Computes embeddings. Returns the body of the service's answer. Dropping the future cancels the request.
    pub async fn embed(&self, request: EmbeddingRequest) -> Result<Vec<u8>, EmbeddingError> {
        let EmbeddingRequest { owner, model, members } = request;
        let models = self.models();
        let name = models.alias(&model).map_or(model.as_str(), |alias| alias.target.as_str());
        let Some(candidates) = models.candidates(name) else {
            return Err(self.unknown_model(&models, name).into());
        };
        let candidates = candidates.iter().map(|candidate| &candidate.model);
        let Some((model, api)) = candidates.filter_map(service).next() else {
            return Err(EmbeddingError::NoService { models: services(&models) });
        };
        let admission = &self.shared.admission;
        admission.admit(&owner, name)?;
        let _permit = admission.enter(&owner, &model.name, None).await?;
        let body = upstream::embeddings_request(model.upstream.as_deref(), &members);
        let computed = self.shared.upstream.embeddings(api, body, model.limits.total).await;
        computed.map_err(EmbeddingError::Failed)
    }
}

fn service(model: &Arc<Model>) -> Option<(&Model, &Api)> {
    match &model.backend {
        Backend::Api(api) => Some((model, api)),
        Backend::Program(_) | Backend::Agent(_) => None,
    }
}

/// Names of the models that are HTTP services, and the forms of names that lead to one.
fn services(models: &Models) -> Vec<String> {
    let is_service = |name: &String| {
        let candidates = models.candidates(name).unwrap_or_default();
        candidates.first().is_some_and(|first| service(&first.model).is_some())
    };
    let named = models.names().into_iter().filter(is_service);
    let any = models.router().providers.iter().filter(|provider| service(&provider.model).is_some());
    named.chain(any.map(|provider| format!("{}/<model>", provider.name))).collect()
}
