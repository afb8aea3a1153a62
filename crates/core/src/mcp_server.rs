//! MCP servers that an agent CLI connects to by itself: those of a model's configuration, and those of a request.
//!
//! A server has secrets: headers and variables. They reach a CLI over its stdin, never in its arguments, and they are not part of
//! the `Debug` output.

use std::collections::BTreeMap;
use std::fmt;

/// Name of the server with the client's tools. No other server may have it.
pub const CLIENT_SERVER: &str = "client";

/// Longest name of a server. CLIs put it in front of the names of its tools, and some cut these at 64 characters.
const MAX_NAME_CHARS: usize = 32;

/// Longest name of a tool in a list of allowed tools.
const MAX_TOOL_NAME_CHARS: usize = 128;

/// MCP server for the CLI of a run.
#[derive(Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Name that every CLI accepts: see [`server_name`].
    pub name: String,
    pub transport: McpTransport,
    /// The only tools that the CLI may use. None allows all.
    pub allowed_tools: Option<Vec<String>>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// Streamable HTTP.
    Http { url: String, headers: BTreeMap<String, String> },
    /// A program that the CLI starts.
    Stdio { command: String, args: Vec<String>, env: BTreeMap<String, String> },
}

/// MCP server of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedServer {
    pub server: McpServer,
    /// Place in the request, such as `tools[0]`.
    pub place: String,
    /// Whether the client did not say that calls need no approval. They get none.
    pub expects_approval: bool,
}

impl McpServer {
    /// URL of a server that is reached over HTTP.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match &self.transport {
            McpTransport::Http { url, .. } => Some(url),
            McpTransport::Stdio { .. } => None,
        }
    }

    /// Values that must not be shown: those of headers and variables, and the credentials in headers without their scheme.
    pub fn secrets(&self) -> impl Iterator<Item = String> {
        let values = match &self.transport {
            McpTransport::Http { headers, .. } => headers,
            McpTransport::Stdio { env, .. } => env,
        };
        let bare = |value: &String| value.split_once(' ').map(|(_, credentials)| credentials.trim().to_owned());
        values.values().flat_map(move |value| [Some(value.clone()), bare(value)]).flatten()
    }

    /// Address without query, or program, for people.
    #[must_use]
    pub fn shown(&self) -> &str {
        match &self.transport {
            McpTransport::Http { url, .. } => url.split(['?', '#']).next().unwrap_or_default(),
            McpTransport::Stdio { command, .. } => command,
        }
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpServer({} {})", self.name, self.shown())
    }
}

/// Returns a name that no CLI changes or misreads: Gemini CLI takes an underscore for the end of a server's name. None if there
/// is no such name, or if it is the name of the server with the client's tools.
#[must_use]
pub fn server_name(written: &str) -> Option<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = written.chars().map(plain).take(MAX_NAME_CHARS).collect();
    let name = name.trim_matches('-');
    (!name.is_empty() && !name.eq_ignore_ascii_case(CLIENT_SERVER)).then(|| name.to_owned())
}

/// Whether a header can be sent as it is.
#[must_use]
pub fn is_header(name: &str, value: &str) -> bool {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(token) && !value.chars().any(char::is_control)
}

/// Whether this may be the name of a server's tool. It becomes part of arguments and of rules.
#[must_use]
pub fn is_tool_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (1..=MAX_TOOL_NAME_CHARS).contains(&name.len()) && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_reduced_to_what_every_cli_accepts() {
        for (written, name) in [
            ("docs", Some("docs")),
            ("my_docs.v2", Some("my-docs-v2")),
            ("--docs", Some("docs")),
            ("größe", Some("gr--e")),
            (&"a".repeat(40), Some(&*"a".repeat(32))),
            ("", None),
            ("__", None),
            ("client", None),
            ("Client", None),
        ] {
            assert_eq!(server_name(written).as_deref(), name, "{written}");
        }
    }

    #[test]
    fn secrets_are_listed_and_not_shown() {
        let headers = [("Authorization".to_owned(), "Bearer hunter2-hunter2".to_owned())].into();
        let transport = McpTransport::Http { url: "https://x.test/mcp?key=hunter3".into(), headers };
        let server = McpServer { name: "docs".into(), transport, allowed_tools: None };
        assert_eq!(server.secrets().collect::<Vec<_>>(), ["Bearer hunter2-hunter2", "hunter2-hunter2"]);
        assert_eq!(format!("{server:?}"), "McpServer(docs https://x.test/mcp)");
    }

    #[test]
    fn headers_and_names_of_tools_are_plain() {
        for (name, value, valid) in [
            ("Authorization", "Bearer x", true),
            ("X-Key", "", true),
            ("", "x", false),
            ("A B", "x", false),
            ("A", "x\r\nB: y", false),
        ] {
            assert_eq!(is_header(name, value), valid, "{name}: {value:?}");
        }
        for (name, valid) in [("search_docs", true), ("a.b-c", true), ("", false), ("a b", false), ("a\",\"*", false)] {
            assert_eq!(is_tool_name(name), valid, "{name}");
        }
    }
}
