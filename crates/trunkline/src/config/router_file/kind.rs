//! What a provider is: an executable of the small protocol, an HTTP API, or an agent CLI.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use trunkline_core::api::Key;
use trunkline_core::limits::Asked;
use trunkline_core::model::Sandbox;
use trunkline_core::near::near;
use trunkline_core::provider::{Permissions, Provider, current_key, renamed_keys};

use super::expand::is_variable;
use super::fields::Fields;
use super::mistake::Mistake;
use super::yaml::{Entry, Node, Value};
use super::{Reader, agent, aliases};

const TYPES: [&str; 3] = ["cli", "agent", "api"];
const EXECUTABLE_KEYS: [&str; 7] = ["path", "args", "timeout", "model", "max_tokens", "options", "env"];
const API_KEYS: [&str; 5] = ["base_url", "api_key_env", "model", "max_tokens", "timeout"];

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are a few of them, read once")]
pub(crate) enum Kind {
    /// `cli`: a program with `generate`, `stream` and `health`.
    Executable {
        path: String,
        args: Vec<String>,
        /// Handed to it with each request, untouched.
        options: Map<String, serde_json::Value>,
        env: BTreeMap<String, String>,
    },
    /// `api`: an HTTP server that speaks OpenAI's chat completions.
    Api {
        /// Without a slash at its end.
        base_url: String,
        key: Option<Key>,
    },
    /// `agent`: a coding agent, run by its recipe.
    Agent {
        provider: Arc<Provider>,
        /// Runs instead of the recipe's own program.
        command: Option<String>,
        /// Added to the recipe's arguments.
        args: Vec<String>,
        repo: PathBuf,
        agent_file: Option<String>,
        worktree: bool,
        keep_worktree: bool,
        permissions: Permissions,
        /// But the whole, which every type has.
        limits: Asked,
        sandbox: Option<Sandbox>,
        writable: Vec<PathBuf>,
        max_turns: Option<u32>,
        allowed_tools: Vec<String>,
        system_prompt: Option<String>,
        warm: Option<u32>,
        env: BTreeMap<String, String>,
    },
}

/// What a provider's `config` comes to.
pub(super) struct Settings {
    pub(super) kind: Kind,
    pub(super) model: Option<String>,
    pub(super) max_tokens: Option<NonZeroU64>,
    pub(super) timeout: Option<Duration>,
}

pub(super) fn settings(provider: &Fields<'_>, name: &str, reader: &mut Reader<'_>) -> Result<Settings, Mistake> {
    let written = provider.text("type")?.ok_or_else(|| {
        provider.missing("type").hint("cli: a provider executable, agent: a coding agent, api: an HTTP API")
    })?;
    let nothing = Node { at: provider.at(), value: Value::Nothing };
    let owner = format!("provider {name}");
    let config = provider.get("config").unwrap_or(&nothing);
    let old_names = config.to_json();
    let config = aliases::renamed(config, &owner, &written)?;
    match written.as_str() {
        "cli" => {
            let (known, more) = executables_own(&config, &owner)?;
            let fields = Fields::of(&known, &owner, &EXECUTABLE_KEYS, |_| None)?;
            let settings = executable(&fields, more, reader)?;
            reader.warnings.extend(fields.notes());
            Ok(settings)
        }
        "api" => {
            let fields = Fields::of(&config, &owner, &API_KEYS, |key| of_another_type(key, "api"))?;
            let settings = api(&fields, name, reader)?;
            reader.warnings.extend(fields.notes());
            Ok(settings)
        }
        "agent" => {
            let fields = Fields::of(&config, &owner, &agent::keys(), |key| of_another_type(key, "agent"))?;
            let settings = agent::read(&fields, name, reader)?;
            reader.warnings.extend(fields.notes());
            reader.warnings.extend(renamed_keys(&old_names).map(|key| fields.said(&key.to_string())));
            Ok(settings)
        }
        unknown => {
            let at = provider.get("type").map_or(provider.at(), |node| node.at);
            Err(provider.mistake(at, format!("unknown type {unknown:?}")).suggest(unknown, TYPES))
        }
    }
}

pub(super) fn is_config_key(key: &str) -> bool {
    let key = current_key(aliases::canonical(key));
    key == "command" || EXECUTABLE_KEYS.contains(&key) || API_KEYS.contains(&key) || agent::keys().contains(&key)
}

/// The keys of an executable's configuration that are ours, and those that are the executable's: it gets them with each
/// request, and a warning says so, in case they are typos.
fn executables_own(config: &Node, owner: &str) -> Result<(Node, Vec<Entry>), Mistake> {
    let Value::Map(entries) = &config.value else { return Ok((config.clone(), Vec::new())) };
    let (ours, theirs): (Vec<Entry>, Vec<Entry>) =
        entries.iter().cloned().partition(|entry| EXECUTABLE_KEYS.contains(&entry.key.as_str()));
    if let Some(entry) = theirs.iter().find(|entry| entry.key == "api_key") {
        let mistake = Mistake::new(entry.at, format!("{owner}: unknown key `api_key`"));
        return Err(mistake.hint("a key does not belong in a file: pass the variable that holds it on, with `env`"));
    }
    Ok((Node { at: config.at, value: Value::Map(ours) }, theirs))
}

/// Why a key that exists is not for this type.
fn of_another_type(key: &str, own: &str) -> Option<String> {
    if key == "api_key" {
        return Some("a key does not belong in a file: name the variable that holds it, with `api_key_env`".to_owned());
    }
    let types = [("cli", &EXECUTABLE_KEYS[..]), ("api", &API_KEYS[..]), ("agent", &agent::keys()[..])];
    let others: Vec<&str> = types.iter().filter(|(_, keys)| keys.contains(&key)).map(|(name, _)| *name).collect();
    (!others.is_empty()).then(|| format!("`{key}` is for type {}, and this is {own}", others.join(" and ")))
}

fn executable(config: &Fields<'_>, more: Vec<Entry>, reader: &mut Reader<'_>) -> Result<Settings, Mistake> {
    let Some(path) = config.text("path")? else {
        // A typo of the one key that is needed is not for the executable.
        let typo = more.iter().find(|entry| !near(&entry.key, ["path"]).is_empty());
        return Err(match typo {
            Some(Entry { key, at, .. }) => config.mistake(*at, format!("unknown key `{key}`")).suggest(key, ["path"]),
            None => config.missing("path").hint("add it under `config`"),
        });
    };
    let mut options: Map<_, _> =
        config.map("options")?.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect();
    for Entry { key, at, node } in more {
        if options.insert(key.clone(), node.to_json()).is_some() {
            return Err(config.mistake(at, format!("`{key}` is there twice: in `config` and in its `options`")));
        }
        let close = near(&key, EXECUTABLE_KEYS);
        let meant = close.first().map(|close| format!("did you mean `{close}`?"));
        let meant =
            meant.or_else(|| of_another_type(&key, "cli")).map(|meant| format!("; {meant}")).unwrap_or_default();
        reader.warnings.push(config.said(&format!(
            "`{key}` is not a key of ours and is passed on to the executable, in the config of each request{meant}"
        )));
    }
    let kind =
        Kind::Executable { path: reader.program(&path), args: config.texts("args")?, options, env: config.env()? };
    Ok(Settings {
        kind,
        model: config.text("model")?,
        max_tokens: config.max_tokens()?,
        timeout: config.time("timeout")?,
    })
}

fn api(config: &Fields<'_>, name: &str, reader: &mut Reader<'_>) -> Result<Settings, Mistake> {
    let (Some(url), Some(node)) = (config.text("base_url")?, config.get("base_url")) else {
        return Err(config.missing("base_url").hint("add it under `config`"));
    };
    let base_url = base_url(&url).map_err(|why| config.mistake(node.at, format!("`base_url` {why}")))?;
    let key = match (config.text("api_key_env")?, config.get("api_key_env")) {
        (Some(variable), Some(node)) if !names_a_key(&variable) => {
            // Not repeated: it may well be the key itself.
            return Err(config
                .mistake(node.at, "`api_key_env` is not a variable's name in capital letters")
                .hint("write the name of the variable that holds the key, without `${}`"));
        }
        (Some(variable), _) => {
            let value = reader.around.variable(&variable).map(str::to_owned);
            if value.is_none() {
                reader.warnings.push(format!("provider {name}: the variable {variable} of its API key is not set"));
            }
            Some(Key { variable, value })
        }
        (None, _) => None,
    };
    let kind = Kind::Api { base_url, key };
    Ok(Settings {
        kind,
        model: config.text("model")?,
        max_tokens: config.max_tokens()?,
        timeout: config.time("timeout")?,
    })
}

/// A key itself mostly passes for a variable's name, but hardly for one in capital letters.
fn names_a_key(variable: &str) -> bool {
    is_variable(variable) && !variable.contains(|c: char| c.is_ascii_lowercase())
}

/// The address with nothing after its path; the reason if it cannot be one.
fn base_url(written: &str) -> Result<String, &'static str> {
    let url = written.trim();
    let (scheme, rest) = url.split_once("://").ok_or("must begin with http:// or https://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err("must begin with http:// or https://");
    }
    if rest.contains(['?', '#']) {
        return Err("must not have a query");
    }
    if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("holds a space");
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err("must not hold a password: use `api_key_env`");
    }
    let after_host = authority.rsplit_once(']').map_or(authority, |(_, after)| after);
    let (host, port) = match after_host.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (after_host, None),
    };
    if host.is_empty() && !authority.starts_with('[') {
        return Err("names no host");
    }
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err("has no valid port");
    }
    Ok(url.trim_end_matches('/').to_owned())
}

impl Reader<'_> {
    /// A program as written: a path is one beside the file if it is there, else one in the current folder; a bare
    /// name is looked for on the search path when it runs, unless a file of that name lies beside this one.
    pub(super) fn program(&self, written: &str) -> String {
        let beside = self.around.path(written, &self.folder);
        let here = self.around.path(written, &self.around.folder);
        let found = match written.contains('/') {
            _ if beside.is_file() => beside,
            true if here.is_file() => here,
            // It may yet come, and then beside the file that names it.
            true => beside,
            false => return written.to_owned(),
        };
        found.to_string_lossy().into_owned()
    }
}
