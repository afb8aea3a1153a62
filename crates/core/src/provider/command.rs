//! Renders a recipe and the values of a run as a command line. Pure: no search of `PATH`, no I/O.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::arguments::{GroupPlaceholder, Placeholder, has_place, is_alone, placeholder};
use super::recipe::Provider;
use crate::failure::{Category, Failure};
use crate::live;
use crate::vocabulary::{CliPermissions, OutputForm, PromptDelivery};

/// Maximum length of an argument on Linux, without its terminating NUL.
pub(super) const MAX_ARGUMENT_BYTES: usize = 131_071;

/// Room for the arguments of a usual turn.
const USUAL_ARGUMENTS: usize = 32;

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
    /// JSON Schema of the answer.
    pub schema: Option<&'a str>,
    /// File with the JSON Schema of the answer.
    pub schema_file: Option<&'a str>,
    /// Additional arguments of the model.
    pub extra: &'a [String],
}

/// Rendered arguments and input of one turn. Most of them are parts of the recipe or of the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments<'a> {
    pub args: Vec<Cow<'a, str>>,
    pub stdin: Option<Cow<'a, str>>,
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
        let (args, stdin) = (args.into_iter().map(Cow::into_owned).collect(), stdin.map(Cow::into_owned));
        let mut env = self.env.clone();
        env.extend(self.permissions.of(values.permissions).env.clone());
        Ok(CommandLine { program: self.program.clone(), args, stdin, env })
    }

    /// Renders the arguments and the input of one turn, without the variables, which are the same for every turn.
    pub fn arguments<'a>(&'a self, form: OutputForm, values: &Values<'a>) -> Result<Arguments<'a>, Failure> {
        let groups = match form {
            OutputForm::Streamed => &self.args,
            OutputForm::Whole => self.whole.as_ref().unwrap_or(&self.args),
        };
        self.render(groups, values)
    }

    /// Renders the arguments of a process that is kept, and the greeting that it gets before its first turn. Its variables
    /// are those of the recipe and of `live`.
    pub fn live_arguments<'a>(
        &'a self,
        live: &'a live::LiveRecipe,
        values: &Values<'a>,
        system: Option<&str>,
    ) -> Result<(Vec<Cow<'a, str>>, live::Greeting), Failure> {
        let args = self.render(&live.args, values)?.args;
        let greeting = live::Greeting {
            cwd: values.cwd.to_owned(),
            model: values.model.filter(|_| !has_place(&live.args, Placeholder::Model)).map(str::to_owned),
            mode: live.modes.of(values.permissions.level()).map(str::to_owned),
            primer: live.primer.clone(),
            system: system.map(str::to_owned),
            permissions: values.permissions.answers(),
            ..live::Greeting::default()
        };
        Ok((args, greeting))
    }

    fn render<'a>(&'a self, groups: &'a [Vec<String>], values: &Values<'a>) -> Result<Arguments<'a>, Failure> {
        let prompt = self.escape.text(values.prompt);
        let mut args: Vec<Cow<'a, str>> = Vec::with_capacity(USUAL_ARGUMENTS);
        let borrowed = |args: &'a [String]| args.iter().map(|arg| Cow::Borrowed(arg.as_str()));
        let mut extra_placed = false;
        for group in groups {
            match GroupPlaceholder::of(group) {
                // An executable gets its arguments unchanged.
                _ if self.prompt == PromptDelivery::Request => args.extend(borrowed(group)),
                Some(GroupPlaceholder::Permissions) => {
                    args.extend(borrowed(&self.permissions.of(values.permissions).args));
                }
                Some(GroupPlaceholder::Extra) => {
                    args.extend(borrowed(values.extra));
                    extra_placed = true;
                }
                None => self.fill(group, &prompt, values, &mut args)?,
            }
        }
        // Additional arguments of an executable go before its subcommand, which is the last argument.
        match args.pop_if(|_| self.prompt == PromptDelivery::Request) {
            Some(command) => args.extend(borrowed(values.extra).chain([command])),
            None if extra_placed => {}
            None => args.extend(borrowed(values.extra)),
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
            PromptDelivery::Request => Some(Cow::Borrowed(values.request)),
        };
        Ok(Arguments { args, stdin })
    }

    /// Adds a group to `args`, once for each value of its placeholder, or not at all if there is no value.
    #[expect(clippy::ptr_arg, reason = "a borrowed prompt is not copied")]
    fn fill<'a>(
        &self,
        group: &'a [String],
        prompt: &Cow<'a, str>,
        values: &Values<'a>,
        args: &mut Vec<Cow<'a, str>>,
    ) -> Result<(), Failure> {
        let Some(first) = group.iter().find_map(|arg| placeholder(arg)) else {
            args.extend(group.iter().map(|arg| Cow::Borrowed(arg.as_str())));
            return Ok(());
        };
        for value in values.of(first, prompt) {
            for template in group {
                let Some(placeholder) = placeholder(template) else {
                    args.push(Cow::Borrowed(template));
                    continue;
                };
                let alone = is_alone(template, placeholder);
                let value = self.guard(placeholder, value.clone(), alone, args.last())?;
                args.push(if alone {
                    value
                } else {
                    Cow::Owned(template.replace(&format!("{{{}}}", placeholder.name()), &value))
                });
            }
        }
        Ok(())
    }

    /// Makes sure that a value that is a whole argument cannot be read as a flag.
    fn guard<'a>(
        &self,
        placeholder: Placeholder,
        value: Cow<'a, str>,
        alone: bool,
        before: Option<&Cow<'a, str>>,
    ) -> Result<Cow<'a, str>, Failure> {
        let name = placeholder.name();
        if value.contains('\0') {
            return Err(Failure::new(Category::Validation, format!("the {name} contains a NUL character")));
        }
        if !alone || !value.starts_with('-') || before.is_some_and(|arg| arg == "--") {
            return Ok(value);
        }
        if placeholder == Placeholder::Prompt {
            return Ok(Cow::Owned(format!("\n{value}")));
        }
        Err(Failure::new(
            Category::Validation,
            format!("the {name} {value:?} begins with a dash and would be read as a flag"),
        ))
    }
}

impl<'a> Values<'a> {
    fn of(&self, placeholder: Placeholder, prompt: &Cow<'a, str>) -> impl Iterator<Item = Cow<'a, str>> {
        let (one, list): (Option<Cow<'a, str>>, &'a [String]) = match placeholder {
            Placeholder::Prompt => (Some(prompt.clone()), &[]),
            Placeholder::Cwd => (Some(Cow::Borrowed(self.cwd)), &[]),
            Placeholder::Model => (self.model.map(Cow::Borrowed), &[]),
            Placeholder::Session => (self.session.map(Cow::Borrowed), &[]),
            Placeholder::MaxTurns => (self.max_turns.map(|n| Cow::Owned(n.to_string())), &[]),
            Placeholder::MaxTokens => (self.max_tokens.map(|n| Cow::Owned(n.to_string())), &[]),
            Placeholder::Tool => (None, self.tools),
            Placeholder::SystemFile => (self.system_file.map(Cow::Borrowed), &[]),
            Placeholder::Image => (None, self.images),
            Placeholder::Files => (self.files.map(Cow::Borrowed), &[]),
            Placeholder::Home => (self.home.map(Cow::Borrowed), &[]),
            Placeholder::Schema => (self.schema.map(Cow::Borrowed), &[]),
            Placeholder::SchemaFile => (self.schema_file.map(Cow::Borrowed), &[]),
        };
        one.into_iter().chain(list.iter().map(|value| Cow::Borrowed(value.as_str())))
    }
}
