//! Responses that are being continued. Of two requests that continue the same response at the same time, one continues its session
//! and the other is a fork: the first turn is in the index only once it has started.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs that a request is about to continue, or continues.
#[derive(Debug, Default)]
pub(crate) struct Continuations(Mutex<HashSet<String>>);

/// The right to continue a run in its session, until it is dropped.
#[derive(Debug)]
pub(crate) struct Continuation {
    all: Arc<Continuations>,
    run: String,
}

impl Continuations {
    /// Claims a run. `None` if another request has claimed it.
    pub(crate) fn claim(self: &Arc<Self>, run: &str) -> Option<Continuation> {
        let claimed = self.runs().insert(run.to_owned());
        claimed.then(|| Continuation { all: Arc::clone(self), run: run.to_owned() })
    }

    fn runs(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Continuation {
    fn drop(&mut self) {
        self.all.runs().remove(&self.run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_claimed_by_one_request_at_a_time() {
        let all = Arc::new(Continuations::default());
        let first = all.claim("r").unwrap();
        assert!(all.claim("r").is_none() && all.claim("other").is_some());
        drop(first);
        assert!(all.claim("r").is_some());
    }
}
