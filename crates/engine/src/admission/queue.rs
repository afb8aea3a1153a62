//! Who runs, who waits, and whose turn it is. Pure: no clock, no waiting.
//!
//! Fair between owners: free slots go round among those who wait, whatever the number of their requests. Within an owner it
//! is first come, first served, except that a request for a model that is full lets others pass.

use std::collections::{HashMap, VecDeque};

use trunkline_core::turn::Owner;

use super::caps::Caps;

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(u64);

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// Everybody's queue.
    Queue,
    /// The owner's own part of it.
    Own,
}

#[derive(Debug, Default)]
pub(crate) struct SlotQueue {
    running: usize,
    of_model: HashMap<String, usize>,
    of_owner: HashMap<Owner, usize>,
    /// The owners who wait for a slot, whose turn it is first.
    ring: VecDeque<Owner>,
    lines: HashMap<Owner, VecDeque<(Ticket, String)>>,
    /// How many of each owner wait, for a slot or for something else.
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

    /// Takes a slot at once, if there is one and nobody else is before.
    pub(crate) fn enter(&mut self, caps: &Caps, owner: &Owner, model: &str) -> bool {
        let first = self.lines.get(owner).is_none_or(VecDeque::is_empty);
        let free = first && self.has_room(caps, owner, model) && self.running + self.able(caps) < caps.runs;
        if free {
            self.take(owner, model);
        }
        free
    }

    /// Whether one more may wait.
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

    /// Stands in line for a slot.
    pub(crate) fn line_up(&mut self, owner: &Owner, model: &str) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        if !self.lines.contains_key(owner) {
            self.ring.push_back(owner.clone());
        }
        self.lines.entry(owner.clone()).or_default().push_back((ticket, model.to_owned()));
        ticket
    }

    /// How many will be served before, as far as that can be told.
    pub(crate) fn ahead(&self, owner: &Owner, ticket: Ticket) -> usize {
        let Some(own) = self.lines.get(owner).and_then(|line| line.iter().position(|(other, _)| *other == ticket))
        else {
            return 0;
        };
        let others = self.lines.iter().filter(|(other, _)| *other != owner);
        own + others.map(|(_, line)| line.len().min(own + 1)).sum::<usize>()
    }

    pub(crate) fn give_up(&mut self, owner: &Owner, ticket: Ticket) {
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

    /// Gives a free slot to whose turn it is; none when there is nobody who can use one.
    pub(crate) fn serve(&mut self, caps: &Caps) -> Option<(Ticket, Owner, String)> {
        if self.running >= caps.runs {
            return None;
        }
        for at in 0..self.ring.len() {
            let owner = self.ring[at].clone();
            let Some(place) = self.first_able(caps, &owner) else { continue };
            let (ticket, model) = self.lines.get_mut(&owner).and_then(|line| line.remove(place))?;
            // It has had its turn.
            self.ring.remove(at);
            self.ring.push_back(owner.clone());
            self.tidy(&owner);
            self.take(&owner, &model);
            return Some((ticket, owner, model));
        }
        None
    }

    /// How many of those who wait could run: they are before whoever comes now.
    fn able(&self, caps: &Caps) -> usize {
        self.ring.iter().filter(|owner| self.first_able(caps, owner).is_some()).count()
    }

    fn first_able(&self, caps: &Caps, owner: &Owner) -> Option<usize> {
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

    fn served(desk: &mut SlotQueue, caps: &Caps) -> Vec<String> {
        let mut order = Vec::new();
        while let Some((_, owner, model)) = desk.serve(caps) {
            desk.release(&owner, &model);
            order.push(format!("{}{model}", owner.as_str().trim_start_matches("key-")));
        }
        order
    }

    #[test]
    fn case_70_slots_go_round_among_owners() {
        let (caps, mut desk) = (Caps::of(1, 100), SlotQueue::default());
        for n in 0..4 {
            desk.line_up(&key("a"), &n.to_string());
        }
        desk.line_up(&key("b"), "0");
        desk.line_up(&key("c"), "0");
        desk.line_up(&key("b"), "1");
        assert_eq!(served(&mut desk, &caps), ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]);
        assert!(desk.lines.is_empty() && desk.ring.is_empty() && desk.of_model.is_empty() && desk.of_owner.is_empty());
    }

    #[test]
    fn two_hundred_of_one_do_not_delay_the_first_of_another() {
        let (caps, mut desk) = (Caps::of(1, 1000), SlotQueue::default());
        assert!(desk.enter(&caps, &key("a"), "m"));
        for _ in 0..200 {
            desk.line_up(&key("a"), "m");
        }
        let ticket = desk.line_up(&key("b"), "m");
        assert_eq!(desk.ahead(&key("b"), ticket), 1);
        desk.release(&key("a"), "m");
        let first = desk.serve(&caps).unwrap().1;
        desk.release(&first, "m");
        assert_eq!((first, desk.serve(&caps).unwrap().1), (key("a"), key("b")));
    }

    #[test]
    fn a_full_model_or_owner_lets_others_pass() {
        let mut caps = Caps { runs_per_model: 1, ..Caps::of(3, 100) };
        caps.keys.insert(key("b"), KeyCaps { runs: 1, queue: 1, per_minute: None });
        let mut desk = SlotQueue::default();
        assert!(desk.enter(&caps, &key("a"), "m") && !desk.enter(&caps, &key("a"), "m"));
        desk.line_up(&key("a"), "m");
        assert!(desk.enter(&caps, &key("b"), "n"), "nobody who waits could use the slot");
        assert!(!desk.enter(&caps, &key("b"), "o"), "it has all that is its own");
        desk.line_up(&key("a"), "o");
        assert_eq!(desk.serve(&caps).unwrap().2, "o");
        assert_eq!(desk.serve(&caps), None);
    }

    #[test]
    fn nobody_comes_before_those_who_wait_and_can_run() {
        let (caps, mut desk) = (Caps::of(1, 100), SlotQueue::default());
        desk.line_up(&key("a"), "m");
        assert!(!desk.enter(&caps, &key("b"), "m"), "its turn is after a's");
        assert_eq!(desk.serve(&caps).unwrap().1, key("a"));
    }

    #[test]
    fn a_queue_is_bounded_for_all_and_for_each() {
        let (caps, mut desk) = (Caps::of(1, 3), SlotQueue::default());
        assert_eq!(desk.join(&caps, &key("a")), Ok(()));
        assert_eq!(desk.join(&caps, &key("a")), Ok(()));
        assert_eq!(desk.join(&caps, &key("a")), Err(Full::Own), "half of it, rounded up");
        assert_eq!(desk.join(&caps, &key("b")), Ok(()));
        assert_eq!(desk.join(&caps, &key("c")), Err(Full::Queue));
        desk.leave(&key("b"));
        assert_eq!(desk.join(&caps, &Owner::default()), Ok(()), "who needs no key has all of it");
    }

    #[test]
    fn who_gives_up_is_gone() {
        let (caps, mut desk) = (Caps::of(1, 100), SlotQueue::default());
        let first = desk.line_up(&key("a"), "m");
        desk.line_up(&key("a"), "n");
        desk.give_up(&key("a"), first);
        assert_eq!(served(&mut desk, &caps), ["an"]);
    }

    proptest::proptest! {
        /// Whatever comes and goes: no cap is passed, and a slot is never left free while somebody could use it.
        #[test]
        fn no_cap_is_passed_and_no_slot_is_lost(steps in proptest::collection::vec((0_u8..3, 0_u8..4, 0_u8..3), 1..200)) {
            let mut caps = Caps { runs_per_model: 2, ..Caps::of(3, 1000) };
            caps.key.runs = 2;
            let (mut desk, mut held) = (SlotQueue::default(), Vec::new());
            for (what, owner, model) in steps {
                let (owner, model) = (key(&owner.to_string()), model.to_string());
                match what {
                    0 => match desk.enter(&caps, &owner, &model) {
                        true => held.push((owner, model)),
                        false => drop(desk.line_up(&owner, &model)),
                    },
                    1 if !held.is_empty() => {
                        let (owner, model) = held.remove(0);
                        desk.release(&owner, &model);
                    }
                    _ => {}
                }
                while let Some((_, owner, model)) = desk.serve(&caps) {
                    held.push((owner, model));
                }
                proptest::prop_assert!(held.len() <= 3 && desk.running == held.len());
                for (owner, model) in &held {
                    proptest::prop_assert!(held.iter().filter(|(other, _)| other == owner).count() <= 2);
                    proptest::prop_assert!(held.iter().filter(|(_, other)| other == model).count() <= 2);
                }
                let could = desk.lines.iter().any(|(owner, _)| desk.first_able(&caps, owner).is_some());
                proptest::prop_assert!(!could || held.len() == 3);
            }
        }
    }
}
