//! Overlays: fields that replace those of a recipe, so that a user can change or add a provider without a build.
//!
//! The fields come from a file of the router; tests read them from TOML.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::Deserialize;

use super::arguments::Placeholder;
use super::login::Login;
use super::offered::OfferedModel;
use super::permissions::Grant;
use super::recipe::{Home, Provider, SettingsFile};
use super::schemas::SchemaRules;
use crate::failure::FailureRule;
use crate::live;
use crate::parse::Format;
use crate::vocabulary::{PromptDelivery, PromptEscape, SessionKind, StopSignal, UsageScope};

/// Fields that replace those of a [`Provider`]. Absent fields keep the values of the recipe.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overlay {
    pub program: Option<String>,
    pub native: Option<Vec<String>>,
    pub install: Option<String>,
    pub format: Option<Format>,
    pub args: Option<Vec<Vec<String>>>,
    pub whole: Option<Vec<Vec<String>>>,
    pub live: Option<live::LiveRecipe>,
    pub prompt: Option<PromptDelivery>,
    pub models: Option<Vec<OfferedModel>>,
    pub max_tokens: Option<NonZeroU64>,
    pub login: Option<Login>,
    /// A level without a grant keeps the grant of the recipe.
    pub permissions: Grants,
    /// Added to those of the recipe.
    pub env: BTreeMap<String, String>,
    pub keys: Option<Vec<String>>,
    pub home: Option<Home>,
    pub settings: Option<SettingsFile>,
    /// Added to those of the recipe.
    pub files: BTreeMap<String, String>,
    pub reads_agents_md: Option<bool>,
    pub schemas: Option<SchemaRules>,
    pub state: Option<Vec<String>>,
    pub own_sandbox: Option<bool>,
    pub escape: Option<PromptEscape>,
    pub node_compile_cache: Option<bool>,
    pub private_tmp: Option<bool>,
    pub buffers_output: Option<bool>,
    pub stop: Option<StopSignal>,
    pub session: Option<SessionKind>,
    pub usage: Option<UsageScope>,
    pub version: Option<Vec<String>>,
    /// Added to those of the recipe.
    pub noise: Vec<String>,
    /// Checked before those of the recipe.
    pub failures: Vec<FailureRule>,
}

/// Grants that replace those of a recipe.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    pub read: Option<Grant>,
    pub edit: Option<Grant>,
    pub edit_confined: Option<Grant>,
    pub full: Option<Grant>,
}

impl Overlay {
    /// Names of all fields.
    pub const FIELDS: [&'static str; 31] = [
        "program",
        "native",
        "install",
        "format",
        "args",
        "whole",
        "live",
        "prompt",
        "models",
        "max_tokens",
        "login",
        "permissions",
        "env",
        "keys",
        "home",
        "settings",
        "files",
        "reads_agents_md",
        "schemas",
        "state",
        "own_sandbox",
        "escape",
        "node_compile_cache",
        "private_tmp",
        "buffers_output",
        "stop",
        "session",
        "usage",
        "version",
        "noise",
        "failures",
    ];

    /// Returns `recipe` with these fields in place of its own.
    #[must_use]
    pub fn over(self, mut recipe: Provider) -> Provider {
        let (new_args, new_program) = (self.args.is_some(), self.program.is_some());
        let new_live = self.live.is_some();
        set(&mut recipe.program, self.program);
        set(&mut recipe.native, self.native);
        set(&mut recipe.format, self.format);
        set(&mut recipe.args, self.args);
        set(&mut recipe.permissions.read, self.permissions.read);
        if self.permissions.edit.is_some() {
            // The recipe's grant may allow more than the new `edit`.
            recipe.permissions.edit_confined = None;
        }
        set(&mut recipe.permissions.edit, self.permissions.edit);
        recipe.permissions.edit_confined = self.permissions.edit_confined.or(recipe.permissions.edit_confined);
        set(&mut recipe.permissions.full, self.permissions.full);
        set(&mut recipe.models, self.models);
        set(&mut recipe.keys, self.keys);
        set(&mut recipe.reads_agents_md, self.reads_agents_md);
        set(&mut recipe.state, self.state);
        set(&mut recipe.own_sandbox, self.own_sandbox);
        set(&mut recipe.escape, self.escape);
        set(&mut recipe.node_compile_cache, self.node_compile_cache);
        set(&mut recipe.private_tmp, self.private_tmp);
        set(&mut recipe.buffers_output, self.buffers_output);
        set(&mut recipe.stop, self.stop);
        set(&mut recipe.session, self.session);
        set(&mut recipe.usage, self.usage);
        set(&mut recipe.version, self.version);
        recipe.schemas = self.schemas.or(recipe.schemas);
        recipe.install = self.install.or(recipe.install);
        recipe.max_tokens = self.max_tokens.or(recipe.max_tokens);
        recipe.login = self.login.or(recipe.login);
        recipe.home = self.home.or(recipe.home);
        recipe.settings = self.settings.or(recipe.settings);
        recipe.env.extend(self.env);
        recipe.files.extend(self.files);
        recipe.noise = recipe.noise.iter().cloned().chain(self.noise).collect();
        recipe.failures = self.failures.into_iter().chain(recipe.failures.iter().cloned()).collect();
        // The whole form of the recipe belongs to the arguments that are replaced.
        recipe.whole = if new_args { self.whole } else { self.whole.or(recipe.whole) };
        // So does the kept process, which another program may not support.
        recipe.live = if new_args || new_program { self.live } else { self.live.or(recipe.live) };
        // A new format without a new `live` is about the output of a single turn.
        if !new_live && recipe.check_live().is_err() {
            recipe.live = None;
        }
        recipe.prompt = match self.prompt {
            Some(prompt) => prompt,
            None if new_args && recipe.has_placeholder(Placeholder::Prompt) => PromptDelivery::Arg,
            None if new_args => PromptDelivery::Stdin,
            None => recipe.prompt,
        };
        recipe
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BUILT_IN, UnreadableLive, built_in, plain};
    use super::*;
    use crate::live::LiveProtocol;
    use crate::vocabulary::CliPermissions;

    fn overlay(toml: &str) -> Overlay {
        toml::from_str(toml).unwrap()
    }

    /// A field of a provider that an overlay lacks is refused or lost here.
    #[test]
    fn every_built_in_provider_can_be_written_as_an_overlay() {
        let mut written: BTreeMap<String, toml::Table> = toml::from_str(BUILT_IN).unwrap();
        for (name, expected) in built_in() {
            let mut table = written.remove(&name).unwrap();
            table.remove("aliases");
            let overlay: Overlay = table.try_into().unwrap();
            let mut bare = plain(&name, "bare", &[], Format::Text);
            bare.buffers_output = false;
            bare.aliases.clone_from(&expected.aliases);
            assert_eq!(overlay.over(bare), expected);
        }
    }

    #[test]
    fn the_list_of_fields_is_complete() {
        let refusal = toml::from_str::<Overlay>("nonsense = 1").unwrap_err().to_string();
        let named: Vec<&str> = refusal.split('`').skip(3).step_by(2).collect();
        assert_eq!(named, Overlay::FIELDS);
    }

    #[test]
    fn an_empty_overlay_changes_nothing() {
        for (_, provider) in built_in() {
            assert_eq!(Overlay::default().over(provider.clone()), provider);
        }
    }

    #[test]
    fn absent_fields_keep_the_values_of_the_recipe() {
        let claude = built_in().remove("claude").unwrap();
        let changed = overlay(
            "program = 'my-claude'\nfailures = [{ contains = 'closed for today', is = 'quota' }]\n\
             noise = ['hello']\n[permissions]\nread = { args = ['--look'] }\n[env]\nA = 'b'",
        )
        .over(claude.clone());
        assert_eq!((changed.program.as_str(), changed.format), ("my-claude", Format::Claude));
        assert_eq!((&changed.args, changed.prompt), (&claude.args, PromptDelivery::Stdin));
        assert_eq!(changed.permissions.read.args, ["--look"]);
        assert_eq!(changed.permissions.full, claude.permissions.full);
        assert_eq!(changed.failures[0].contains, "closed for today");
        assert_eq!(changed.failures[1..], *claude.failures);
        assert_eq!(changed.noise.last().unwrap(), "hello");
        assert_eq!(changed.env.len(), claude.env.len() + 1);
    }

    #[test]
    fn a_kept_process_is_refused_when_the_format_cannot_read_its_protocol() {
        let mut refused = Vec::new();
        for protocol in LiveProtocol::ALL {
            for format in Format::ALL {
                let toml = format!(
                    "format = {:?}\nprogram = 'x'\n[live]\nprotocol = {:?}\nargs = []",
                    format.name(),
                    protocol.name()
                );
                let provider = overlay(&toml).over(plain("x", "x", &[], Format::Text));
                if let Err(error) = provider.check_live() {
                    assert_eq!(error, UnreadableLive { format, protocol });
                    refused.push((protocol.name(), format.name()));
                }
            }
        }
        for protocol in LiveProtocol::NAMES {
            for format in ["text", "json", "protocol"] {
                assert!(refused.contains(&(protocol, format)), "{protocol} {format}");
            }
        }
        assert!(refused.contains(&("app-server", "stream-json")) && refused.contains(&("claude", "codex")));
        assert!(!refused.contains(&("acp", "stream-json")) && !refused.contains(&("claude", "stream-json")));
        for (name, provider) in built_in() {
            assert_eq!(provider.check_live(), Ok(()), "{name}");
        }
        let plain_gemini = overlay("format = 'text'").over(built_in().remove("gemini").unwrap());
        assert_eq!(plain_gemini.live, None, "the kept process of a recipe goes with its format");
        let error = UnreadableLive { format: Format::Text, protocol: LiveProtocol::AppServer };
        assert_eq!(error.to_string(), "format \"text\" cannot read the protocol \"app-server\" of `live`");
        assert_eq!(error.hint(), "use one of the formats codex, or remove `live`");
    }

    #[test]
    fn the_confined_grant_of_the_recipe_is_dropped_when_edit_is_replaced() {
        let claude = built_in().remove("claude").unwrap();
        let confined =
            |toml: &str| overlay(toml).over(claude.clone()).permissions.of(CliPermissions::EditConfined).args.clone();
        assert_eq!(confined("[permissions]\nread = {}"), claude.permissions.of(CliPermissions::EditConfined).args);
        assert_eq!(confined("[permissions]\nedit = { args = ['--ask'] }"), ["--ask"]);
        let both = "[permissions]\nedit = { args = ['--ask'] }\nedit_confined = { args = ['--run'] }";
        assert_eq!(confined(both), ["--run"]);
    }

    #[test]
    fn delivery_of_the_prompt_follows_from_the_arguments() {
        for (recipe, toml, delivery, lost) in [
            ("glm", "", PromptDelivery::Arg, false),
            ("glm", "args = [['run']]", PromptDelivery::Stdin, false),
            ("glm", "prompt = 'stdin'", PromptDelivery::Stdin, false),
            ("claude", "args = [['-p', '{prompt}']]", PromptDelivery::Arg, false),
            ("claude", "prompt = 'arg'", PromptDelivery::Arg, true),
        ] {
            let changed = overlay(toml).over(built_in().remove(recipe).unwrap());
            assert_eq!((changed.prompt, changed.loses_the_prompt()), (delivery, lost), "{recipe}: {toml}");
        }
        let gemini = overlay("args = [['run']]").over(built_in().remove("gemini").unwrap());
        assert_eq!(gemini.whole, None, "the old whole form does not fit the new arguments");
        assert_eq!(gemini.live, None, "the old kept process does not fit the new arguments");
    }
}
