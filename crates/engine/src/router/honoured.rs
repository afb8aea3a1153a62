//! Members of a request that have an effect on a model, and those that have none.

use trunkline_core::mcp_server::{McpServer, RequestedServer};
use trunkline_core::model::{Backend, Model};
use trunkline_core::turn::{OwnTools, Turn};
use trunkline_core::url_pattern::plain_url;
use trunkline_core::vocabulary::{CliPermissions, PromptDelivery};

/// Option that the gateway honours for providers that do not.
const FORMAT: &str = "response_format";

/// Options in the request of an executable.
const BY_EXECUTABLES: [&str; 5] = ["max_tokens", "max_completion_tokens", "temperature", "top_p", "tools"];

/// Options that come with tools.
const WITH_TOOLS: [&str; 3] = ["tools", "tool_choice", "parallel_tool_calls"];

/// MCP servers of a request.
const MCP: &str = "mcp";

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
        backend if option == MCP => backend.takes_mcp_servers(),
        Backend::Api(_) => true,
        Backend::Program(_) | Backend::Agent(_) if option == FORMAT => turn.answer_format.is_some(),
        Backend::Program(provider) if provider.prompt == PromptDelivery::Request => BY_EXECUTABLES.contains(&option),
        Backend::Program(_) | Backend::Agent(_) => WITH_TOOLS.contains(&option) && takes_tools(&model.backend),
    }
}

/// Checks the MCP servers of a request against the model's list of allowed URLs. The error names the member of the request and the
/// setting. A model that cannot have servers ignores them.
pub(crate) fn check_servers(turn: &Turn, model: &Model) -> Result<(), (String, String)> {
    if !model.backend.takes_mcp_servers() || turn.side.is_some() {
        return Ok(());
    }
    for (index, RequestedServer { server, place, .. }) in turn.servers.iter().enumerate() {
        let url = server.url().and_then(plain_url);
        if !url.is_some_and(|url| model.allow_mcp_servers.iter().any(|pattern| pattern.allows(&url))) {
            let message = format!(
                "{} is not in `allowMcpServers` of the model {}; its operator can add it there",
                server.shown(),
                model.name
            );
            return Err((format!("{place}.server_url"), message));
        }
        let same_name = |other: &McpServer| other.name == server.name;
        let in_request = turn.servers[..index].iter().any(|other| same_name(&other.server));
        if in_request || model.mcp_servers.iter().any(same_name) {
            let message = format!("there is another MCP server with the name {}", server.name);
            return Err((format!("{place}.server_label"), message));
        }
    }
    Ok(())
}

/// Notes for the client about MCP servers of its request. `permissions` are those that the CLI is told.
pub(crate) fn server_notes(turn: &Turn, model: &Model, permissions: CliPermissions) -> Vec<String> {
    let Some(provider) = model.backend.program().filter(|_| model.backend.takes_mcp_servers()) else {
        return Vec::new();
    };
    let limits = provider.live.as_ref().and_then(|live| live.tools.as_ref()).map(|recipe| &recipe.limits_tools);
    let limits = limits.is_some_and(|limits| limits.contains(&permissions));
    let mut notes = Vec::new();
    for RequestedServer { server, place, expects_approval } in turn.servers.iter().filter(|_| turn.side.is_none()) {
        if server.allowed_tools.is_some() && !limits {
            let provider = &provider.name;
            notes.push(format!(
                "{place}.allowed_tools had no effect: {provider} could use all tools of {}",
                server.name
            ));
        }
        if *expects_approval {
            notes.push(format!("{place}.require_approval: tools of {} were called without asking", server.name));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;

    use trunkline_core::api::Llm;
    use trunkline_core::mcp_server::McpTransport;
    use trunkline_core::provider::built_in;
    use trunkline_core::turn::{AnswerFormat, JsonShape, RequestMember};
    use trunkline_core::url_pattern::UrlPattern;

    use super::*;

    fn requested(url: &str, allowed_tools: Option<Vec<String>>) -> RequestedServer {
        let transport = McpTransport::Http { url: url.to_owned(), headers: BTreeMap::new() };
        let server = McpServer { name: "docs".to_owned(), transport, allowed_tools };
        RequestedServer { server, place: "tools[2]".to_owned(), expects_approval: false }
    }

    fn model_of(provider: &str) -> Model {
        let provider = built_in().remove(provider).unwrap();
        let allow_mcp_servers = vec![UrlPattern::parse("https://docs.test/*").unwrap()];
        Model { allow_mcp_servers, ..Model::new("m", Backend::Program(provider.into()), Path::new("/")) }
    }

    #[test]
    fn servers_of_a_request_must_be_allowed_and_have_a_name_of_their_own() {
        let model = model_of("claude");
        let turn = |servers| Turn { servers, ..Turn::default() };
        let good = || requested("https://docs.test/mcp", None);
        assert_eq!(check_servers(&turn(vec![good()]), &model), Ok(()));
        let (member, message) = check_servers(&turn(vec![requested("https://evil.test/", None)]), &model).unwrap_err();
        assert_eq!(member, "tools[2].server_url");
        assert!(message.contains("allowMcpServers") && message.contains("https://evil.test/"), "{message}");
        let (member, _) = check_servers(&turn(vec![good(), good()]), &model).unwrap_err();
        assert_eq!(member, "tools[2].server_label");
        let named = Model { mcp_servers: vec![good().server], ..model_of("claude") };
        assert_eq!(check_servers(&turn(vec![good()]), &named).unwrap_err().0, "tools[2].server_label");
        assert_eq!(check_servers(&turn(vec![requested("https://evil.test/", None)]), &model_of("glm")), Ok(()));
    }

    #[test]
    fn client_is_told_when_a_limit_to_certain_tools_has_no_effect() {
        let turn = Turn { servers: vec![requested("https://docs.test/", Some(vec!["a".into()]))], ..Turn::default() };
        for (provider, permissions, noted) in [
            ("claude", CliPermissions::EditConfined, false),
            ("claude", CliPermissions::Full, true),
            ("codex", CliPermissions::Full, false),
            ("gemini", CliPermissions::Full, false),
            ("qwen", CliPermissions::Edit, false),
            ("qwen", CliPermissions::EditConfined, true),
            ("opencode", CliPermissions::Read, true),
        ] {
            let notes = server_notes(&turn, &model_of(provider), permissions);
            assert_eq!(notes.len(), usize::from(noted), "{provider} {permissions:?}: {notes:?}");
        }
    }

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
