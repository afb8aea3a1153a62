//! Repeats this command in namespaces of its own: a network with nothing but loopback, so that no client can reach the
//! internet, and process ids that end with the command, so that no client leaves a daemon behind.

use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::test::command;

/// Argument that tells this program that it runs in the namespaces.
pub(super) const INSIDE: &str = "--inside-namespace";

/// Starts the loopback device and then the program. A shell that starts the lab in the background ignores SIGINT, and all programs
/// after it would, too.
const WITH_LOOPBACK: &str = r#"ip link set lo up && exec env --default-signal=INT "$@""#;

/// Replaces this process by one in the namespaces: `exe` with the arguments of this process and `INSIDE`. Returns only with
/// an error.
pub(super) fn enter(exe: &Path) -> Result<std::convert::Infallible> {
    let mut unshare = command("unshare");
    if !rustix::process::geteuid().is_root() {
        // An ordinary user may create the other namespaces only inside a user namespace.
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", WITH_LOOPBACK, "sh"]);
    unshare.arg(exe).args(std::env::args_os().skip(1)).arg(INSIDE);
    Err(unshare.exec()).context("cannot start unshare (on Debian: apt-get install util-linux iproute2)")
}
