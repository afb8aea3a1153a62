//! What this machine's kernel holds a run to.

use std::path::Path;

use trunkline_core::model::Sandbox;
use trunkline_process::{Landlock, Missing};

/// Folders that every run may write.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// What holds, in words; and what does not.
pub(super) fn told(sandbox: Sandbox, here: Result<Landlock, Missing>, worktrees: &Path) -> Vec<String> {
    let mut lines = match (sandbox, here) {
        (Sandbox::Off, _) => {
            vec!["off: only the CLIs' own flags hold a run with the permissions read or edit".to_owned()]
        }
        (Sandbox::Required, Err(missing)) => {
            vec![format!("required, and missing: {missing}; nothing is run that needs it")]
        }
        (Sandbox::On, Err(missing)) => vec![format!("missing: {missing}; only the CLIs' own flags hold")],
        (Sandbox::On | Sandbox::Required, Ok(landlock)) => {
            let mut lines =
                vec![format!("Landlock, version {}: read and edit write only where they may", landlock.abi)];
            let gaps = [
                (landlock.holds_truncation(), "emptying files elsewhere by name"),
                (landlock.holds_devices(), "controlling devices"),
                (landlock.holds_signals(), "signals to processes outside"),
            ];
            let gaps: Vec<&str> = gaps.into_iter().filter(|(held, _)| !held).map(|(_, gap)| gap).collect();
            if !gaps.is_empty() {
                lines.push(format!("not held by this kernel: {}", gaps.join(", ")));
            }
            lines
        }
    };
    if sandbox != Sandbox::Off && TEMPORARY.iter().any(|folder| worktrees.starts_with(folder)) {
        let worktrees = worktrees.display();
        lines.push(format!("worktrees are in {worktrees}, where every run may write: --worktrees keeps them apart"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let all = |sandbox, here| told(sandbox, here, Path::new("/srv/worktrees")).join("\n");
        assert_eq!(
            all(Sandbox::On, Ok(Landlock { abi: 7 })),
            "Landlock, version 7: read and edit write only where they may"
        );
        let old = all(Sandbox::On, Ok(Landlock { abi: 4 }));
        assert!(old.ends_with("not held by this kernel: controlling devices, signals to processes outside"), "{old}");
        assert!(all(Sandbox::On, Err(Missing::TooOld)).contains("only the CLIs' own flags hold"));
        assert!(all(Sandbox::Required, Err(Missing::Disabled)).contains("nothing is run"));
        assert!(all(Sandbox::Off, Ok(Landlock { abi: 7 })).starts_with("off: "));
        let temporary = told(Sandbox::On, Ok(Landlock { abi: 7 }), Path::new("/tmp/agenticllm"));
        assert!(temporary[1].contains("--worktrees"), "{temporary:?}");
    }
}
