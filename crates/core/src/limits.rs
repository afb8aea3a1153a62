//! Time limits of a run: in total, and for silence in each phase.
//!
//! This module holds the values only. The clock that applies them is in `trunkline-process`.

use std::fmt;
use std::time::Duration;

use crate::phase::Phase;
use crate::provider::Provider;

/// Time limits of one run. `Duration::MAX` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// From the start of the run to its end.
    pub total: Duration,
    /// From the start to the first byte on stdout.
    pub startup: Duration,
    /// Between two signs of life while the run waits for the model.
    pub idle: Duration,
    /// Between two signs of life while a tool runs: a build or a test run may be silent for long.
    pub tool: Duration,
    /// Between two signs of life while the context is compacted.
    pub compact: Duration,
}

/// One of the [`RunLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    Total,
    Startup,
    Idle,
    Tool,
    Compact,
}

/// Limits that a configuration sets. The others have defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedLimits {
    pub total: Option<Duration>,
    pub startup: Option<Duration>,
    pub idle: Option<Duration>,
    pub tool: Option<Duration>,
    pub compact: Option<Duration>,
}

impl RunLimits {
    pub const NONE: Self = Self::all(Duration::MAX);

    const TOTAL: Duration = Duration::from_secs(30 * 60);
    const STARTUP: Duration = Duration::from_secs(2 * 60);
    const IDLE: Duration = Duration::from_secs(10 * 60);
    const TOOL: Duration = Duration::from_secs(60 * 60);
    const COMPACT: Duration = Duration::from_secs(15 * 60);
    const REQUEST: Duration = Duration::from_secs(2 * 60);

    /// The same limit for every phase, so that only the total counts.
    #[must_use]
    pub const fn all(limit: Duration) -> Self {
        Self { total: limit, startup: limit, idle: limit, tool: limit, compact: limit }
    }

    /// Limits of a run of `provider`: the requested ones, else defaults. If the provider prints nothing until it has an
    /// answer, the start-up and idle limits default to the total. No limit is longer than the total.
    #[must_use]
    pub fn of(provider: &Provider, requested: RequestedLimits) -> Self {
        let total = requested.total.or(provider.timeout.map(|span| span.time)).unwrap_or(Self::TOTAL);
        let (startup, idle) = if provider.buffers_output { (total, total) } else { (Self::STARTUP, Self::IDLE) };
        Self::all(total).with(requested, startup, idle)
    }

    /// Limits of a turn of the built-in agent. Its LLM may be silent for as long as one request may take. Its tools have
    /// time limits of their own.
    #[must_use]
    pub fn of_agent(requested: RequestedLimits) -> Self {
        let total = requested.total.unwrap_or(Self::TOTAL);
        Self { idle: requested.idle.unwrap_or(Self::REQUEST), ..Self::all(total) }
    }

    /// Limits of one request to an executable or a service: only the total counts.
    #[must_use]
    pub fn of_request(total: Option<Duration>) -> Self {
        Self::all(total.unwrap_or(Self::REQUEST))
    }

    fn with(self, requested: RequestedLimits, startup: Duration, idle: Duration) -> Self {
        let within = |requested: Option<Duration>, default: Duration| requested.unwrap_or(default).min(self.total);
        Self {
            total: self.total,
            startup: within(requested.startup, startup),
            idle: within(requested.idle, idle),
            tool: within(requested.tool, Self::TOOL),
            compact: within(requested.compact, Self::COMPACT),
        }
    }

    /// Returns how long a run may be silent in this phase, and which limit that is. None after the end of the turn: how
    /// long the process may take to exit is not decided here.
    #[must_use]
    pub fn silence(&self, phase: &Phase) -> Option<(Duration, LimitKind)> {
        match phase {
            Phase::Starting => Some((self.startup, LimitKind::Startup)),
            Phase::Thinking => Some((self.idle, LimitKind::Idle)),
            Phase::Tool { .. } => Some((self.tool, LimitKind::Tool)),
            Phase::Compacting => Some((self.compact, LimitKind::Compact)),
            // The announced delay does not count as silence.
            Phase::Retrying { wait } => Some((self.idle.saturating_add(*wait), LimitKind::Idle)),
            Phase::Ended => None,
        }
    }

    #[must_use]
    pub const fn of_kind(&self, limit: LimitKind) -> Duration {
        match limit {
            LimitKind::Total => self.total,
            LimitKind::Startup => self.startup,
            LimitKind::Idle => self.idle,
            LimitKind::Tool => self.tool,
            LimitKind::Compact => self.compact,
        }
    }
}

impl LimitKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Startup => "start-up",
            Self::Idle => "idle",
            Self::Tool => "tool",
            Self::Compact => "compaction",
        }
    }

    /// Configuration key that sets this limit.
    const fn setting(self) -> &'static str {
        match self {
            Self::Total => "timeout",
            Self::Startup => "startupTimeout",
            Self::Idle => "idleTimeout",
            Self::Tool => "toolTimeout",
            Self::Compact => "compactTimeout",
        }
    }
}

/// Exceeded limit, and the phase of the run at that time. Displayed as the hint of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overrun {
    pub limit: LimitKind,
    pub value: Duration,
    pub phase: Phase,
}

impl fmt::Display for Overrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, value, phase } = self;
        write!(
            f,
            "the {} limit of {} passed while {phase} ({})",
            limit.name(),
            format_duration(*value),
            limit.setting()
        )
    }
}

/// Formats a duration as it is written in a configuration: `300ms`, `90s`, `2m`, `1h`.
#[must_use]
pub fn format_duration(time: Duration) -> String {
    let (seconds, millis) = (time.as_secs(), time.subsec_millis());
    match (seconds, millis) {
        (0, millis) => format!("{millis}ms"),
        (seconds, 0) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (seconds, 0) if seconds % 60 == 0 => format!("{}m", seconds / 60),
        (seconds, 0) => format!("{seconds}s"),
        (seconds, _) => format!("{:.1}s", seconds as f64 + f64::from(millis) / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn each_phase_has_its_own_limit() {
        let limits = RunLimits {
            total: seconds(100),
            startup: seconds(1),
            idle: seconds(2),
            tool: seconds(3),
            compact: seconds(4),
        };
        for (phase, silence) in [
            (Phase::Starting, Some((seconds(1), LimitKind::Startup))),
            (Phase::Thinking, Some((seconds(2), LimitKind::Idle))),
            (Phase::Tool { names: Vec::new() }, Some((seconds(3), LimitKind::Tool))),
            (Phase::Compacting, Some((seconds(4), LimitKind::Compact))),
            (Phase::Retrying { wait: seconds(60) }, Some((seconds(62), LimitKind::Idle))),
            (Phase::Ended, None),
        ] {
            assert_eq!(limits.silence(&phase), silence, "{phase:?}");
        }
    }

    #[test]
    fn overrun_names_limit_value_phase_and_key() {
        let bash = Phase::Tool { names: vec!["Bash".to_owned()] };
        for (limit, value, phase, text) in [
            (
                LimitKind::Tool,
                seconds(3600),
                bash.clone(),
                "the tool limit of 1h passed while running Bash (toolTimeout)",
            ),
            (LimitKind::Total, seconds(90), bash, "the total limit of 90s passed while running Bash (timeout)"),
            (
                LimitKind::Startup,
                seconds(120),
                Phase::Starting,
                "the start-up limit of 2m passed while starting (startupTimeout)",
            ),
            (
                LimitKind::Idle,
                Duration::from_millis(300),
                Phase::Thinking,
                "the idle limit of 300ms passed while waiting for the model (idleTimeout)",
            ),
            (
                LimitKind::Compact,
                Duration::from_millis(1500),
                Phase::Compacting,
                "the compaction limit of 1.5s passed while compacting its context (compactTimeout)",
            ),
        ] {
            assert_eq!(Overrun { limit, value, phase }.to_string(), text);
        }
    }
}
