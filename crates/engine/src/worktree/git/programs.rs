//! Configuration keys that make git start another program.
//!
//! Some are overridden for each call: no call of ours needs them. The others are needed by repositories that use git-lfs or
//! git-crypt, and run confined; where the kernel cannot confine, they are overridden as well.

use std::ffi::OsString;

/// Settings of each call, whatever the repository's configuration says.
const ALWAYS: [(&str, &str); 21] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", "/bin/false"),
    ("core.askPass", "/bin/false"),
    ("core.alternateRefsCommand", ""),
    ("commit.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("advice.detachedHead", "false"),
    ("submodule.recurse", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("diff.external", ""),
    // Git decides by a file's times and size whether it has to read it; these would make it overlook changes.
    ("core.checkStat", "default"),
    ("core.trustctime", "true"),
    ("core.ignoreStat", "false"),
    ("core.untrackedCache", "false"),
    // An index is copied, and must be whole in itself.
    ("core.splitIndex", "false"),
    ("core.safecrlf", "false"),
    // A worktree of ours is moved, and says which repository it belongs to in one form only.
    ("worktree.useRelativePaths", "false"),
];

/// Overrides for the keys of a `git config --list --name-only -z` that name a program.
pub(super) fn disabling(names: &[u8]) -> Vec<(String, String)> {
    let names = names.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    names.filter_map(|name| Some((name.to_owned(), disabled(name)?.to_owned()))).collect()
}

/// The value that keeps git from starting the program which a key names; none for a key that names no program.
fn disabled(name: &str) -> Option<&'static str> {
    let (section, rest) = name.split_once('.')?;
    let (subsection, variable) = rest.rsplit_once('.').map_or((None, rest), |(sub, variable)| (Some(sub), variable));
    let (section, variable) = (section.to_ascii_lowercase(), variable.to_ascii_lowercase());
    match (section.as_str(), subsection, variable.as_str()) {
        ("filter", _, "required") => Some("false"),
        ("submodule", _, "update") => Some("none"),
        ("filter", _, "clean" | "smudge" | "process")
        | ("diff", _, "textconv" | "command" | "external")
        | ("merge", _, "driver")
        | ("core", None, "sshcommand" | "gitproxy" | "alternaterefscommand")
        | ("gpg", _, "program" | "defaultkeycommand")
        | ("credential", _, "helper")
        | ("uploadpack", _, "packobjectshook")
        | ("remote", _, "uploadpack" | "receivepack" | "vcs")
        | ("trailer", _, "command" | "cmd")
        | ("interactive", _, "difffilter")
        | ("sequence", _, "editor")
        | ("alias" | "pager", ..)
        | ("mergetool" | "difftool" | "browser" | "man" | "web", _, "cmd" | "path" | "browser" | "viewer")
        | ("init", _, "templatedir") => Some(""),
        ("core", None, "fsmonitor") => Some("false"),
        ("core", None, "hookspath") => Some("/dev/null"),
        ("core", None, "pager") => Some("cat"),
        ("core", None, "editor" | "askpass") => Some("/bin/false"),
        _ => None,
    }
}

/// Settings as the environment variables by which git takes them; they win over every file.
pub(super) fn as_variables(overrides: &[(String, String)]) -> Vec<(OsString, OsString)> {
    let always = ALWAYS.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let all: Vec<&(String, String)> = overrides.iter().chain(&always).collect();
    let mut variables: Vec<(OsString, OsString)> = vec![("GIT_CONFIG_COUNT".into(), all.len().to_string().into())];
    for (index, (key, value)) in all.into_iter().enumerate() {
        variables.push((format!("GIT_CONFIG_KEY_{index}").into(), key.into()));
        variables.push((format!("GIT_CONFIG_VALUE_{index}").into(), value.into()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_name_a_program_are_disabled_and_others_are_not() {
        for (name, value) in [
            ("filter.evil.clean", Some("")),
            ("filter.a.b.c.smudge", Some("")),
            ("filter.lfs.process", Some("")),
            ("filter.lfs.required", Some("false")),
            ("FILTER.x.Clean", Some("")),
            ("diff.pdf.textconv", Some("")),
            ("diff.pdf.command", Some("")),
            ("merge.ours.driver", Some("")),
            ("core.sshcommand", Some("")),
            ("core.fsmonitor", Some("false")),
            ("core.hookspath", Some("/dev/null")),
            ("gpg.ssh.program", Some("")),
            ("gpg.ssh.defaultkeycommand", Some("")),
            ("credential.https://example.org.helper", Some("")),
            ("uploadpack.packobjectshook", Some("")),
            ("submodule.part.update", Some("none")),
            ("alias.st", Some("")),
            ("pager.log", Some("")),
            ("trailer.sign.command", Some("")),
            ("core.bare", None),
            ("core.autocrlf", None),
            ("diff.algorithm", None),
            ("merge.conflictstyle", None),
            ("user.name", None),
            ("filter", None),
            ("", None),
        ] {
            assert_eq!(disabled(name), value, "{name}");
        }
        assert_eq!(disabling(b"core.bare\0filter.x.clean\0"), [("filter.x.clean".to_owned(), String::new())]);
    }

    #[test]
    fn variables_are_numbered_without_a_gap() {
        let variables = as_variables(&[("filter.x.clean".to_owned(), String::new())]);
        let count: usize = variables[0].1.to_str().unwrap().parse().unwrap();
        assert_eq!((count, variables.len()), (ALWAYS.len() + 1, 2 * (ALWAYS.len() + 1) + 1));
        assert!(variables.contains(&("GIT_CONFIG_KEY_0".into(), "filter.x.clean".into())));
        let last = format!("GIT_CONFIG_KEY_{}", count - 1);
        assert!(variables.iter().any(|(name, _)| *name == *last));
    }
}
