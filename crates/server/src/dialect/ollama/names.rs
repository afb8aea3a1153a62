//! Names of models. Ollama's clients add the tag `latest` to a name without a tag.

use trunkline_wire::error::ApiError;
use trunkline_wire::request::{may_name_a_model, missing};

use crate::door::Door;

const DEFAULT_TAG: &str = ":latest";

/// The name in a request, which must have one.
pub(super) fn required(name: Option<String>) -> Result<String, ApiError> {
    name.filter(|name| !name.is_empty()).ok_or_else(|| missing("model"))
}

/// Our name of a model: without the default tag, unless there is a model with it. The error is a 404, as Ollama's clients expect it.
pub(super) fn known<'n, D: Door>(door: &D, name: &'n str) -> Result<&'n str, ApiError> {
    if !may_name_a_model(name) {
        return Err(ApiError::no_such_model());
    }
    let found = match name.strip_suffix(DEFAULT_TAG).filter(|short| !short.is_empty()) {
        Some(short) => {
            let models = door.models();
            let listed = |name: &str| models.iter().any(|model| model == name);
            // A router or a default model may accept every name, so the list decides first.
            let prefers_short = !listed(name) && (listed(short) || (!door.knows(name) && door.knows(short)));
            if prefers_short { short } else { name }
        }
        None => name,
    };
    if door.knows(found) {
        return Ok(found);
    }
    let error = ApiError::not_found("model_not_found", format!("model '{name}' not found")).about("model");
    Err(error.listing_models(&door.models()))
}
