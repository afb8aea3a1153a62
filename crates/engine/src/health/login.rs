//! Detection of a CLI's credentials from variables and files. Starts no process and spends no tokens.

use std::ffi::OsString;
use std::fs;
use std::io::Read;

use trunkline_core::model::Model;
use trunkline_core::provider::{Credentials, Login};

use crate::sandbox::{expand, in_list};

/// Maximum size of a credentials file.
const MAX_CREDENTIALS_BYTES: u64 = 4 * 1024 * 1024;

/// Whether a run of the model would find credentials; `None` if the recipe does not say where they are.
pub(crate) fn is_logged_in(model: &Model, inherited: &[(OsString, OsString)]) -> Option<bool> {
    let login = model.backend.program()?.login.as_ref()?;
    let own = model.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let kept = inherited.iter().filter(|(name, _)| name.to_str().is_none_or(|name| !model.env.contains_key(name)));
    let env: Vec<(OsString, OsString)> = kept.cloned().chain(own).collect();
    Some(has_variable(login, &env) || login.files.iter().any(|file| has_credentials_file(file, &env)))
}

fn has_variable(login: &Login, env: &[(OsString, OsString)]) -> bool {
    let is_set = |name: &String| env.iter().any(|(known, value)| known == name.as_str() && !value.is_empty());
    login.env.iter().any(is_set)
}

/// Whether a credentials file exists. A file that cannot be read counts, because it may hold credentials.
fn has_credentials_file(file: &Credentials, env: &[(OsString, OsString)]) -> bool {
    let Some(path) = expand(&file.path, &in_list(env)) else { return false };
    let opened = match fs::metadata(&path) {
        Ok(found) if found.is_file() => fs::File::open(path),
        Ok(_) | Err(_) => return false,
    };
    let mut bytes = Vec::new();
    match opened.and_then(|opened| opened.take(MAX_CREDENTIALS_BYTES).read_to_end(&mut bytes)) {
        Ok(_) => file.are_in(&String::from_utf8_lossy(&bytes)),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use trunkline_core::model::Backend;
    use trunkline_core::provider::built_in;

    use super::*;

    fn logged_in(cli: &str, home: &Path, variables: &[(&str, &str)], own: &[(&str, &str)]) -> Option<bool> {
        let provider = built_in().remove(cli).unwrap();
        let mut model = Model::new(cli, Backend::Program(Arc::new(provider)), Path::new("/repo"));
        model.env = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let home = ("HOME", home.to_str().unwrap());
        let env: Vec<_> = variables.iter().chain([&home]).map(|(k, v)| (k.into(), v.into())).collect();
        is_logged_in(&model, &env)
    }

    fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        home
    }

    #[test]
    fn no_cli_is_logged_in_when_the_home_is_empty() {
        let home = home(&[]);
        for cli in ["claude", "codex", "gemini", "qwen", "opencode"] {
            assert_eq!(logged_in(cli, home.path(), &[], &[]), Some(false), "{cli}");
        }
        assert_eq!(logged_in("glm", home.path(), &[], &[]), None, "its recipe does not say");
    }

    #[test]
    fn a_cli_is_logged_in_when_a_file_holds_its_credentials() {
        for (cli, file, text, expected) in [
            ("claude", ".claude/.credentials.json", r#"{"claudeAiOauth":{}}"#, true),
            ("claude", ".claude/.credentials.json", "{}\n", false),
            ("claude", ".claude/settings.json", r#"{"apiKeyHelper":"pass show key"}"#, true),
            ("claude", ".claude/settings.json", r#"{"theme":"dark"}"#, false),
            ("claude", ".claude.json", r#"{"numStartups":3}"#, false),
            ("codex", ".codex/auth.json", r#"{"OPENAI_API_KEY":"k"}"#, true),
            ("codex", ".codex/auth.json", "", false),
            ("codex", ".codex/config.toml", "model = \"o3\"", false),
            ("codex", ".codex/config.toml", "model_provider = \"local\"", true),
            ("gemini", ".gemini/oauth_creds.json", r#"{"access_token":"t"}"#, true),
            ("gemini", ".gemini/.env", "GEMINI_API_KEY=k", true),
            ("qwen", ".qwen/oauth_creds.json", r#"{"access_token":"t"}"#, true),
            ("opencode", ".local/share/opencode/auth.json", r#"{"anthropic":{"type":"api","key":"k"}}"#, true),
            ("opencode", ".local/share/opencode/auth.json", "{}", false),
        ] {
            let home = home(&[(file, text)]);
            assert_eq!(logged_in(cli, home.path(), &[], &[]), Some(expected), "{cli} {file} {text}");
        }
        // A folder of that name is no credentials file.
        let folder = home(&[(".codex/auth.json/x", "")]);
        assert_eq!(logged_in("codex", folder.path(), &[], &[]), Some(false));
    }

    #[test]
    fn a_cli_is_logged_in_when_a_variable_holds_its_credentials() {
        let home = home(&[]);
        for (cli, name, value, expected) in [
            ("claude", "ANTHROPIC_API_KEY", "k", true),
            ("claude", "ANTHROPIC_API_KEY", "", false),
            ("claude", "CLAUDE_CODE_USE_BEDROCK", "1", true),
            ("codex", "CODEX_API_KEY", "k", true),
            // Codex does not read this variable.
            ("codex", "OPENAI_API_KEY", "k", false),
            ("gemini", "GEMINI_API_KEY", "k", true),
            ("qwen", "OPENAI_API_KEY", "k", true),
            ("opencode", "ANTHROPIC_API_KEY", "k", true),
        ] {
            assert_eq!(logged_in(cli, home.path(), &[(name, value)], &[]), Some(expected), "{cli} {name}");
            assert_eq!(logged_in(cli, home.path(), &[], &[(name, value)]), Some(expected), "{cli}: the model's {name}");
        }
    }

    #[test]
    fn credentials_are_looked_for_elsewhere_when_a_variable_moves_them() {
        let moved = home(&[("auth.json", "{\"a\":1}")]);
        let (empty, place) = (home(&[]), moved.path().to_str().unwrap());
        assert_eq!(logged_in("codex", empty.path(), &[("CODEX_HOME", place)], &[]), Some(true));
        assert_eq!(logged_in("codex", empty.path(), &[], &[("CODEX_HOME", place)]), Some(true));
    }
}
