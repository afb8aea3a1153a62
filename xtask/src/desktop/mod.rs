//! `cargo xtask desktop`: the window, which is a workspace of its own. Builds it, packs it, and tries it on a screen that
//! nobody sees.

mod bundle;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::test::{build, command, install, need_package};

/// What it is built with, on Debian and its kin.
const TO_BUILD: [&str; 3] = ["pkg-config", "libgtk-3-dev", "libwebkit2gtk-4.1-dev"];

/// A program that the tests use, and the packages it comes with.
const TO_TEST: [(&str, &[&str]); 7] = [
    // Without a font there is nothing to see.
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

/// Where things are built.
struct Built {
    /// The gateway's workspace.
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
        let built = Built { window: target.join("desktop"), gateway: target };
        if self.test {
            test(&built)?;
        }
        if self.bundle {
            cargo(&["build", "--package", "trunkline", "--locked", "--profile", "dist"])?;
        }
        if self.bundle || !self.test {
            build_window(&built, DesktopProfile::Shipped)?;
            println!("{}", beside_the_gateway(&built)?.display());
        }
        if self.bundle {
            println!("{}", bundle::pack(&built, DesktopProfile::Shipped)?.display());
        }
        Ok(())
    }
}

fn need_libraries() -> Result<()> {
    let there =
        || command("pkg-config").args(["--exists", "gtk+-3.0", "webkit2gtk-4.1"]).status().is_ok_and(|is| is.success());
    if there() {
        return Ok(());
    }
    eprintln!("the window needs GTK and WebKit: installing {}", TO_BUILD.join(" "));
    if install(&TO_BUILD) && there() {
        return Ok(());
    }
    bail!("the window needs GTK 3 and WebKitGTK 4.1; on Debian: apt-get install {}", TO_BUILD.join(" "))
}

fn build_window(built: &Built, profile: DesktopProfile) -> Result<()> {
    let target = built.window.to_string_lossy();
    let args = ["build", "--manifest-path", "apps/desktop/Cargo.toml", "--locked", "--target-dir", &*target];
    cargo(&[&args, profile.window_args()].concat())
}

/// Puts the window where `trunkline desktop` finds it, and it finds `trunkline`.
fn beside_the_gateway(built: &Built) -> Result<PathBuf> {
    let window = built.gateway.join("release/trunkline-desktop");
    fs::create_dir_all(built.gateway.join("release"))?;
    // Renamed into place: a window that is open goes on with the program that it was.
    let new = window.with_extension("new");
    fs::copy(built.window.join("release/trunkline-desktop"), &new).context("the window is not where it was built")?;
    fs::rename(new, &window)?;
    Ok(window)
}

fn test(built: &Built) -> Result<()> {
    for (program, packages) in TO_TEST {
        need_package(program, packages)?;
    }
    build("trunkline")?;
    build_window(built, DesktopProfile::Test)?;
    let package = bundle::pack(built, DesktopProfile::Test)?;
    let mut tests = command(env!("CARGO"));
    tests.args(["test", "--manifest-path", "apps/desktop/Cargo.toml", "--locked", "--target-dir"]).arg(&built.window);
    tests.env("DESKTOP_SERVER", built.gateway.join("debug/trunkline")).env("DESKTOP_PACKAGE", package);
    // More windows at once than this are slower, and nothing is gained.
    tests.args(["--", "--test-threads", "2"]);
    if !tests.current_dir(root()).status()?.success() {
        bail!("the window does not pass its tests; its pictures are in {}", built.window.join("tmp").display());
    }
    println!("pictures: {}", built.window.join("tmp").display());
    Ok(())
}

fn cargo(args: &[&str]) -> Result<()> {
    if !command(env!("CARGO")).args(args).current_dir(root()).status()?.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository")
}
