//! Waiting for a slot, with a paused clock.

use std::pin::pin;

use super::*;

fn local() -> ClientId {
    ClientId::default()
}

fn admission(runs: usize, runs_per_model: usize, queue: usize) -> Admission {
    Admission::new(Caps { runs_per_model, queue_timeout: Duration::from_secs(60), ..Caps::of(runs, queue) })
}

async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    tokio::time::timeout(Duration::ZERO, future).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn request_is_refused_when_the_queue_is_full_or_the_wait_too_long() {
    let admission = admission(1, 1, 1);
    let owner = local();
    let held = admission.enter(&owner, "a", None).await.unwrap();
    let (waited, refused) = tokio::join!(admission.enter(&owner, "a", None), admission.enter(&owner, "a", None));
    assert!(matches!(refused, Err(StartError::Busy { .. })), "{refused:?}");
    assert!(matches!(waited, Err(StartError::Busy { message, .. }) if message.contains("60 s")));
    drop(held);
    admission.enter(&owner, "a", None).await.unwrap();
}

#[tokio::test]
async fn slots_are_left_for_others_when_one_model_is_full() {
    let admission = admission(2, 1, 8);
    let owner = local();
    let _a = admission.enter(&owner, "a", None).await.unwrap();
    let mut second = pin!(admission.enter(&owner, "a", None));
    assert!(is_pending(&mut second).await);
    admission.enter(&owner, "b", None).await.unwrap();
}

#[tokio::test]
async fn case_72_request_is_not_served_after_its_client_left() {
    let admission = admission(1, 1, 8);
    let owner = local();
    let held = admission.enter(&owner, "a", None).await.unwrap();
    let mut last = pin!(admission.enter(&owner, "a", None));
    {
        let mut leaves = pin!(admission.enter(&owner, "a", None));
        assert!(is_pending(&mut leaves).await);
        assert!(is_pending(&mut last).await);
        assert_eq!(admission.waiting(), 2);
        // The slot is granted at the moment the request leaves.
        drop(held);
    }
    assert_eq!(admission.waiting(), 1);
    let permit = last.await.unwrap();
    assert_eq!(permit.waited.map(|(_, ahead)| ahead), Some(1));
    drop(permit);
    assert_eq!(admission.waiting(), 0);
    admission.enter(&owner, "a", None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn key_is_limited_by_its_own_limits_and_the_error_says_so() {
    let (key, other) = (ClientId::of_key("a"), ClientId::of_key("b"));
    let mut caps = Caps { queue_timeout: Duration::from_secs(60), ..Caps::of(4, 100) };
    caps.keys.insert(key.clone(), KeyCaps { runs: 1, queue: 1, per_minute: None });
    let admission = Admission::new(caps);
    let _held = admission.enter(&key, "m", None).await.unwrap();
    let (waited, refused) = tokio::join!(admission.enter(&key, "m", None), admission.enter(&key, "m", None));
    assert!(matches!(refused, Err(StartError::Limited { .. })), "{refused:?}");
    assert!(matches!(waited, Err(StartError::Limited { .. })), "{waited:?}");
    admission.enter(&other, "m", None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn retry_after_follows_the_duration_of_recent_runs() {
    let admission = admission(2, 2, 0);
    let owner = local();
    let permits =
        [admission.enter(&owner, "a", None).await.unwrap(), admission.enter(&owner, "a", None).await.unwrap()];
    let refused = |admission: Admission| async move {
        match admission.enter(&local(), "a", None).await {
            Err(StartError::Busy { retry_after, .. }) => (admission, retry_after),
            other => panic!("{other:?}"),
        }
    };
    let (admission, unknown) = refused(admission).await;
    assert_eq!(unknown, DEFAULT_RUN_DURATION);
    // The clock is paused: this takes no time.
    tokio::time::sleep(Duration::from_secs(30)).await;
    drop(permits);
    let _both = [admission.enter(&owner, "a", None).await.unwrap(), admission.enter(&owner, "a", None).await.unwrap()];
    assert_eq!(refused(admission).await.1, Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn requests_per_minute_are_limited_by_key_model_and_total() {
    let key = ClientId::of_key("a");
    let mut caps = Caps { per_minute: Some(6), model_per_minute: Some(3), ..Caps::of(4, 100) };
    caps.key.per_minute = Some(2);
    let admission = Admission::new(caps);
    let wait = |refused: Result<(), StartError>| match refused {
        Err(StartError::Limited { retry_after, .. }) => ("limited", retry_after.as_secs()),
        Err(StartError::Busy { retry_after, .. }) => ("busy", retry_after.as_secs()),
        other => panic!("{other:?}"),
    };
    admission.admit(&key, "m").unwrap();
    admission.admit(&key, "m").unwrap();
    assert_eq!(wait(admission.admit(&key, "m")), ("limited", 30));
    let left = admission.allowance(&key).unwrap();
    assert_eq!((left.limit, left.remaining, left.reset.as_secs()), (2, 0, 60));
    admission.admit(&local(), "m").unwrap();
    assert_eq!(wait(admission.admit(&local(), "m")), ("busy", 20));
    assert_eq!(admission.allowance(&local()), None);
    for model in ["n", "n", "n"] {
        admission.admit(&local(), model).unwrap();
    }
    assert_eq!(wait(admission.admit(&local(), "o")), ("busy", 10), "a refused request is not counted");
    tokio::time::advance(Duration::from_secs(30)).await;
    admission.admit(&key, "m").unwrap();
}

#[tokio::test(start_paused = true)]
async fn place_is_kept_for_a_run_that_reserved_it_when_queue_fills_up() {
    let (admission, owner) = (admission(1, 1, 1), local());
    let Ok(Reserved::Slot(running)) = admission.reserve(&owner, "a") else { panic!("a slot is free") };
    let place = admission.reserve(&owner, "a").unwrap();
    assert!(matches!(place, Reserved::Place(_)));
    assert!(matches!(admission.reserve(&owner, "a"), Err(StartError::Busy { .. })), "slot and queue are taken");
    let mut waits = pin!(admission.enter(&owner, "a", Some(place)));
    assert!(is_pending(&mut waits).await, "it waits in the place that it has");
    assert_eq!(admission.waiting(), 1);
    drop(running);
    waits.await.unwrap();
}

#[tokio::test]
async fn slot_is_exchanged_for_a_place_while_waiting_for_a_session() {
    let (admission, owner) = (admission(1, 1, 1), local());
    let slot = admission.reserve(&owner, "a").unwrap();
    let place = admission.place_for(&owner, Some(slot)).unwrap();
    assert!(matches!(place, Reserved::Place(_)));
    let other = admission.reserve(&owner, "a").unwrap();
    assert!(matches!(other, Reserved::Slot(_)), "others can use the slot meanwhile");
    let kept = admission.place_for(&owner, Some(other)).unwrap();
    assert!(matches!(kept, Reserved::Slot(_)), "without a free place the slot is kept: the run was promised");
}
