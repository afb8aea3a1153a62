//! `config` of a provider by its type: an executable of the provider protocol, an HTTP API, or a coding agent.

use serde_json::Map;
use trunkline_core::api::ServiceKey;
use trunkline_core::near::near;
use trunkline_core::provider::{current_key, renamed_keys};

use super::super::model_options::ModelOptions;
use super::super::variables::is_variable;
use super::error::RouterFileError;
use super::fields::Fields;
use super::provider_types::{RouterProviderKind, RouterProviderType};
use super::reader::RouterFileReader;
use super::yaml::{YamlEntry, YamlNode, YamlValue};
use super::{agent_config, field_aliases};

const EXECUTABLE_KEYS: [&str; 7] = ["path", "args", "timeout", "model", "max_tokens", "options", "env"];
const API_KEYS: [&str; 5] = ["base_url", "api_key_env", "model", "max_tokens", "timeout"];

/// Keys of `config` for a type.
fn keys_of(kind: RouterProviderType) -> Vec<&'static str> {
    match kind {
        RouterProviderType::Cli => EXECUTABLE_KEYS.to_vec(),
        RouterProviderType::Agent => agent_config::keys(),
        RouterProviderType::Api => API_KEYS.to_vec(),
    }
}

/// Reads `type` and `config` of a provider.
pub(super) fn read(
    provider: &Fields<'_>,
    name: &str,
    reader: &mut RouterFileReader<'_>,
) -> Result<(RouterProviderKind, ModelOptions), RouterFileError> {
    let written = provider.text("type")?.ok_or_else(|| {
        provider.missing("type").hint("cli: a provider executable, agent: a coding agent, api: an HTTP API")
    })?;
    let Some(kind) = RouterProviderType::ALL.into_iter().find(|kind| kind.name() == written) else {
        let at = provider.get("type").map_or(provider.at(), |node| node.at);
        let unknown = provider.error(at, format!("unknown type {written:?}"));
        return Err(unknown.suggest(&written, RouterProviderType::ALL.map(RouterProviderType::name)));
    };
    let nothing = YamlNode { at: provider.at(), value: YamlValue::Nothing };
    let owner = format!("provider {name}");
    let config = provider.get("config").unwrap_or(&nothing);
    let old_names = config.to_json();
    let config = field_aliases::renamed(config, &owner, kind)?;
    match kind {
        RouterProviderType::Cli => {
            let (known, more) = split_executable_keys(&config, &owner)?;
            let fields = Fields::of(&known, &owner, &keys_of(kind), |_| None)?;
            let kind = executable(&fields, more, reader)?;
            with_options(kind, &fields, reader)
        }
        RouterProviderType::Api => {
            let fields = Fields::of(&config, &owner, &keys_of(kind), |key| of_another_type(key, kind))?;
            let kind = api(&fields, name, reader)?;
            with_options(kind, &fields, reader)
        }
        RouterProviderType::Agent => {
            let fields = Fields::of(&config, &owner, &keys_of(kind), |key| of_another_type(key, kind))?;
            let kind = agent_config::read(&fields, name, reader)?;
            let read = with_options(kind, &fields, reader)?;
            reader.warnings.extend(renamed_keys(&old_names).map(|key| fields.labelled(&key.to_string())));
            Ok(read)
        }
    }
}

/// Reads the options. Keys that are not for this type have been rejected already, so those options are at their defaults.
fn with_options(
    kind: RouterProviderKind,
    config: &Fields<'_>,
    reader: &mut RouterFileReader<'_>,
) -> Result<(RouterProviderKind, ModelOptions), RouterFileError> {
    let options = ModelOptions::read(config, &reader.folder, reader.environment)?;
    reader.warnings.extend(config.warnings());
    Ok((kind, options))
}

pub(super) fn is_config_key(key: &str) -> bool {
    let key = current_key(field_aliases::canonical(key));
    key == "command" || RouterProviderType::ALL.into_iter().any(|kind| keys_of(kind).contains(&key))
}

/// Splits an executable's configuration into our keys and the others, which are passed to the executable with each request.
/// A warning names each of the others, as it may be a typo.
fn split_executable_keys(config: &YamlNode, owner: &str) -> Result<(YamlNode, Vec<YamlEntry>), RouterFileError> {
    let YamlValue::Map(entries) = &config.value else { return Ok((config.clone(), Vec::new())) };
    let (ours, theirs): (Vec<YamlEntry>, Vec<YamlEntry>) =
        entries.iter().cloned().partition(|entry| EXECUTABLE_KEYS.contains(&entry.key.as_str()));
    if let Some(entry) = theirs.iter().find(|entry| entry.key == "api_key") {
        let error = RouterFileError::new(entry.at, format!("{owner}: unknown key `api_key`"));
        return Err(error.hint("a key does not belong in a file: pass the variable that holds it on, with `env`"));
    }
    Ok((YamlNode { at: config.at, value: YamlValue::Map(ours) }, theirs))
}

/// Advice on a key that exists, but for another type.
fn of_another_type(key: &str, own: RouterProviderType) -> Option<String> {
    if key == "api_key" {
        return Some("a key does not belong in a file: name the variable that holds it, with `api_key_env`".to_owned());
    }
    let types = [RouterProviderType::Cli, RouterProviderType::Api, RouterProviderType::Agent];
    let others: Vec<&str> =
        types.into_iter().filter(|kind| keys_of(*kind).contains(&key)).map(RouterProviderType::name).collect();
    (!others.is_empty()).then(|| format!("`{key}` is for type {}, and this is {}", others.join(" and "), own.name()))
}

fn executable(
    config: &Fields<'_>,
    more: Vec<YamlEntry>,
    reader: &mut RouterFileReader<'_>,
) -> Result<RouterProviderKind, RouterFileError> {
    let Some(path) = config.text("path")? else {
        // A typo of the one required key is not meant for the executable.
        let typo = more.iter().find(|entry| !near(&entry.key, ["path"]).is_empty());
        return Err(match typo {
            Some(YamlEntry { key, at, .. }) => config.error(*at, format!("unknown key `{key}`")).suggest(key, ["path"]),
            None => config.missing("path").hint("add it under `config`"),
        });
    };
    let mut request_config: Map<_, _> =
        config.map("options")?.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect();
    for YamlEntry { key, at, node } in more {
        if request_config.insert(key.clone(), node.to_json()).is_some() {
            return Err(config.error(at, format!("`{key}` appears twice: in `config` and in its `options`")));
        }
        let close = near(&key, EXECUTABLE_KEYS);
        let meant = close.first().map(|close| format!("did you mean `{close}`?"));
        let meant = meant
            .or_else(|| of_another_type(&key, RouterProviderType::Cli))
            .map(|meant| format!("; {meant}"))
            .unwrap_or_default();
        reader.warnings.push(config.labelled(&format!(
            "`{key}` is not a known key and is passed to the executable, in the config of each request{meant}"
        )));
    }
    Ok(RouterProviderKind::Executable { path: reader.program(&path), args: config.texts("args")?, request_config })
}

fn api(
    config: &Fields<'_>,
    name: &str,
    reader: &mut RouterFileReader<'_>,
) -> Result<RouterProviderKind, RouterFileError> {
    let (Some(url), Some(node)) = (config.text("base_url")?, config.get("base_url")) else {
        return Err(config.missing("base_url").hint("add it under `config`"));
    };
    let base_url = base_url(&url).map_err(|why| config.error(node.at, format!("`base_url` {why}")))?;
    let key = match (config.text("api_key_env")?, config.get("api_key_env")) {
        (Some(variable), Some(node)) if !is_key_variable(&variable) => {
            // The value is not shown: it may be the key itself.
            return Err(config
                .error(node.at, "`api_key_env` is not a variable's name in capital letters")
                .hint("write the name of the variable that holds the key, without `${}`"));
        }
        (Some(variable), _) => {
            let value = reader.environment.variable(&variable).map(str::to_owned);
            if value.is_none() {
                reader.warnings.push(format!("provider {name}: the variable {variable} of its API key is not set"));
            }
            Some(ServiceKey { variable, value })
        }
        (None, _) => None,
    };
    Ok(RouterProviderKind::Api { base_url, key })
}

/// Whether this is the name of a variable in capital letters. A key itself is often a valid name, but rarely in capitals.
fn is_key_variable(variable: &str) -> bool {
    is_variable(variable) && !variable.contains(|c: char| c.is_ascii_lowercase())
}

/// The URL without trailing slashes, or the reason why it is not a base URL.
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
        return Err("contains a space");
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err("must not contain a password: use `api_key_env`");
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
