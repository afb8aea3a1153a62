//! Whatever clients send, a session is continued only by a request whose history is exactly the session's messages.

use proptest::prelude::*;
use trunkline_core::event::{Finish, ToolCall, Usage};
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
fn hashes_differ_unless_messages_differ_only_in_surrounding_whitespace() {
    let call = |id: &str, name: &str| ToolCall { id: id.into(), name: name.into(), arguments: "{}".into() };
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
            assert_ne!(MessageChain::over(one).hash, MessageChain::over(other).hash, "{one:?} {other:?}");
        }
    }
    assert_eq!(MessageChain::over(&[user(" a\n")]), MessageChain::over(&[user("a")]));
}

#[test]
fn past_ends_after_last_answer_when_user_message_follows() {
    let messages = [user("1"), assistant("a"), user("2")];
    for (request, end) in [
        (&messages[..], Some(2)),
        (&messages[..1], None),
        (&messages[..2], None),
        (&[user("1"), assistant("a"), Message::new(Role::System, "s")], None),
        (&[user("1"), assistant("a"), user("2"), user("3")], Some(2)),
        (&[user("1"), assistant("a"), user("2"), assistant("b"), user("3")], Some(4)),
    ] {
        assert_eq!(end_of_past(request), end, "{request:?}");
    }
}

#[test]
fn head_matches_final_message_and_streamed_text() {
    let asked = MessageChain::over(&[user("1")]);
    let heads = heads(asked, &answer("it is 4"), "let me see\n\nit is 4");
    let past_with = |text: &str| past(&[user("1"), assistant(text), user("2")]).unwrap();
    assert_eq!(heads, [past_with("it is 4"), past_with("let me see\n\nit is 4")]);
    assert_eq!(super::heads(asked, &answer("4"), "4\n").len(), 1);
    assert_eq!(super::heads(asked, &answer("4"), "").len(), 1);
}

/// One request of a client.
#[derive(Debug, Clone)]
struct ClientRequest {
    /// Index into [`CLIENTS`].
    client: usize,
    /// The earlier history that the request continues.
    from: usize,
    edit: HistoryEdit,
    question: u8,
    answer: u8,
    end: RequestEnd,
}

#[derive(Debug, Clone, Copy)]
enum HistoryEdit {
    /// The history is unchanged.
    None,
    /// One message is changed.
    Change(usize),
    /// Messages are removed at the end.
    Cut(usize),
    /// The request has no history.
    Clear,
}

#[derive(Debug, Clone, Copy)]
enum RequestEnd {
    Answers,
    Fails,
    /// The turn is still running while later requests arrive.
    Later,
}

fn request() -> impl Strategy<Value = ClientRequest> {
    let edit = prop_oneof![
        4 => Just(HistoryEdit::None),
        1 => (0..6_usize).prop_map(HistoryEdit::Change),
        1 => (1..3_usize).prop_map(HistoryEdit::Cut),
        1 => Just(HistoryEdit::Clear),
    ];
    let end = prop_oneof![4 => Just(RequestEnd::Answers), 1 => Just(RequestEnd::Fails), 1 => Just(RequestEnd::Later)];
    (0..3_usize, any::<usize>(), edit, 0..2_u8, 0..2_u8, end).prop_map(|(client, from, edit, question, answer, end)| {
        ClientRequest { client, from, edit, question, answer, end }
    })
}

/// The heads under test, and the true messages of each session.
#[derive(Default)]
struct SessionModel {
    heads: SessionHeads,
    /// Client, messages, and whether a turn is running.
    sessions: HashMap<SessionId, (usize, Vec<Message>, bool)>,
    /// Histories that clients have received.
    histories: Vec<Vec<Message>>,
    /// Running turns, with the answers that they will get.
    running: Vec<(usize, SessionId, Vec<Message>, u8)>,
    resumed: usize,
}

/// Client and model: two clients, of which one uses two models.
const CLIENTS: [(&str, &str); 3] = [("1", "m"), ("1", "n"), ("2", "m")];

impl SessionModel {
    fn send(&mut self, request: &ClientRequest) {
        let mut history = match request.edit {
            HistoryEdit::Clear => Vec::new(),
            HistoryEdit::None | HistoryEdit::Change(_) | HistoryEdit::Cut(_) => {
                let histories = &self.histories;
                if histories.is_empty() { Vec::new() } else { histories[request.from % histories.len()].clone() }
            }
        };
        match request.edit {
            HistoryEdit::Change(at) if !history.is_empty() => {
                let at = at % history.len();
                history[at].text.push('!');
            }
            HistoryEdit::Cut(count) => history.truncate(history.len().saturating_sub(count)),
            HistoryEdit::Change(_) | HistoryEdit::None | HistoryEdit::Clear => {}
        }
        let asked = [history, vec![user(&request.question.to_string())]].concat();
        let (key, model) = CLIENTS[request.client];
        let owner = ClientId::of_key(key);
        let found = past(&asked).and_then(|past| match self.heads.find(&owner, model, &past.hash) {
            HeadMatch::One(session) => Some(session.clone()),
            HeadMatch::Several | HeadMatch::None => None,
        });
        let session = match found {
            Some(session) => {
                let (client, messages, running) = &self.sessions[&session];
                assert_eq!((*client, *running), (request.client, false), "wrong client, or a turn is running");
                assert_eq!(messages, &asked[..end_of_past(&asked).unwrap()], "the session has other messages");
                self.heads.take(&session);
                self.resumed += 1;
                session
            }
            None => SessionId(self.sessions.len().to_string().into()),
        };
        self.sessions.insert(session.clone(), (request.client, asked.clone(), true));
        match request.end {
            RequestEnd::Answers => self.answer(request.client, session, asked, request.answer),
            // The provider has received the request, so that its state matches no client's history.
            RequestEnd::Fails => {
                self.sessions.insert(session, (request.client, vec![user("unknown")], false));
            }
            RequestEnd::Later => self.running.push((request.client, session, asked, request.answer)),
        }
    }

    fn answer(&mut self, client: usize, session: SessionId, asked: Vec<Message>, text: u8) {
        let heads = heads(MessageChain::over(&asked), &answer(&text.to_string()), "");
        self.heads.set(&session, &ClientId::of_key(CLIENTS[client].0), CLIENTS[client].1, heads);
        let messages = [asked, vec![assistant(&text.to_string())]].concat();
        self.histories.push(messages.clone());
        self.sessions.insert(session, (client, messages, false));
    }
}

proptest! {
    #[test]
    fn continues_only_the_session_with_that_history(requests in proptest::collection::vec(request(), 1..40)) {
        let mut model = SessionModel::default();
        for request in &requests {
            model.send(request);
            if request.from % 3 == 0 && let Some((client, session, asked, text)) = model.running.pop() {
                model.answer(client, session, asked, text);
            }
        }
    }

    /// The test above would also pass if no session were ever found.
    #[test]
    fn always_finds_the_session_of_a_client_that_continues_its_own_history(
        turns in proptest::collection::vec((0..3_u8, 0..3_u8), 2..10)
    ) {
        let mut model = SessionModel::default();
        for (turn, (question, answer)) in turns.iter().enumerate() {
            let from = model.histories.len().saturating_sub(1);
            let (edit, end) = (HistoryEdit::None, RequestEnd::Answers);
            model.send(&ClientRequest { client: 0, from, edit, question: *question, answer: *answer, end });
            prop_assert_eq!(model.resumed, turn);
            prop_assert_eq!(model.sessions.len(), 1);
        }
    }
}
