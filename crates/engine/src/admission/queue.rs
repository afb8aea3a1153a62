//! Running and waiting requests, and the choice of the next one. Pure: no clock, no waiting.
//!
//! Fair between clients: free slots go round robin among waiting clients, whatever the number of their requests. Requests of one
//! client are served in order, except that a request for a model that is full lets others pass.

use std::collections::{HashMap, VecDeque};

use trunkline_core::turn::Owner;

use super::caps::Caps;

/// Number of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(u64);

/// Reason why the queue takes no further request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The queue of all clients is full.
    Queue,
    /// The client's own share is used up.
    Own,
}

#[derive(Debug, Default)]
pub(crate) struct SlotQueue {
    running: usize,
    of_model: HashMap<String, usize>,
    of_owner: HashMap<Owner, usize>,
    /// Clients that wait for a slot; the next to be served comes first.
    ring: VecDeque<Owner>,
    lines: HashMap<Owner, VecDeque<(Ticket, String)>>,
    /// Requests of each client that wait, for a slot or for something else.
    waiting: HashMap<Owner, usize>,
    next: u64,
}

impl SlotQueue {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.values().sum()
    }

    pub(crate) fn waiting_of(&self, owner: &Owner) -> usize {
        self.waiting.get(owner).copied().unwrap_or(0)
    }

    pub(crate) fn running_of(&self, owner: &Owner) -> usize {
        self.of_owner.get(owner).copied().unwrap_or(0)
    }

    /// Takes a slot at once, if one is free and no waiting request could use it.
    pub(crate) fn enter(&mut self, caps: &Caps, owner: &Owner, model: &str) -> bool {
        let first = self.lines.get(owner).is_none_or(VecDeque::is_empty);
        let free = first && self.has_room(caps, owner, model) && self.running + self.runnable(caps) < caps.runs;
        if free {
            self.take(owner, model);
        }
        free
    }

    /// Takes a place in the queue.
    pub(crate) fn join(&mut self, caps: &Caps, owner: &Owner) -> Result<(), Full> {
        if self.waiting() >= caps.queue {
            return Err(Full::Queue);
        }
        if self.waiting_of(owner) >= caps.of_owner(owner).queue {
            return Err(Full::Own);
        }
        *self.waiting.entry(owner.clone()).or_default() += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self, owner: &Owner) {
        decrement(&mut self.waiting, owner);
    }

    /// Queues a request for a slot.
    pub(crate) fn queue_up(&mut self, owner: &Owner, model: &str) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        if !self.lines.contains_key(owner) {
            self.ring.push_back(owner.clone());
        }
        self.lines.entry(owner.clone()).or_default().push_back((ticket, model.to_owned()));
        ticket
    }

    /// Estimated number of requests that are served before this one.
    pub(crate) fn ahead(&self, owner: &Owner, ticket: Ticket) -> usize {
        let Some(own) = self.lines.get(owner).and_then(|line| line.iter().position(|(other, _)| *other == ticket))
        else {
            return 0;
        };
        let others = self.lines.iter().filter(|(other, _)| *other != owner);
        own + others.map(|(_, line)| line.len().min(own + 1)).sum::<usize>()
    }

    pub(crate) fn cancel(&mut self, owner: &Owner, ticket: Ticket) {
        if let Some(line) = self.lines.get_mut(owner) {
            line.retain(|(other, _)| *other != ticket);
        }
        self.tidy(owner);
    }

    pub(crate) fn release(&mut self, owner: &Owner, model: &str) {
        self.running = self.running.saturating_sub(1);
        decrement(&mut self.of_owner, owner);
        if let Some(count) = self.of_model.get_mut(model) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of_model.remove(model);
            }
        }
    }

    /// Gives a free slot to the next request; `None` if no waiting request can use one.
    pub(crate) fn serve(&mut self, caps: &Caps) -> Option<(Ticket, Owner, String)> {
        if self.running >= caps.runs {
            return None;
        }
        for at in 0..self.ring.len() {
            let owner = self.ring[at].clone();
            let Some(place) = self.first_runnable(caps, &owner) else { continue };
            let (ticket, model) = self.lines.get_mut(&owner).and_then(|line| line.remove(place))?;
            // Round robin: the client goes to the end.
            self.ring.remove(at);
            self.ring.push_back(owner.clone());
            self.tidy(&owner);
            self.take(&owner, &model);
            return Some((ticket, owner, model));
        }
        None
    }

    /// Number of waiting requests that could run now. They come before a new request.
    fn runnable(&self, caps: &Caps) -> usize {
        self.ring.iter().filter(|owner| self.first_runnable(caps, owner).is_some()).count()
    }

    fn first_runnable(&self, caps: &Caps, owner: &Owner) -> Option<usize> {
        self.lines.get(owner)?.iter().position(|(_, model)| self.has_room(caps, owner, model))
    }

    fn has_room(&self, caps: &Caps, owner: &Owner, model: &str) -> bool {
        self.running_of(owner) < caps.of_owner(owner).runs
            && self.of_model.get(model).copied().unwrap_or(0) < caps.runs_per_model
    }

    fn take(&mut self, owner: &Owner, model: &str) {
        self.running += 1;
        *self.of_owner.entry(owner.clone()).or_default() += 1;
        *self.of_model.entry(model.to_owned()).or_default() += 1;
    }

    fn tidy(&mut self, owner: &Owner) {
        if self.lines.get(owner).is_some_and(VecDeque::is_empty) {
            self.lines.remove(owner);
            self.ring.retain(|other| other != owner);
        }
    }
}

fn decrement(counts: &mut HashMap<Owner, usize>, owner: &Owner) {
    if let Some(count) = counts.get_mut(owner) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::caps::KeyCaps;
    use super::*;

    fn key(name: &str) -> Owner {
        Owner::of_key(name)
    }

    fn served(queue: &mut SlotQueue, caps: &Caps) -> Vec<String> {
        let mut order = Vec::new();
        while let Some((_, owner, model)) = queue.serve(caps) {
            queue.release(&owner, &model);
            order.push(format!("{}{model}", owner.as_str().trim_start_matches("key-")));
        }
        order
    }

    #[test]
    fn case_70_slots_go_round_robin_among_clients() {
        let (caps, mut queue) = (Caps::of(1, 100), SlotQueue::default());
        for n in 0..4 {
            queue.queue_up(&key("a"), &n.to_string());
        }
        queue.queue_up(&key("b"), "0");
        queue.queue_up(&key("c"), "0");
        queue.queue_up(&key("b"), "1");
        assert_eq!(served(&mut queue, &caps), ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]);
        assert!(
            queue.lines.is_empty() && queue.ring.is_empty() && queue.of_model.is_empty() && queue.of_owner.is_empty()
        );
    }

    #[test]
    fn first_request_of_a_client_is_not_delayed_by_two_hundred_of_another() {
        let (caps, mut queue) = (Caps::of(1, 1000), SlotQueue::default());
        assert!(queue.enter(&caps, &key("a"), "m"));
        for _ in 0..200 {
            queue.queue_up(&key("a"), "m");
        }
        let ticket = queue.queue_up(&key("b"), "m");
        assert_eq!(queue.ahead(&key("b"), ticket), 1);
        queue.release(&key("a"), "m");
        let first = queue.serve(&caps).unwrap().1;
        queue.release(&first, "m");
        assert_eq!((first, queue.serve(&caps).unwrap().1), (key("a"), key("b")));
    }

    #[test]
    fn requests_pass_others_whose_model_or_client_is_full() {
        let mut caps = Caps { runs_per_model: 1, ..Caps::of(3, 100) };
        caps.keys.insert(key("b"), KeyCaps { runs: 1, queue: 1, per_minute: None });
        let mut queue = SlotQueue::default();
        assert!(queue.enter(&caps, &key("a"), "m") && !queue.enter(&caps, &key("a"), "m"));
        queue.queue_up(&key("a"), "m");
        assert!(queue.enter(&caps, &key("b"), "n"), "nobody who waits could use the slot");
        assert!(!queue.enter(&caps, &key("b"), "o"), "it has all that is its own");
        queue.queue_up(&key("a"), "o");
        assert_eq!(queue.serve(&caps).unwrap().2, "o");
        assert_eq!(queue.serve(&caps), None);
    }

    #[test]
    fn new_request_does_not_pass_waiting_requests_that_can_run() {
        let (caps, mut queue) = (Caps::of(1, 100), SlotQueue::default());
        queue.queue_up(&key("a"), "m");
        assert!(!queue.enter(&caps, &key("b"), "m"), "its turn is after a's");
        assert_eq!(queue.serve(&caps).unwrap().1, key("a"));
    }

    #[test]
    fn queue_is_bounded_in_total_and_for_each_client() {
        let (caps, mut queue) = (Caps::of(1, 3), SlotQueue::default());
        assert_eq!(queue.join(&caps, &key("a")), Ok(()));
        assert_eq!(queue.join(&caps, &key("a")), Ok(()));
        assert_eq!(queue.join(&caps, &key("a")), Err(Full::Own), "half of it, rounded up");
        assert_eq!(queue.join(&caps, &key("b")), Ok(()));
        assert_eq!(queue.join(&caps, &key("c")), Err(Full::Queue));
        queue.leave(&key("b"));
        assert_eq!(queue.join(&caps, &Owner::default()), Ok(()), "who needs no key has all of it");
    }

    #[test]
    fn cancelled_request_is_not_served() {
        let (caps, mut queue) = (Caps::of(1, 100), SlotQueue::default());
        let first = queue.queue_up(&key("a"), "m");
        queue.queue_up(&key("a"), "n");
        queue.cancel(&key("a"), first);
        assert_eq!(served(&mut queue, &caps), ["an"]);
    }

    proptest::proptest! {
        /// For any sequence of requests: no limit is exceeded, and no slot stays free while a waiting request could use it.
        #[test]
        fn no_limit_is_exceeded_and_no_slot_is_lost(steps in proptest::collection::vec((0_u8..3, 0_u8..4, 0_u8..3), 1..200)) {
            let mut caps = Caps { runs_per_model: 2, ..Caps::of(3, 1000) };
            caps.key.runs = 2;
            let (mut queue, mut held) = (SlotQueue::default(), Vec::new());
            for (what, owner, model) in steps {
                let (owner, model) = (key(&owner.to_string()), model.to_string());
                match what {
                    0 => match queue.enter(&caps, &owner, &model) {
                        true => held.push((owner, model)),
                        false => drop(queue.queue_up(&owner, &model)),
                    },
                    1 if !held.is_empty() => {
                        let (owner, model) = held.remove(0);
                        queue.release(&owner, &model);
                    }
                    _ => {}
                }
                while let Some((_, owner, model)) = queue.serve(&caps) {
                    held.push((owner, model));
                }
                proptest::prop_assert!(held.len() <= 3 && queue.running == held.len());
                for (owner, model) in &held {
                    proptest::prop_assert!(held.iter().filter(|(other, _)| other == owner).count() <= 2);
                    proptest::prop_assert!(held.iter().filter(|(_, other)| other == model).count() <= 2);
                }
                let could = queue.lines.iter().any(|(owner, _)| queue.first_runnable(&caps, owner).is_some());
                proptest::prop_assert!(!could || held.len() == 3);
            }
        }
    }
}
