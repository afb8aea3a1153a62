//! A provider as data: everything that a recipe says.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::Deserialize;

use super::arguments::{self, Placeholder, has_place};
use super::login::Login;
use super::offered::OfferedModel;
use super::permissions::PermissionTable;
use crate::failure::FailureRule;
use crate::live;
use crate::parse::{Context, Decoder, Format};
use crate::span::TimeSpan;
use crate::vocabulary::{Normalize, OutputForm, PromptDelivery, PromptEscape, SessionKind, StopSignal, UsageScope};

/// One CLI agent. A CLI that prints a known [`Format`] needs no Rust at all.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    #[serde(skip)]
    pub name: String,
    /// Other names a model may call it by.
    #[serde(default)]
    pub aliases: Vec<String>,
    #[serde(alias = "command")]
    pub program: String,
    /// Where the real program lies beside a launcher script, relative to the folder of the launcher.
    #[serde(default)]
    pub native: Vec<String>,
    /// How to get it, for the error of a missing program.
    #[serde(default)]
    pub install: Option<String>,
    #[serde(alias = "output_format", alias = "outputFormat")]
    pub format: Format,
    /// The streamed form: groups of arguments. A group whose `{placeholder}` has no value is left out whole; one whose
    /// placeholder has several (`{image}`, `{tool}`) is repeated.
    #[serde(deserialize_with = "arguments::groups", alias = "default_args", alias = "defaultArgs")]
    pub args: Vec<Vec<String>>,
    /// The form that prints everything at the end.
    #[serde(default)]
    pub whole: Option<Vec<Vec<String>>>,
    /// How it is kept, and told one turn after the other, where it can be.
    #[serde(default)]
    pub live: Option<live::LiveRecipe>,
    #[serde(default, alias = "prompt_style", alias = "promptStyle")]
    pub prompt: PromptDelivery,
    /// The models it is known to have.
    #[serde(default)]
    pub models: Vec<OfferedModel>,
    /// The one it is told to use where nothing else names one.
    #[serde(default, alias = "defaultModel")]
    pub default_model: Option<String>,
    /// The longest answer it is asked for, where it can be told.
    #[serde(default, alias = "maxTokens")]
    pub max_tokens: Option<NonZeroU64>,
    /// The longest run, where its model does not say.
    #[serde(default)]
    pub timeout: Option<TimeSpan>,
    /// How to tell that a user is logged in.
    #[serde(default)]
    pub login: Option<Login>,
    /// What `read`, `edit` and `full` mean to this CLI.
    #[serde(default)]
    pub permissions: PermissionTable,
    /// Switches set for every run: telemetry, updates and relaunching off.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables that carry this provider's credentials: other providers' children do not see them.
    #[serde(default)]
    pub keys: Vec<String>,
    /// A private home under our state directory, for a CLI that writes to the user's configuration.
    #[serde(default)]
    pub home: Option<Home>,
    /// Settings that only a file can carry.
    #[serde(default)]
    pub settings: Option<SettingsFile>,
    /// Files that its arguments name, by plain file name. They are written to a folder of ours, which `{files}` stands for.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The CLI reads `AGENTS.md` of its folder by itself: the prompt carries it only for a model that names it.
    #[serde(default)]
    pub reads_agents_md: bool,
    /// Where it keeps its own state: what it may write whatever its permissions. `~/` is the home, `${NAME:-else}` a
    /// variable; a folder, which is made where it is missing, ends in a slash.
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
    /// How it is asked whether it is well, if it can be: arguments, and the exit status is the answer.
    #[serde(default)]
    pub health: Option<Vec<String>>,
    /// Beginnings of stderr lines that say nothing about a failure.
    #[serde(default)]
    pub noise: Vec<String>,
    /// The CLI's own wordings, before the general patterns.
    #[serde(default)]
    pub failures: Vec<FailureRule>,
}

/// A folder of its own for a CLI's state, named by a variable, with the user's credentials linked in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Home {
    pub env: String,
    /// Where the user's own lies when the variable is not set, relative to `HOME`.
    pub default: String,
    /// Credentials, which the CLI renews.
    #[serde(default)]
    pub link: Vec<String>,
    /// Settings that a run changes: the user's own file stays as it is.
    #[serde(default)]
    pub copy: Vec<String>,
    /// State, which the private home has of its own; `*` stands for any characters, and a name may be one of a subfolder.
    /// Where this is given, everything else in the user's folder is linked as well, for reading.
    #[serde(default)]
    pub state: Option<Vec<String>>,
}

/// A settings file of ours, named by a variable. Not used where the user or the system has one already.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsFile {
    pub env: String,
    pub content: String,
    /// Where the CLI looks when the variable is not set, if anywhere.
    #[serde(default)]
    pub system: String,
}

impl Provider {
    /// What makes events of what it prints, in one turn.
    #[must_use]
    pub fn decoder(&self, normalize: Normalize, form: OutputForm) -> Decoder {
        let context = Context {
            program: self.name.clone(),
            rules: self.failures.clone(),
            noise: self.noise.clone(),
            normalize,
            form,
        };
        Decoder::new(self.format, context)
    }

    /// Whether each form of the recipe has a place for this value.
    #[must_use]
    pub fn has_placeholder(&self, placeholder: Placeholder) -> bool {
        has_place(&self.args, placeholder) && self.whole.as_ref().is_none_or(|whole| has_place(whole, placeholder))
    }

    // TODO: use `has_placeholder` in other crates.
    #[doc(hidden)]
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        Placeholder::from_name(name).is_some_and(|placeholder| self.has_placeholder(placeholder))
    }

    /// Whether it prints nothing until it is done: silence is no sign of death then.
    #[must_use]
    pub fn is_silent(&self, form: OutputForm) -> bool {
        form == OutputForm::Whole && self.whole.is_some()
    }

    /// Whether it may have worked on the repository without a word about it. An executable of the protocol does no work.
    #[must_use]
    pub fn hides_its_work(&self, form: OutputForm) -> bool {
        self.is_silent(form) && self.prompt != PromptDelivery::Request
    }
}

fn version_flag() -> Vec<String> {
    vec!["--version".to_owned()]
}
