//! Results of one run, written to the terminal, to JSON, to `docs/BENCHMARKS.md` and to the baseline.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::baseline::Baseline;
use super::figure::BenchFigure;
use super::overhead::Overhead;
use super::variants::CliTimes;
use super::{page, svg, table};

const PAGE: &str = "docs/BENCHMARKS.md";
const PLOT: &str = "docs/benchmarks.svg";
const BASELINE: &str = "benches/baseline.json";

pub(crate) struct BenchReport {
    clis: Vec<CliTimes>,
    overhead: Option<Overhead>,
    sections: Vec<ReportSection>,
    figures: Vec<BenchFigure>,
}

/// Results of a part that is not a CLI.
pub(crate) struct ReportSection {
    pub(crate) markdown: String,
    pub(crate) figures: Vec<BenchFigure>,
}

impl BenchReport {
    pub(crate) fn new(clis: Vec<CliTimes>, overhead: Option<Overhead>, sections: Vec<ReportSection>) -> Self {
        let of_clis = clis.iter().flat_map(CliTimes::figures);
        let of_overhead = overhead.iter().flat_map(Overhead::figures);
        let of_sections = sections.iter().flat_map(|section| section.figures.clone());
        let figures = of_clis.chain(of_overhead).chain(of_sections).collect();
        Self { clis, overhead, sections, figures }
    }

    pub(crate) fn terminal(&self) -> String {
        let overhead = self.overhead.as_ref().map(|overhead| overhead.markdown() + "\n").unwrap_or_default();
        let sections: String = self.sections.iter().map(|section| section.markdown.clone() + "\n").collect();
        format!("\n{}{overhead}{sections}{}", table::bars(&self.clis), table::verdicts(&self.figures))
    }

    pub(crate) fn json(&self) -> Value {
        let clis: Vec<Value> = self.clis.iter().map(CliTimes::json).collect();
        let figures: Vec<Value> = self.figures.iter().map(BenchFigure::json).collect();
        json!({"machine": machine(), "clis": clis, "findings": figures})
    }

    /// A line for each figure that is worse than the repository's baseline.
    pub(crate) fn regressions(&self, root: &Path) -> Result<Vec<String>> {
        Ok(baseline(root)?.regressions(&self.figures))
    }

    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let file = root.join(PAGE);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {PAGE}"))?;
        write(&file, &page::with(&text, &self.markdown())?)?;
        write(&root.join(PLOT), &svg::plot(&self.clis))?;
        let baseline = baseline(root)?.updated(Baseline::of(&self.figures));
        fs::create_dir_all(root.join("benches"))?;
        write(&root.join(BASELINE), &baseline.text())
    }

    fn markdown(&self) -> String {
        let mut text = format!("{}.\n\n", machine());
        text += "![First token of each CLI: by hand, cold, warm, in a session](benchmarks.svg)\n\n";
        text += &format!("{}\n{}", table::markdown(&self.clis), table::verdicts_markdown(&self.figures));
        if let Some(overhead) = &self.overhead {
            text += &format!("\n{}", overhead.markdown());
        }
        text.extend(self.sections.iter().map(|section| format!("\n{}", section.markdown)));
        text
    }
}

/// Short description of the machine.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_owned();
    format!("{cores} cores, load {load} at the end; shared by the client, the gateway, the CLIs and the mock LLM")
}

fn baseline(root: &Path) -> Result<Baseline> {
    match fs::read_to_string(root.join(BASELINE)) {
        Ok(text) => Baseline::read(&text).with_context(|| format!("{BASELINE} is not a baseline")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Baseline::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {BASELINE}")),
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
