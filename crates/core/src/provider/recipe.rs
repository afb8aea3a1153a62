//! Provider: the recipe of a CLI.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::arguments::{self, Placeholder, has_place};
use super::login::Login;
use super::offered::OfferedModel;
use super::permissions::PermissionTable;
use super::schemas::SchemaRules;
use crate::failure::FailureRule;
use crate::live;
use crate::parse::{Context, Decoder, Format};
use crate::span::TimeSpan;
use crate::vocabulary::{Normalize, OutputForm, PromptDelivery, PromptEscape, SessionKind, StopSignal, UsageScope};

/// Recipe of a CLI agent. A CLI that prints a known [`Format`] needs no code.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    #[serde(skip)]
    pub name: String,
    /// Other names of the provider.
    #[serde(default)]
    pub aliases: Vec<String>,
    #[serde(alias = "command")]
    pub program: String,
    /// Paths of the real program, relative to the folder of its launcher script.
    #[serde(default)]
    pub native: Vec<String>,
    /// Installation command, for the error about a missing program.
    #[serde(default)]
    pub install: Option<String>,
    #[serde(alias = "output_format", alias = "outputFormat")]
    pub format: Format,
    /// Arguments of the streamed form, in groups. A group whose `{placeholder}` has no value is left out; a group whose
    /// placeholder has several values (`{image}`, `{tool}`) is repeated.
    #[serde(deserialize_with = "arguments::groups", alias = "default_args", alias = "defaultArgs")]
    pub args: Vec<Vec<String>>,
    /// Arguments of the form that prints everything at the end.
    #[serde(default)]
    pub whole: Option<Vec<Vec<String>>>,
    /// Recipe of a process that is kept for several turns, if the CLI supports it.
    #[serde(default)]
    pub live: Option<live::LiveRecipe>,
    #[serde(default, alias = "prompt_style", alias = "promptStyle")]
    pub prompt: PromptDelivery,
    /// Known models.
    #[serde(default)]
    pub models: Vec<OfferedModel>,
    /// Model for turns that name none.
    #[serde(default, alias = "defaultModel")]
    pub default_model: Option<String>,
    /// Maximum length of an answer, for a CLI with an option for it.
    #[serde(default, alias = "maxTokens")]
    pub max_tokens: Option<NonZeroU64>,
    /// Time limit of a run if the model sets none.
    #[serde(default)]
    pub timeout: Option<TimeSpan>,
    /// Places of the CLI's credentials.
    #[serde(default)]
    pub login: Option<Login>,
    /// Flags for `read`, `edit` and `full`.
    #[serde(default)]
    pub permissions: PermissionTable,
    /// Variables for every run, for example to switch off telemetry and updates.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables that hold credentials of this provider. Processes of other providers do not get them.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Private home in our state directory, for a CLI that changes the user's configuration.
    #[serde(default)]
    pub home: Option<Home>,
    /// Settings that the CLI reads only from a file.
    #[serde(default)]
    pub settings: Option<SettingsFile>,
    /// Content of files that the arguments refer to, by file name. They are written to the folder `{files}`.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The CLI reads `AGENTS.md` in its folder by itself. The prompt contains the file only if the model names it.
    #[serde(default)]
    pub reads_agents_md: bool,
    /// Schemas of answers that the CLI passes on to its model, as `{schema}` or `{schema_file}` in its arguments, or with
    /// `live.schema_per_turn`. If this is not set, the prompt contains the schema.
    #[serde(default)]
    pub schemas: Option<SchemaRules>,
    /// State of the CLI, which it may write with any permissions. `~/` is the home, `${NAME:-else}` a variable. A path with
    /// a slash at its end is a folder, which is created if it is missing.
    #[serde(default)]
    pub state: Vec<String>,
    /// The CLI has a sandbox of its own for its tools, which does not work inside ours. Such a run is not confined by us
    /// unless a sandbox is required; then the CLI is told that it may do anything.
    #[serde(default, alias = "confines")]
    pub own_sandbox: bool,
    /// Changes to the prompt that keep the CLI from reading parts of it as commands.
    #[serde(default, alias = "inert")]
    pub escape: PromptEscape,
    /// The CLI runs on Node, which takes long to compile it: the compiled code is kept for the next run.
    #[serde(default, alias = "compiles")]
    pub node_compile_cache: bool,
    /// The CLI leaves files in the folder for temporary files: it gets a folder of its own, removed after the run.
    #[serde(default, alias = "litters")]
    pub private_tmp: bool,
    /// The CLI prints nothing until it has an answer: silence does not mean that it hangs.
    #[serde(default, alias = "quiet")]
    pub buffers_output: bool,
    #[serde(default)]
    pub stop: StopSignal,
    #[serde(default)]
    pub session: SessionKind,
    #[serde(default)]
    pub usage: UsageScope,
    #[serde(default = "version_flag")]
    pub version: Vec<String>,
    /// Arguments of a health check, if the program has one. The exit status is the result.
    #[serde(default)]
    pub health: Option<Vec<String>>,
    /// Beginnings of stderr lines that are not about a failure.
    #[serde(default, deserialize_with = "shared")]
    pub noise: Arc<[String]>,
    /// Error messages of the CLI and their categories. They are checked before the general patterns.
    #[serde(default, deserialize_with = "shared")]
    pub failures: Arc<[FailureRule]>,
}

/// Reads a list that every decoder shares.
fn shared<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Arc<[T]>, D::Error> {
    Vec::deserialize(deserializer).map(Arc::from)
}

/// Private folder for the state of a CLI, with links to the user's credentials. A variable passes its path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Home {
    pub env: String,
    /// The user's folder if the variable is not set, relative to `HOME`.
    pub default: String,
    /// Files that are linked: credentials, which the CLI renews.
    #[serde(default)]
    pub link: Vec<String>,
    /// Files that are copied: settings, which a run may change without changing the user's file.
    #[serde(default)]
    pub copy: Vec<String>,
    /// Names that the private home does not share; `*` matches any characters, and a name may contain a subfolder. If this
    /// is set, everything else in the user's folder is linked for reading.
    #[serde(default)]
    pub state: Option<Vec<String>>,
}

/// Settings file whose path is passed in a variable. Not used if the user or the system has one already.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsFile {
    pub env: String,
    pub content: String,
    /// Path that the CLI reads if the variable is not set; empty if there is none.
    #[serde(default)]
    pub system: String,
}

impl Provider {
    /// Whether the program can call tools of the client in the middle of a turn.
    #[must_use]
    pub fn takes_tools(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.tools.is_some())
    }

    /// Whether the arguments of one turn take a schema of the answer.
    #[must_use]
    pub fn takes_schema(&self) -> bool {
        self.schemas.is_some()
            && (self.has_placeholder(Placeholder::Schema) || self.has_placeholder(Placeholder::SchemaFile))
    }

    /// Creates a decoder for the output of one turn.
    #[must_use]
    pub fn decoder(&self, normalize: Normalize, form: OutputForm) -> Decoder {
        let context = Context {
            program: self.name.clone(),
            rules: Arc::clone(&self.failures),
            noise: Arc::clone(&self.noise),
            normalize,
            form,
        };
        Decoder::new(self.format, context)
    }

    /// Whether each form of the recipe contains the placeholder.
    #[must_use]
    pub fn has_placeholder(&self, placeholder: Placeholder) -> bool {
        has_place(&self.args, placeholder) && self.whole.as_ref().is_none_or(|whole| has_place(whole, placeholder))
    }

    /// Whether the CLI prints nothing until it is done in this form, so that silence does not mean that it hangs.
    #[must_use]
    pub fn is_silent(&self, form: OutputForm) -> bool {
        form == OutputForm::Whole && self.whole.is_some()
    }

    /// Whether the CLI may change the repository without an event about it. A protocol executable changes nothing.
    #[must_use]
    pub fn hides_its_work(&self, form: OutputForm) -> bool {
        self.is_silent(form) && self.prompt != PromptDelivery::Request
    }
}

fn version_flag() -> Vec<String> {
    vec!["--version".to_owned()]
}
