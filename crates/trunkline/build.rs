//! Sets `TRUNKLINE_VERSION`, the text that `trunkline --version` prints: `0.1.0 (1e115ca 2026-11-17)`.
//!
//! The commit comes from git. The date is the commit's, never the build's, so that two builds of a commit are identical.
//! A packager without a checkout can set `TRUNKLINE_COMMIT` to the text in the brackets; an empty value leaves it out.
//! Without git, in a source archive, or in a copy inside another repository, the text is the plain version.
#![expect(clippy::disallowed_methods, reason = "a build script reads the environment and asks git")]

use std::env;
use std::path::Path;
use std::process::Command;

/// This package's folder within the repository; git reports another one for a copy inside a larger repository.
const PACKAGE_FOLDER: &str = "crates/trunkline/";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TRUNKLINE_COMMIT");
    let version = env!("CARGO_PKG_VERSION");
    let commit = match env::var("TRUNKLINE_COMMIT") {
        Ok(given) => Some(given.trim().to_owned()).filter(|given| !given.is_empty()),
        Err(_) => commit_of_checkout(),
    };
    match commit {
        Some(commit) => println!("cargo::rustc-env=TRUNKLINE_VERSION={version} ({commit})"),
        None => println!("cargo::rustc-env=TRUNKLINE_VERSION={version}"),
    }
}

/// Short hash and date of the commit that is checked out. Asks cargo to run this script again when that changes.
fn commit_of_checkout() -> Option<String> {
    git(&["rev-parse", "--show-prefix"]).filter(|prefix| prefix == PACKAGE_FOLDER)?;
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    // A branch whose ref is packed has no file of its own until the next commit: the log of HEAD tells of that commit.
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        // A path that does not exist would make cargo run this script on every build.
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let shown = git(&["log", "-1", "--format=%H %cs", "--no-show-signature"])?;
    let (hash, date) = shown.split_once(' ')?;
    // Not `%h`: its length depends on which other objects a clone has.
    Some(format!("{} {date}", hash.get(..7)?))
}

/// The output of git, run in the package's folder; `None` if git is missing or reports an error.
fn git(args: &[&str]) -> Option<String> {
    // Git sets these for its hooks. A build that a hook starts is about the checkout, too.
    let output = Command::new("git").args(args).env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
