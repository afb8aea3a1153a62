//! Turns the providers of `router.yaml` into models that the engine routes among: one per provider and one per hint.

use std::path::Path;
use std::sync::Arc;

use trunkline_core::api::Api;
use trunkline_core::model::{Backend, Model};
use trunkline_core::provider::{self, Provider};
use trunkline_engine::router::{Routed, Router};

use super::base_model::plain_model;
use super::router_file::{RouterProvider, RouterProviderKind};

/// Builds the router. Executables run in `folder`.
pub(super) fn router(providers: Vec<RouterProvider>, folder: &Path) -> Router {
    Router { providers: providers.into_iter().map(|provider| routed(provider, folder)).collect() }
}

fn routed(provider: RouterProvider, folder: &Path) -> Routed {
    let RouterProvider { name, priority, kind, options, models, offered } = provider;
    let base = match kind {
        RouterProviderKind::Executable { path, args, request_config } => {
            let backend = Backend::Program(Arc::new(provider::executable(&name, &path, &args)));
            Model { config: request_config, ..Model::new(&name, backend, folder) }
        }
        RouterProviderKind::Api { base_url, key } => {
            let backend = Backend::Api(Arc::new(Api { name: name.clone(), base_url, key }));
            Model::new(&name, backend, folder)
        }
        RouterProviderKind::Agent { provider, command, args, repo } => {
            let backend = Backend::Program(renamed(provider, &name));
            Model { command, args, ..plain_model(&name, backend, &repo) }
        }
    };
    let model = options.model.clone();
    let bare = options.apply(base);
    let bare = Model { offered: if offered.is_empty() { bare.offered } else { offered }, ..bare };
    let hints = models.into_iter().map(|(hint, model)| (hint, Arc::new(bare.on(&model)))).collect::<Vec<_>>();
    let own = match (&model, hints.first()) {
        (Some(model), _) => Arc::new(bare.on(model)),
        // An API needs a model in each request; a program has a default of its own.
        (None, None) if matches!(bare.backend, Backend::Api(_)) && !bare.offered.is_empty() => {
            Arc::new(bare.on(&bare.offered[0].id))
        }
        (None, Some((_, first))) if matches!(bare.backend, Backend::Api(_)) => Arc::clone(first),
        (None, _) => Arc::new(bare),
    };
    Routed { name, priority, model: own, hints }
}

/// A recipe under the provider's name in the router, so that its circuit and its private home are separate.
fn renamed(provider: Arc<Provider>, name: &str) -> Arc<Provider> {
    if provider.name == name {
        return provider;
    }
    Arc::new(Provider { name: name.to_owned(), ..Provider::clone(&provider) })
}
