//! `cargo xtask attack`: agents that try to escape, to lose their own work, to hang the gateway or to falsify its receipts.
//!
//! Each scenario is a script that runs as the agent of a real gateway, in several variants: with and without a worktree,
//! cold and warm, with the sandbox required and by default. Afterwards the harness checks for harm. A control runs the same
//! script with plain git and no protection: a scenario whose control does no harm proves nothing and counts as a failure.
//!
//! Attacks on the tools of clients (`tool_attacks`) are functions. Their control is the same step by its rightful process.

mod scenario;
mod table;
mod tool_attacks;
mod tool_world;
mod verdict;
mod world;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use fastrand::Rng;
use trunkline_process::Landlock;

use crate::test::build;
use scenario::{AttackScenario, AttackVariant};
use table::{AttackOutcome, AttackTable};
use tool_attacks::ToolAttack;
use world::AttackWorld;

const EXAMPLES: &str = "\
Examples:
  cargo xtask attack --short                One variant of each scenario
  cargo xtask attack --only 'clean filter'  All variants of the scenarios with this in their name
  cargo xtask attack --only hooks --keep    Keep the folders of failed scenarios for inspection";

/// Run hostile agents against a gateway and check that each attack is contained
///
/// Each scenario in xtask/src/attack/scenarios.toml is a shell script that runs as the agent of a real gateway. It runs in
/// several variants: in a worktree and in the checkout, cold and warm, with the sandbox on and required. Afterwards the
/// command checks for harm outside the workspace, lost work, receipts that are wrong, and hangs.
///
/// A control runs the same script with plain git and no protection. A scenario whose control does no harm proves nothing
/// and counts as a failure.
///
/// Needs a kernel with Landlock.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct AttackArgs {
    /// Seed that selects the variants of a --short run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only the scenarios whose name contains NAME
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Run one variant of each scenario instead of all
    #[arg(long)]
    short: bool,
    /// Print the result as the Markdown table of docs/SANDBOX.md
    #[arg(long)]
    markdown: bool,
    /// Keep the folders of scenarios that were not contained
    #[arg(long)]
    keep: bool,
}

impl AttackArgs {
    pub(crate) fn run(self) -> Result<()> {
        if let Err(missing) = Landlock::here() {
            bail!("attacks need Landlock: {missing}");
        }
        let mut scenarios = AttackScenario::all()?;
        scenarios.retain(|scenario| self.only.as_ref().is_none_or(|only| scenario.name.contains(only.as_str())));
        let mut tool_attacks: Vec<&ToolAttack> = tool_attacks::ALL.iter().collect();
        tool_attacks.retain(|attack| self.only.as_ref().is_none_or(|only| attack.name.contains(only.as_str())));
        if scenarios.is_empty() && tool_attacks.is_empty() {
            bail!("no scenario has {:?} in its name", self.only.unwrap_or_default());
        }
        build("trunkline")?;
        let folder = AttackFolder::new()?;
        let mut rng = Rng::with_seed(self.seed);
        let mut table = AttackTable::default();
        for scenario in &scenarios {
            let mut variants = scenario.variants();
            if self.short {
                variants = vec![variants.swap_remove(rng.usize(..variants.len()))];
            }
            self.report(&mut table, self.run_scenario(&folder, scenario, &variants)?);
        }
        for attack in tool_attacks {
            self.report(&mut table, attack.run(&folder.path, &folder.trunkline)?);
        }
        if self.markdown {
            print!("{}", table.markdown());
        } else {
            println!("{table}");
        }
        match table.failures() {
            0 => Ok(()),
            failures => bail!("{failures} scenarios were not contained, or proved nothing"),
        }
    }

    fn report(&self, table: &mut AttackTable, outcome: AttackOutcome) {
        if !self.markdown {
            println!("{outcome}");
        }
        table.add(outcome);
    }

    fn run_scenario(
        &self,
        folder: &AttackFolder,
        scenario: &AttackScenario,
        variants: &[AttackVariant],
    ) -> Result<AttackOutcome> {
        let new = || AttackWorld::new(&folder.path, scenario, &folder.trunkline);
        let control = verdict::control(&mut new()?, scenario)?;
        let mut outcome = AttackOutcome::new(&scenario.name, scenario.git, control);
        for variant in variants {
            let mut world = new()?;
            let harm = verdict::attack(&mut world, scenario, *variant)
                .with_context(|| format!("{} ({variant})\n{}", scenario.name, world.log()))?;
            if !harm.is_empty() && self.keep {
                println!("kept: {}", world.keep().display());
            }
            outcome.add(*variant, harm);
        }
        Ok(outcome)
    }
}

/// Parent folder of the attack worlds. It is not below a folder for temporary files, which every agent may write.
struct AttackFolder {
    path: PathBuf,
    /// The gateway's binary.
    trunkline: PathBuf,
}

impl AttackFolder {
    fn new() -> Result<Self> {
        let built = std::env::current_exe()?.parent().context("no target folder")?.to_owned();
        let folder = built.join("attack");
        if ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|temporary| folder.starts_with(Path::new(temporary))) {
            bail!(
                "{} is below a folder for temporary files, which agents may write: use another target directory",
                folder.display()
            );
        }
        std::fs::create_dir_all(&folder)?;
        Ok(Self { path: folder.canonicalize()?, trunkline: built.join("trunkline") })
    }
}
