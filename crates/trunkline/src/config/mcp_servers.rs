//! `mcpServers` and `allowMcpServers` of a model: MCP servers of its runs, and the servers that requests may bring along.

use std::collections::BTreeMap;

use serde::Deserialize;
use trunkline_core::mcp_server::{McpServer, McpTransport, is_header, is_tool_name, server_name};
use trunkline_core::url_pattern::{UrlPattern, plain_url};

use super::environment::Environment;
use super::variables::expand_text;

/// A server as it is written: with a URL, or with a command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct WrittenServer {
    /// Other programs write it. `http` and `stdio` are told apart by the other members.
    #[serde(rename = "type")]
    kind: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    allowed_tools: Option<Vec<String>>,
}

/// Reason why a server or a pattern is wrong, and a text to find it by.
pub(super) struct WrongServer {
    pub(super) message: String,
    pub(super) needle: String,
}

/// The servers with all variables expanded.
pub(super) fn resolve(
    written: BTreeMap<String, WrittenServer>,
    environment: &Environment,
) -> Result<Vec<McpServer>, WrongServer> {
    let mut servers: Vec<McpServer> = Vec::with_capacity(written.len());
    for (name, server) in written {
        let server = server.resolve(&name, environment).map_err(|message| WrongServer {
            message: format!("mcpServers.{name}: {message}"),
            needle: format!("\"{name}\""),
        })?;
        if servers.iter().any(|other| other.name == server.name) {
            let message = format!("mcpServers.{name}: another server has nearly the same name");
            return Err(WrongServer { message, needle: format!("\"{name}\"") });
        }
        servers.push(server);
    }
    Ok(servers)
}

/// The patterns of `allowMcpServers`.
pub(super) fn patterns(written: &[String]) -> Result<Vec<UrlPattern>, WrongServer> {
    let parse = |text: &String| {
        UrlPattern::parse(text).map_err(|error| WrongServer {
            message: format!("allowMcpServers: {text:?}: {error}"),
            needle: format!("\"{text}\""),
        })
    };
    written.iter().map(parse).collect()
}

impl WrittenServer {
    fn resolve(self, written_name: &str, environment: &Environment) -> Result<McpServer, String> {
        let name = server_name(written_name).ok_or("this cannot be the name of a server")?;
        if self.kind.as_deref().is_some_and(|kind| !["http", "stdio"].contains(&kind)) {
            return Err("`type` is http or stdio".to_owned());
        }
        let expand = |text: String| expand_text(&text, environment).map_err(|error| error.to_string());
        let expand_all = |values: BTreeMap<String, String>| -> Result<BTreeMap<String, String>, String> {
            values.into_iter().map(|(name, value)| Ok((name, expand(value)?))).collect()
        };
        let transport = match (self.url, self.command) {
            (Some(_), None) if !self.args.is_empty() || !self.env.is_empty() => {
                return Err("`args` and `env` belong to a server with a `command`".to_owned());
            }
            (None, Some(_)) if !self.headers.is_empty() => {
                return Err("`headers` belong to a server with a `url`".to_owned());
            }
            (Some(url), None) => {
                let url = plain_url(&expand(url)?)
                    .ok_or("`url` is an http or https URL without a user name and without a fragment")?;
                let headers = expand_all(self.headers)?;
                if let Some((name, _)) = headers.iter().find(|(name, value)| !is_header(name, value)) {
                    return Err(format!("the header {name:?} cannot be sent"));
                }
                McpTransport::Http { url: url.into(), headers }
            }
            (None, Some(command)) => McpTransport::Stdio {
                command: expand(command)?,
                args: self.args.into_iter().map(expand).collect::<Result<_, String>>()?,
                env: expand_all(self.env)?,
            },
            (Some(_), Some(_)) | (None, None) => return Err("a server has either a `url` or a `command`".to_owned()),
        };
        if let Some(tool) = self.allowed_tools.iter().flatten().find(|tool| !is_tool_name(tool)) {
            return Err(format!("allowedTools: {tool:?} cannot be the name of a tool"));
        }
        Ok(McpServer { name, transport, allowed_tools: self.allowed_tools })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(servers: Value) -> Result<Vec<McpServer>, String> {
        let env = vec![("TOKEN".into(), "hunter2".into()), ("HOST".into(), "docs.test".into())];
        let environment = Environment { env, folder: "/".into() };
        resolve(serde_json::from_value(servers).unwrap(), &environment).map_err(|wrong| wrong.message)
    }

    #[test]
    fn expands_variables_in_every_value() {
        let servers = read(json!({
            "docs": {"url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}, "allowedTools": ["a"]},
            "files": {"type": "stdio", "command": "serve", "args": ["${HOST}", "$$"], "env": {"T": "${TOKEN}", "U": "${NONE:-x}"}},
        }));
        let servers = servers.unwrap();
        let headers = [("Authorization".to_owned(), "Bearer hunter2".to_owned())].into();
        assert!(servers[0].transport == McpTransport::Http { url: "https://docs.test/mcp".into(), headers });
        let env = [("T".to_owned(), "hunter2".to_owned()), ("U".to_owned(), "x".to_owned())].into();
        let args = vec!["docs.test".to_owned(), "$".to_owned()];
        assert!(servers[1].transport == McpTransport::Stdio { command: "serve".into(), args, env });
    }

    #[test]
    fn names_the_server_and_the_variable_that_are_wrong() {
        for (server, why) in [
            (json!({"url": "https://${NOWHERE}/"}), "the variable NOWHERE is not set"),
            (json!({"url": "https://u@x.test/"}), "`url` is an http or https URL"),
            (json!({"url": "https://x.test/", "command": "c"}), "either a `url` or a `command`"),
            (json!({}), "either a `url` or a `command`"),
            (json!({"url": "https://x.test/", "args": ["a"]}), "belong to a server with a `command`"),
            (json!({"command": "c", "headers": {"A": "b"}}), "belong to a server with a `url`"),
            (json!({"url": "https://x.test/", "headers": {"A B": "c"}}), "the header \"A B\" cannot be sent"),
            (json!({"command": "c", "type": "sse"}), "`type` is http or stdio"),
            (json!({"command": "c", "allowedTools": ["a b"]}), "cannot be the name of a tool"),
        ] {
            let message = read(json!({"docs": server})).unwrap_err();
            assert!(message.starts_with("mcpServers.docs: ") && message.contains(why), "{message}");
        }
        assert!(read(json!({"client": {"command": "c"}})).is_err(), "the name of the client's tools");
        assert!(read(json!({"a_b": {"command": "c"}, "a.b": {"command": "c"}})).is_err());
        assert!(patterns(&["https://x.test/*".to_owned()]).is_ok());
        assert!(
            patterns(&["https://x.test*".to_owned()]).is_err_and(|wrong| wrong.message.contains("allowMcpServers"))
        );
    }
}
