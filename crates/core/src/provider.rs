//! A CLI we can run, as data: its argv recipe, how the prompt reaches it, what it prints, how it is stopped.
//!
//! Nothing here looks at `PATH` or starts anything: [`Provider::command`] renders a command line and that is all. The
//! built-in providers are `providers.toml` beside this file; a user's own file has the same shape.

mod arguments;
mod checks;
mod command;
mod login;
mod offered;
mod overlay;
mod permissions;
mod recipe;
mod renamed;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::parse::Format;
use crate::protocol;
use crate::vocabulary::PromptDelivery;
pub use arguments::{Placeholder, UnknownPlaceholder, unknown_placeholders};
pub use checks::UnreadableLive;
pub use command::{CommandLine, MAX_ARGUMENT, Values};
pub use login::{Credentials, Login};
pub use offered::OfferedModel;
pub use overlay::{Grants, Overlay};
pub use permissions::{Grant, PermissionTable};
pub use recipe::{Home, Provider, SettingsFile};
pub use renamed::{RenamedKey, current_key, renamed_keys, renamed_keys_of_file};

// Aliases for the users in other crates. TODO: rename them there, and import the shared enums from `vocabulary`.
#[doc(hidden)]
pub use self::{OfferedModel as Offered, UnknownPlaceholder as NoPlaceholder, unknown_placeholders as no_placeholders};
#[doc(hidden)]
pub use crate::vocabulary::{
    CliPermissions as Told, OutputForm as Form, Permissions, PromptDelivery as Delivery, PromptEscape as Inert,
    SessionKind, StopSignal, UsageScope,
};
#[doc(hidden)]
pub const PLACEHOLDERS: [&str; Placeholder::NAMES.len()] = Placeholder::NAMES;

const BUILT_IN: &str = include_str!("providers.toml");

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
    provider.buffers_output = true;
    provider.args = args.iter().map(|arg| vec![arg.clone()]).collect();
    if provider.has_placeholder(Placeholder::Prompt) {
        provider.prompt = PromptDelivery::Arg;
    }
    provider
}

/// An executable of the provider protocol: its subcommands follow its own arguments.
#[must_use]
pub fn executable(name: &str, program: &str, args: &[String]) -> Provider {
    let with = |command: &str| args.iter().cloned().chain([command.to_owned()]).collect::<Vec<String>>();
    let mut provider = plain(name, program, &[], Format::Protocol);
    provider.prompt = PromptDelivery::Request;
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

#[cfg(test)]
mod tests;
