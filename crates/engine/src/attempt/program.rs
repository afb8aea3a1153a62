//! Lookup of a provider's program on the search path. A launcher script that is only a shim is replaced by the real program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::provider::Provider;

use crate::attempt::file_memo::Sources;

/// A program that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The program to start.
    pub path: PathBuf,
    /// The launcher through which it was found, if that is another file.
    pub launcher: Option<PathBuf>,
}

/// Finds `command`, or the provider's own program, as a shell would.
pub fn locate(provider: &Provider, command: Option<&str>, search_path: Option<&OsStr>) -> Result<Located, Failure> {
    locate_noting(provider, command, search_path, &mut Sources::default())
}

/// As [`locate`]. Notes the files on which the result depends, so that an update takes effect with the next run.
pub(crate) fn locate_noting(
    provider: &Provider,
    command: Option<&str>,
    search_path: Option<&OsStr>,
    sources: &mut Sources,
) -> Result<Located, Failure> {
    let name = command.unwrap_or(&provider.program);
    let mut is_program = |path: &PathBuf| {
        sources.add(path);
        is_program(path)
    };
    let launcher = if name.contains('/') {
        Some(PathBuf::from(name)).filter(&mut is_program)
    } else {
        std::env::split_paths(search_path.unwrap_or_default()).map(|folder| folder.join(name)).find(&mut is_program)
    };
    let Some(launcher) = launcher else {
        return Err(missing(provider, name));
    };
    match command.is_none().then(|| native(provider, &launcher, sources)).flatten() {
        Some(path) => Ok(Located { path, launcher: Some(launcher) }),
        None => Ok(Located { path: launcher, launcher: None }),
    }
}

fn missing(provider: &Provider, name: &str) -> Failure {
    let failure = if Path::new(name).is_file() {
        Failure::new(Category::Configuration, format!("{name} is not executable"))
    } else {
        Failure::new(Category::NotFound, format!("cannot start {}: command not found: {name}", provider.name))
    };
    match &provider.install {
        Some(install) => failure.hint(format!("is it installed? try: {install}, then: trunkline doctor")),
        None => failure.hint("is it installed? try: trunkline doctor"),
    }
}

/// The real program behind a launcher script, if the recipe says where it may be.
fn native(provider: &Provider, launcher: &Path, sources: &mut Sources) -> Option<PathBuf> {
    let real = launcher.canonicalize().ok()?;
    if real.extension().is_none_or(|extension| extension != "js") {
        return None;
    }
    let (cpu, triple) = match std::env::consts::ARCH {
        "aarch64" => ("arm64", "aarch64-unknown-linux-musl"),
        _ => ("x64", "x86_64-unknown-linux-musl"),
    };
    let folder = real.parent()?;
    provider
        .native
        .iter()
        .map(|template| {
            template.replace("{os}", std::env::consts::OS).replace("{cpu}", cpu).replace("{triple}", triple)
        })
        .filter_map(|relative| {
            let path = folder.join(relative);
            sources.add(&path);
            path.canonicalize().ok()
        })
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use trunkline_core::provider::built_in;

    use super::*;
    use crate::attempt::file_memo::FileMemo;
    use crate::attempt::file_memo::tests::{later, next_tick};

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn first_executable_on_the_path_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir_all(a.join("claude")).unwrap();
        program(&b.join("claude"));
        let path = std::env::join_paths([&a, &b]).unwrap();
        let providers = built_in();
        let found = locate(&providers["claude"], None, Some(&path)).unwrap();
        assert_eq!(found, Located { path: b.join("claude"), launcher: None });

        let failure = locate(&providers["gemini"], None, Some(&path)).unwrap_err();
        assert_eq!(failure.category, Category::NotFound);
        assert!(failure.hint.unwrap().contains("npm install -g @google/gemini-cli"));
    }

    #[test]
    fn native_program_is_preferred_to_its_launcher() {
        let folder = tempfile::tempdir().unwrap();
        let modules = folder.path().join("node_modules/@openai");
        program(&modules.join("codex/bin/codex.js"));
        let native = modules.join("codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex");
        let arm = modules.join("codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex");
        program(&native);
        program(&arm);
        let bin = folder.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        symlink(modules.join("codex/bin/codex.js"), bin.join("codex")).unwrap();

        let found = locate(&built_in()["codex"], None, Some(bin.as_os_str())).unwrap();
        let expected = if std::env::consts::ARCH == "aarch64" { arm } else { native };
        assert_eq!(found.path, expected.canonicalize().unwrap());
        assert_eq!(found.launcher, Some(bin.join("codex")));
    }

    #[test]
    fn change_is_noticed_when_the_program_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| folder.path().join(name));
        let modules = folder.path().join("node_modules/@openai");
        let launcher = modules.join("codex/bin/codex.js");
        let (path, codex) = (std::env::join_paths([&first, &second]).unwrap(), &built_in()["codex"]);
        let memo = FileMemo::default();
        let found = || memo.get_at(later(), |sources| locate_noting(codex, None, Some(&path), sources));
        let at = || found().map(|located| located.path).ok();
        program(&second.join("codex"));
        program(&launcher);
        fs::create_dir(&first).unwrap();
        assert_eq!(at(), Some(second.join("codex")));
        next_tick(folder.path());
        symlink(&launcher, first.join("codex")).unwrap();
        assert_eq!(at(), Some(first.join("codex")), "a new program before it on the path");
        let (cpu, triple) = match std::env::consts::ARCH {
            "aarch64" => ("arm64", "aarch64-unknown-linux-musl"),
            _ => ("x64", "x86_64-unknown-linux-musl"),
        };
        let native = modules.join(format!("codex-linux-{cpu}/vendor/{triple}/bin/codex"));
        next_tick(folder.path());
        program(&native);
        assert_eq!(at(), Some(native.canonicalize().unwrap()), "a native program behind the launcher");
        next_tick(folder.path());
        fs::remove_file(&native).unwrap();
        assert_eq!(at(), Some(first.join("codex")), "the native program is removed");
        next_tick(folder.path());
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(at(), Some(second.join("codex")), "it may no longer be executed");
        fs::remove_file(second.join("codex")).unwrap();
        assert_eq!(found().unwrap_err().category, Category::NotFound);
    }
}
