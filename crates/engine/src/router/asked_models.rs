//! Models that clients ask for as `<provider>/<model>`. They are kept, so that all turns of such a name have the same model and
//! thus share what is kept for it.

use std::sync::{Arc, Mutex, PoisonError};

use trunkline_core::model::Model;

/// Number of models that are kept. A client may invent names.
const MAX_MODELS: usize = 64;

/// Models by provider and upstream model.
#[derive(Debug, Default)]
pub(crate) struct AskedModels(Mutex<Vec<AskedModel>>);

#[derive(Debug)]
struct AskedModel {
    /// The provider on its default model.
    provider: Arc<Model>,
    model: Arc<Model>,
}

impl AskedModels {
    /// Returns the model of a provider for this upstream model.
    pub(super) fn of(&self, provider: &Arc<Model>, upstream: &str) -> Arc<Model> {
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_asked = |known: &&AskedModel| {
            Arc::ptr_eq(&known.provider, provider) && known.model.upstream.as_deref() == Some(upstream)
        };
        if let Some(known) = models.iter().find(is_asked) {
            return Arc::clone(&known.model);
        }
        if models.len() >= MAX_MODELS {
            models.clear();
        }
        let model = Arc::new(provider.on(upstream));
        models.push(AskedModel { provider: Arc::clone(provider), model: Arc::clone(&model) });
        model
    }
}

/// A copy has other providers, or is about to.
impl Clone for AskedModels {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::test_models::model;

    #[test]
    fn model_is_the_same_for_every_turn_and_the_number_of_models_is_bounded() {
        let (asked, [one, other]) = (AskedModels::default(), ["one", "other"].map(|name| Arc::new(model(name))));
        let large = asked.of(&one, "large");
        assert_eq!(large.upstream.as_deref(), Some("large"));
        assert!(Arc::ptr_eq(&large, &asked.of(&one, "large")));
        assert!(!Arc::ptr_eq(&large, &asked.of(&other, "large")));
        for invented in 0..2 * MAX_MODELS {
            asked.of(&one, &invented.to_string());
        }
        assert!(asked.0.lock().unwrap().len() <= MAX_MODELS);
    }
}
