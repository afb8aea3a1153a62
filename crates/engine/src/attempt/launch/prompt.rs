//! The input of a turn: its prompt, and the form and limits of its answer.

use std::sync::Arc;

use trunkline_core::failure::Failure;
use trunkline_core::limits::RunLimits;
use trunkline_core::prompt::{self, Prompt};
use trunkline_core::protocol;
use trunkline_core::provider::Placeholder;
use trunkline_core::turn::{AnswerTiming, Message, Role};
use trunkline_core::vocabulary::{OutputForm, PromptDelivery, SystemPlacement};

use super::Launch;
use crate::attempt::agent_file;
use crate::attempt::plan::bounded;

impl Launch<'_> {
    /// The content of the agent file, if the model has one.
    fn agent_file(&self) -> Result<Option<Arc<str>>, Failure> {
        let Some(name) = &self.model.agent_file else { return Ok(None) };
        self.template.agent_file.get(|sources| agent_file::read_noting(&self.model.repo, name, sources))
    }

    pub(crate) fn prompt(&self) -> Result<Prompt, Failure> {
        let file = self.agent_file()?;
        if self.provider.prompt == PromptDelivery::Request {
            return Ok(self.request(file.as_deref()));
        }
        let apart = self.provider.has_placeholder(Placeholder::SystemFile);
        let placement = if apart { SystemPlacement::Apart } else { SystemPlacement::Inline };
        let standing = self.request.turn.messages.iter().filter(|message| message.role == Role::System);
        let standing = standing.map(|message| message.text.as_str());
        let system: Vec<&str> = self.model.system_prompt.as_deref().into_iter().chain(standing).collect();
        Ok(prompt::build_from(file.as_deref(), &system, self.unsent_messages(), placement))
    }

    /// Messages to send: only the new ones if the CLI resumes a session.
    pub(super) fn unsent_messages(&self) -> &[Message] {
        if self.request.turn.session.is_some() {
            prompt::new_messages(&self.request.turn.messages)
        } else {
            &self.request.turn.messages
        }
    }

    /// The request to a protocol executable. It has no memory, so the request contains the whole conversation.
    fn request(&self, agent_file: Option<&str>) -> Prompt {
        let standing = agent_file.into_iter().chain(self.model.system_prompt.as_deref());
        let mut messages: Vec<Message> = standing.map(|text| Message::new(Role::System, text.trim_end())).collect();
        messages.extend(self.request.turn.messages.iter().cloned());
        let (turn, model) = (bounded(self.request.turn, self.model), self.model.upstream.as_deref());
        Prompt { text: protocol::request(&messages, &turn.options, model, &self.model.config), system: None }
    }

    /// An agent streams unless the turn asks for a whole answer. A protocol executable streams only if the client sees the stream.
    pub(crate) fn form(&self) -> OutputForm {
        match (self.request.turn.form, self.provider.prompt, self.request.turn.shown) {
            (OutputForm::Whole, _, _) | (OutputForm::Streamed, PromptDelivery::Request, AnswerTiming::AtTheEnd) => {
                OutputForm::Whole
            }
            (OutputForm::Streamed, PromptDelivery::Request | PromptDelivery::Stdin | PromptDelivery::Arg, _) => {
                OutputForm::Streamed
            }
        }
    }

    pub(super) fn limits(&self) -> RunLimits {
        let usual = self.model.limits;
        if self.provider.is_silent(self.form()) { RunLimits::all(usual.total) } else { usual }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use trunkline_core::model::{Backend, Model, Sandbox};
    use trunkline_core::provider::built_in;
    use trunkline_core::secret::Secrets;
    use trunkline_core::turn::Turn;

    use super::*;
    use crate::Caps;
    use crate::attempt::launch::LaunchRequest;
    use crate::router::models::Models;
    use crate::router::test_models::model;
    use crate::settings::EngineSettings;

    /// A CLI that prints nothing until its end has only a total limit; one that streams also has idle and startup limits.
    #[test]
    fn silent_clis_have_only_a_total_limit() {
        let settings = EngineSettings {
            env: Vec::new(),
            state: PathBuf::new(),
            worktrees: PathBuf::new(),
            caps: Caps::default(),
            git_timeout: Duration::from_secs(60),
            grace: Duration::ZERO,
            linger: Duration::ZERO,
            secrets: Secrets::default(),
            embedded_llm: None,
            sandbox: Sandbox::On,
            durability: trunkline_store::Durability::Process,
        };
        let seconds = Duration::from_secs;
        let usual = RunLimits { idle: seconds(60), startup: seconds(30), ..RunLimits::all(seconds(90)) };
        let watched = (seconds(60), seconds(30));
        let in_all = (seconds(90), seconds(90));
        for (name, form, shown, expected) in [
            ("claude", OutputForm::Whole, AnswerTiming::AtTheEnd, (OutputForm::Whole, in_all)),
            ("gemini", OutputForm::Whole, AnswerTiming::AtTheEnd, (OutputForm::Whole, in_all)),
            ("codex", OutputForm::Whole, AnswerTiming::AtTheEnd, (OutputForm::Whole, watched)),
            // The gateway streams from an agent even if its client wants a whole answer.
            ("claude", OutputForm::Streamed, AnswerTiming::AtTheEnd, (OutputForm::Streamed, watched)),
            ("claude", OutputForm::Streamed, AnswerTiming::AsItComes, (OutputForm::Streamed, watched)),
        ] {
            let provider = built_in().remove(name).unwrap();
            let model = Model { backend: Backend::Program(provider.clone().into()), limits: usual, ..model(name) };
            let (turn, models) = (Turn { form, shown, ..Turn::default() }, Models::default());
            let request = LaunchRequest { settings: &settings, turn: &turn, models: &models, run: "r", owner: "o" };
            let launch = request.once(&model, &provider);
            let limits = launch.limits();
            assert_eq!((launch.form(), (limits.idle, limits.startup)), expected, "{name} {form:?} {shown:?}");
            assert_eq!(limits.total, usual.total);
        }
    }
}
