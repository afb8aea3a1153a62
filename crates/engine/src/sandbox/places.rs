//! Places that everybody writes to, and how they are written down: `~/` is the run's home, and `${NAME:-else}` a variable
//! of its environment or, where that is not set, what stands in its stead. A folder that is made where it is missing ends
//! in a slash.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(super) const TEMPORARY: [&str; 4] = ["${TMPDIR:-/tmp}", "/tmp", "/var/tmp", "/dev/shm"];

/// Terminals, and where output goes to be forgotten.
pub(super) const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx", "/dev/pts"];

/// What builds fetch and keep. Of a folder that also holds programs or settings only the parts that are neither: what is
/// planted there would run in the user's name.
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

/// The path that is meant; none where it hangs on a variable that is not set, or is no whole path.
pub(crate) fn expand(place: &str, env: &[(OsString, OsString)]) -> Option<PathBuf> {
    let variable = |name: &str| {
        let found = env.iter().find(|(key, _)| key == name).map(|(_, value)| Path::new(value));
        found.filter(|path| path.is_absolute())
    };
    let (start, rest) = match place.strip_prefix("${") {
        Some(inner) => {
            let (inner, rest) = inner.split_once('}')?;
            let (name, otherwise) = inner.split_once(":-").unwrap_or((inner, ""));
            let start = match variable(name) {
                Some(set) => set.to_owned(),
                None => expand(otherwise, env)?,
            };
            (start, rest)
        }
        None => match place.strip_prefix("~/") {
            Some(rest) => (variable("HOME")?.to_owned(), rest),
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
    fn written_places() {
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
            assert_eq!(expand(written, &env).as_deref().map(Path::as_os_str), meant.map(AsRef::as_ref), "{written}");
        }
        assert_eq!(expand("~/.claude/", &[]), None);
    }
}
