//! A CLI we can run, as data: its argv recipe, how the prompt reaches it, what it prints, how it is stopped.
//!
//! Nothing here looks at `PATH` or starts anything: [`Provider::command`] renders a command line and that is all. The
//! built-in providers are `providers.toml` beside this file; a user's own file has the same shape.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::failure::{Category, Failure, Rule};
use crate::parse::Format;

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
    pub program: String,
    /// Where the real program lies beside a launcher script, relative to the folder of the launcher.
    #[serde(default)]
    pub native: Vec<String>,
    /// How to get it, for the error of a missing program.
    #[serde(default)]
    pub install: Option<String>,
    pub format: Format,
    /// The streamed form: groups of arguments. A group whose `{placeholder}` has no value is left out whole; one whose
    /// placeholder has several (`{image}`, `{tool}`) is repeated.
    pub args: Vec<Vec<String>>,
    /// The form that prints everything at the end.
    #[serde(default)]
    pub whole: Option<Vec<Vec<String>>>,
    #[serde(default)]
    pub prompt: Delivery,
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
    /// How text is kept from becoming the CLI's own command.
    #[serde(default)]
    pub inert: Inert,
    #[serde(default)]
    pub stop: StopSignal,
    #[serde(default)]
    pub session: SessionKind,
    #[serde(default)]
    pub usage: UsageScope,
    #[serde(default = "version_flag")]
    pub version: Vec<String>,
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
}

/// What an agent may do without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Permissions {
    /// No writes.
    Read,
    /// Edits inside the workspace.
    #[default]
    Edit,
    /// Anything: the CLI's own skip-approval flags.
    Full,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionTable {
    #[serde(default)]
    pub read: Grant,
    #[serde(default)]
    pub edit: Grant,
    #[serde(default)]
    pub full: Grant,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A folder of its own for a CLI's state, named by a variable, with the user's credentials linked in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Home {
    pub env: String,
    /// Where the user's own lies when the variable is not set, relative to `HOME`.
    pub default: String,
    #[serde(default)]
    pub link: Vec<String>,
    #[serde(default)]
    pub copy: Vec<String>,
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

/// Which of a provider's two forms to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Streamed,
    Whole,
}

/// The values of one run that a recipe's placeholders stand for.
#[derive(Debug, Clone, Default)]
pub struct Values<'a> {
    pub prompt: &'a str,
    pub cwd: &'a str,
    pub model: Option<&'a str>,
    pub session: Option<&'a str>,
    pub max_turns: Option<u32>,
    pub tools: &'a [String],
    pub system_file: Option<&'a str>,
    pub images: &'a [String],
    pub permissions: Permissions,
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
    parse(BUILT_IN).expect("providers.toml is checked by the tests")
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
    provider.args = args.iter().map(|arg| vec![arg.clone()]).collect();
    if provider.takes("prompt") {
        provider.prompt = Delivery::Arg;
    }
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
    Ok(providers)
}

impl Provider {
    /// Renders one turn as a command line. Pure: no `PATH` look-up, no I/O.
    pub fn command(&self, form: Form, values: &Values<'_>) -> Result<CommandLine, Failure> {
        let groups = match form {
            Form::Streamed => &self.args,
            Form::Whole => self.whole.as_ref().unwrap_or(&self.args),
        };
        let prompt = self.inert_prompt(values.prompt);
        let mut args = Vec::new();
        let mut extra_placed = false;
        for group in groups {
            match group.as_slice() {
                [only] if only == "{permissions}" => {
                    args.extend(self.permissions.of(values.permissions).args.iter().cloned());
                }
                [only] if only == "{extra}" => {
                    args.extend_from_slice(values.extra);
                    extra_placed = true;
                }
                group => self.fill(group, &prompt, values, &mut args)?,
            }
        }
        if !extra_placed {
            args.extend_from_slice(values.extra);
        }
        if let Some(long) = args.iter().find(|arg| arg.len() > MAX_ARGUMENT) {
            return Err(Failure::new(
                Category::Validation,
                format!(
                    "the prompt is too long for {}: {} bytes in one argument, at most {MAX_ARGUMENT}",
                    self.name,
                    long.len()
                ),
            )
            .hint("use a provider that takes its prompt on stdin"));
        }
        let mut env = self.env.clone();
        env.extend(self.permissions.of(values.permissions).env.clone());
        let stdin = match self.prompt {
            Delivery::Stdin => Some(prompt),
            Delivery::Arg => None,
        };
        Ok(CommandLine { program: self.program.clone(), args, stdin, env })
    }

    /// Adds a group to `args`, once for each value of its placeholder, or not at all when there is none.
    fn fill(&self, group: &[String], prompt: &str, values: &Values<'_>, args: &mut Vec<String>) -> Result<(), Failure> {
        let Some(name) = group.iter().find_map(|arg| placeholder(arg)) else {
            args.extend_from_slice(group);
            return Ok(());
        };
        for value in values.of(name, prompt) {
            for template in group {
                let Some(name) = placeholder(template) else {
                    args.push(template.clone());
                    continue;
                };
                let alone = template.len() == name.len() + 2;
                let value = self.guard(name, value.clone(), alone, args.last())?;
                args.push(template.replace(&format!("{{{name}}}"), &value));
            }
        }
        Ok(())
    }

    /// A value that stands alone as an argument can never be read as a flag.
    fn guard(&self, name: &str, value: String, alone: bool, before: Option<&String>) -> Result<String, Failure> {
        if value.contains('\0') {
            return Err(Failure::new(Category::Validation, format!("the {name} holds a NUL character")));
        }
        if !alone || !value.starts_with('-') || before.is_some_and(|arg| arg == "--") {
            return Ok(value);
        }
        if name == "prompt" {
            return Ok(format!("\n{value}"));
        }
        Err(Failure::new(
            Category::Validation,
            format!("the {name} {value:?} begins with a dash and would be read as a flag"),
        ))
    }

    /// The prompt as this CLI takes it for text.
    fn inert_prompt(&self, prompt: &str) -> String {
        let mut text = if self.inert.at { escape_at(prompt) } else { prompt.to_owned() };
        if self.inert.slash && text.starts_with('/') {
            text.insert(0, '\n');
        }
        text
    }

    /// Whether the recipe has a place for `{name}`.
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        self.args.iter().flatten().any(|arg| placeholder(arg) == Some(name))
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

impl PermissionTable {
    #[must_use]
    pub fn of(&self, permissions: Permissions) -> &Grant {
        match permissions {
            Permissions::Read => &self.read,
            Permissions::Edit => &self.edit,
            Permissions::Full => &self.full,
        }
    }
}

impl Values<'_> {
    fn of(&self, name: &str, prompt: &str) -> Vec<String> {
        let one = |value: Option<&str>| value.map(str::to_owned).into_iter().collect();
        match name {
            "prompt" => vec![prompt.to_owned()],
            "cwd" => vec![self.cwd.to_owned()],
            "model" => one(self.model),
            "session" => one(self.session),
            "max_turns" => one(self.max_turns.map(|n| n.to_string()).as_deref()),
            "tool" => self.tools.to_vec(),
            "system_file" => one(self.system_file),
            "image" => self.images.to_vec(),
            _ => Vec::new(),
        }
    }
}

/// The name inside the first `{…}` of an argument.
fn placeholder(arg: &str) -> Option<&str> {
    let (_, rest) = arg.split_once('{')?;
    let (name, _) = rest.split_once('}')?;
    const KNOWN: [&str; 8] = ["prompt", "cwd", "model", "session", "max_turns", "tool", "system_file", "image"];
    KNOWN.contains(&name).then_some(name)
}

/// Puts a backslash before each `@` that has none.
fn escape_at(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    let mut previous = ' ';
    for c in text.chars() {
        if c == '@' && previous != '\\' {
            escaped.push('\\');
        }
        escaped.push(c);
        previous = c;
    }
    escaped
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
