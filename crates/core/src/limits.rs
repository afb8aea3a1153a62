//! How long a run may take: in all, and without a word in each of its phases.
//!
//! What is said here is data; a clock that applies it is `trunkline-process`'s.

use std::fmt;
use std::time::Duration;

use crate::phase::Phase;
use crate::provider::Provider;

// Aliases for the users in other crates. TODO: rename them there.
#[doc(hidden)]
pub use self::{LimitKind as Limit, RequestedLimits as Asked, RunLimits as Limits};

/// The limits of one run. `Duration::MAX` means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// From start to end.
    pub total: Duration,
    /// From the start to the first byte on stdout.
    pub startup: Duration,
    /// Between two signs of life while the model is waited for.
    pub idle: Duration,
    /// The same while a tool is at work: a build or a test run may be silent for long.
    pub tool: Duration,
    /// The same while the context is compacted.
    pub compact: Duration,
}

/// Which of the [`RunLimits`] was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    Total,
    Startup,
    Idle,
    Tool,
    Compact,
}

/// What somebody wrote about limits, as far as they did.
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

    /// The same limit for everything: only the whole counts.
    #[must_use]
    pub const fn all(limit: Duration) -> Self {
        Self { total: limit, startup: limit, idle: limit, tool: limit, compact: limit }
    }

    /// The limits of a provider's run, where nothing else is said. One that prints nothing until it has an answer is
    /// limited only in all. None outlasts the whole.
    #[must_use]
    pub fn of(provider: &Provider, asked: RequestedLimits) -> Self {
        let total = asked.total.or(provider.timeout.map(|span| span.time)).unwrap_or(Self::TOTAL);
        let (startup, idle) = if provider.buffers_output { (total, total) } else { (Self::STARTUP, Self::IDLE) };
        Self::all(total).with(asked, startup, idle)
    }

    /// The limits of a turn of the built-in agent: its LLM may be silent for as long as a request may take. Its tools have
    /// a limit of their own.
    #[must_use]
    pub fn of_agent(asked: RequestedLimits) -> Self {
        let total = asked.total.unwrap_or(Self::TOTAL);
        Self { idle: asked.idle.unwrap_or(Self::REQUEST), ..Self::all(total) }
    }

    /// The limit of one request to an executable or a service: only in all.
    #[must_use]
    pub fn of_request(total: Option<Duration>) -> Self {
        Self::all(total.unwrap_or(Self::REQUEST))
    }

    fn with(self, asked: RequestedLimits, startup: Duration, idle: Duration) -> Self {
        let within = |asked: Option<Duration>, usual: Duration| asked.unwrap_or(usual).min(self.total);
        Self {
            total: self.total,
            startup: within(asked.startup, startup),
            idle: within(asked.idle, idle),
            tool: within(asked.tool, Self::TOOL),
            compact: within(asked.compact, Self::COMPACT),
        }
    }

    /// How long a run may be silent in a phase, and what that is called. None once it has said its last word: how it is
    /// parted from has times of its own.
    #[must_use]
    pub fn silence(&self, phase: &Phase) -> Option<(Duration, LimitKind)> {
        match phase {
            Phase::Starting => Some((self.startup, LimitKind::Startup)),
            Phase::Thinking => Some((self.idle, LimitKind::Idle)),
            Phase::Tool { .. } => Some((self.tool, LimitKind::Tool)),
            Phase::Compacting => Some((self.compact, LimitKind::Compact)),
            // What it announced to wait is not silence.
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

    /// What it is set by.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Total => "timeout",
            Self::Startup => "startupTimeout",
            Self::Idle => "idleTimeout",
            Self::Tool => "toolTimeout",
            Self::Compact => "compactTimeout",
        }
    }
}

/// A limit that was passed, and what went on then: the words of an error's hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overrun {
    pub limit: LimitKind,
    pub value: Duration,
    pub phase: Phase,
}

impl fmt::Display for Overrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, value, phase } = self;
        write!(f, "the {} limit of {} passed while {phase} ({})", limit.name(), span(*value), limit.setting())
    }
}

/// A time as it is written in a configuration.
#[must_use]
pub fn span(time: Duration) -> String {
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
    fn each_phase_has_its_own_patience() {
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
    fn an_overrun_names_limit_value_phase_and_setting() {
        let bash = Phase::Tool { names: vec!["Bash".to_owned()] };
        for (limit, value, phase, words) in [
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
            assert_eq!(Overrun { limit, value, phase }.to_string(), words);
        }
    }
}
