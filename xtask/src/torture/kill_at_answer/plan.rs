//! Plan of a round: the request and the instant of the kill. The seed of the round determines it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;

/// Earliest and latest kill, in microseconds from the last byte of the answer.
const KILL_RANGE_MICROS: std::ops::Range<i64> = -5_000..20_000;

/// Half of all kills are at most this far from the last byte, where most writes happen.
const NEAR_MICROS: i64 = 5_000;

/// Kind of the request whose answer the gateway is killed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum AnswerKind {
    /// An answer that is not streamed.
    Whole,
    Stream,
    /// A run without its client, whose events are read to the end.
    Async,
    /// A run without its client, whose row is read until it says that the run has finished.
    AsyncPoll,
    /// The 202 that accepts a run without its client.
    Accepted,
    /// A request with an idempotency key.
    Key,
    /// The second turn of a session.
    Session,
    /// A whole answer whose session is continued by its history instead of its id.
    History,
    /// A stream with an idempotency key, the second turn of a session.
    Combined,
}

/// Form in which the client receives the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AnswerForm {
    /// One JSON body.
    Whole,
    /// Server-sent events until `[DONE]`.
    Stream,
    /// A 202, then the events of the run.
    Events,
    /// A 202, then the row of the run, again and again.
    Row,
    /// A 202 and nothing else.
    Accepted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoundPlan {
    /// Seed of this round. A run of one round with this seed repeats it.
    pub(super) seed: u64,
    pub(super) kind: AnswerKind,
    pub(super) form: AnswerForm,
    /// Time from the request to the end of the answer.
    pub(super) delay: Duration,
    /// Words in the answer.
    pub(super) words: u32,
    /// Kill, in microseconds after the last byte. Negative: before the predicted time of the last byte.
    pub(super) kill_micros: i64,
    /// The client closes its connection after the last byte, instead of keeping it.
    pub(super) closes: bool,
}

impl AnswerKind {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(super) const fn has_key(self) -> bool {
        matches!(self, Self::Key | Self::Combined)
    }

    /// Whether the turn is the second one of a session.
    pub(super) const fn continues_session(self) -> bool {
        matches!(self, Self::Session | Self::Combined)
    }

    fn form(self, rng: &mut Rng) -> AnswerForm {
        // Drawn for each kind, so that `--only` does not change what follows.
        let either = if rng.bool() { AnswerForm::Stream } else { AnswerForm::Whole };
        match self {
            Self::Whole | Self::History => AnswerForm::Whole,
            Self::Stream | Self::Combined => AnswerForm::Stream,
            Self::Async => AnswerForm::Events,
            Self::AsyncPoll => AnswerForm::Row,
            Self::Accepted => AnswerForm::Accepted,
            Self::Key | Self::Session => either,
        }
    }
}

impl RoundPlan {
    /// The plan of a round, counted from 0: that of the first round of the seed that is larger by this number.
    pub(super) fn draw(seed: u64, round: u32, only: Option<AnswerKind>) -> Self {
        let seed = seed.wrapping_add(u64::from(round));
        let mut rng = Rng::with_seed(seed);
        let drawn = rng.choice(AnswerKind::value_variants()).copied().unwrap_or(AnswerKind::Whole);
        let kind = only.unwrap_or(drawn);
        let form = kind.form(&mut rng);
        // Long enough for the CLI to start on a busy machine: the end of the answer is predicted from this delay. But a 202
        // comes at once: some of its runs end before the kill, some do not.
        let delay = if form == AnswerForm::Accepted { rng.u64(1..60) } else { rng.u64(150..250) };
        Self {
            seed,
            kind,
            form,
            delay: Duration::from_millis(delay),
            words: rng.u32(1..30),
            kill_micros: if rng.bool() { rng.i64(-NEAR_MICROS..NEAR_MICROS) } else { rng.i64(KILL_RANGE_MICROS) },
            closes: rng.bool(),
        }
    }
}

/// Estimate of the time by which the last byte follows its cause: the end of the CLI's answer, or for a 202 the request.
/// The median of the latest measurements of each form, because a busy machine makes some of them long.
#[derive(Debug, Clone, Default)]
pub(super) struct LagEstimate(BTreeMap<AnswerForm, VecDeque<Duration>>);

impl LagEstimate {
    /// Estimate before anything was measured.
    const DEFAULT: Duration = Duration::from_millis(4);

    /// Number of measurements that count.
    const MEASUREMENTS: usize = 5;

    pub(super) fn get(&self, form: AnswerForm) -> Duration {
        let mut measured: Vec<Duration> = self.0.get(&form).into_iter().flatten().copied().collect();
        measured.sort();
        measured.get(measured.len() / 2).copied().unwrap_or(Self::DEFAULT)
    }

    pub(super) fn add(&mut self, form: AnswerForm, measured: Duration) {
        let latest = self.0.entry(form).or_default();
        latest.push_back(measured);
        if latest.len() > Self::MEASUREMENTS {
            latest.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(rounds: u32, only: Option<AnswerKind>) -> Vec<RoundPlan> {
        (0..rounds).map(|round| RoundPlan::draw(7, round, only)).collect()
    }

    #[test]
    fn round_is_repeated_by_its_own_seed() {
        let third = &plans(3, None)[2];
        assert_eq!(*third, RoundPlan::draw(third.seed, 0, None));
        assert_eq!(RoundPlan::draw(u64::MAX, 1, None).seed, 0);
    }

    #[test]
    fn rounds_have_every_kind_and_kills_on_both_sides_of_the_last_byte() {
        let plans = plans(400, None);
        for kind in AnswerKind::value_variants() {
            let count = plans.iter().filter(|plan| plan.kind == *kind).count();
            assert!(count > 20, "{kind:?}: {count}");
        }
        assert!(plans.iter().all(|plan| KILL_RANGE_MICROS.contains(&plan.kill_micros)));
        let near = plans.iter().filter(|plan| plan.kill_micros.abs() <= NEAR_MICROS).count();
        let before = plans.iter().filter(|plan| plan.kill_micros < 0).count();
        let late = plans.iter().filter(|plan| plan.kill_micros > 15_000).count();
        assert!((200..300).contains(&near) && (80..220).contains(&before) && late > 20, "{near} {before} {late}");
    }

    #[test]
    fn only_changes_the_kind_and_not_the_kill() {
        let all = plans(50, None);
        for (plan, only) in all.iter().zip(plans(50, Some(AnswerKind::Whole))) {
            assert_eq!(
                (only.kind, only.form, only.kill_micros),
                (AnswerKind::Whole, AnswerForm::Whole, plan.kill_micros)
            );
        }
    }

    #[test]
    fn lag_is_the_median_of_the_latest_measurements_of_its_form() {
        let mut lag = LagEstimate::default();
        assert_eq!(lag.get(AnswerForm::Whole), LagEstimate::DEFAULT);
        for (millis, median) in [(9, 9), (2, 9), (3, 3), (70, 9), (4, 4), (2, 3), (2, 3), (2, 2)] {
            lag.add(AnswerForm::Whole, Duration::from_millis(millis));
            assert_eq!(lag.get(AnswerForm::Whole), Duration::from_millis(median));
        }
        assert_eq!(lag.get(AnswerForm::Stream), LagEstimate::DEFAULT);
    }
}
