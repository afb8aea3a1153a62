//! Checks of a recipe and of a run before a process is started.

use super::arguments::{Placeholder, UnknownPlaceholder, unknown_placeholders};
use super::recipe::Provider;
use crate::failure::{Category, Failure};
use crate::live::LiveProtocol;
use crate::parse::Format;
use crate::vocabulary::{PromptDelivery, SessionKind};

/// Maximum length of a session id that is a word.
const MAX_SESSION_ID_BYTES: usize = 128;

/// Error for a recipe whose decoder cannot read the protocol of its kept process: a warm turn would never end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("format {:?} cannot read the protocol {:?} of `live`", .format.name(), .protocol.name())]
pub struct UnreadableLive {
    pub format: Format,
    pub protocol: LiveProtocol,
}

impl UnreadableLive {
    /// How to fix the recipe.
    #[must_use]
    pub fn hint(&self) -> String {
        let fit = Format::ALL.into_iter().filter(|format| format.reads(self.protocol)).map(Format::name);
        format!("use one of the formats {}, or remove `live`", fit.collect::<Vec<_>>().join(", "))
    }
}

impl Provider {
    /// Refuses a session id that does not have the syntax of this CLI, which could read it as something else.
    pub fn check_session(&self, id: &str) -> Result<(), Failure> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let valid = match self.session {
            SessionKind::None => false,
            SessionKind::Uuid => is_uuid(id),
            SessionKind::Word => {
                !id.is_empty() && id.len() <= MAX_SESSION_ID_BYTES && !id.starts_with('-') && id.chars().all(word)
            }
        };
        if valid {
            return Ok(());
        }
        let message = match self.session {
            SessionKind::None => format!("{} cannot resume a session", self.name),
            SessionKind::Uuid | SessionKind::Word => format!("{id:?} is not a session id of {}", self.name),
        };
        Err(Failure::new(Category::Validation, message))
    }

    /// Checks that the decoder of the recipe's format understands the protocol of a kept process.
    pub fn check_live(&self) -> Result<(), UnreadableLive> {
        let format = self.format;
        match self.live.as_ref().map(|live| live.protocol).filter(|protocol| !format.reads(*protocol)) {
            Some(protocol) => Err(UnreadableLive { format, protocol }),
            None => Ok(()),
        }
    }

    /// Returns the words in braces in all arguments of the recipe that are not placeholders.
    #[must_use]
    pub fn no_placeholders(&self) -> Vec<UnknownPlaceholder> {
        if self.prompt == PromptDelivery::Request {
            return Vec::new();
        }
        let live = self.live.iter().flat_map(|live| &live.args);
        let groups = self.args.iter().chain(self.whole.iter().flatten()).chain(live);
        unknown_placeholders(groups.flatten().map(String::as_str))
    }

    /// Adds `{prompt}` as the last argument if the prompt is passed in an argument and none contains it.
    pub(super) fn with_prompt_argument(mut self) -> Self {
        if self.loses_the_prompt() {
            let groups = std::iter::once(&mut self.args).chain(self.whole.as_mut());
            groups.for_each(|groups| groups.push(vec!["{prompt}".to_owned()]));
        }
        self
    }

    /// Whether the prompt would be lost: it is passed in an argument, and no argument contains `{prompt}`.
    #[must_use]
    pub fn loses_the_prompt(&self) -> bool {
        self.prompt == PromptDelivery::Arg && !self.has_placeholder(Placeholder::Prompt)
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.char_indices().all(|(i, c)| match i {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
}
