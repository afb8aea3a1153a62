//! Recipes of CLIs: arguments, delivery of the prompt, output format, stop signal and more.
//!
//! Nothing here searches `PATH` or starts a process: [`Provider::command`] only renders a command line. The built-in
//! providers are in `providers.toml` next to this file; a user's own file has the same format.

mod arguments;
mod checks;
mod command;
mod login;
mod offered;
mod overlay;
mod permissions;
mod recipe;
mod renamed;
mod schemas;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::parse::Format;
use crate::protocol;
use crate::vocabulary::PromptDelivery;
pub use arguments::{Placeholder, UnknownPlaceholder, unknown_placeholders};
pub use checks::UnreadableLive;
pub use command::{Arguments, CommandLine, Values};
pub use login::{Credentials, Login};
pub use offered::OfferedModel;
pub use overlay::{Grants, Overlay};
pub use permissions::{Grant, PermissionTable};
pub use recipe::{Home, Provider, SettingsFile};
pub use renamed::{RenamedKey, current_key, renamed_keys, renamed_keys_of_file};
pub use schemas::SchemaRules;

#[doc(hidden)]
pub const PLACEHOLDERS: [&str; Placeholder::NAMES.len()] = Placeholder::NAMES;

const BUILT_IN: &str = include_str!("providers.toml");

/// Returns the built-in providers by name.
#[must_use]
pub fn built_in() -> BTreeMap<String, Provider> {
    static PARSED: LazyLock<BTreeMap<String, Provider>> =
        LazyLock::new(|| parse(BUILT_IN).expect("providers.toml is checked by the tests"));
    PARSED.clone()
}

/// Creates a provider from a program, its arguments and its output format. The prompt goes to stdin unless an argument
/// contains `{prompt}`.
#[must_use]
pub fn plain(name: &str, program: &str, args: &[String], format: Format) -> Provider {
    let bare = "[p]\nprogram = \"p\"\nformat = \"text\"\nargs = []\n";
    let mut provider = parse(bare).expect("the recipe is valid").remove("p").expect("the recipe is named p");
    provider.name = name.to_owned();
    provider.program = program.to_owned();
    provider.format = format;
    provider.buffers_output = true;
    provider.args = args.iter().map(|arg| vec![arg.clone()]).collect();
    if provider.has_placeholder(Placeholder::Prompt) {
        provider.prompt = PromptDelivery::Arg;
    }
    provider
}

/// Creates a provider for an executable that speaks the provider protocol. The subcommands follow its own arguments.
#[must_use]
pub fn executable(name: &str, program: &str, args: &[String]) -> Provider {
    let with_command = |command: &str| args.iter().cloned().chain([command.to_owned()]).collect::<Vec<String>>();
    let mut provider = plain(name, program, &[], Format::Protocol);
    provider.prompt = PromptDelivery::Request;
    provider.args = vec![with_command(protocol::STREAM)];
    provider.whole = Some(vec![with_command(protocol::GENERATE)]);
    provider.health = Some(with_command(protocol::HEALTH));
    provider
}

/// Returns every variable that holds credentials of a built-in provider.
pub fn built_in_keys() -> &'static [String] {
    static KEYS: LazyLock<Vec<String>> =
        LazyLock::new(|| built_in().into_values().flat_map(|provider| provider.keys).collect());
    &KEYS
}

/// Parses a file of providers, with one table for each.
pub fn parse(toml: &str) -> Result<BTreeMap<String, Provider>, toml::de::Error> {
    let mut providers: BTreeMap<String, Provider> = toml::from_str(toml)?;
    for (name, provider) in &mut providers {
        provider.name.clone_from(name);
    }
    Ok(providers.into_iter().map(|(name, provider)| (name, provider.with_prompt_argument())).collect())
}

#[cfg(test)]
mod tests;
