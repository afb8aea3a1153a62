//! The .deb package: the window, the gateway, icons and the desktop entry.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{DesktopProfile, TargetDirs, root};
use crate::test::{command, need_package};

const NAME: &str = "trunkline";

/// Icon theme folder.
const ICONS: &str = "usr/share/icons/hicolor";

/// Builds the package and returns its path.
pub(super) fn pack(dirs: &TargetDirs, profile: DesktopProfile) -> Result<PathBuf> {
    need_package("dpkg-shlibdeps", &["dpkg-dev"])?;
    let folder = tempfile::tempdir()?;
    let (tree, assets) = (folder.path().join("tree"), root().join("apps/desktop/assets"));
    let programs = [
        (dirs.gateway.join(profile.gateway_folder()).join(NAME), "usr/bin/trunkline"),
        (dirs.window.join(profile.window_folder()).join("trunkline-desktop"), "usr/bin/trunkline-desktop"),
    ];
    let data = [
        (assets.join("trunkline-desktop.desktop"), "usr/share/applications/trunkline-desktop.desktop".to_owned()),
        (assets.join("trunkline.svg"), format!("{ICONS}/scalable/apps/trunkline.svg")),
        (assets.join("trunkline.png"), format!("{ICONS}/128x128/apps/trunkline.png")),
        (root().join("LICENSE"), "usr/share/doc/trunkline/copyright".to_owned()),
    ];
    for (from, to) in &programs {
        put(from, &tree.join(to), 0o755)?;
    }
    for (from, to) in &data {
        put(from, &tree.join(to), 0o644)?;
    }
    let architecture = output("dpkg", &["--print-architecture"], folder.path())?;
    let depends = library_packages(folder.path(), &programs.map(|(_, to)| tree.join(to)))?;
    let size = output("du", &["--summarize", "--block-size=1K", &*tree.to_string_lossy()], folder.path())?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let control = folder.path().join("control");
    fs::write(&control, control_file(&architecture, &depends, &size))?;
    put(&control, &tree.join("DEBIAN/control"), 0o644)?;
    let package = dirs.window.join(format!("{NAME}_{}_{architecture}.deb", env!("CARGO_PKG_VERSION")));
    // A debug build is large and not downloaded: compression would only take time.
    let compression = match profile {
        DesktopProfile::Test => "-Znone",
        DesktopProfile::Shipped => "-Zxz",
    };
    let mut pack = command("dpkg-deb");
    pack.args(["--root-owner-group", compression, "--build"]).arg(&tree).arg(&package);
    if !pack.status().context("dpkg-deb")?.success() {
        bail!("dpkg-deb could not make {}", package.display());
    }
    Ok(package)
}

fn control_file(architecture: &str, depends: &str, size: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "Package: {NAME}\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: Trunkline <trunkline@users.noreply.github.com>\n\
         Installed-Size: {size}\n\
         Depends: {depends}, xdg-utils\n\
         Recommends: git\n\
         Section: devel\n\
         Priority: optional\n\
         Homepage: https://github.com/trunkline/trunkline\n\
         Description: every coding-agent CLI on one line\n \
         Runs the agent CLIs you already have inside your repositories, and offers them\n \
         as models behind an OpenAI-compatible API, a chat page and a desktop window.\n"
    )
}

/// The packages and minimum versions of the shared libraries that these programs load.
fn library_packages(folder: &Path, programs: &[PathBuf]) -> Result<String> {
    fs::create_dir(folder.join("debian"))?;
    fs::write(folder.join("debian/control"), format!("Source: {NAME}\n\nPackage: {NAME}\nArchitecture: any\n"))?;
    let programs = programs.iter().map(|program| format!("-e{}", program.display()));
    let args: Vec<String> = ["-O".to_owned(), "--warnings=0".to_owned()].into_iter().chain(programs).collect();
    let found = output("dpkg-shlibdeps", &args, folder)?;
    let depends = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    depends.map(str::to_owned).with_context(|| format!("dpkg-shlibdeps found no libraries: {found}"))
}

fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let folder = to.parent().context("a file has a parent folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

fn output(program: &str, args: &[impl AsRef<std::ffi::OsStr>], folder: &Path) -> Result<String> {
    let output = command(program).args(args).current_dir(folder).output().with_context(|| program.to_owned())?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_file_has_one_field_per_line() {
        let control = control_file("amd64", "libc6 (>= 2.36)", "7");
        assert!(control.contains("\nDepends: libc6 (>= 2.36), xdg-utils\n") && control.ends_with(".\n"), "{control}");
        for line in control.lines() {
            assert!(
                line.starts_with(' ') || line.split_once(": ").is_some_and(|(name, _)| !name.contains(' ')),
                "{line}"
            );
        }
    }
}
