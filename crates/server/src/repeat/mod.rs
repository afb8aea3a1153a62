//! Repeated requests. A client whose patience is over asks again, and must not start an agent again: its request joins the
//! run of the first one.
//!
//! ```text
//! request ─▶ digest ─▶ memory ─┬▶ unknown        a new run
//!                              ├▶ abandoned      the run of the first request
//!                              └▶ failed         the same error, without a run
//! ```
//!
//! A request that was answered and comes again without a sign of being a retry is deliberate: it gets its own run.

mod memory;
mod signs;
mod tracked_body;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;
use trunkline_core::failure::Category;
use trunkline_core::turn::{AnswerTiming, Patience};
use trunkline_wire::error::ApiError;

use crate::admission::{self, SESSION_HEADER};

pub(crate) use self::memory::EarlierRequest;
use self::memory::{RememberedFailure, RequestDigest, RequestMemory, RequestOutcome};
pub(crate) use self::tracked_body::track;

/// Recent requests of all clients.
#[derive(Debug, Default, Clone)]
pub(crate) struct Repeats(Arc<Mutex<RequestMemory>>);

/// Identity of a request, and the signs that it is a repetition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestIdentity {
    digest: RequestDigest,
    is_retry: bool,
}

impl RequestIdentity {
    pub(crate) fn new(head: &Parts, body: &[u8]) -> Self {
        let session = head.headers.get(SESSION_HEADER).map_or(&b""[..], HeaderValue::as_bytes);
        let client = admission::client(head);
        let mut hasher = blake3::Hasher::new();
        for part in [client.as_str().as_bytes(), head.uri.path().as_bytes(), session] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self { digest: *hasher.update(body).finalize().as_bytes(), is_retry: signs::is_retry(&head.headers) }
    }
}

/// Time that a run waits for the repetition of a client that repeats requests by itself and does not announce when. These clients
/// ask again after a second or two.
const UNANNOUNCED_WAIT: Duration = Duration::from_secs(3);

/// The patience of a client. If it is over, the run waits for `repeat_wait` to be asked for again. A stream is sent a comment before
/// any usual time-out, so a client that leaves it has cancelled, unless it announces its patience.
pub(crate) fn patience(headers: &HeaderMap, shown: AnswerTiming, repeat_wait: Duration) -> Option<Patience> {
    match signs::timeout(headers) {
        Some(limit) => Some(Patience { limit, repeat_wait }),
        None if shown == AnswerTiming::AtTheEnd && signs::counts_retries(headers) => {
            Some(Patience { limit: Duration::ZERO, repeat_wait: repeat_wait.min(UNANNOUNCED_WAIT) })
        }
        None => None,
    }
}

impl Repeats {
    /// Finds the request that this one repeats.
    pub(crate) fn find(&self, request: &RequestIdentity) -> Option<EarlierRequest> {
        self.lock().find(&request.digest, request.is_retry, Instant::now())
    }

    /// Remembers a request and its run until the outcome is known. Dropping the result means that the client disconnected.
    pub(crate) fn begin(&self, request: &RequestIdentity, run: &str) -> PendingRequest {
        self.lock().begin(request.digest, run, Instant::now());
        let (repeats, outcome) = (self.clone(), RequestOutcome::Abandoned);
        PendingRequest { repeats, digest: request.digest, run: run.to_owned(), outcome }
    }

    fn lock(&self) -> MutexGuard<'_, RequestMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request whose client waits.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    repeats: Repeats,
    digest: RequestDigest,
    run: String,
    outcome: RequestOutcome,
}

impl PendingRequest {
    /// The client got the whole answer.
    fn answered(&mut self) {
        self.outcome = RequestOutcome::Answered;
    }

    /// The client gets an error.
    fn failed(&mut self, error: &ApiError) {
        self.outcome = if is_incurable(error) {
            RequestOutcome::FailedForGood(RememberedFailure::new(error, Instant::now()))
        } else {
            RequestOutcome::Failed
        };
    }
}

/// Whether a run failed for a reason that another run does not change, and that does not pass by itself in a moment.
fn is_incurable(error: &ApiError) -> bool {
    let categories = [Category::Authentication, Category::Configuration, Category::Quota, Category::Validation];
    error.trace.is_some()
        && error.retry_after.is_none()
        && categories.iter().any(|category| category.name() == error.code)
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, RequestOutcome::Abandoned);
        self.repeats.lock().end(&self.digest, &self.run, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_waits_for_clients_that_may_ask_again() {
        use AnswerTiming::{AsItComes, AtTheEnd};
        let wait = Duration::from_secs(30);
        let announced = Some(Patience { limit: Duration::from_secs(2), repeat_wait: wait });
        let unannounced = Some(Patience { limit: Duration::ZERO, repeat_wait: UNANNOUNCED_WAIT });
        let (count, timeout) = (("x-stainless-retry-count", "0"), ("x-stainless-timeout", "2"));
        for (pairs, shown, expected) in [
            (&[timeout][..], AtTheEnd, announced),
            (&[count, timeout], AsItComes, announced),
            (&[count], AtTheEnd, unannounced),
            // The head of a stream comes before any usual time-out.
            (&[count], AsItComes, None),
            (&[], AtTheEnd, None),
        ] {
            let pair = |(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value));
            let headers: HeaderMap = pairs.iter().copied().map(pair).collect();
            assert_eq!(patience(&headers, shown, wait), expected, "{pairs:?} {shown:?}");
        }
    }
}
