//! The result of an attack, for people.

use std::fmt;

use super::scenario::Way;

/// One scenario, in all the ways that it was tried.
#[derive(Debug)]
pub(super) struct Outcome {
    name: String,
    git: bool,
    /// Harm that the script does where nothing protects.
    control: Vec<String>,
    ways: usize,
    achieved: Vec<(Way, Vec<String>)>,
}

impl Outcome {
    pub(super) fn new(name: &str, git: bool, control: Vec<String>) -> Self {
        Self { name: name.to_owned(), git, control, ways: 0, achieved: Vec::new() }
    }

    pub(super) fn tried(&mut self, way: Way, achieved: Vec<String>) {
        self.ways += 1;
        if !achieved.is_empty() {
            self.achieved.push((way, achieved));
        }
    }

    fn holds(&self) -> bool {
        self.achieved.is_empty() && !self.control.is_empty()
    }

    fn word(&self) -> &'static str {
        match (self.achieved.is_empty(), self.control.is_empty()) {
            (false, _) => "NOT HELD",
            (true, true) => "PROVES NOTHING",
            (true, false) => "held",
        }
    }

    /// Harm in the control, without the folders of the machine.
    fn harm(&self) -> String {
        let short = |harm: &String| match harm.strip_prefix("changed ") {
            Some(path) => format!("changed {}", path.rsplit('/').next().unwrap_or(path)),
            None => harm.clone(),
        };
        self.control.first().map(short).unwrap_or_else(|| "none".to_owned())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<56} {:>2} ways  {:<14} control: {}", self.name, self.ways, self.word(), self.harm())?;
        for (way, achieved) in &self.achieved {
            write!(f, "\n    {way}: {}", achieved.join("; "))?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct Table(Vec<Outcome>);

impl Table {
    pub(super) fn add(&mut self, outcome: Outcome) {
        self.0.push(outcome);
    }

    pub(super) fn failures(&self) -> usize {
        self.0.iter().filter(|outcome| !outcome.holds()).count()
    }

    pub(super) fn markdown(&self) -> String {
        let mut text =
            "| an agent tries | through git | ways | outcome | without protection |\n|---|---|---|---|---|\n"
                .to_owned();
        for outcome in &self.0 {
            let git = if outcome.git { "yes" } else { "" };
            let (name, ways, word, harm) = (&outcome.name, outcome.ways, outcome.word(), outcome.harm());
            text.push_str(&format!("| {name} | {git} | {ways} | {word} | {harm} |\n"));
        }
        text
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, git) = (self.0.len(), self.0.iter().filter(|outcome| outcome.git).count());
        let ways: usize = self.0.iter().map(|outcome| outcome.ways).sum();
        let held = all - self.failures();
        write!(f, "{all} scenarios, {git} of them through git, tried in {ways} ways: {held} held")?;
        write!(f, "\n\nattack: {held} passed, {} failed", self.failures())
    }
}
