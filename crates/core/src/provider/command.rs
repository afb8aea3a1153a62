//! Renders a recipe and the values of a run as a command line. Pure: no search of `PATH`, no I/O.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::arguments::{GroupPlaceholder, Placeholder, has_place, placeholder};
use super::recipe::Provider;
use crate::failure::{Category, Failure};
use crate::live;
use crate::vocabulary::{CliPermissions, OutputForm, PromptDelivery};

/// Maximum length of an argument on Linux, without its terminating NUL.
pub(super) const MAX_ARGUMENT_BYTES: usize = 131_071;

/// Values of one run for the placeholders of a recipe.
#[derive(Debug, Clone, Default)]
pub struct Values<'a> {
    pub prompt: &'a str,
    /// The turn as a request of the provider protocol.
    pub request: &'a str,
    pub cwd: &'a str,
    pub model: Option<&'a str>,
    pub session: Option<&'a str>,
    pub max_turns: Option<u32>,
    pub max_tokens: Option<NonZeroU64>,
    pub tools: &'a [String],
    pub system_file: Option<&'a str>,
    pub images: &'a [String],
    pub permissions: CliPermissions,
    /// Folder with the files of the recipe.
    pub files: Option<&'a str>,
    /// The user's home folder.
    pub home: Option<&'a str>,
    /// Additional arguments of the model.
    pub extra: &'a [String],
}

/// Rendered arguments and input of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    pub args: Vec<String>,
    pub stdin: Option<String>,
}

/// Rendered command line. The program is a name that was not searched for yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    pub program: String,
    pub args: Vec<String>,
    pub stdin: Option<String>,
    /// Variables in addition to the inherited environment.
    pub env: BTreeMap<String, String>,
}

impl Provider {
    /// Renders the command line of one turn.
    pub fn command(&self, form: OutputForm, values: &Values<'_>) -> Result<CommandLine, Failure> {
        let Arguments { args, stdin } = self.arguments(form, values)?;
        let mut env = self.env.clone();
        env.extend(self.permissions.of(values.permissions).env.clone());
        Ok(CommandLine { program: self.program.clone(), args, stdin, env })
    }

    /// Renders the arguments and the input of one turn, without the variables, which are the same for every turn.
    pub fn arguments(&self, form: OutputForm, values: &Values<'_>) -> Result<Arguments, Failure> {
        let groups = match form {
            OutputForm::Streamed => &self.args,
            OutputForm::Whole => self.whole.as_ref().unwrap_or(&self.args),
        };
        self.render(groups, values)
    }

    /// Renders the arguments of a process that is kept, and the greeting that it gets before its first turn. Its variables
    /// are those of the recipe and of `live`.
    pub fn live_arguments(
        &self,
        live: &live::LiveRecipe,
        values: &Values<'_>,
        system: Option<&str>,
    ) -> Result<(Vec<String>, live::Greeting), Failure> {
        let args = self.render(&live.args, values)?.args;
        let greeting = live::Greeting {
            cwd: values.cwd.to_owned(),
            model: values.model.filter(|_| !has_place(&live.args, Placeholder::Model)).map(str::to_owned),
            mode: live.modes.of(values.permissions.level()).map(str::to_owned),
            primer: live.primer.clone(),
            system: system.map(str::to_owned),
            permissions: values.permissions.answers(),
        };
        Ok((args, greeting))
    }

    fn render(&self, groups: &[Vec<String>], values: &Values<'_>) -> Result<Arguments, Failure> {
        let prompt = self.escape.text(values.prompt);
        let mut args = Vec::new();
        let mut extra_placed = false;
        for group in groups {
            match GroupPlaceholder::of(group) {
                // An executable gets its arguments unchanged.
                _ if self.prompt == PromptDelivery::Request => args.extend_from_slice(group),
                Some(GroupPlaceholder::Permissions) => {
                    args.extend(self.permissions.of(values.permissions).args.iter().cloned());
                }
                Some(GroupPlaceholder::Extra) => {
                    args.extend_from_slice(values.extra);
                    extra_placed = true;
                }
                None => self.fill(group, &prompt, values, &mut args)?,
            }
        }
        // Additional arguments of an executable go before its subcommand, which is the last argument.
        match args.pop_if(|_| self.prompt == PromptDelivery::Request) {
            Some(command) => args.extend(values.extra.iter().cloned().chain([command])),
            None if extra_placed => {}
            None => args.extend_from_slice(values.extra),
        }
        if let Some(long) = args.iter().find(|arg| arg.len() > MAX_ARGUMENT_BYTES) {
            return Err(Failure::new(
                Category::Validation,
                format!(
                    "the prompt is too long for {}: {} bytes in one argument, at most {MAX_ARGUMENT_BYTES}",
                    self.name,
                    long.len()
                ),
            )
            .hint("use a provider that takes its prompt on stdin"));
        }
        let stdin = match self.prompt {
            PromptDelivery::Stdin => Some(prompt),
            PromptDelivery::Arg => None,
            PromptDelivery::Request => Some(values.request.to_owned()),
        };
        Ok(Arguments { args, stdin })
    }

    /// Adds a group to `args`, once for each value of its placeholder, or not at all if there is no value.
    fn fill(&self, group: &[String], prompt: &str, values: &Values<'_>, args: &mut Vec<String>) -> Result<(), Failure> {
        let Some(first) = group.iter().find_map(|arg| placeholder(arg)) else {
            args.extend_from_slice(group);
            return Ok(());
        };
        for value in values.of(first, prompt) {
            for template in group {
                let Some(placeholder) = placeholder(template) else {
                    args.push(template.clone());
                    continue;
                };
                let braced = format!("{{{}}}", placeholder.name());
                let value = self.guard(placeholder, value.clone(), *template == braced, args.last())?;
                args.push(template.replace(&braced, &value));
            }
        }
        Ok(())
    }

    /// Makes sure that a value that is a whole argument cannot be read as a flag.
    fn guard(
        &self,
        placeholder: Placeholder,
        value: String,
        alone: bool,
        before: Option<&String>,
    ) -> Result<String, Failure> {
        let name = placeholder.name();
        if value.contains('\0') {
            return Err(Failure::new(Category::Validation, format!("the {name} contains a NUL character")));
        }
        if !alone || !value.starts_with('-') || before.is_some_and(|arg| arg == "--") {
            return Ok(value);
        }
        if placeholder == Placeholder::Prompt {
            return Ok(format!("\n{value}"));
        }
        Err(Failure::new(
            Category::Validation,
            format!("the {name} {value:?} begins with a dash and would be read as a flag"),
        ))
    }
}

impl Values<'_> {
    fn of(&self, placeholder: Placeholder, prompt: &str) -> Vec<String> {
        let one = |value: Option<&str>| value.map(str::to_owned).into_iter().collect();
        match placeholder {
            Placeholder::Prompt => vec![prompt.to_owned()],
            Placeholder::Cwd => vec![self.cwd.to_owned()],
            Placeholder::Model => one(self.model),
            Placeholder::Session => one(self.session),
            Placeholder::MaxTurns => one(self.max_turns.map(|n| n.to_string()).as_deref()),
            Placeholder::MaxTokens => one(self.max_tokens.map(|n| n.to_string()).as_deref()),
            Placeholder::Tool => self.tools.to_vec(),
            Placeholder::SystemFile => one(self.system_file),
            Placeholder::Image => self.images.to_vec(),
            Placeholder::Files => one(self.files),
            Placeholder::Home => one(self.home),
        }
    }
}
