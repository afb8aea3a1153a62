//! Tools of the type `mcp`: servers that the CLI connects to. Their secrets are in no stored request and in no answer.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use trunkline_core::mcp_server::{McpServer, McpTransport, RequestedServer, is_header, is_tool_name, server_name};
use trunkline_core::turn::RequestMember;
use trunkline_core::url_pattern::plain_url;
use trunkline_wire::error::ApiError;
use trunkline_wire::request::missing;

/// Type of these tools.
pub(super) const KIND: &str = "mcp";

/// Maximum number of servers in a request, of their headers, and of the tools that they are limited to.
const MAX_SERVERS: usize = 16;
const MAX_HEADERS: usize = 32;
const MAX_ALLOWED_TOOLS: usize = 256;

/// Stands for a secret in answers and in stored requests.
const MASK: &str = "***";

#[derive(Deserialize)]
struct McpTool {
    server_label: Option<String>,
    server_url: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    authorization: Option<String>,
    allowed_tools: Option<AllowedTools>,
    require_approval: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AllowedTools {
    Names(Vec<String>),
    Filter { tool_names: Option<Vec<String>> },
}

/// The servers among the tools. An error names the member.
pub(super) fn servers(tools: &[Box<RawValue>]) -> Result<Vec<RequestedServer>, ApiError> {
    let mut servers = Vec::new();
    for (index, tool) in tools.iter().enumerate().filter(|(_, tool)| is_server(tool)) {
        if servers.len() == MAX_SERVERS {
            let message = format!("a request has at most {MAX_SERVERS} MCP servers");
            return Err(ApiError::invalid("invalid_value", message).about("tools"));
        }
        servers.push(server(tool, format!("tools[{index}]"))?);
    }
    Ok(servers)
}

/// The servers as members that not every model honours.
pub(super) fn members(tools: &[Box<RawValue>]) -> Vec<RequestMember> {
    let servers = tools.iter().enumerate().filter(|(_, tool)| is_server(tool)).take(MAX_SERVERS);
    servers.map(|(index, _)| RequestMember { name: format!("tools[{index}] ({KIND})"), option: Some(KIND) }).collect()
}

/// The tool without the secrets of a server: values of headers, the authorization, and the query of the URL.
pub(super) fn without_secrets(tool: &RawValue) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: Option<String>,
    }
    if serde_json::from_str::<Kind>(tool.get()).ok()?.kind.as_deref() != Some(KIND) {
        return None;
    }
    let mut members: Map<String, Value> = serde_json::from_str(tool.get()).ok()?;
    if let Some(headers) = members.get_mut("headers").and_then(Value::as_object_mut) {
        headers.values_mut().for_each(|value| *value = MASK.into());
    }
    if let Some(authorization) = members.get_mut("authorization").filter(|value| !value.is_null()) {
        *authorization = MASK.into();
    }
    if let Some(Value::String(url)) = members.get_mut("server_url") {
        *url = match plain_url(url) {
            Some(mut plain) if plain.query().is_some() => {
                plain.set_query(Some(MASK));
                plain.into()
            }
            Some(_) => return to_raw_value(&members).ok(),
            None => MASK.to_owned(),
        };
    }
    to_raw_value(&members).ok()
}

/// Whether a tool is a server with a URL. OpenAI's own connectors do not exist here.
fn is_server(tool: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: Option<String>,
        connector_id: Option<Value>,
    }
    serde_json::from_str::<Kind>(tool.get())
        .is_ok_and(|tool| tool.kind.as_deref() == Some(KIND) && tool.connector_id.is_none())
}

fn server(tool: &RawValue, place: String) -> Result<RequestedServer, ApiError> {
    let invalid =
        |member: &str, message: &str| ApiError::invalid("invalid_value", message).about(format!("{place}.{member}"));
    // The reason is not repeated: it may contain a secret.
    let wrong =
        |_| ApiError::invalid("invalid_value", format!("a member of `{place}` has a wrong type")).about(place.clone());
    let tool: McpTool = serde_json::from_str(tool.get()).map_err(wrong)?;
    let label = tool.server_label.ok_or_else(|| missing(&format!("{place}.server_label")))?;
    let name = server_name(&label).ok_or_else(|| invalid("server_label", "this label cannot name an MCP server"))?;
    let url = tool.server_url.ok_or_else(|| missing(&format!("{place}.server_url")))?;
    let url = plain_url(&url).ok_or_else(|| {
        invalid("server_url", "`server_url` is an http or https URL without a user name and without a fragment")
    })?;
    let mut headers = tool.headers.unwrap_or_default();
    if let Some(token) = tool.authorization {
        headers.retain(|name, _| !name.eq_ignore_ascii_case("authorization"));
        headers.insert("Authorization".to_owned(), format!("Bearer {token}"));
    }
    if headers.len() > MAX_HEADERS || headers.iter().any(|(name, value)| !is_header(name, value)) {
        return Err(invalid("headers", "these headers cannot be sent"));
    }
    let allowed_tools = match tool.allowed_tools {
        Some(AllowedTools::Names(names)) => Some(names),
        Some(AllowedTools::Filter { tool_names }) => tool_names,
        None => None,
    };
    if allowed_tools.iter().flatten().count() > MAX_ALLOWED_TOOLS
        || allowed_tools.iter().flatten().any(|name| !is_tool_name(name))
    {
        return Err(invalid("allowed_tools", "`allowed_tools` is a list of at most 256 names of tools"));
    }
    let expects_approval = match tool.require_approval {
        None | Some(Value::Null) => true,
        Some(Value::String(word)) if word == "never" => false,
        Some(_) => {
            return Err(invalid("require_approval", "calls cannot be approved one by one: only `never` is possible"));
        }
    };
    let transport = McpTransport::Http { url: url.into(), headers };
    Ok(RequestedServer { server: McpServer { name, transport, allowed_tools }, place, expects_approval })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools(tools: Value) -> Vec<Box<RawValue>> {
        serde_json::from_value(tools).unwrap()
    }

    #[test]
    fn reads_servers_with_their_headers_and_limits() {
        let list = tools(json!([
            {"type": "function", "name": "f"},
            {"type": "mcp", "server_label": "my_docs", "server_url": "https://X.test:443/mcp", "require_approval": "never",
             "headers": {"X-Team": "a", "authorization": "old"}, "authorization": "new", "allowed_tools": ["search"]},
            {"type": "mcp", "server_label": "b", "server_url": "https://y.test", "allowed_tools": {"tool_names": ["t"]}},
            {"type": "mcp", "server_label": "c", "connector_id": "connector_gmail"},
        ]));
        let found = servers(&list).unwrap();
        assert_eq!(found.len(), 2);
        let McpServer { name, transport, allowed_tools } = &found[0].server;
        assert_eq!((name.as_str(), allowed_tools), ("my-docs", &Some(vec!["search".to_owned()])));
        let McpTransport::Http { url, headers } = transport else { panic!("not HTTP") };
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            (url.as_str(), headers),
            ("https://x.test/mcp", vec![("Authorization", "Bearer new"), ("X-Team", "a")])
        );
        assert_eq!(
            (found[0].place.as_str(), found[0].expects_approval, found[1].expects_approval),
            ("tools[1]", false, true)
        );
        let names: Vec<String> = members(&list).into_iter().map(|member| member.name).collect();
        assert_eq!(names, ["tools[1] (mcp)", "tools[2] (mcp)"]);
    }

    #[test]
    fn refuses_servers_that_cannot_be_used_as_written() {
        let good =
            json!({"type": "mcp", "server_label": "a", "server_url": "https://x.test/", "require_approval": "never"});
        for (member, value, param) in [
            ("server_label", json!(null), "tools[0].server_label"),
            ("server_label", json!("client"), "tools[0].server_label"),
            ("server_url", json!(null), "tools[0].server_url"),
            ("server_url", json!("https://u:p@x.test/"), "tools[0].server_url"),
            ("server_url", json!("file:///etc/passwd"), "tools[0].server_url"),
            ("headers", json!({"A": "x\r\nB: y"}), "tools[0].headers"),
            ("authorization", json!("x\ny"), "tools[0].headers"),
            ("allowed_tools", json!(["a\",\"b"]), "tools[0].allowed_tools"),
            ("require_approval", json!("always"), "tools[0].require_approval"),
            ("require_approval", json!({"never": {"tool_names": ["a"]}}), "tools[0].require_approval"),
            ("headers", json!(7), "tools[0]"),
        ] {
            let mut tool = good.clone();
            tool[member] = value;
            let error = servers(&tools(json!([tool]))).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{tool}");
        }
    }

    #[test]
    fn no_secret_is_left_in_a_stored_tool() {
        let list = tools(json!([
            {"type": "mcp", "server_label": "a", "server_url": "https://x.test/mcp?key=hunter2", "headers": {"K": "hunter2"},
             "authorization": "hunter2"},
            {"type": "mcp", "server_label": "a", "server_url": "https://u:hunter2@x.test/"},
            {"type": "function", "name": "hunter"},
        ]));
        let first: Value = serde_json::from_str(without_secrets(&list[0]).unwrap().get()).unwrap();
        let expected = json!({"type": "mcp", "server_label": "a", "server_url": "https://x.test/mcp?***", "headers": {"K": "***"},
            "authorization": "***"});
        assert_eq!(first, expected);
        assert!(!without_secrets(&list[1]).unwrap().get().contains("hunter2"));
        assert!(without_secrets(&list[2]).is_none());
    }
}
