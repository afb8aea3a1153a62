//! How many runs at once: a cap for all, a cap for each model, and a queue that is bounded in length and in time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::StartError;

#[derive(Debug, Clone, Copy)]
pub struct Caps {
    pub runs: usize,
    pub runs_per_model: usize,
    /// How many may wait.
    pub queue: usize,
    /// How long one may wait.
    pub queue_timeout: Duration,
}

impl Default for Caps {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let runs = (cores * 2).max(8);
        Self { runs, runs_per_model: runs, queue: 256, queue_timeout: Duration::from_secs(600) }
    }
}

/// How many models are kept count of before those that nobody runs are let go.
const MANY: usize = 1024;

pub(crate) struct Gate {
    caps: Caps,
    all: Arc<Semaphore>,
    models: Mutex<HashMap<String, Arc<Semaphore>>>,
    waiting: AtomicUsize,
}

/// The right to run; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _model: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Gate {
    pub(crate) fn new(caps: Caps) -> Self {
        Self { all: Arc::new(Semaphore::new(caps.runs)), models: Mutex::default(), waiting: AtomicUsize::new(0), caps }
    }

    /// Waits for a slot, in order of arrival. Dropping the future leaves the queue.
    pub(crate) async fn enter(&self, model: &str) -> Result<Permit, StartError> {
        let of_model = self.of_model(model);
        if let Ok(_model) = Arc::clone(&of_model).try_acquire_owned()
            && let Ok(_all) = Arc::clone(&self.all).try_acquire_owned()
        {
            return Ok(Permit { _model, _all });
        }
        let both = async {
            let _model = of_model.acquire_owned().await.expect("the semaphore is never closed");
            let _all = Arc::clone(&self.all).acquire_owned().await.expect("the semaphore is never closed");
            Permit { _model, _all }
        };
        self.in_queue(both, "no free slot").await
    }

    /// Waits for what a run needs, as one of those who may wait and no longer than they may.
    pub(crate) async fn in_queue<T>(&self, wait: impl Future<Output = T>, missing: &str) -> Result<T, StartError> {
        let _waiting = self.join_queue()?;
        tokio::time::timeout(self.caps.queue_timeout, wait).await.map_err(|_elapsed| StartError::Busy {
            message: format!("{missing} within {} s", self.caps.queue_timeout.as_secs()),
            retry_after: Duration::from_secs(5),
        })
    }

    fn of_model(&self, model: &str) -> Arc<Semaphore> {
        let mut models = self.models.lock().expect("no panic while holding the lock");
        match models.get(model) {
            Some(semaphore) => Arc::clone(semaphore),
            None => {
                // A client may make names up, one for each request.
                if models.len() >= MANY {
                    models.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
                }
                let semaphore = Arc::new(Semaphore::new(self.caps.runs_per_model));
                models.insert(model.to_owned(), Arc::clone(&semaphore));
                semaphore
            }
        }
    }

    fn join_queue(&self) -> Result<Waiting<'_>, StartError> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < self.caps.queue {
            return Ok(Waiting(&self.waiting));
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Err(StartError::Busy {
            message: format!("all {} slots are busy and {} requests wait already", self.caps.runs, self.caps.queue),
            retry_after: Duration::from_secs(5),
        })
    }
}

/// A place in the queue.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(runs: usize, runs_per_model: usize, queue: usize) -> Gate {
        Gate::new(Caps { runs, runs_per_model, queue, queue_timeout: Duration::from_secs(60) })
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_refuses_and_a_long_wait_ends() {
        let gate = gate(1, 1, 1);
        let held = gate.enter("a").await.unwrap();
        let (waited, refused) = tokio::join!(gate.enter("a"), gate.enter("a"));
        assert!(matches!(refused, Err(StartError::Busy { .. })), "{refused:?}");
        assert!(matches!(waited, Err(StartError::Busy { message, .. }) if message.contains("60 s")));
        drop(held);
        gate.enter("a").await.unwrap();
    }

    #[tokio::test]
    async fn one_model_cannot_take_every_slot() {
        let gate = gate(2, 1, 8);
        let _a = gate.enter("a").await.unwrap();
        let second = gate.enter("a");
        tokio::pin!(second);
        assert!(tokio::time::timeout(Duration::ZERO, &mut second).await.is_err());
        gate.enter("b").await.unwrap();
    }
}
