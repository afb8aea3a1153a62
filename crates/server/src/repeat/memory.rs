//! Recent requests, by their digest.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use trunkline_wire::error::ApiError;

/// Age of the oldest request that can be repeated.
const MAX_AGE: Duration = Duration::from_mins(15);

/// Time in which a failure that a repetition cannot cure is answered without another run.
const FAILURE_AGE: Duration = Duration::from_secs(30);

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
    /// The client got an error that a repetition cannot cure, at this time.
    FailedForGood(Box<ApiError>, Instant),
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
    pub(super) fn find(&self, digest: &RequestDigest, is_retry: bool, now: Instant) -> Option<EarlierRequest> {
        let earlier = self.by_digest.get(digest).filter(|earlier| now.duration_since(earlier.begun) <= MAX_AGE)?;
        match &earlier.outcome {
            RequestOutcome::FailedForGood(error, at) if now.duration_since(*at) <= FAILURE_AGE => {
                let left = FAILURE_AGE.saturating_sub(now.duration_since(*at));
                Some(EarlierRequest::Failure(remembered(error, left)))
            }
            RequestOutcome::Abandoned => Some(EarlierRequest::Run(earlier.run.clone())),
            RequestOutcome::Waiting | RequestOutcome::Answered if is_retry => {
                Some(EarlierRequest::Run(earlier.run.clone()))
            }
            // Two equal requests on purpose, or one that has failed and is tried again.
            RequestOutcome::Waiting
            | RequestOutcome::Answered
            | RequestOutcome::Failed
            | RequestOutcome::FailedForGood(..) => None,
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
    let note = format!("the same request failed just now, and will run again in {seconds} s; any other runs at once");
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
        let incurable = || RequestOutcome::FailedForGood(Box::new(ApiError::stopping()), Instant::now());
        let again = Some(EarlierRequest::Failure(remembered(&ApiError::stopping(), FAILURE_AGE)));
        for (outcome, deliberate, retry) in [
            (RequestOutcome::Waiting, None, joined("a")),
            (RequestOutcome::Abandoned, joined("a"), joined("a")),
            (RequestOutcome::Answered, None, joined("a")),
            (RequestOutcome::Failed, None, None),
            (incurable(), again.clone(), again),
        ] {
            let (mut memory, now) = (RequestMemory::default(), Instant::now());
            memory.begin(ONE, "a", now);
            memory.end(&ONE, "a", outcome.clone());
            assert_eq!(memory.find(&ONE, false, now), deliberate, "{outcome:?}");
            assert_eq!(memory.find(&ONE, true, now), retry, "{outcome:?}");
            assert_eq!(memory.find(&[2; 32], true, now), None, "another request");
            assert_eq!(memory.find(&ONE, true, now + MAX_AGE + Duration::from_secs(1)), None, "long ago");
        }
    }

    #[test]
    fn failure_is_repeated_for_a_short_time_only() {
        let (mut memory, now) = (RequestMemory::default(), Instant::now());
        memory.begin(ONE, "a", now);
        memory.end(&ONE, "a", RequestOutcome::FailedForGood(Box::new(ApiError::stopping()), now));
        assert!(memory.find(&ONE, false, now + FAILURE_AGE).is_some());
        assert_eq!(memory.find(&ONE, true, now + FAILURE_AGE + Duration::from_millis(1)), None);
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
