//! Scenarios as data, and the ways in which each is tried.

use anyhow::{Context, Result};
use serde::Deserialize;

/// A script of a hostile agent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) name: String,
    /// It goes through the gateway's own git.
    #[serde(default)]
    pub(super) git: bool,
    pub(super) setup: Option<String>,
    pub(super) plant: Option<String>,
    pub(super) agent: String,
    pub(super) modes: Vec<Mode>,
    pub(super) permissions: Option<String>,
    /// The policy of the model lists added files in a log.
    #[serde(default)]
    pub(super) helpers: bool,
    /// The agent leaves a marker that must be found again.
    #[serde(default)]
    pub(super) precious: bool,
    /// The gateway must answer although git does not.
    #[serde(default)]
    pub(super) slow: bool,
    pub(super) save: Option<String>,
}

/// Where the judged run works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    Worktree,
    Checkout,
}

/// Whether the process or the worktree is there before the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Cold,
    Warm,
}

/// One way to try a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) mode: Mode,
    pub(super) start: Start,
    /// The gateway's `--sandbox`.
    pub(super) sandbox: &'static str,
}

impl Scenario {
    pub(super) fn all() -> Result<Vec<Self>> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            scenario: Vec<Scenario>,
        }
        let file: File = toml::from_str(include_str!("scenarios.toml")).context("scenarios.toml")?;
        Ok(file.scenario)
    }

    pub(super) fn ways(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        for &mode in &self.modes {
            for start in [Start::Cold, Start::Warm] {
                for sandbox in ["required", "on"] {
                    // What was planted before is not seen by a worktree that was made before.
                    if start == Start::Cold || self.plant.is_none() || mode == Mode::Checkout {
                        ways.push(Way { mode, start, sandbox });
                    }
                }
            }
        }
        ways
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mode = match self.mode {
            Mode::Worktree => "worktree",
            Mode::Checkout => "checkout",
        };
        let start = match self.start {
            Start::Cold => "cold",
            Start::Warm => "warm",
        };
        write!(f, "{mode} {start} {}", self.sandbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_scenarios_and_each_has_a_name_of_its_own() {
        let all = Scenario::all().unwrap();
        let names: std::collections::BTreeSet<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 40 && all.iter().filter(|scenario| scenario.git).count() >= 20);
        assert!(all.iter().all(|scenario| !scenario.ways().is_empty()));
    }
}
