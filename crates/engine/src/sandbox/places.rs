//! Paths that every run may write, and their notation: `~/` is the home of the run, and `${NAME:-default}` a variable of its
//! environment with a default. A path that ends in a slash is a folder that is created if it is missing.

use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const TEMPORARY: [&str; 4] = ["${TMPDIR:-/tmp}", "/tmp", "/var/tmp", "/dev/shm"];

/// Terminals and null devices.
pub(super) const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx", "/dev/pts"];

/// Caches of build tools. Folders that also hold programs or settings are listed only in part: a program planted there would run
/// as the user.
pub(super) const CACHES: [&str; 16] = [
    "${XDG_CACHE_HOME:-~/.cache}/",
    "${npm_config_cache:-~/.npm}",
    "${CARGO_HOME:-~/.cargo}/registry",
    "${CARGO_HOME:-~/.cargo}/git",
    "${CARGO_HOME:-~/.cargo}/.package-cache",
    "${CARGO_HOME:-~/.cargo}/.package-cache-mutate",
    "${CARGO_HOME:-~/.cargo}/.global-cache",
    "${GOPATH:-~/go}/pkg",
    "${GRADLE_USER_HOME:-~/.gradle}/caches",
    "${GRADLE_USER_HOME:-~/.gradle}/daemon",
    "${GRADLE_USER_HOME:-~/.gradle}/wrapper/dists",
    "~/.m2/repository",
    "~/.nuget/packages",
    "~/.yarn/berry",
    "~/.bun/install/cache",
    "~/.local/share/pnpm/store",
];

/// Returns a path that a variable of the environment holds.
pub(crate) type Variable<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

/// Looks variables up in a list.
pub(crate) fn in_list(env: &[(OsString, OsString)]) -> impl Fn(&str) -> Option<PathBuf> {
    |name| env.iter().find(|(key, _)| key == name).map(|(_, value)| PathBuf::from(value))
}

/// Expands a path in this notation; `None` if a variable is not set or the result is not absolute.
pub(crate) fn expand(place: &str, env: Variable<'_>) -> Option<PathBuf> {
    let variable = |name: &str| env(name).filter(|path| path.is_absolute());
    let (start, rest) = match place.strip_prefix("${") {
        Some(inner) => {
            let (inner, rest) = inner.split_once('}')?;
            let (name, otherwise) = inner.split_once(":-").unwrap_or((inner, ""));
            let start = match variable(name) {
                Some(set) => set,
                None => expand(otherwise, env)?,
            };
            (start, rest)
        }
        None => match place.strip_prefix("~/") {
            Some(rest) => (variable("HOME")?, rest),
            None => (PathBuf::new(), place),
        },
    };
    let whole = match rest.trim_start_matches('/') {
        _ if start.as_os_str().is_empty() => PathBuf::from(rest),
        "" if rest.is_empty() => start,
        rest => start.join(rest),
    };
    whole.is_absolute().then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notation_is_expanded() {
        let env: Vec<(OsString, OsString)> =
            [("HOME", "/home/u"), ("CARGO_HOME", "/c"), ("EMPTY", ""), ("ODD", "here")]
                .map(|(k, v)| (k.into(), v.into()))
                .into();
        for (written, meant) in [
            ("/tmp", Some("/tmp")),
            ("~/.claude/", Some("/home/u/.claude/")),
            ("${CARGO_HOME:-~/.cargo}/git", Some("/c/git")),
            ("${CARGO_HOME:-~/.cargo}/", Some("/c/")),
            ("${CARGO_HOME}", Some("/c")),
            ("${GOPATH:-~/go}/pkg", Some("/home/u/go/pkg")),
            ("${EMPTY:-/tmp}", Some("/tmp")),
            ("${ODD:-/tmp}", Some("/tmp")),
            ("${NONE}/x", None),
            ("relative", None),
            ("", None),
            ("${", None),
        ] {
            assert_eq!(
                expand(written, &in_list(&env)).as_deref().map(std::path::Path::as_os_str),
                meant.map(AsRef::as_ref),
                "{written}"
            );
        }
        assert_eq!(expand("~/.claude/", &in_list(&[])), None);
    }
}
