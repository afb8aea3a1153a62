//! A CLI we can run, as data: its argv recipe, how the prompt reaches it, what it prints, how it is stopped.
//!
//! Nothing here looks at `PATH` or starts anything: [`Provider::command`] renders a command line and that is all. The
//! built-in providers are `providers.toml` beside this file; a user's own file has the same shape.

mod arguments;
mod command;
mod login;
mod offered;
mod overlay;
mod permissions;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::failure::{Category, Failure, Rule};
use crate::live;
use crate::model::Normalize;
use crate::parse::{Context, Decoder, Format};
use crate::protocol;
use crate::span::Span;
pub use arguments::{NoPlaceholder, PLACEHOLDERS, no_placeholders};
use command::placeholder;
pub use login::{Credentials, Login};
pub use offered::Offered;
pub use overlay::{Grants, Overlay, UnreadableLive};
pub use permissions::{Grant, PermissionTable, Permissions, Told};

/// The longest single argument Linux takes, less its terminating NUL.
pub const MAX_ARGUMENT: usize = 131_071;

const BUILT_IN: &str = include_str!("providers.toml");

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
    pub live: Option<live::Recipe>,
    #[serde(default, alias = "prompt_style", alias = "promptStyle")]
    pub prompt: Delivery,
    /// The models it is known to have.
    #[serde(default)]
    pub models: Vec<Offered>,
    /// The one it is told to use where nothing else names one.
    #[serde(default, alias = "defaultModel")]
    pub default_model: Option<String>,
    /// The longest answer it is asked for, where it can be told.
    #[serde(default, alias = "maxTokens")]
    pub max_tokens: Option<NonZeroU64>,
    /// The longest run, where its model does not say.
    #[serde(default)]
    pub timeout: Option<Span>,
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
    /// It confines its tools itself, by means that do not work inside bounds of ours: it gets none, unless they are required.
    /// Then it is told that it may do anything.
    #[serde(default)]
    pub confines: bool,
    /// How text is kept from becoming the CLI's own command.
    #[serde(default)]
    pub inert: Inert,
    /// It runs on Node, which takes long to compile it: what was compiled is kept for the next run.
    #[serde(default)]
    pub compiles: bool,
    /// It litters the folder for temporary files: it gets one of its own, removed with the run.
    #[serde(default)]
    pub litters: bool,
    /// It prints nothing until it has an answer: silence is no sign of death.
    #[serde(default)]
    pub quiet: bool,
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
    pub failures: Vec<Rule>,
}

/// How the prompt reaches the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    #[default]
    Stdin,
    /// As the `{prompt}` of an argument.
    Arg,
    /// As a request of the provider protocol, on stdin.
    Request,
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

/// What must be done to a prompt so that this CLI takes it as text and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inert {
    /// A prompt that begins with `/` would be run as a command: a line break goes before it.
    #[serde(default)]
    pub slash: bool,
    /// `@name` would be replaced by that file's content: a backslash goes before it.
    #[serde(default)]
    pub at: bool,
}

/// The signal a CLI ends most cleanly on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StopSignal {
    #[default]
    Term,
    Int,
}

/// What a resumable session's id looks like; anything else is refused before it reaches the CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// The CLI cannot resume.
    #[default]
    None,
    Uuid,
    /// Letters, digits, `_` and `-`.
    Word,
}

/// Whether the CLI counts tokens for the turn or for the whole session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageScope {
    #[default]
    Turn,
    Session,
}

/// Which of a provider's forms to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// It prints as it works.
    #[default]
    Streamed,
    /// It prints everything at the end, if it can.
    Whole,
}

/// The values of one run that a recipe's placeholders stand for.
#[derive(Debug, Clone, Default)]
pub struct Values<'a> {
    pub prompt: &'a str,
    /// The same as a request of the provider protocol.
    pub request: &'a str,
    pub cwd: &'a str,
    pub model: Option<&'a str>,
    pub session: Option<&'a str>,
    pub max_turns: Option<u32>,
    pub max_tokens: Option<NonZeroU64>,
    pub tools: &'a [String],
    pub system_file: Option<&'a str>,
    pub images: &'a [String],
    pub permissions: Told,
    /// The folder of the recipe's own files.
    pub files: Option<&'a str>,
    /// The user's home folder.
    pub home: Option<&'a str>,
    /// The model's own additional arguments.
    pub extra: &'a [String],
}

/// A rendered command line. The program is a name still, not a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    pub program: String,
    pub args: Vec<String>,
    pub stdin: Option<String>,
    /// What is set on top of the inherited environment.
    pub env: BTreeMap<String, String>,
}

/// The built-in providers, by name.
#[must_use]
pub fn built_in() -> BTreeMap<String, Provider> {
    static PARSED: LazyLock<BTreeMap<String, Provider>> =
        LazyLock::new(|| parse(BUILT_IN).expect("providers.toml is checked by the tests"));
    PARSED.clone()
}

/// A provider that is nothing but a program, its arguments and its output format. The prompt goes to stdin unless an
/// argument has a place for it.
#[must_use]
pub fn plain(name: &str, program: &str, args: &[String], format: Format) -> Provider {
    let bare = "[p]\nprogram = \"p\"\nformat = \"text\"\nargs = []\n";
    let mut provider = parse(bare).expect("the text is fixed").remove("p").expect("it has this one provider");
    provider.name = name.to_owned();
    provider.program = program.to_owned();
    provider.format = format;
    provider.quiet = true;
    provider.args = args.iter().map(|arg| vec![arg.clone()]).collect();
    if provider.takes("prompt") {
        provider.prompt = Delivery::Arg;
    }
    provider
}

/// An executable of the provider protocol: its subcommands follow its own arguments.
#[must_use]
pub fn executable(name: &str, program: &str, args: &[String]) -> Provider {
    let with = |command: &str| args.iter().cloned().chain([command.to_owned()]).collect::<Vec<String>>();
    let mut provider = plain(name, program, &[], Format::Protocol);
    provider.prompt = Delivery::Request;
    provider.args = vec![with(protocol::STREAM)];
    provider.whole = Some(vec![with(protocol::GENERATE)]);
    provider.health = Some(with(protocol::HEALTH));
    provider
}

/// Every variable that carries a built-in provider's credentials.
pub fn built_in_keys() -> &'static [String] {
    static KEYS: LazyLock<Vec<String>> =
        LazyLock::new(|| built_in().into_values().flat_map(|provider| provider.keys).collect());
    &KEYS
}

/// Reads a file of providers: a table each.
pub fn parse(toml: &str) -> Result<BTreeMap<String, Provider>, toml::de::Error> {
    let mut providers: BTreeMap<String, Provider> = toml::from_str(toml)?;
    for (name, provider) in &mut providers {
        provider.name.clone_from(name);
    }
    Ok(providers.into_iter().map(|(name, provider)| (name, provider.with_a_place_for_the_prompt())).collect())
}

impl Provider {
    /// What makes events of what it prints, in one turn.
    #[must_use]
    pub fn decoder(&self, normalize: Normalize, form: Form) -> Decoder {
        let context = Context {
            program: self.name.clone(),
            rules: self.failures.clone(),
            noise: self.noise.clone(),
            normalize,
            form,
        };
        Decoder::new(self.format, context)
    }

    /// Whether the recipe has a place for `{name}`, in each of its forms.
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        has_place(&self.args, name) && self.whole.as_ref().is_none_or(|whole| has_place(whole, name))
    }

    /// Whether it prints nothing until it is done: silence is no sign of death then.
    #[must_use]
    pub fn is_silent(&self, form: Form) -> bool {
        form == Form::Whole && self.whole.is_some()
    }

    /// Whether it may have worked on the repository without a word about it. An executable of the protocol does no work.
    #[must_use]
    pub fn hides_its_work(&self, form: Form) -> bool {
        self.is_silent(form) && self.prompt != Delivery::Request
    }

    /// Refuses a session id that this CLI would misread.
    pub fn check_session(&self, id: &str) -> Result<(), Failure> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let valid = match self.session {
            SessionKind::None => false,
            SessionKind::Uuid => is_uuid(id),
            SessionKind::Word => !id.is_empty() && id.len() <= 128 && !id.starts_with('-') && id.chars().all(word),
        };
        if valid {
            return Ok(());
        }
        let message = match self.session {
            SessionKind::None => format!("{} cannot resume a session", self.name),
            SessionKind::Uuid | SessionKind::Word => format!("{id:?} is not a session id of {}", self.name),
        };
        Err(Failure::new(Category::Validation, message))
    }
}

fn has_place(groups: &[Vec<String>], name: &str) -> bool {
    groups.iter().flatten().any(|arg| placeholder(arg) == Some(name))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.char_indices().all(|(i, c)| match i {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
}

fn version_flag() -> Vec<String> {
    vec!["--version".to_owned()]
}

#[cfg(test)]
mod tests;
