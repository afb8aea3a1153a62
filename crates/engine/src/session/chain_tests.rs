//! Whatever clients send, a conversation is gone on with only by who shows all of it and nothing else.

use proptest::prelude::*;
use trunkline_core::event::{Call, Finish, Usage};
use trunkline_core::turn::Image;

use super::*;

fn user(text: &str) -> Message {
    Message::new(Role::User, text)
}

fn assistant(text: &str) -> Message {
    Message::new(Role::Assistant, text)
}

fn answer(text: &str) -> Answer {
    Answer::new(text, Usage::default(), Finish::Stop)
}

#[test]
fn what_differs_in_anything_but_blanks_has_another_hash() {
    let call = |id: &str, name: &str| Call { id: id.into(), name: name.into(), arguments: "{}".into() };
    let image = |extension| Image { extension, bytes: vec![1, 2] };
    let all = [
        vec![user("a"), user("b")],
        vec![user("ab")],
        vec![user("a\nb")],
        vec![user("b"), user("a")],
        vec![user("a"), assistant("b")],
        vec![Message::new(Role::System, "a"), user("b")],
        vec![Message { images: vec![image("png")], ..user("a") }],
        vec![Message { images: vec![image("gif")], ..user("a") }],
        vec![Message { images: vec![image("png"), image("png")], ..user("a") }],
        vec![Message { calls: vec![call("ab", "c")], ..assistant("") }],
        vec![Message { calls: vec![call("a", "bc")], ..assistant("") }],
        vec![Message { call_id: Some(String::new()), ..Message::new(Role::Tool, "") }],
        vec![Message::new(Role::Tool, "")],
        vec![],
    ];
    for (index, one) in all.iter().enumerate() {
        for other in &all[..index] {
            assert_ne!(Chain::over(one).hash, Chain::over(other).hash, "{one:?} {other:?}");
        }
    }
    assert_eq!(Chain::over(&[user(" a\n")]), Chain::over(&[user("a")]));
}

#[test]
fn the_past_ends_behind_the_last_answer() {
    let talk = [user("1"), assistant("a"), user("2")];
    for (messages, end) in [
        (&talk[..], Some(2)),
        (&talk[..1], None),
        (&talk[..2], None),
        (&[user("1"), assistant("a"), Message::new(Role::System, "s")], None),
        (&[user("1"), assistant("a"), user("2"), user("3")], Some(2)),
        (&[user("1"), assistant("a"), user("2"), assistant("b"), user("3")], Some(4)),
    ] {
        assert_eq!(end_of_past(messages), end, "{messages:?}");
    }
}

#[test]
fn both_ways_to_tell_of_an_answer_lead_to_it() {
    let asked = Chain::over(&[user("1")]);
    let heads = heads(asked, &answer("it is 4"), "let me see\n\nit is 4");
    let told = |text: &str| past(&[user("1"), assistant(text), user("2")]).unwrap();
    assert_eq!(heads, [told("it is 4"), told("let me see\n\nit is 4")]);
    assert_eq!(super::heads(asked, &answer("4"), "4\n").len(), 1);
    assert_eq!(super::heads(asked, &answer("4"), "").len(), 1);
}

/// What a client may do next.
#[derive(Debug, Clone)]
struct Step {
    who: usize,
    /// Which of the histories that were ever shown is gone on from.
    from: usize,
    change: Change,
    says: u8,
    answers: u8,
    end: End,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    /// Nothing: it goes on where it was.
    None,
    /// A message is worded anew.
    Edit(usize),
    /// Messages are left out at the end.
    Cut(usize),
    /// Begins with nothing.
    Anew,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Answers,
    Fails,
    /// Still speaking while others come.
    Later,
}

fn step() -> impl Strategy<Value = Step> {
    let change = prop_oneof![
        4 => Just(Change::None),
        1 => (0..6_usize).prop_map(Change::Edit),
        1 => (1..3_usize).prop_map(Change::Cut),
        1 => Just(Change::Anew),
    ];
    let end = prop_oneof![4 => Just(End::Answers), 1 => Just(End::Fails), 1 => Just(End::Later)];
    (0..3_usize, any::<usize>(), change, 0..2_u8, 0..2_u8, end)
        .prop_map(|(who, from, change, says, answers, end)| Step { who, from, change, says, answers, end })
}

/// Clients, the heads they are found by, and what was really said in each conversation.
#[derive(Default)]
struct World {
    heads: Heads,
    /// Owner, model, what was said, and whether somebody speaks in it now.
    sessions: HashMap<SessionId, (usize, Vec<Message>, bool)>,
    shown: Vec<(usize, Vec<Message>)>,
    open: Vec<(usize, SessionId, Vec<Message>, u8)>,
    resumed: usize,
}

/// Two owners; one of them has two models.
const WHO: [(&str, &str); 3] = [("1", "m"), ("1", "n"), ("2", "m")];

impl World {
    fn ask(&mut self, step: &Step) {
        let mut history = match step.change {
            Change::Anew => Vec::new(),
            Change::None | Change::Edit(_) | Change::Cut(_) => {
                let shown = &self.shown;
                if shown.is_empty() { Vec::new() } else { shown[step.from % shown.len()].1.clone() }
            }
        };
        match step.change {
            Change::Edit(at) if !history.is_empty() => {
                let at = at % history.len();
                history[at].text.push('!');
            }
            Change::Cut(count) => history.truncate(history.len().saturating_sub(count)),
            Change::Edit(_) | Change::None | Change::Anew => {}
        }
        let asked = [history, vec![user(&step.says.to_string())]].concat();
        let (owner, model) = (Owner::of_key(WHO[step.who].0), WHO[step.who].1);
        let found = past(&asked).and_then(|past| match self.heads.find(&owner, model, &past.hash) {
            Found::One(session) => Some(session.clone()),
            Found::Several | Found::Nobody => None,
        });
        let session = match found {
            Some(session) => {
                let (who, said, speaking) = &self.sessions[&session];
                assert_eq!((*who, *speaking), (step.who, false), "another's, or not free");
                assert_eq!(said, &asked[..end_of_past(&asked).unwrap()], "something else was said in it");
                self.heads.take(&session);
                self.resumed += 1;
                session
            }
            None => SessionId(self.sessions.len().to_string()),
        };
        self.sessions.insert(session.clone(), (step.who, asked.clone(), true));
        match step.end {
            End::Answers => self.answer(step.who, session, asked, step.answers),
            // What was asked was heard: nobody's history is what it remembers now.
            End::Fails => {
                self.sessions.insert(session, (step.who, vec![user("unknown")], false));
            }
            End::Later => self.open.push((step.who, session, asked, step.answers)),
        }
    }

    fn answer(&mut self, who: usize, session: SessionId, asked: Vec<Message>, says: u8) {
        let heads = heads(Chain::over(&asked), &answer(&says.to_string()), "");
        self.heads.set(&session, &Owner::of_key(WHO[who].0), WHO[who].1, heads);
        let said = [asked, vec![assistant(&says.to_string())]].concat();
        self.shown.push((who, said.clone()));
        self.sessions.insert(session, (who, said, false));
    }
}

proptest! {
    #[test]
    fn only_the_right_conversation_is_gone_on_with(steps in proptest::collection::vec(step(), 1..40)) {
        let mut world = World::default();
        for step in &steps {
            world.ask(step);
            if step.from % 3 == 0 && let Some((who, session, asked, says)) = world.open.pop() {
                world.answer(who, session, asked, says);
            }
        }
    }

    /// The same is not kept by finding nothing at all.
    #[test]
    fn who_goes_on_undisturbed_is_always_recognised(said in proptest::collection::vec((0..3_u8, 0..3_u8), 2..10)) {
        let mut world = World::default();
        for (turn, (says, answers)) in said.iter().enumerate() {
            let step = Step {
                who: 0, from: usize::MAX, change: Change::None, says: *says, answers: *answers, end: End::Answers,
            };
            let last = world.shown.len().saturating_sub(1);
            world.ask(&Step { from: last, ..step });
            prop_assert_eq!(world.resumed, turn);
            prop_assert_eq!(world.sessions.len(), 1);
        }
    }
}
