//! Recent requests, by their digest.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use trunkline_wire::error::ApiError;

/// Age of the oldest request that can be repeated.
const MAX_AGE: Duration = Duration::from_mins(15);

/// Time after a failure that a repetition cannot cure, or after its last repetition, in which a repetition is answered without
/// another run. A client that asks less often does so on purpose.
const FAILURE_PAUSE: Duration = Duration::from_secs(30);

/// The pause is at least this number of intervals between two repetitions, because clients double their intervals.
const PAUSE_INTERVALS: u32 = 3;

/// Maximum age of such a failure. Some clients repeat a request for minutes.
const MAX_FAILURE_AGE: Duration = Duration::from_mins(5);

/// Maximum number of requests. The oldest are forgotten first.
const MAX_REQUESTS: usize = 4096;

/// Digest of everything that makes two requests the same: client, route, session and body.
pub(super) type RequestDigest = [u8; 32];

/// Recent requests. Pure: the caller passes the time.
#[derive(Debug, Default)]
pub(super) struct RequestMemory {
    by_digest: HashMap<RequestDigest, RecentRequest>,
    /// Requests in the order in which they began.
    order: VecDeque<(RequestNumber, RequestDigest, Instant)>,
    next: RequestNumber,
}

type RequestNumber = u64;

#[derive(Debug)]
struct RecentRequest {
    number: RequestNumber,
    run: String,
    begun: Instant,
    outcome: RequestOutcome,
}

/// How far a request got.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RequestOutcome {
    /// The client waits, as far as is known.
    Waiting,
    /// The client disconnected before it had the whole answer.
    Abandoned,
    /// The client got the whole answer.
    Answered,
    /// The client got an error.
    Failed,
    /// The client got an error that a repetition cannot cure.
    FailedForGood(RememberedFailure),
}

/// A failure that a repetition cannot cure.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RememberedFailure {
    error: Box<ApiError>,
    failed_at: Instant,
    /// Time of the last repetition, or of the failure itself.
    last_asked: Instant,
    /// Time without a repetition after which the request runs again.
    pause: Duration,
}

impl RememberedFailure {
    pub(super) fn new(error: &ApiError, now: Instant) -> Self {
        Self { error: Box::new(error.clone()), failed_at: now, last_asked: now, pause: FAILURE_PAUSE }
    }

    /// The time at which the same request runs again, if it is not repeated before.
    fn expires(&self) -> Instant {
        (self.last_asked + self.pause).min(self.failed_at + MAX_FAILURE_AGE)
    }

    /// Answers a repetition, which prolongs the memory. `None` if the memory is over.
    fn repeat(&mut self, now: Instant) -> Option<Box<ApiError>> {
        if now > self.expires() {
            return None;
        }
        self.pause = FAILURE_PAUSE.max(now.duration_since(self.last_asked) * PAUSE_INTERVALS);
        self.last_asked = now;
        Some(remembered(&self.error, self.expires().duration_since(now)))
    }
}

/// An earlier request that the present one repeats.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EarlierRequest {
    /// This run answers it.
    Run(String),
    /// It fails as it did before.
    Failure(Box<ApiError>),
}

impl RequestMemory {
    /// Finds the request that this one repeats. `is_retry`: the client says that it repeats a request.
    pub(super) fn find(&mut self, digest: &RequestDigest, is_retry: bool, now: Instant) -> Option<EarlierRequest> {
        let earlier = self.by_digest.get_mut(digest).filter(|earlier| now.duration_since(earlier.begun) <= MAX_AGE)?;
        match &mut earlier.outcome {
            RequestOutcome::FailedForGood(failure) => failure.repeat(now).map(EarlierRequest::Failure),
            RequestOutcome::Abandoned => Some(EarlierRequest::Run(earlier.run.clone())),
            RequestOutcome::Waiting | RequestOutcome::Answered if is_retry => {
                Some(EarlierRequest::Run(earlier.run.clone()))
            }
            // Two equal requests on purpose, or one that has failed and is tried again.
            RequestOutcome::Waiting | RequestOutcome::Answered | RequestOutcome::Failed => None,
        }
    }

    /// Adds a request, which replaces an earlier one with the same digest.
    pub(super) fn begin(&mut self, digest: RequestDigest, run: &str, now: Instant) {
        while let Some((number, oldest, begun)) = self.order.front()
            && (self.order.len() >= MAX_REQUESTS || now.duration_since(*begun) > MAX_AGE)
        {
            // Unless a later request with the same digest has replaced it.
            if self.by_digest.get(oldest).is_some_and(|request| request.number == *number) {
                self.by_digest.remove(oldest);
            }
            self.order.pop_front();
        }
        let number = self.next;
        self.next += 1;
        self.order.push_back((number, digest, now));
        let request = RecentRequest { number, run: run.to_owned(), begun: now, outcome: RequestOutcome::Waiting };
        self.by_digest.insert(digest, request);
    }

    /// Sets the outcome of the request that waits for a run. Several may: the one that gets the answer decides.
    pub(super) fn end(&mut self, digest: &RequestDigest, run: &str, outcome: RequestOutcome) {
        if let Some(request) = self.by_digest.get_mut(digest).filter(|request| request.run == run)
            && (outcome != RequestOutcome::Abandoned || request.outcome == RequestOutcome::Waiting)
        {
            request.outcome = outcome;
        }
    }
}

/// A failure as it is answered again, with a hint that says for how long.
fn remembered(error: &ApiError, left: Duration) -> Box<ApiError> {
    let mut error = error.clone();
    let seconds = left.as_secs_f64().ceil();
    let note = format!(
        "the same request failed just now, and runs again after {seconds} s without it; any other runs at once"
    );
    error.hint = Some(match error.hint.take() {
        Some(hint) => format!("{hint} ({note})").into(),
        None => note.into(),
    });
    Box::new(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: RequestDigest = [1; 32];

    fn joined(run: &str) -> Option<EarlierRequest> {
        Some(EarlierRequest::Run(run.to_owned()))
    }

    #[test]
    fn request_joins_the_run_of_the_one_that_it_repeats() {
        let start = Instant::now();
        let incurable = RequestOutcome::FailedForGood(RememberedFailure::new(&ApiError::stopping(), start));
        let again = Some(EarlierRequest::Failure(remembered(&ApiError::stopping(), FAILURE_PAUSE)));
        for (outcome, deliberate, retry) in [
            (RequestOutcome::Waiting, None, joined("a")),
            (RequestOutcome::Abandoned, joined("a"), joined("a")),
            (RequestOutcome::Answered, None, joined("a")),
            (RequestOutcome::Failed, None, None),
            (incurable, again.clone(), again),
        ] {
            let (mut memory, now) = (RequestMemory::default(), start);
            memory.begin(ONE, "a", now);
            memory.end(&ONE, "a", outcome.clone());
            assert_eq!(memory.find(&ONE, false, now), deliberate, "{outcome:?}");
            assert_eq!(memory.find(&ONE, true, now), retry, "{outcome:?}");
            assert_eq!(memory.find(&[2; 32], true, now), None, "another request");
            assert_eq!(memory.find(&ONE, true, now + MAX_AGE + Duration::from_secs(1)), None, "long ago");
        }
    }

    /// A memory with a failure at this time.
    fn failed(now: Instant) -> RequestMemory {
        let mut memory = RequestMemory::default();
        memory.begin(ONE, "a", now);
        memory.end(&ONE, "a", RequestOutcome::FailedForGood(RememberedFailure::new(&ApiError::stopping(), now)));
        memory
    }

    #[test]
    fn failure_is_forgotten_after_a_pause_without_a_repetition() {
        let (start, moment) = (Instant::now(), Duration::from_millis(1));
        assert!(failed(start).find(&ONE, false, start + FAILURE_PAUSE).is_some());
        assert_eq!(failed(start).find(&ONE, true, start + FAILURE_PAUSE + moment), None);

        let mut memory = failed(start);
        let repeated = start + Duration::from_secs(5);
        assert!(memory.find(&ONE, false, repeated).is_some());
        assert_eq!(memory.find(&[2; 32], false, repeated), None, "another body runs at once");
        assert!(memory.find(&ONE, false, repeated + FAILURE_PAUSE).is_some(), "prolonged");
    }

    #[test]
    fn failure_is_remembered_for_a_client_that_doubles_its_intervals() {
        let start = Instant::now();
        let mut memory = failed(start);
        let mut now = start;
        for seconds in [1, 2, 4, 8, 16, 32, 64] {
            now += Duration::from_secs(seconds);
            assert!(memory.find(&ONE, false, now).is_some(), "after {seconds} s");
        }
        let later = now + Duration::from_secs(64) * PAUSE_INTERVALS;
        assert_eq!(memory.find(&ONE, false, later), None, "older than five minutes");
    }

    #[test]
    fn failure_is_forgotten_after_five_minutes_however_often_it_is_repeated() {
        let start = Instant::now();
        let mut memory = failed(start);
        let interval = Duration::from_secs(10);
        let answered = (1..).map(|number| start + interval * number);
        let answered = answered.take_while(|now| memory.find(&ONE, true, *now).is_some()).count();
        assert_eq!(interval * u32::try_from(answered).unwrap(), MAX_FAILURE_AGE);
    }

    #[test]
    fn hint_names_the_time_until_the_request_runs_again() {
        let start = Instant::now();
        let mut memory = failed(start);
        for (seconds, left) in [(5, "30 s"), (15, "30 s"), (35, "60 s"), (85, "150 s"), (200, "100 s"), (290, "10 s")] {
            let found = memory.find(&ONE, false, start + Duration::from_secs(seconds));
            let Some(EarlierRequest::Failure(error)) = found else { panic!("{found:?}") };
            let hint = error.hint.unwrap_or_default();
            assert!(hint.contains(&format!("after {left} without")), "{seconds}: {hint}");
        }
    }

    #[test]
    fn client_that_leaves_late_does_not_undo_the_answer_of_another() {
        let (mut memory, now) = (RequestMemory::default(), Instant::now());
        memory.begin(ONE, "a", now);
        memory.end(&ONE, "a", RequestOutcome::Answered);
        memory.end(&ONE, "a", RequestOutcome::Abandoned);
        assert_eq!(memory.find(&ONE, false, now), None);
        memory.begin(ONE, "b", now);
        memory.end(&ONE, "a", RequestOutcome::Abandoned);
        assert_eq!(memory.find(&ONE, false, now), None, "the outcome of another run");
    }

    #[test]
    fn memory_is_bounded_and_keeps_the_latest_request() {
        let (mut memory, start) = (RequestMemory::default(), Instant::now());
        let digest = |number: usize| *blake3::hash(&number.to_le_bytes()).as_bytes();
        for number in 0..MAX_REQUESTS + 10 {
            // The first request is repeated just before it would be forgotten.
            let digest = if number == MAX_REQUESTS - 1 { digest(0) } else { digest(number) };
            memory.begin(digest, &number.to_string(), start);
        }
        assert_eq!(memory.order.len(), MAX_REQUESTS);
        assert!(memory.by_digest.len() <= MAX_REQUESTS);
        assert_eq!(memory.find(&digest(0), true, start), joined(&(MAX_REQUESTS - 1).to_string()));
        assert_eq!(memory.find(&digest(5), true, start), None);
        memory.begin(ONE, "late", start + MAX_AGE + Duration::from_secs(1));
        assert_eq!((memory.order.len(), memory.by_digest.len()), (1, 1));
    }
}
