//! Scenarios as data, and the variants in which each one runs.

use anyhow::{Context, Result};
use serde::Deserialize;

/// Script of a hostile agent; `scenarios.toml` documents the fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttackScenario {
    pub(super) name: String,
    /// The attack goes through the gateway's own git.
    #[serde(default)]
    pub(super) git: bool,
    pub(super) setup: Option<String>,
    pub(super) plant: Option<String>,
    pub(super) agent: String,
    pub(super) modes: Vec<AttackMode>,
    pub(super) permissions: Option<String>,
    /// The model's policy sets `commitHelpers`: added files are listed in a log.
    #[serde(default)]
    pub(super) helpers: bool,
    /// The agent leaves a marker that must survive the run.
    #[serde(default)]
    pub(super) precious: bool,
    /// Git hangs, and the gateway must answer nevertheless.
    #[serde(default)]
    pub(super) slow: bool,
    pub(super) save: Option<String>,
}

/// Working directory of the run that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AttackMode {
    Worktree,
    Checkout,
}

/// Whether the process or the worktree exists before the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttackStart {
    Cold,
    Warm,
}

/// Settings with which a scenario runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AttackVariant {
    pub(super) mode: AttackMode,
    pub(super) start: AttackStart,
    /// Value of the gateway's `--sandbox`.
    pub(super) sandbox: &'static str,
}

impl AttackScenario {
    pub(super) fn all() -> Result<Vec<Self>> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ScenarioFile {
            scenario: Vec<AttackScenario>,
        }
        let file: ScenarioFile = toml::from_str(include_str!("scenarios.toml")).context("scenarios.toml")?;
        Ok(file.scenario)
    }

    pub(super) fn variants(&self) -> Vec<AttackVariant> {
        let mut variants = Vec::new();
        for &mode in &self.modes {
            for start in [AttackStart::Cold, AttackStart::Warm] {
                for sandbox in ["required", "on"] {
                    // A spare worktree is older than the planted files and would not contain them.
                    if start == AttackStart::Cold || self.plant.is_none() || mode == AttackMode::Checkout {
                        variants.push(AttackVariant { mode, start, sandbox });
                    }
                }
            }
        }
        variants
    }
}

impl std::fmt::Display for AttackVariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mode = match self.mode {
            AttackMode::Worktree => "worktree",
            AttackMode::Checkout => "checkout",
        };
        let start = match self.start {
            AttackStart::Cold => "cold",
            AttackStart::Warm => "warm",
        };
        write!(f, "{mode} {start} {}", self.sandbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_names_are_unique_and_every_scenario_has_a_variant() {
        let all = AttackScenario::all().unwrap();
        let names: std::collections::BTreeSet<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 40 && all.iter().filter(|scenario| scenario.git).count() >= 20);
        assert!(all.iter().all(|scenario| !scenario.variants().is_empty()));
    }
}
