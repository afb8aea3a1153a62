//! Tests of the chat page: `tests/page` with Node's test runner and Debian's Chromium, against the debug build of
//! trunkline.

use std::path::Path;

use anyhow::{Context, Result};

use super::{TestTally, build, command, need, need_package, watch};
use crate::npm;

pub(crate) fn run() -> Result<TestTally> {
    need_package("node", &["nodejs"])?;
    need("npm")?;
    // Chromium renders no text without a font.
    need_package("chromium", &["chromium", "fonts-dejavu-core"])?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("tests").join("page");
    let exe = std::env::current_exe()?;
    let built = exe.parent().context("no target folder")?;
    let folder = built.parent().context("no target folder")?.join("page");
    npm::install(&folder, &npm::pinned(&sources)?, &["ci"], || Ok(()))?;
    build("trunkline")?;
    let mut node = command("node");
    node.args(["--test", "--test-reporter=spec"]).arg(&sources);
    node.env("PAGE_BINARY", built.join("trunkline")).env("PAGE_MODULES", folder.join("node_modules"));
    watch(&mut node, add)
}

/// Adds a line of the runner's summary, such as `ℹ pass 25`.
fn add(tally: &mut TestTally, line: &str) {
    let Some((name, count)) = line.strip_prefix("ℹ ").and_then(|line| line.split_once(' ')) else { return };
    let Ok(count) = count.parse::<u64>() else { return };
    match name {
        "pass" => tally.passed += count,
        "fail" | "cancelled" => tally.failed += count,
        "skipped" | "todo" => tally.ignored += count,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_summary() {
        let mut tally = TestTally::default();
        for line in ["✔ a test (3ms)", "ℹ tests 9", "ℹ pass 5", "ℹ fail 2", "ℹ cancelled 1", "ℹ skipped 1", "ℹ todo 0"]
        {
            add(&mut tally, line);
        }
        assert_eq!((tally.passed, tally.failed, tally.ignored), (5, 3, 1));
    }
}
