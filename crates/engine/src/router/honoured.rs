//! Members of a request that have an effect on a model, and those that have none.

use trunkline_core::model::{Backend, Model};
use trunkline_core::turn::{OwnTools, Turn};
use trunkline_core::vocabulary::PromptDelivery;

/// Option that the gateway honours for providers that do not.
const FORMAT: &str = "response_format";

/// Options in the request of an executable.
const BY_EXECUTABLES: [&str; 5] = ["max_tokens", "max_completion_tokens", "temperature", "top_p", "tools"];

/// Options that come with tools.
const WITH_TOOLS: [&str; 3] = ["tools", "tool_choice", "parallel_tool_calls"];

/// Whether a provider gets the tools of the client.
pub(crate) fn takes_tools(backend: &Backend) -> bool {
    match backend {
        Backend::Program(provider) if provider.prompt == PromptDelivery::Request => true,
        Backend::Program(_) | Backend::Agent(_) => backend.takes_client_tools(),
        Backend::Api(_) => true,
    }
}

/// Whether a model works with tools of its own.
pub(crate) fn has_own_tools(model: &Model) -> bool {
    let brings_tools = match &model.backend {
        Backend::Program(provider) => provider.prompt != PromptDelivery::Request,
        Backend::Api(_) => false,
        Backend::Agent(_) => true,
    };
    brings_tools && model.own_tools == OwnTools::Keep
}

/// Returns the members of the request that have no effect on the model, by the names that the client used.
pub(crate) fn ignored_members(turn: &Turn, model: &Model) -> Vec<String> {
    let ignored =
        turn.members.iter().filter(|member| !member.option.is_some_and(|option| honours(turn, model, option)));
    ignored.map(|member| member.name.clone()).collect()
}

fn honours(turn: &Turn, model: &Model, option: &str) -> bool {
    match &model.backend {
        Backend::Api(_) => true,
        Backend::Program(_) | Backend::Agent(_) if option == FORMAT => turn.answer_format.is_some(),
        Backend::Program(provider) if provider.prompt == PromptDelivery::Request => BY_EXECUTABLES.contains(&option),
        Backend::Program(_) | Backend::Agent(_) => WITH_TOOLS.contains(&option) && takes_tools(&model.backend),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use trunkline_core::api::Llm;
    use trunkline_core::turn::{AnswerFormat, JsonShape, RequestMember};

    use super::*;

    #[test]
    fn agent_ignores_options_of_a_model_but_not_the_format() {
        let model = Model::new("agent", Backend::Agent(Arc::new(Llm::Embedded)), Path::new("/"));
        let member = |name: &str, option| RequestMember { name: name.to_owned(), option };
        let members = vec![
            member("generationConfig.temperature", Some("temperature")),
            member("response_format", Some("response_format")),
            member("unknown", None),
        ];
        let format = AnswerFormat { shape: JsonShape::Object, strict: true, member: "response_format" };
        let turn = Turn { members, answer_format: Some(format), ..Turn::default() };
        assert_eq!(ignored_members(&turn, &model), ["generationConfig.temperature", "unknown"]);
        let turn = Turn { answer_format: None, ..turn };
        assert_eq!(ignored_members(&turn, &model).len(), 3, "a format that only a service knows");
    }
}
