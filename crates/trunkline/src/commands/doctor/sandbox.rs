//! Report on how far this machine's kernel can confine runs.

use std::path::Path;

use trunkline_core::model::Sandbox;
use trunkline_process::{Landlock, LandlockUnavailable};

/// Folders that every run may write to.
const TEMPORARY_FOLDERS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Lines about what is enforced, and what is not.
pub(super) fn report(sandbox: Sandbox, here: Result<Landlock, LandlockUnavailable>, worktrees: &Path) -> Vec<String> {
    let mut lines = match (sandbox, here) {
        (Sandbox::Off, _) => {
            vec!["off: permissions read and edit rely on the CLIs' own flags".to_owned()]
        }
        (Sandbox::Required, Err(missing)) => {
            vec![format!("required, and missing: {missing}; runs that need it are refused")]
        }
        (Sandbox::On, Err(missing)) => vec![format!("missing: {missing}; permissions rely on the CLIs' own flags")],
        (Sandbox::On | Sandbox::Required, Ok(landlock)) => {
            let mut lines = vec![format!(
                "Landlock, version {}: runs with read or edit can write only to allowed folders",
                landlock.abi
            )];
            let gaps = [
                (landlock.holds_truncation(), "truncating other files by path"),
                (landlock.holds_devices(), "ioctl on devices"),
                (landlock.holds_signals(), "signals to other processes"),
            ];
            let gaps: Vec<&str> = gaps.into_iter().filter(|(held, _)| !held).map(|(_, gap)| gap).collect();
            if !gaps.is_empty() {
                lines.push(format!("not enforced by this kernel: {}", gaps.join(", ")));
            }
            lines
        }
    };
    if sandbox != Sandbox::Off && TEMPORARY_FOLDERS.iter().any(|folder| worktrees.starts_with(folder)) {
        let worktrees = worktrees.display();
        lines.push(format!(
            "worktrees are in {worktrees}, which every run can write to: choose another folder with --worktrees"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_what_is_not_enforced() {
        let all = |sandbox, here| report(sandbox, here, Path::new("/srv/worktrees")).join("\n");
        assert_eq!(
            all(Sandbox::On, Ok(Landlock { abi: 7 })),
            "Landlock, version 7: runs with read or edit can write only to allowed folders"
        );
        let old = all(Sandbox::On, Ok(Landlock { abi: 4 }));
        assert!(old.ends_with("not enforced by this kernel: ioctl on devices, signals to other processes"), "{old}");
        assert!(all(Sandbox::On, Err(LandlockUnavailable::TooOld)).contains("rely on the CLIs' own flags"));
        assert!(all(Sandbox::Required, Err(LandlockUnavailable::Disabled)).contains("are refused"));
        assert!(all(Sandbox::Off, Ok(Landlock { abi: 7 })).starts_with("off: "));
        let temporary = report(Sandbox::On, Ok(Landlock { abi: 7 }), Path::new("/tmp/agenticllm"));
        assert!(temporary[1].contains("--worktrees"), "{temporary:?}");
    }
}
