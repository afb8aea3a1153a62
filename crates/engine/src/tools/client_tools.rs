//! The tools of a request, under names that every CLI accepts.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::mcp::OfferedTool;
use trunkline_core::turn::{Json, Options};

/// Maximum number of tools of a request.
const MAX_TOOLS: usize = 256;

/// Maximum length of a name that is passed unchanged. CLIs add a prefix, and some cut names at 64 characters.
const MAX_NAME_CHARS: usize = 50;

/// Number of characters of a long name that are kept in front of its digest.
const KEPT_NAME_CHARS: usize = 40;

/// Tools that a client offers to the model.
#[derive(Debug)]
pub(crate) struct ClientTools {
    tools: Vec<OfferedTool>,
    /// The client's names of tools whose offered name differs.
    renamed: HashMap<String, String>,
    digest: [u8; 32],
    choice: ToolChoice,
    /// The model may call one tool at a time only.
    one_at_a_time: bool,
}

/// Whether the model has to call a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolChoice {
    Auto,
    Required,
}

/// The client's choice of a tool.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenChoice {
    Word(String),
    Named { function: NamedFunction },
}

#[derive(Deserialize)]
struct NamedFunction {
    name: String,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

impl ClientTools {
    /// Reads the tools of a request. `None` if there are none, or if the client forbids their use.
    pub(crate) fn of(options: &Options) -> Result<Option<Arc<Self>>, Failure> {
        let Some(list) = &options.tools else { return Ok(None) };
        let member =
            |wanted: &str| options.more.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str());
        let choice = member("tool_choice").filter(|choice| *choice != "null").map(serde_json::from_str).transpose();
        let unknown = |_| refused("`tool_choice` is auto, none, required or the name of a function".to_owned());
        let (choice, named) = match choice.map_err(unknown)? {
            Some(WrittenChoice::Word(word)) if word == "none" => return Ok(None),
            Some(WrittenChoice::Word(word)) if word == "required" => (ToolChoice::Required, None),
            Some(WrittenChoice::Named { function }) => (ToolChoice::Required, Some(function.name)),
            Some(WrittenChoice::Word(_)) | None => (ToolChoice::Auto, None),
        };
        let listed: Vec<Tool> =
            serde_json::from_str(list.as_str()).map_err(|error| refused(format!("`tools` cannot be read: {error}")))?;
        if listed.len() > MAX_TOOLS {
            return Err(refused(format!("there are {} tools; at most {MAX_TOOLS} are possible", listed.len())));
        }
        let (mut tools, mut renamed) = (Vec::with_capacity(listed.len()), HashMap::new());
        for tool in listed {
            let Some(function) = tool.function.filter(|_| tool.kind.as_deref().is_none_or(|kind| kind == "function"))
            else {
                continue;
            };
            if named.as_ref().is_some_and(|named| *named != function.name) {
                continue;
            }
            let offered = offered_name(&function.name);
            if tools.iter().any(|tool: &OfferedTool| tool.name == offered) {
                return Err(refused(format!("there are two tools with the name {}", function.name)));
            }
            let schema = match function.parameters {
                Some(Value::Object(schema)) => Value::Object(schema),
                Some(Value::Null) | None => json!({"type": "object", "properties": {}}),
                Some(_) => return Err(refused(format!("`parameters` of {} is not a JSON Schema", function.name))),
            };
            tools.push(OfferedTool {
                name: offered.clone(),
                description: function.description,
                schema: Json::from(&schema),
            });
            if offered != function.name {
                renamed.insert(offered, function.name);
            }
        }
        if let Some(named) = named.filter(|_| tools.is_empty()) {
            return Err(refused(format!("`tool_choice` names {named}, which is not among the tools")));
        }
        if tools.is_empty() {
            return Ok(None);
        }
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let digest = *blake3::hash(format!("{}{}", list.as_str(), names.join(",")).as_bytes()).as_bytes();
        let one_at_a_time = member("parallel_tool_calls") == Some("false");
        Ok(Some(Arc::new(Self { tools, renamed, digest, choice, one_at_a_time })))
    }

    /// Whether the model has to call a tool.
    pub(crate) fn is_required(&self) -> bool {
        self.choice == ToolChoice::Required
    }

    /// Whether the client wants one call at a time.
    pub(crate) fn one_at_a_time(&self) -> bool {
        self.one_at_a_time
    }

    /// Instruction for a model that has to call a tool: no CLI can force it.
    pub(crate) fn instruction(&self) -> Option<String> {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        self.is_required().then(|| match names.as_slice() {
            [name] => format!("Call the tool {name} before you answer."),
            names => format!("Call one of these tools before you answer: {}.", names.join(", ")),
        })
    }

    pub(crate) fn tools(&self) -> &[OfferedTool] {
        &self.tools
    }

    /// Whether these are the tools that another request offered.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// The client's name of an offered tool. `None` for a tool that is not offered.
    pub(crate) fn client_name<'a>(&'a self, offered: &'a str) -> Option<&'a str> {
        let tool = self.tools.iter().find(|tool| tool.name == offered)?;
        Some(self.renamed.get(offered).map_or(tool.name.as_str(), String::as_str))
    }

    /// Whether the name of a tool in the output of a CLI means one of these tools. CLIs decorate the names.
    pub(crate) fn is_name_in_output(&self, shown: &str) -> bool {
        let bare =
            ["mcp__client__", "mcp_client_", "client_", "client."].iter().find_map(|prefix| shown.strip_prefix(prefix));
        let bare = bare.unwrap_or(shown);
        let bare = bare.strip_suffix(" (client MCP Server)").unwrap_or(bare);
        self.tools.iter().any(|tool| tool.name == bare)
    }

    /// Removes the argument that Gemini CLI adds to the schema of every tool.
    pub(crate) fn arguments(&self, offered: &str, arguments: String) -> String {
        const ADDED: &str = "wait_for_previous";
        let declares = |tool: &&OfferedTool| tool.name == offered && tool.schema.as_str().contains(ADDED);
        if !arguments.contains(ADDED) || self.tools.iter().any(|tool| declares(&tool)) {
            return arguments;
        }
        match serde_json::from_str(&arguments) {
            Ok(Value::Object(mut members)) => {
                members.remove(ADDED);
                Value::Object(members).to_string()
            }
            Ok(_) | Err(_) => arguments,
        }
    }
}

/// A name that every CLI passes unchanged.
fn offered_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if (1..=MAX_NAME_CHARS).contains(&name.len()) && name.chars().all(plain) {
        return name.to_owned();
    }
    let kept: String = name.chars().map(|c| if plain(c) { c } else { '_' }).take(KEPT_NAME_CHARS).collect();
    format!("{kept}_{}", &blake3::hash(name.as_bytes()).to_hex()[..8])
}

fn refused(message: String) -> Failure {
    Failure::new(Category::Validation, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tools: Value, more: Vec<(&'static str, Json)>) -> Result<Option<Arc<ClientTools>>, Failure> {
        ClientTools::of(&Options { tools: Some((&tools).into()), more, ..Options::default() })
    }

    fn function(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
    }

    #[test]
    fn keeps_plain_names_and_maps_others_back() {
        let long = "a".repeat(64);
        for name in ["weather", "get.weather", "get-weather", "--flag", "größe", &long] {
            let tools = read(json!([function(name)]), Vec::new()).unwrap().unwrap();
            let offered = &tools.tools()[0].name;
            assert!(offered.len() <= MAX_NAME_CHARS, "{offered}");
            assert!(offered.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{offered}");
            assert_eq!(tools.client_name(offered), Some(name));
        }
        let tools = read(json!([function("a.b"), function("a-b")]), Vec::new()).unwrap().unwrap();
        assert_ne!(tools.tools()[0].name, tools.tools()[1].name);
    }

    #[test]
    fn offers_nothing_when_the_client_forbids_it() {
        let none = vec![("tool_choice", Json::from(&json!("none")))];
        assert!(read(json!([function("f")]), none).unwrap().is_none());
        assert!(read(json!([]), Vec::new()).unwrap().is_none());
        assert!(read(json!([{"type": "web_search"}]), Vec::new()).unwrap().is_none());
    }

    #[test]
    fn offers_only_the_named_tool() {
        let choose = |choice: Value| vec![("tool_choice", Json::from(&choice))];
        let two = || json!([function("f"), function("g")]);
        let named = read(two(), choose(json!({"type": "function", "function": {"name": "g"}}))).unwrap().unwrap();
        assert_eq!(named.tools().len(), 1);
        assert_eq!(named.instruction().as_deref(), Some("Call the tool g before you answer."));
        let required = read(two(), choose(json!("required"))).unwrap().unwrap();
        assert_eq!(required.instruction().as_deref(), Some("Call one of these tools before you answer: f, g."));
        let auto = read(two(), choose(json!("auto"))).unwrap().unwrap();
        assert_eq!((auto.instruction(), auto.same_as(&required), auto.same_as(&named)), (None, true, false));
        for wrong in [json!({"type": "function", "function": {"name": "h"}}), json!(7)] {
            assert_eq!(read(two(), choose(wrong)).unwrap_err().category, Category::Validation);
        }
    }

    #[test]
    fn refuses_tools_that_cannot_be_offered() {
        let many: Vec<Value> = (0..=MAX_TOOLS).map(|n| function(&format!("f{n}"))).collect();
        for tools in [
            json!([function("f"), function("f")]),
            json!([{"type": "function", "function": {"name": "f", "parameters": "no schema"}}]),
            json!([{"type": "function", "function": {}}]),
            json!(many),
        ] {
            assert_eq!(read(tools, Vec::new()).unwrap_err().category, Category::Validation);
        }
    }

    #[test]
    fn recognises_its_tools_in_the_output_of_each_cli() {
        let tools = read(json!([function("park")]), Vec::new()).unwrap().unwrap();
        for shown in ["mcp__client__park", "mcp_client_park", "client_park", "park (client MCP Server)", "park"] {
            assert!(tools.is_name_in_output(shown), "{shown}");
        }
        for other in ["bash", "mcp__client__other", "mcp__server__park"] {
            assert!(!tools.is_name_in_output(other), "{other}");
        }
    }

    #[test]
    fn removes_the_argument_that_gemini_adds() {
        let tools = read(json!([function("f")]), Vec::new()).unwrap().unwrap();
        let cleaned = tools.arguments("f", r#"{"a":1,"wait_for_previous":true}"#.into());
        assert_eq!(cleaned, r#"{"a":1}"#);
    }
}
