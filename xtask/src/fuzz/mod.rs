//! `cargo xtask fuzz`: what strangers send, made up by libFuzzer, which keeps what reaches new code and builds on it.
//!
//! The instrumentation is rustc's own on a stable toolchain; the targets are in `fuzz/`, a workspace that nothing else
//! needs. What was found once is kept in `fuzz/regressions` and tried first.

mod corpus;
mod report;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::test::{command, need_package};
use report::Report;

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
        let work = Work::build()?;
        let targets: VecDeque<&str> = match self.targets.is_empty() {
            true => TARGETS.into(),
            false => self.targets.iter().map(String::as_str).collect(),
        };
        for target in &targets {
            corpus::plant(target, &work.corpus(target))?;
        }
        println!("{}", Report::HEAD);
        let (queue, failed) = (Mutex::new(targets), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some(target) = next(&queue) {
                        match work.fuzz(target, self.seconds) {
                            Ok(report) => println!("{report}"),
                            Err(error) => failed.lock().expect("nobody panics").push(format!("{target}: {error:#}")),
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().expect("nobody panics");
        if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
    }
}

fn next<'a>(queue: &Mutex<VecDeque<&'a str>>) -> Option<&'a str> {
    queue.lock().expect("nobody panics").pop_front()
}

/// Where the targets are once they are built.
struct Work {
    root: PathBuf,
    programs: PathBuf,
}

impl Work {
    fn build() -> Result<Self> {
        let here = std::env::current_dir()?;
        let programs = std::env::current_exe()?.parent().context("no target folder")?.to_owned();
        let mut cargo = command(env!("CARGO"));
        cargo.args(["build", "--locked", "--package", "trunkline-fuzz", "--features", "libfuzzer", "--bins"]);
        // Beside the other builds, so that the crates of others are compiled once.
        let status = cargo.env("RUSTC_WORKSPACE_WRAPPER", here.join("fuzz/rustc")).status()?;
        if !status.success() {
            bail!("the fuzz targets cannot be built");
        }
        Ok(Self { root: programs.with_file_name("fuzz"), programs })
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.root.join("corpus").join(target)
    }

    fn fuzz(&self, target: &str, seconds: u32) -> Result<Report> {
        let found = self.root.join("found").join(target);
        let scratch = tempfile::tempdir()?;
        fs::create_dir_all(&found)?;
        let log = self.root.join(format!("{target}.log"));
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
        let said = fs::read(&log).context("its log is gone")?;
        let said = String::from_utf8_lossy(&said);
        if !status.success() {
            let lines: Vec<&str> = said.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n");
            bail!("an input breaks it: keep it in fuzz/regressions/{target} and mend what it broke\n{last}");
        }
        Report::read(target, &said).context("it said nothing about what it did")
    }
}
