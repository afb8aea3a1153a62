//! All that was measured in one run, and where it goes: the terminal, JSON, `docs/BENCHMARKS.md` and the baseline.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::baseline::Baseline;
use super::finding::Finding;
use super::overhead::Overhead;
use super::ways::Measured;
use super::{page, svg, table};

const PAGE: &str = "docs/BENCHMARKS.md";
const PLOT: &str = "docs/benchmarks.svg";
const BASELINE: &str = "benches/baseline.json";

pub(crate) struct Report {
    measured: Vec<Measured>,
    overhead: Option<Overhead>,
    apart: Vec<Apart>,
    findings: Vec<Finding>,
}

/// What is measured apart from the CLIs: in Markdown, and what comes of it.
pub(crate) struct Apart {
    pub(crate) markdown: String,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(measured: Vec<Measured>, overhead: Option<Overhead>, apart: Vec<Apart>) -> Self {
        let of_clis = measured.iter().flat_map(Measured::findings);
        let added = overhead.iter().flat_map(Overhead::findings);
        let findings = of_clis.chain(added).chain(apart.iter().flat_map(|apart| apart.findings.clone())).collect();
        Self { measured, overhead, apart, findings }
    }

    pub(crate) fn terminal(&self) -> String {
        let added = self.overhead.as_ref().map(|overhead| overhead.markdown() + "\n").unwrap_or_default();
        let apart: String = self.apart.iter().map(|apart| apart.markdown.clone() + "\n").collect();
        format!("\n{}{added}{apart}{}", table::bars(&self.measured), table::verdicts(&self.findings))
    }

    pub(crate) fn json(&self) -> Value {
        let of_clis: Vec<Value> = self.measured.iter().map(Measured::json).collect();
        let findings: Vec<Value> = self.findings.iter().map(Finding::json).collect();
        json!({"machine": machine(), "clis": of_clis, "findings": findings})
    }

    /// What is worse than the baseline of this repository.
    pub(crate) fn regressions(&self, root: &Path) -> Result<Vec<String>> {
        Ok(baseline(root)?.regressions(&self.findings))
    }

    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let file = root.join(PAGE);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {PAGE}"))?;
        put(&file, &page::with(&text, &self.markdown())?)?;
        put(&root.join(PLOT), &svg::plot(&self.measured))?;
        let baseline = baseline(root)?.updated(Baseline::of(&self.findings));
        fs::create_dir_all(root.join("benches"))?;
        put(&root.join(BASELINE), &baseline.text())
    }

    fn markdown(&self) -> String {
        let mut text = format!("{}.\n\n", machine());
        text += "![First token of each CLI: by hand, cold, warm, in a session](benchmarks.svg)\n\n";
        text += &format!("{}\n{}", table::markdown(&self.measured), table::verdicts_markdown(&self.findings));
        if let Some(overhead) = &self.overhead {
            text += &format!("\n{}", overhead.markdown());
        }
        text.extend(self.apart.iter().map(|apart| format!("\n{}", apart.markdown)));
        text
    }
}

/// What it was measured on, in a few words.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    format!("{cores} cores, load {load} at the end; client, gateway, CLIs and the mock LLM together on them")
}

fn baseline(root: &Path) -> Result<Baseline> {
    match fs::read_to_string(root.join(BASELINE)) {
        Ok(text) => Baseline::read(&text).with_context(|| format!("{BASELINE} is not a baseline")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Baseline::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {BASELINE}")),
    }
}

fn put(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
