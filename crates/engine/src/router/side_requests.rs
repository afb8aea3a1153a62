//! Side requests: requests that a client sends on its own, and the models that answer them.

use std::sync::{Arc, Mutex, PoisonError};

use trunkline_core::model::Model;
use trunkline_core::side_request::{self, SideRequestRule};
use trunkline_core::turn::Turn;

/// Number of models that are kept.
const MAX_MODELS: usize = 64;

/// How side requests are recognised, and which model answers them.
#[derive(Debug, Default)]
pub struct SideRequests {
    /// Rules of the user, which come before the built-in ones.
    pub rules: Vec<SideRequestRule>,
    /// Name of the model that answers side requests. None leaves them to the model that the client asks for.
    pub model: Option<String>,
    /// Whether side requests run like all others.
    pub off: bool,
    models: Mutex<Vec<SideModel>>,
}

/// A model, and the same model for side requests. It is kept, so that all side requests share what is kept for a model.
#[derive(Debug)]
struct SideModel {
    usual: Arc<Model>,
    side: Arc<Model>,
}

impl SideRequests {
    pub fn new(rules: Vec<SideRequestRule>, model: Option<String>) -> Self {
        Self { rules, model, ..Self::default() }
    }

    /// Side requests run like all others.
    #[must_use]
    pub fn off() -> Self {
        Self { off: true, ..Self::default() }
    }

    /// Client and purpose of a turn, if it is a side request.
    pub(crate) fn recognise(&self, turn: &Turn, user_agent: Option<&str>) -> Option<Arc<str>> {
        if self.off {
            return None;
        }
        let mut rules = self.rules.iter().chain(side_request::built_in());
        rules.find(|rule| rule.recognises(turn, user_agent)).map(|rule| Arc::clone(&rule.name))
    }

    /// The model with which a side request runs in place of the usual one.
    pub(crate) fn for_side_request(&self, usual: &Arc<Model>) -> Arc<Model> {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = models.iter().find(|known| Arc::ptr_eq(&known.usual, usual)) {
            return Arc::clone(&known.side);
        }
        if models.len() >= MAX_MODELS {
            models.clear();
        }
        let side = Arc::new(usual.for_side_requests());
        models.push(SideModel { usual: Arc::clone(usual), side: Arc::clone(&side) });
        side
    }
}

/// A copy has other models, or is about to.
impl Clone for SideRequests {
    fn clone(&self) -> Self {
        Self { rules: self.rules.clone(), model: self.model.clone(), off: self.off, models: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_core::turn::{Message, Role};
    use trunkline_core::vocabulary::Permissions;

    use super::*;
    use crate::router::test_models::model;

    #[test]
    fn model_of_side_requests_cannot_write_and_is_the_same_for_every_turn() {
        let sides = SideRequests::default();
        let usual = Arc::new(Model { worktree: true, permissions: Permissions::Full, ..model("m") });
        let side = sides.for_side_request(&usual);
        assert_eq!((side.worktree, side.permissions, side.name.as_str()), (false, Permissions::Read, "m"));
        assert!(Arc::ptr_eq(&side, &sides.for_side_request(&usual)));
        for _ in 0..2 * MAX_MODELS {
            sides.for_side_request(&Arc::new(model("other")));
        }
        assert!(sides.models.lock().unwrap().len() <= MAX_MODELS);
    }

    #[test]
    fn rules_of_the_user_come_first_and_all_can_be_switched_off() {
        let text = "You are a title generator. You output ONLY a thread title.";
        let messages = vec![Message::new(Role::System, text), Message::new(Role::User, "hi")];
        let turn = Turn { messages, ..Turn::default() };
        let recognised = |sides: SideRequests| sides.recognise(&turn, None).map(|name| name.to_string());
        assert_eq!(recognised(SideRequests::default()).as_deref(), Some("opencode/title"));
        let own = format!("[[side_request]]\nclient = \"mine\"\npurpose = \"title\"\nsystem = \"{text}\"");
        let own = side_request::parse(&own).unwrap();
        assert_eq!(recognised(SideRequests::new(own, None)).as_deref(), Some("mine/title"));
        assert_eq!(recognised(SideRequests::off()), None);
    }
}
