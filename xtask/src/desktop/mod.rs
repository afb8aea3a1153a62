//! `cargo xtask desktop`: builds, packages and tests the desktop window, which is a separate workspace. The tests run on a
//! virtual screen (Xvfb).

mod bundle;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::test::{build, command, install, need_package};

/// Debian packages that the build needs.
const BUILD_PACKAGES: [&str; 3] = ["pkg-config", "libgtk-3-dev", "libwebkit2gtk-4.1-dev"];

/// Programs that the tests start, with their Debian packages.
const TEST_PROGRAMS: [(&str, &[&str]); 7] = [
    // The window renders no text without a font.
    ("Xvfb", &["xvfb", "fonts-dejavu-core"]),
    ("openbox", &["openbox"]),
    ("wmctrl", &["wmctrl"]),
    ("xdotool", &["xdotool"]),
    ("xclip", &["xclip"]),
    ("import", &["imagemagick"]),
    ("dbus-daemon", &["dbus-daemon", "dbus-bin"]),
];

const EXAMPLES: &str = "\
Examples:
  cargo xtask desktop           Build target/release/trunkline-desktop
  cargo xtask desktop --bundle  Build the .deb with the window and the gateway
  cargo xtask desktop --test    Run the tests of the window under Xvfb";

/// Build, package or test the desktop window
///
/// The window is a separate workspace, apps/desktop, because it needs GTK and WebKit. Without options, builds it and copies
/// it to target/release, where `trunkline desktop` finds it. Missing Debian packages are installed where this user may
/// install them.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DesktopArgs {
    /// Build a .deb with the window and the gateway
    #[arg(long)]
    bundle: bool,
    /// Run the tests of the window under Xvfb, in a debug build
    #[arg(long)]
    test: bool,
}

/// Target directories of the two workspaces.
struct TargetDirs {
    gateway: PathBuf,
    window: PathBuf,
}

/// The cargo profiles of a bundle: the gateway and the window are separate workspaces with profiles of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DesktopProfile {
    /// Debug builds, for the tests.
    Test,
    /// The optimized builds that are shipped.
    Shipped,
}

impl DesktopProfile {
    /// The subfolder of the gateway's target directory.
    fn gateway_folder(self) -> &'static str {
        match self {
            Self::Test => "debug",
            Self::Shipped => "dist",
        }
    }

    /// The subfolder of the window's target directory.
    fn window_folder(self) -> &'static str {
        match self {
            Self::Test => "debug",
            Self::Shipped => "release",
        }
    }

    fn window_args(self) -> &'static [&'static str] {
        match self {
            Self::Test => &[],
            Self::Shipped => &["--release"],
        }
    }
}

impl DesktopArgs {
    pub(crate) fn run(self) -> Result<()> {
        need_libraries()?;
        let exe = std::env::current_exe()?;
        let target = exe.parent().and_then(Path::parent).context("no target folder")?.to_owned();
        let dirs = TargetDirs { window: target.join("desktop"), gateway: target };
        if self.test {
            test(&dirs)?;
        }
        if self.bundle {
            cargo(&["build", "--package", "trunkline", "--locked", "--profile", "dist"])?;
        }
        if self.bundle || !self.test {
            build_window(&dirs, DesktopProfile::Shipped)?;
            println!("{}", copy_window(&dirs)?.display());
        }
        if self.bundle {
            println!("{}", bundle::pack(&dirs, DesktopProfile::Shipped)?.display());
        }
        Ok(())
    }
}

fn need_libraries() -> Result<()> {
    let found =
        || command("pkg-config").args(["--exists", "gtk+-3.0", "webkit2gtk-4.1"]).status().is_ok_and(|is| is.success());
    if found() {
        return Ok(());
    }
    eprintln!("the window needs GTK and WebKit: installing {}", BUILD_PACKAGES.join(" "));
    if install(&BUILD_PACKAGES) && found() {
        return Ok(());
    }
    bail!("the window needs GTK 3 and WebKitGTK 4.1; on Debian: apt-get install {}", BUILD_PACKAGES.join(" "))
}

fn build_window(dirs: &TargetDirs, profile: DesktopProfile) -> Result<()> {
    let target = dirs.window.to_string_lossy();
    let args = ["build", "--manifest-path", "apps/desktop/Cargo.toml", "--locked", "--target-dir", &*target];
    cargo(&[&args, profile.window_args()].concat())
}

/// Copies the window into the folder of the gateway's release build, where the two programs find each other.
fn copy_window(dirs: &TargetDirs) -> Result<PathBuf> {
    let window = dirs.gateway.join("release/trunkline-desktop");
    fs::create_dir_all(dirs.gateway.join("release"))?;
    // A rename replaces the file without changing the program of a window that is open.
    let new = window.with_extension("new");
    fs::copy(dirs.window.join("release/trunkline-desktop"), &new).context("cannot copy the window")?;
    fs::rename(new, &window)?;
    Ok(window)
}

fn test(dirs: &TargetDirs) -> Result<()> {
    for (program, packages) in TEST_PROGRAMS {
        need_package(program, packages)?;
    }
    build("trunkline")?;
    build_window(dirs, DesktopProfile::Test)?;
    let package = bundle::pack(dirs, DesktopProfile::Test)?;
    let mut tests = command(env!("CARGO"));
    tests.args(["test", "--manifest-path", "apps/desktop/Cargo.toml", "--locked", "--target-dir"]).arg(&dirs.window);
    tests.env("DESKTOP_SERVER", dirs.gateway.join("debug/trunkline")).env("DESKTOP_PACKAGE", package);
    // More than two windows at the same time make the tests slower.
    tests.args(["--", "--test-threads", "2"]);
    if !tests.current_dir(root()).status()?.success() {
        bail!("the tests of the window failed; screenshots are in {}", dirs.window.join("tmp").display());
    }
    println!("screenshots: {}", dirs.window.join("tmp").display());
    Ok(())
}

fn cargo(args: &[&str]) -> Result<()> {
    if !command(env!("CARGO")).args(args).current_dir(root()).status()?.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder in the repository")
}
