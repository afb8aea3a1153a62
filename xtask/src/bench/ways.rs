//! What a CLI took, each way it was run. Pure: the samples are somebody else's.

use serde_json::{Value, json};

use super::finding::{Bar, Better, Finding, Unit};
use super::stats::Stats;

/// How a turn comes to its CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The program by hand, with the arguments the gateway gives it.
    Bare,
    /// Started by the gateway for its turn.
    Cold,
    /// Up before the turn.
    Warm,
    /// The second turn of a session whose process is still there.
    Live,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Bare, Self::Cold, Self::Warm, Self::Live];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "by hand",
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Live => "in a session",
        }
    }
}

/// What one way took.
#[derive(Debug, Default, Clone)]
pub(crate) struct Took {
    pub(crate) first: Stats,
    pub(crate) total: Stats,
}

/// One CLI, all ways.
#[derive(Debug, Default, Clone)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) version: String,
    ways: [Took; 4],
}

/// First token against the program by hand: how many times earlier, on a first turn and in a session.
const EARLIER: [(&str, f64, Option<f64>); 5] = [
    ("claude", 3.5, Some(8.0)),
    ("codex", 2.0, None),
    ("gemini", 20.0, None),
    ("qwen", 2.5, Some(15.0)),
    ("opencode", 15.0, None),
];

/// The whole of a cold turn against the program by hand.
const COLD: f64 = 1.05;

impl Measured {
    pub(crate) fn new(name: &str, version: String) -> Self {
        Self { name: name.to_owned(), version, ways: Default::default() }
    }

    pub(crate) fn of(&self, way: Way) -> &Took {
        &self.ways[way as usize]
    }

    pub(crate) fn push(&mut self, way: Way, first: f64, total: f64) {
        let took = &mut self.ways[way as usize];
        took.first.push(first);
        took.total.push(total);
    }

    /// How often each way was taken.
    pub(crate) fn rounds(&self) -> usize {
        self.of(Way::Bare).first.len()
    }

    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.version).trim_end().to_owned()
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        let bars = EARLIER.iter().find(|(name, ..)| *name == self.name);
        let earlier = |way: Way, what: &str, bar: Option<f64>| {
            let by_hand = &self.of(Way::Bare).first;
            let spread = by_hand.against(&self.of(way).first, |by_hand, ours| by_hand / ours);
            let (id, what) = (format!("{}/{}", self.name, id(way)), format!("{}: {what}", self.name));
            match bar {
                Some(least) => Finding::new(id, what, Unit::Times, spread, Bar::AtLeast(least)),
                None => Finding::free(id, what, spread, Better::More),
            }
        };
        let total = self.of(Way::Cold).total.against(&self.of(Way::Bare).total, |cold, by_hand| cold / by_hand);
        let (cold_id, cold) =
            (format!("{}/cold", self.name), format!("{}: a cold turn in all, against by hand", self.name));
        vec![
            earlier(Way::Warm, "first token of a first turn, earlier by", bars.map(|bar| bar.1)),
            earlier(Way::Live, "first token in a session, earlier by", bars.and_then(|bar| bar.2)),
            match bars {
                Some(_) => Finding::new(cold_id, cold, Unit::Times, total, Bar::AtMost(COLD)),
                // A program that does nothing has no time of its own to hide ours in.
                None => Finding::free(cold_id, cold, total, Better::Less),
            },
        ]
    }

    pub(crate) fn json(&self) -> Value {
        let way = |way: Way| json!({"first": self.of(way).first.json(), "total": self.of(way).total.json()});
        let [bare, cold, warm, live] = Way::ALL.map(way);
        json!({"name": self.name, "version": self.version, "bare": bare, "cold": cold, "warm": warm, "live": live})
    }
}

fn id(way: Way) -> &'static str {
    match way {
        Way::Bare => "bare",
        Way::Cold => "cold",
        Way::Warm => "warm",
        Way::Live => "live",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One that took 1 s by hand and cold, and this much warm and in a session.
    pub(crate) fn measured(name: &str, warm: f64, live: f64) -> Measured {
        let mut measured = Measured::new(name, "1.0".to_owned());
        for _ in 0..20 {
            for (way, first) in Way::ALL.into_iter().zip([1.0, 1.0, warm, live]) {
                measured.push(way, first, first * 1.5);
            }
        }
        measured
    }

    #[test]
    fn what_is_found_and_whether_it_is_enough() {
        let shown = |measured: &Measured| -> Vec<String> {
            let findings = measured.findings();
            let lines = findings.iter().map(|it| format!("{} {} {} {}", it.mark(), it.id, it.value(), it.wanted()));
            lines.map(|line| line.trim().to_owned()).collect()
        };
        assert_eq!(
            shown(&measured("claude", 0.25, 0.2)),
            ["✓ claude/warm 4.0× ≥ 3.5×", "✗ claude/live 5.0× ≥ 8.0×", "✓ claude/cold 1.00× ≤ 1.05×"]
        );
        assert_eq!(shown(&measured("fake", 0.5, 0.25)), ["fake/warm 2.0×", "fake/live 4.0×", "fake/cold 1.00×"]);
    }
}
