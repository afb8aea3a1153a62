//! Programs in C that the profile needs: the fast fake CLI, and what counts allocations and instructions.
//!
//! They are compiled with `cc` when they are missing or their source has changed, into the `profile` folder of the target
//! directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::test::command;

/// A C program or library of one source file.
pub(super) struct CProgram {
    /// File name of the result.
    name: &'static str,
    source: &'static str,
    flags: &'static [&'static str],
}

/// Fake CLI that starts faster than any program with a C library.
pub(super) const FAST_AGENT: CProgram = CProgram {
    name: "fast-agent",
    source: include_str!("fast_agent.c"),
    // Without the last flag, the compiler replaces loops with calls of C library functions.
    flags: &[
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-pie",
        "-no-pie",
        "-fno-tree-loop-distribute-patterns",
    ],
};

/// Library for `LD_PRELOAD` that counts allocations.
pub(super) const COUNT_ALLOCATIONS: CProgram = CProgram {
    name: "count-allocations.so",
    source: include_str!("count_allocations.c"),
    // Otherwise the compiler may treat the replaced functions as its own.
    flags: &["-shared", "-fPIC", "-fno-builtin"],
};

/// Program that counts the instructions of another one.
pub(super) const COUNT_INSTRUCTIONS: CProgram =
    CProgram { name: "count-instructions", source: include_str!("count_instructions.c"), flags: &[] };

impl CProgram {
    /// Compiles the program into `folder` unless it is there already, and returns its path.
    pub(super) fn build(&self, folder: &Path) -> Result<PathBuf> {
        let (program, source) = (folder.join(self.name), folder.join(format!("{}.c", self.name)));
        let unchanged = fs::read_to_string(&source).is_ok_and(|built| built == self.source);
        if unchanged && program.is_file() {
            return Ok(program);
        }
        fs::create_dir_all(folder)?;
        // The source is written last: it says that the program beside it was built from it.
        let (new, input) = (folder.join(format!("{}.new", self.name)), folder.join(format!("{}.new.c", self.name)));
        fs::write(&input, self.source)?;
        let mut cc = command("cc");
        cc.args(["-O2", "-Wall", "-Wextra"]).args(self.flags).arg("-o").arg(&new).arg(&input);
        let output = cc.output().context("cannot start cc, the C compiler")?;
        if !output.status.success() {
            bail!("cc cannot compile {}: {}", self.name, String::from_utf8_lossy(&output.stderr).trim());
        }
        fs::rename(new, &program)?;
        fs::rename(input, source)?;
        Ok(program)
    }
}
