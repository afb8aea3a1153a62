//! The files of `packaging/`, as far as they can be checked without installing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// The values of a key, in order.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn systemd_units_match_the_gateways_behaviour() {
    for name in ["trunkline.service", "trunkline-user.service"] {
        let unit = fs::read_to_string(packaging().join(name)).unwrap();
        assert_eq!(values(&unit, "Type"), ["notify"], "{name}");
        assert_eq!(values(&unit, "KillMode"), ["mixed"], "{name}");
        assert_eq!(values(&unit, "WatchdogSec").len(), 1, "{name}");
        // The drain (30 s), the last frames (2 s) and the grace of the CLIs (5 s).
        let stop: u64 = values(&unit, "TimeoutStopSec")[0].parse().unwrap();
        assert!(stop > 30 + 2 + 5, "{name}");
        let command = values(&unit, "ExecStart")[0];
        assert!(command.contains("trunkline serve"), "{name}");
        assert_eq!(values(&unit, "ExecReload"), ["/bin/kill -HUP $MAINPID"], "{name}");
        for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
            assert!(line.contains('='), "{name}: {line}");
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "systemd-analyze is an external program")]
fn systemd_analyze_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: systemd-analyze is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["trunkline.service", "trunkline-user.service"] {
        let unit = fs::read_to_string(packaging().join(name)).unwrap();
        // systemd-analyze requires the program to exist.
        let unit =
            unit.replace("/usr/local/bin/trunkline", "/bin/true").replace("%h/.local/bin/trunkline", "/bin/true");
        let path = folder.path().join(name);
        fs::write(&path, unit).unwrap();
        let checked = Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&path).output().unwrap();
        let stderr = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && !stderr.contains(name), "{stderr}");
    }
}

#[test]
fn container_runs_as_unprivileged_user_and_stops_with_sigterm() {
    let file = fs::read_to_string(packaging().join("Containerfile")).unwrap();
    let instructions: Vec<&str> =
        file.lines().filter(|line| !line.starts_with([' ', '#']) && !line.is_empty()).collect();
    let at = |start: &str| instructions.iter().rposition(|line| line.starts_with(start)).unwrap();
    assert!(at("FROM") < at("USER trunkline") && at("USER trunkline") < at("ENTRYPOINT"));
    assert!(instructions.contains(&"STOPSIGNAL SIGTERM"));
}
