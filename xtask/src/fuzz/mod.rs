//! `cargo xtask fuzz`: runs libFuzzer on the parsers of untrusted input.
//!
//! The instrumentation is rustc's own, on a stable toolchain. The targets are in `fuzz/`, a package that nothing else
//! depends on. Inputs that broke a target are kept in `fuzz/regressions` and run first.

mod corpus;
mod report;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::test::{command, need_package};
use report::FuzzReport;

const TARGETS: [&str; 5] = ["decoders", "sse", "models_json", "router_yaml", "http_body"];

const EXAMPLES: &str = "\
Examples:
  cargo xtask fuzz                             All targets, 60 s each
  cargo xtask fuzz sse decoders --seconds 600  Two targets, 10 minutes each";

/// Fuzz the parsers of untrusted input with libFuzzer
///
/// Targets: decoders (output of CLIs), sse (streams of model services), models_json and router_yaml (configuration),
/// http_body (chat requests). They are built from fuzz/ with coverage instrumentation; a stable toolchain and g++ are
/// enough. The corpus and the logs are in target/fuzz. Inputs in fuzz/regressions/TARGET run first: add every input that
/// broke a target.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct FuzzArgs {
    /// Targets to run; all if none is given
    #[arg(value_parser = TARGETS)]
    targets: Vec<String>,
    /// Duration of each target, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Number of targets that run at the same time
    #[arg(long, default_value_t = 3)]
    jobs: usize,
}

impl FuzzArgs {
    pub(crate) fn run(self) -> Result<()> {
        need_package("g++", &["g++"])?;
        let build = FuzzBuild::new()?;
        let targets: VecDeque<&str> = match self.targets.is_empty() {
            true => TARGETS.into(),
            false => self.targets.iter().map(String::as_str).collect(),
        };
        for target in &targets {
            corpus::write_seeds(target, &build.corpus(target))?;
        }
        println!("{}", FuzzReport::HEAD);
        let (queue, failed) = (Mutex::new(targets), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some(target) = next(&queue) {
                        match build.fuzz(target, self.seconds) {
                            Ok(report) => println!("{report}"),
                            Err(error) => failed.lock().expect("no thread panics").push(format!("{target}: {error:#}")),
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().expect("no thread panics");
        if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
    }
}

fn next<'a>(queue: &Mutex<VecDeque<&'a str>>) -> Option<&'a str> {
    queue.lock().expect("no thread panics").pop_front()
}

/// Paths of the built targets and of their data.
struct FuzzBuild {
    /// Corpus, logs and found inputs.
    data: PathBuf,
    programs: PathBuf,
}

impl FuzzBuild {
    /// Builds the targets.
    fn new() -> Result<Self> {
        let here = std::env::current_dir()?;
        let programs = std::env::current_exe()?.parent().context("no target folder")?.to_owned();
        let mut cargo = command(env!("CARGO"));
        cargo.args(["build", "--locked", "--package", "trunkline-fuzz", "--features", "libfuzzer", "--bins"]);
        // In the usual target directory, so that third-party crates are compiled once.
        let status = cargo.env("RUSTC_WORKSPACE_WRAPPER", here.join("fuzz/rustc")).status()?;
        if !status.success() {
            bail!("the fuzz targets cannot be built");
        }
        Ok(Self { data: programs.with_file_name("fuzz"), programs })
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.data.join("corpus").join(target)
    }

    fn fuzz(&self, target: &str, seconds: u32) -> Result<FuzzReport> {
        let found = self.data.join("found").join(target);
        let scratch = tempfile::tempdir()?;
        fs::create_dir_all(&found)?;
        let log = self.data.join(format!("{target}.log"));
        let mut fuzzer = command(&self.programs.join(target).to_string_lossy());
        fuzzer
            .arg(format!("-max_total_time={seconds}"))
            .args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1", "-max_len=16384"])
            .arg(format!("-artifact_prefix={}/", found.display()))
            .arg(self.corpus(target))
            .env("TMPDIR", scratch.path());
        let known = Path::new("fuzz/regressions").join(target);
        if known.is_dir() {
            fuzzer.arg(known);
        }
        let status = fuzzer.stdout(File::create(&log)?).stderr(File::create(&log)?).status()?;
        let printed = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
        let printed = String::from_utf8_lossy(&printed);
        if !status.success() {
            let lines: Vec<&str> = printed.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n");
            bail!(
                "an input in {} breaks this target: fix the bug and add the input to fuzz/regressions/{target}\n{last}",
                found.display()
            );
        }
        FuzzReport::read(target, &printed).with_context(|| format!("no statistics in {}", log.display()))
    }
}
