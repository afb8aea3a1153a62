//! Results of the scenarios, as text.

use std::fmt;

use super::scenario::AttackVariant;

/// Result of one scenario over its variants.
#[derive(Debug)]
pub(super) struct AttackOutcome {
    name: String,
    git: bool,
    /// Harm that the script does without protection.
    control: Vec<String>,
    /// Number of variants that ran.
    variants: usize,
    /// Harm in the variants that were not contained.
    harm: Vec<(AttackVariant, Vec<String>)>,
}

impl AttackOutcome {
    pub(super) fn new(name: &str, git: bool, control: Vec<String>) -> Self {
        Self { name: name.to_owned(), git, control, variants: 0, harm: Vec::new() }
    }

    pub(super) fn add(&mut self, variant: AttackVariant, harm: Vec<String>) {
        self.variants += 1;
        if !harm.is_empty() {
            self.harm.push((variant, harm));
        }
    }

    fn passed(&self) -> bool {
        self.harm.is_empty() && !self.control.is_empty()
    }

    fn verdict(&self) -> &'static str {
        match (self.harm.is_empty(), self.control.is_empty()) {
            (false, _) => "NOT CONTAINED",
            (true, true) => "PROVES NOTHING",
            (true, false) => "contained",
        }
    }

    /// First harm of the control, without the folders of this machine.
    fn control_harm(&self) -> String {
        let short = |harm: &String| match harm.strip_prefix("changed ") {
            Some(path) => format!("changed {}", path.rsplit('/').next().unwrap_or(path)),
            None => harm.clone(),
        };
        self.control.first().map(short).unwrap_or_else(|| "none".to_owned())
    }
}

impl fmt::Display for AttackOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<56} {:>2} variants  {:<14} control: {}",
            self.name,
            self.variants,
            self.verdict(),
            self.control_harm()
        )?;
        for (variant, harm) in &self.harm {
            write!(f, "\n    {variant}: {}", harm.join("; "))?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct AttackTable(Vec<AttackOutcome>);

impl AttackTable {
    pub(super) fn add(&mut self, outcome: AttackOutcome) {
        self.0.push(outcome);
    }

    pub(super) fn failures(&self) -> usize {
        self.0.iter().filter(|outcome| !outcome.passed()).count()
    }

    pub(super) fn markdown(&self) -> String {
        let mut text =
            "| an agent tries | through git | variants | outcome | without protection |\n|---|---|---|---|---|\n"
                .to_owned();
        for outcome in &self.0 {
            let git = if outcome.git { "yes" } else { "" };
            let (name, variants, verdict) = (&outcome.name, outcome.variants, outcome.verdict());
            text.push_str(&format!("| {name} | {git} | {variants} | {verdict} | {} |\n", outcome.control_harm()));
        }
        text
    }
}

impl fmt::Display for AttackTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, git) = (self.0.len(), self.0.iter().filter(|outcome| outcome.git).count());
        let variants: usize = self.0.iter().map(|outcome| outcome.variants).sum();
        let passed = all - self.failures();
        write!(f, "{all} scenarios, {git} of them through git, in {variants} variants: {passed} contained")?;
        write!(f, "\n\nattack: {passed} passed, {} failed", self.failures())
    }
}
