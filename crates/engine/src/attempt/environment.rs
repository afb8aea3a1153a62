//! Environment of a child process: the user's own, minus our secrets and the variables of an agent that we may run under, plus
//! variables that make a CLI non-interactive. Pure: the environment is passed in as a list.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

use trunkline_core::provider;

/// Variables set for every child: no colours, no prompts, no browser.
const NON_INTERACTIVE: [(&str, &str); 4] =
    [("TERM", "dumb"), ("NO_COLOR", "1"), ("CI", "true"), ("BROWSER", "/bin/false")];

/// Variables that are removed: they break a CLI started inside another agent, reveal our own location, or are ours alone.
const REMOVED: [&str; 23] = [
    "CLAUDECODE",
    "GEMINI_CLI",
    "QWEN_CODE",
    "OPENCODE",
    "CODEX_SANDBOX",
    "CODEX_SANDBOX_NETWORK_DISABLED",
    "FORCE_COLOR",
    "COLORTERM",
    "OLDPWD",
    "PWD",
    "DISCORD_TOKEN",
    "DISCORD_BOT_TOKEN",
    "LLM_AUTH_TOKEN",
    "LLM_BASE_URL",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

const REMOVED_PREFIXES: [&str; 2] = ["TRUNKLINE_", "CLAUDE_CODE_"];

/// Exceptions to [`REMOVED_PREFIXES`]: configuration of a provider.
const KEPT_VARIABLES: [&str; 3] = ["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"];

/// Variable that names the run of a process.
pub(crate) const RUN: &str = "TRUNKLINE_RUN";

/// Variable that marks a process as a gateway's, so that a later gateway can find it if both its gateway and its keeper died.
pub(crate) const OWNER: &str = "TRUNKLINE_OWNER";

pub(crate) struct Child<'a> {
    /// Key variables of the child's own provider.
    pub(crate) keys: &'a [String],
    /// Key variables of all providers. A child gets only its own.
    pub(crate) all_keys: &'a BTreeSet<&'a str>,
    pub(crate) cwd: &'a Path,
    pub(crate) run: &'a str,
    pub(crate) owner: &'a str,
    /// Variables of the recipe.
    pub(crate) recipe: &'a BTreeMap<String, String>,
    /// Variables of the model, which take precedence over all others.
    pub(crate) model: &'a BTreeMap<String, String>,
}

/// The complete environment of a child.
pub(crate) fn of_child(inherited: &[(OsString, OsString)], child: &Child<'_>) -> Vec<(OsString, OsString)> {
    let mut env: BTreeMap<OsString, OsString> = inherited
        .iter()
        .filter(|(name, _)| name.to_str().is_none_or(|name| is_passed_on(name, child)))
        .cloned()
        .collect();
    let mut set = |name: &str, value: &str| env.insert(name.into(), value.into());
    for (name, value) in NON_INTERACTIVE {
        set(name, value);
    }
    for (name, value) in child.recipe.iter().chain(child.model) {
        set(name, value);
    }
    set(RUN, child.run);
    set(OWNER, child.owner);
    // OpenCode reads PWD instead of its working directory.
    env.insert("PWD".into(), child.cwd.into());
    env.into_iter().collect()
}

/// Environment of a protocol executable without configuration of its own.
pub fn of_executable(inherited: &[(OsString, OsString)], cwd: &Path) -> Vec<(OsString, OsString)> {
    let nothing = BTreeMap::new();
    let all_keys = provider::built_in_keys().iter().map(String::as_str).collect();
    let child = Child { keys: &[], all_keys: &all_keys, cwd, run: "", owner: "", recipe: &nothing, model: &nothing };
    let ours = |name: &OsString| name == RUN || name == OWNER;
    of_child(inherited, &child).into_iter().filter(|(name, _)| !ours(name)).collect()
}

fn is_passed_on(name: &str, child: &Child<'_>) -> bool {
    if child.keys.iter().any(|key| key == name) || KEPT_VARIABLES.contains(&name) {
        return true;
    }
    !REMOVED.contains(&name)
        && !REMOVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        && !child.all_keys.contains(name)
}

/// Values of variables whose names look secret. They must never be shown.
pub fn secret_values<'a>(env: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    const MARKS: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"];
    env.into_iter()
        .filter(|(name, _)| MARKS.iter().any(|mark| name.to_uppercase().contains(mark)))
        .map(|(_, value)| value.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use trunkline_core::provider::built_in;

    use super::*;

    fn child_of(provider: &str, inherited: &[(&str, &str)], model: &[(&str, &str)]) -> BTreeMap<String, String> {
        let providers = built_in();
        let all_keys = providers.values().flat_map(|provider| provider.keys.iter().map(String::as_str)).collect();
        let model = model.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let child = Child {
            keys: &providers[provider].keys,
            all_keys: &all_keys,
            cwd: Path::new("/repo"),
            run: "r1",
            owner: "us",
            recipe: &providers[provider].env,
            model: &model,
        };
        let inherited: Vec<(OsString, OsString)> = inherited.iter().map(|(k, v)| (k.into(), v.into())).collect();
        of_child(&inherited, &child)
            .into_iter()
            .map(|(k, v)| (k.into_string().unwrap(), v.into_string().unwrap()))
            .collect()
    }

    #[test]
    fn child_gets_its_own_key_and_no_other_secret() {
        let inherited = [
            ("PATH", "/bin"),
            ("HOME", "/home/u"),
            ("ANTHROPIC_API_KEY", "a"),
            ("GEMINI_API_KEY", "g"),
            ("TRUNKLINE_API_KEYS", "t"),
            ("DISCORD_TOKEN", "d"),
            ("CLAUDECODE", "1"),
            ("CLAUDE_CODE_ENTRYPOINT", "cli"),
            ("CLAUDE_CODE_OAUTH_TOKEN", "o"),
            ("PWD", "/elsewhere"),
            ("FORCE_COLOR", "1"),
        ];
        let claude = child_of("claude", &inherited, &[]);
        assert_eq!((claude["ANTHROPIC_API_KEY"].as_str(), claude["CLAUDE_CODE_OAUTH_TOKEN"].as_str()), ("a", "o"));
        for name in [
            "GEMINI_API_KEY",
            "TRUNKLINE_API_KEYS",
            "DISCORD_TOKEN",
            "CLAUDECODE",
            "CLAUDE_CODE_ENTRYPOINT",
            "FORCE_COLOR",
        ] {
            assert!(!claude.contains_key(name), "{name}");
        }
        let gemini = child_of("gemini", &inherited, &[("TERM", "xterm"), ("EXTRA", "1")]);
        assert_eq!(gemini["GEMINI_API_KEY"], "g");
        assert!(!gemini.contains_key("ANTHROPIC_API_KEY") && !gemini.contains_key("CLAUDE_CODE_OAUTH_TOKEN"));
        for (name, value) in [
            ("TERM", "xterm"),
            ("NO_COLOR", "1"),
            ("CI", "true"),
            ("PWD", "/repo"),
            ("EXTRA", "1"),
            ("PATH", "/bin"),
            ("TRUNKLINE_RUN", "r1"),
        ] {
            assert_eq!(gemini[name], value, "{name}");
        }
    }

    #[test]
    fn values_are_secret_when_their_names_say_so() {
        let env = [("MY_API_KEY", "k1"), ("GH_TOKEN", "k2"), ("PATH", "/bin"), ("db_password", "k3")];
        assert_eq!(secret_values(env), ["k1", "k2", "k3"]);
    }
}
