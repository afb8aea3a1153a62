//! The clients as data: the rows of `clients.toml`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::case::LabCase;

/// A client of the lab; `clients.toml` documents the fields.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientRow {
    pub(super) name: String,
    pub(super) script: String,
    pub(super) packages: Packages,
    pub(super) shown: Vec<String>,
    pub(super) route: ClientRoute,
    #[serde(default)]
    pub(super) light: bool,
    pub(super) language: String,
    pub(super) setup: String,
    pub(super) timeout: TimeoutBehaviour,
    #[serde(default)]
    pub(super) side_requests: usize,
    /// Name of the real CLI behind the models of the cases with tools and schemas.
    #[serde(default = "default_cli")]
    pub(super) cli: String,
    #[serde(default)]
    pub(super) tool_loop: ToolLoop,
    #[serde(default)]
    pub(super) schema_tool: Option<String>,
    #[serde(default)]
    pub(super) typed_tools: bool,
    #[serde(default)]
    pub(super) edit: Vec<OwnToolCall>,
    #[serde(default)]
    pub(super) cannot: BTreeMap<LabCase, String>,
    #[serde(default)]
    pub(super) known: BTreeMap<LabCase, String>,
}

/// Set of packages that is installed together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Packages {
    #[default]
    PythonSdks,
    PythonFrameworks,
    PythonAgents,
    PythonAider,
    NodeSdks,
    NodeClis,
    /// The CLIs that the conformance suite installs.
    Conformance,
}

/// Route of the gateway without which a client cannot work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientRoute {
    #[default]
    Chat,
    Responses,
    Messages,
    Ollama,
    Gemini,
}

/// The behaviour of a client, by default, when an answer takes longer than its time-out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TimeoutBehaviour {
    /// It sends the request again, and must get the answer of the first run.
    #[default]
    Repeats,
    /// It reports an error.
    GivesUp,
}

/// Way in which a client brings the results of its tools to the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolLoop {
    /// As results of calls: the turn of the CLI goes on.
    #[default]
    Results,
    /// As text of a new prompt, after calls.
    Prompts,
    /// Calls and results are text: DSPy's ReAct.
    #[serde(rename = "react")]
    ReAct,
}

/// Call of a tool of the client's own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnToolCall {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
}

fn default_cli() -> String {
    "codex".to_owned()
}

impl ClientRoute {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::Ollama => "/api/chat",
            Self::Gemini => "/v1beta/models/lab:generateContent",
        }
    }

    /// Name in the documentation.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Gemini => "/v1beta/models/…",
            Self::Ollama => "/api/…",
            Self::Chat | Self::Responses | Self::Messages => self.path(),
        }
    }
}

impl ClientRow {
    /// Reason why the client has no such case: from its row, or because of its kind.
    pub(super) fn why_not(&self, case: LabCase) -> Option<&str> {
        let given = self.cannot.get(&case).map(String::as_str);
        given.or(match case {
            LabCase::Edit if self.edit.is_empty() => Some("A library, with no tools of its own."),
            LabCase::Tools | LabCase::Schema if !self.edit.is_empty() => {
                Some("A program with tools of its own: see *edit*.")
            }
            LabCase::Models
            | LabCase::Whole
            | LabCase::Stream
            | LabCase::Memory
            | LabCase::WrongKey
            | LabCase::UnknownModel
            | LabCase::Failing
            | LabCase::Cancel
            | LabCase::Timeout
            | LabCase::Tools
            | LabCase::Schema
            | LabCase::Edit => None,
        })
    }

    /// Reads the table, and checks what its types do not.
    pub(super) fn all() -> Result<Vec<Self>> {
        #[derive(Deserialize)]
        struct Table {
            client: Vec<ClientRow>,
        }
        let table: Table = toml::from_str(include_str!("clients.toml")).context("clients.toml")?;
        Ok(table.client)
    }

    /// The rows that are named, or all if none is named. An unknown name is an error.
    pub(super) fn select(named: &[String], light: bool) -> Result<Vec<Self>> {
        let mut rows = Self::all()?;
        if let Some(unknown) = named.iter().find(|wanted| rows.iter().all(|row| row.name != **wanted)) {
            let known: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
            bail!("unknown client {unknown}; known are {}", known.join(", "));
        }
        rows.retain(|row| (named.is_empty() || named.contains(&row.name)) && (row.light || !light));
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_a_script_and_its_setup() {
        let rows = ClientRow::all().unwrap();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/clients/scripts");
        for row in &rows {
            assert!(scripts.join(&row.script).is_file(), "{}: {} does not exist", row.name, row.script);
            assert!(!row.setup.trim().is_empty() && !row.shown.is_empty(), "{}", row.name);
            for why in row.cannot.values().chain(row.known.values()) {
                assert!(why.ends_with('.'), "{}: {why:?} is not a sentence", row.name);
            }
        }
    }

    #[test]
    fn every_script_belongs_to_a_row() {
        let rows = ClientRow::all().unwrap();
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/clients/scripts");
        for entry in std::fs::read_dir(scripts).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let shared = name.starts_with("lab.") || name.starts_with("lab_");
            assert!(shared || rows.iter().any(|row| row.script == name), "{name}");
        }
    }
}
