//! Tests of the tools with real files and real commands.

mod bash;
mod files;
mod paths;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use trunkline_core::vocabulary::Permissions;
use trunkline_process::{KeeperProgram, Keepers, keeper_main};

use super::*;

/// A workspace, and a file outside it that the tools must not reach.
struct TestWorkspace {
    folder: TempDir,
    keepers: Keepers,
    tools: Toolbox,
}

impl TestWorkspace {
    fn new(permissions: Permissions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("work");
        fs::create_dir(&root).unwrap();
        fs::write(folder.path().join("secret.txt"), "secret").unwrap();
        let keepers = Keepers::new(this_test_binary(), 0).unwrap();
        let env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
        let tools = Toolbox::new(root, permissions, Shell { keepers: keepers.clone(), env, confinement: None });
        Self { folder, keepers, tools }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    async fn read(&self, path: &str) -> Result<String, String> {
        result(self.tools.run("read_file", &json!({"path": path}).to_string()).await)
    }

    async fn write(&self, path: &str, content: &str) -> Result<String, String> {
        result(self.tools.run("write_file", &json!({"path": path, "content": content}).to_string()).await)
    }

    async fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
        let arguments = json!({"path": path, "old_string": old, "new_string": new});
        result(self.tools.run("edit_file", &arguments.to_string()).await)
    }

    async fn bash(&self, command: &str) -> Result<String, String> {
        result(self.tools.run("bash", &json!({"command": command}).to_string()).await)
    }

    /// All files in the workspace, so that tests notice leftovers.
    fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    walk(&entry.path(), found);
                } else {
                    found.push(entry.path());
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.path(""), &mut found);
        let root = self.path("");
        let mut names: Vec<String> =
            found.iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect();
        names.sort();
        names
    }
}

fn result(outcome: ToolOutcome) -> Result<String, String> {
    if outcome.ok { Ok(outcome.output) } else { Err(outcome.output) }
}

fn ok(text: &str) -> Result<String, String> {
    Ok(text.into())
}

/// Commands need a keeper process, and tests of a crate cannot use binaries of another crate. So the test binary itself
/// acts as a keeper.
pub(crate) fn this_test_binary() -> KeeperProgram {
    let test = concat!(module_path!(), "::a_keeper").split_once("::").unwrap().1;
    KeeperProgram { path: "/proc/self/exe".into(), args: ["--exact", test, AS_KEEPER].map(Into::into).to_vec() }
}

/// Argument that selects the keeper. The test harness takes it for a test name without a match.
const AS_KEEPER: &str = "as_a_keeper";

#[test]
fn a_keeper() {
    if std::env::args().any(|argument| argument == AS_KEEPER) {
        keeper_main();
    }
}
