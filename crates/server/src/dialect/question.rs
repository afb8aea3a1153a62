//! The question of a turn: a turn that asks nothing is refused.

use trunkline_core::turn::{Message, Role, Turn};
use trunkline_wire::error::ApiError;
use trunkline_wire::request::MAX_IMAGES;

/// Refuses a turn that asks nothing, or has too many images. `param` is the member of the request that has the messages.
pub(crate) fn check(turn: &Turn, param: &str) -> Result<(), ApiError> {
    let asks = |message: &Message| match message.role {
        Role::User | Role::Tool => !message.text.trim().is_empty() || !message.images.is_empty(),
        Role::System | Role::Assistant => false,
    };
    if !turn.messages.iter().any(asks) {
        return Err(ApiError::invalid("invalid_value", "there is no user message to answer").about(param));
    }
    if turn.images().count() > MAX_IMAGES {
        return Err(ApiError::invalid("invalid_value", format!("more than {MAX_IMAGES} images")).about(param));
    }
    Ok(())
}
