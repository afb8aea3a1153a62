//! Recipe of a kept process.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::protocol::LiveProtocol;
use crate::mcp;
use crate::mcp_server::McpServer;
use crate::vocabulary::{CliPermissions, Permissions, PromptEscape, UsageScope};

/// Recipe of a process that is kept for several turns. Values in its arguments and in its greeting are fixed when it
/// starts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveRecipe {
    pub protocol: LiveProtocol,
    pub args: Vec<Vec<String>>,
    #[serde(default)]
    pub modes: Modes,
    /// Variables for a kept process, in addition to those of the provider.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Model without a server. A CLI that does part of its start-up at its first prompt gets a prompt with this model ahead
    /// of time, in a session that is not used again.
    #[serde(default)]
    pub primer: Option<String>,
    /// Changes to the prompt that keep the kept process from reading parts of it as commands.
    #[serde(default, alias = "inert")]
    pub escape: PromptEscape,
    /// Scope of the token counts, if it differs from a process for one turn.
    #[serde(default)]
    pub usage: Option<UsageScope>,
    /// A kept process has a cost that a process for one turn does not have: it is kept only for a model with `warm`.
    #[serde(default, alias = "asked")]
    pub opt_in: bool,
    /// Files that the CLI reads when it starts, in the workspace and its parent folders, or under `~/`. If one of them
    /// changes, the kept process is stale.
    #[serde(default)]
    pub reads: Vec<String>,
    /// The protocol takes a schema of the answer with each turn.
    #[serde(default)]
    pub schema_per_turn: bool,
    /// How the CLI gets a client's tools. None if it cannot.
    #[serde(default)]
    pub tools: Option<ToolRecipe>,
}

/// Additions to a kept process whose turns have tools of the client.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolRecipe {
    pub args: Vec<Vec<String>>,
    pub env: BTreeMap<String, String>,
    /// Arguments for each MCP server of the gateway, with its name as `{server}`. `{server_file}` is the path of a file with
    /// the content `server_file`.
    pub server_args: Vec<Vec<String>>,
    /// Arguments for each allowed tool, as `{server_tool}`, of a server with a list of them, instead of `server_args`.
    pub server_tool_args: Vec<Vec<String>>,
    /// Content of a file about a server. `{server}` is its name and `{server_tools}` the JSON list of its allowed tools, or
    /// `"*"`.
    pub server_file: Option<String>,
    /// Permissions with which the CLI is kept to the list of a server's allowed tools.
    pub limits_tools: Vec<CliPermissions>,
    /// Arguments that take the CLI's own tools away. A group with `{server}` is repeated for each server of the gateway.
    pub own_tools_off: Vec<Vec<String>>,
    /// Variables that take the CLI's own tools away. `{servers}` is a list of `own_tools_off_server`, for each server.
    pub own_tools_off_env: BTreeMap<String, String>,
    pub own_tools_off_server: String,
    /// The user's own MCP servers, which are switched off by name with the CLI's own tools.
    pub own_servers: Option<OwnServers>,
    /// Tools that the CLI offers even without its own tools, for people.
    pub left: Vec<String>,
    /// Change of the schemas of tools by the CLI, for people. Empty if there is none.
    pub schemas: String,
    /// Time in milliseconds without output or calls after which all calls of a model response have come. 0 for a CLI that waits
    /// for the result of each call before it makes the next one.
    pub settle_ms: u64,
    /// Longest time in seconds that the CLI waits for a result.
    pub max_wait_secs: Option<u64>,
}

/// File that lists the user's own MCP servers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnServers {
    /// TOML file in the home of the CLI.
    pub file: String,
    /// Table whose keys are the names of the servers.
    pub table: String,
}

impl OwnServers {
    /// Names of the servers in the text of the file. None in a file that cannot be read: the CLI reports that.
    #[must_use]
    pub fn names(&self, text: &str) -> Vec<String> {
        let file: toml::Table = toml::from_str(text).unwrap_or_default();
        let table = file.get(&self.table).and_then(toml::Value::as_table);
        table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
    }
}

/// Additions to a process that connects to MCP servers of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerArguments {
    pub args: Vec<Vec<String>>,
    /// Content of the files that the arguments name, as [`ToolRecipe::FILE`] and their index.
    pub files: Vec<String>,
}

impl ToolRecipe {
    /// Stands in an argument for the path of a file of [`ServerArguments`]. The index follows.
    pub const FILE: &str = "{server-file}";

    /// The arguments for the server with the client's tools and for these servers.
    #[must_use]
    pub fn server_arguments(&self, servers: &[McpServer]) -> ServerArguments {
        let mut made = ServerArguments::default();
        let all = std::iter::once((mcp::SERVER, None));
        let all = all.chain(servers.iter().map(|server| (server.name.as_str(), server.allowed_tools.as_deref())));
        for (name, allowed) in all {
            let file = format!("{}{}", Self::FILE, made.files.len());
            if let Some(content) = &self.server_file {
                let tools = allowed.map_or_else(|| json!("*"), |tools| json!(tools)).to_string();
                made.files.push(content.replace("{server}", name).replace("{server_tools}", &tools));
            }
            let fill = |group: &Vec<String>, tool: &str| -> Vec<String> {
                let fill = |arg: &String| {
                    arg.replace("{server}", name).replace("{server_tool}", tool).replace("{server_file}", &file)
                };
                group.iter().map(fill).collect()
            };
            match allowed.filter(|_| !self.server_tool_args.is_empty()) {
                Some(tools) => {
                    for tool in tools {
                        made.args.extend(self.server_tool_args.iter().map(|group| fill(group, tool)));
                    }
                }
                None => made.args.extend(self.server_args.iter().map(|group| fill(group, ""))),
            }
        }
        made
    }

    /// The arguments that take the CLI's own tools away, but not these servers.
    #[must_use]
    pub fn own_tools_off(&self, servers: &[McpServer]) -> Vec<Vec<String>> {
        let mut args = Vec::new();
        for group in &self.own_tools_off {
            if !group.iter().any(|arg| arg.contains("{server}")) {
                args.push(group.clone());
                continue;
            }
            args.extend(names(servers).map(|name| group.iter().map(|arg| arg.replace("{server}", name)).collect()));
        }
        args
    }

    /// The variables that take the CLI's own tools away, but not these servers.
    #[must_use]
    pub fn own_tools_off_env(&self, servers: &[McpServer]) -> BTreeMap<String, String> {
        let list: Vec<String> =
            names(servers).map(|name| self.own_tools_off_server.replace("{server}", name)).collect();
        let list = list.join(",");
        let fill = |(name, value): (&String, &String)| (name.clone(), value.replace("{servers}", &list));
        self.own_tools_off_env.iter().map(fill).collect()
    }
}

/// Names of all servers of the gateway, with that of the client's tools.
fn names(servers: &[McpServer]) -> impl Iterator<Item = &str> {
    std::iter::once(mcp::SERVER).chain(servers.iter().map(|server| server.name.as_str()))
}

/// The protocol's names of the permission levels, if no arguments set them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Modes {
    pub read: Option<String>,
    pub edit: Option<String>,
    pub full: Option<String>,
}

impl Modes {
    #[must_use]
    pub fn of(&self, permissions: Permissions) -> Option<&str> {
        match permissions {
            Permissions::Read => self.read.as_deref(),
            Permissions::Edit => self.edit.as_deref(),
            Permissions::Full => self.full.as_deref(),
        }
    }
}
