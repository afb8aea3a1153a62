//! One message, from the inbox to its answer on Discord: asked of the backend, shown as it grows, written down, sent.
//!
//! Written down before it is sent, so that whatever ends this process, the message is answered once: an answer that was
//! written is sent again and recognised where it already stands; one that was not is asked for again.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use trunkline_core::turn::{Role, Shown};

use crate::backend::{Ask, EventResult, Partial, Partials};
use crate::draft::{Draft, Pace};
use crate::incoming::Incoming;
use crate::layout::layout;
use crate::ledger::{Progress, Talk};
use crate::rest::{NewMessage, RestError};
use crate::shared::{Shared, Unsent};
use crate::wire::Message;

/// A message that was begun so often, and never came to an end, is given up: it may be what ends us.
const MOST_ATTEMPTS: u32 = 3;

const GIVEN_UP: &str = "⚠️ This message was begun several times and never came to an end. It is left now.";

/// Discord shows that we type for ten seconds.
const TYPING: Duration = Duration::from_secs(8);

/// How far back our own messages are looked for, in pages.
const PAGES: usize = 5;

enum Outcome {
    Ran(EventResult),
    Stopped,
    Interrupted,
}

/// Answers a message. `stop` is the user's wish to hear no more. None: we are to end, and it stays as it is on record.
pub(crate) async fn answer(
    shared: &Shared,
    incoming: &Incoming,
    mut progress: Progress,
    stop: &CancellationToken,
) -> Option<()> {
    let job = Job { shared, incoming };
    let known = if progress.attempts > 0 { job.own_messages().await } else { Vec::new() };
    if progress.draft.is_none() {
        let is_reply = |message: &&Message| {
            message.message_reference.as_ref().and_then(|reference| reference.message_id) == Some(incoming.id)
        };
        progress.draft = known.iter().find(is_reply).map(|message| message.id);
    }
    if progress.answer.is_none() {
        job.ask(&mut progress, stop).await?;
        shared.ledger.progress(incoming.id, &progress).await?;
    }
    let text = progress.answer.clone()?;
    match job.deliver(&text, &mut progress, &known).await {
        Ok(()) => shared.ledger.answered(incoming.id, "sent").await,
        Err(Unsent::Interrupted) => None,
        Err(Unsent::Refused(error)) => {
            tracing::warn!(channel = %incoming.channel, "an answer was not sent: {error}");
            shared.ledger.failed(incoming.id, &error.to_string()).await
        }
    }
}

struct Job<'a> {
    shared: &'a Shared,
    incoming: &'a Incoming,
}

impl Job<'_> {
    /// Asks the backend, and writes down what is to be said; nothing if we are to end. That it is asked is on record first.
    async fn ask(&self, progress: &mut Progress, stop: &CancellationToken) -> Option<()> {
        let Self { shared, incoming } = self;
        if progress.attempts >= MOST_ATTEMPTS {
            progress.answer = Some(GIVEN_UP.to_owned());
            return Some(());
        }
        progress.attempts += 1;
        shared.ledger.progress(incoming.id, progress).await?;

        let talk = shared.ledger.talk(incoming.channel).await?;
        let backend = talk.model.as_ref().and_then(|name| shared.backends.named(name));
        let backend = backend.unwrap_or_else(|| shared.backends.first());
        let given = shared.files.fetch(incoming, backend.takes_images()).await;
        let prompt = [incoming.text.as_str(), &given.told].join("\n\n").trim().to_owned();
        let ask = Ask {
            prompt: &prompt,
            system_prompt: &shared.settings.system_prompt,
            session: talk.kept.session.as_ref(),
            history: &talk.kept.history,
            images: given.images,
        };
        let (grows, grown) = watch::channel(Draft::default());
        let work = async move {
            let mut hear = |partial: Partial<'_>| grows.send_modify(|draft| draft.hear(partial));
            let partials: Option<Partials<'_>> = match shared.settings.shown {
                Shown::AsItComes => Some(&mut hear),
                Shown::AtTheEnd => None,
            };
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => Outcome::Stopped,
                () = shared.interrupted.cancelled() => Outcome::Interrupted,
                result = backend.execute(ask, partials) => Outcome::Ran(result),
            };
            let so_far = grows.borrow().so_far().to_owned();
            (outcome, so_far)
        };
        let ((outcome, so_far), ()) = tokio::join!(work, self.show(grown, progress));
        let said = match outcome {
            Outcome::Interrupted => {
                progress.attempts -= 1;
                return Some(());
            }
            Outcome::Stopped => format!("{so_far}\n-# ⏹️ Stopped."),
            Outcome::Ran(EventResult { is_error: true, ref response_text, .. }) => {
                failure(backend.name(), response_text.as_deref().unwrap_or("no reason given"))
            }
            Outcome::Ran(EventResult { ref response_text, .. }) => response_text.clone().unwrap_or_default(),
        };
        // First what is to be said: to ask once more would be worse than to forget.
        progress.answer = Some(said);
        shared.ledger.progress(incoming.id, progress).await?;
        self.remember(&talk, &prompt, &outcome, &so_far).await
    }

    /// Keeps what was said, unless another conversation has begun meanwhile.
    async fn remember(&self, before: &Talk, prompt: &str, outcome: &Outcome, so_far: &str) -> Option<()> {
        let change = |talk: &mut Talk| {
            if talk.kept.epoch != before.kept.epoch {
                return;
            }
            talk.kept.guild = self.incoming.guild;
            let answer = match outcome {
                Outcome::Ran(result) => {
                    talk.kept.session.clone_from(&result.session_id);
                    result.response_text.as_deref().filter(|_| !result.is_error)
                }
                Outcome::Stopped => Some(so_far).filter(|text| !text.is_empty()).or(Some("[interrupted]")),
                Outcome::Interrupted => None,
            };
            if let Some(answer) = answer {
                talk.say(Role::User, prompt);
                talk.say(Role::Assistant, answer);
            }
        };
        self.shared.ledger.change_talk(self.incoming.channel, change).await
    }

    /// Shows the answer as it grows, until it grows no more. A call that is on its way is waited for: a message that
    /// was posted must be known.
    async fn show(&self, mut grown: watch::Receiver<Draft>, progress: &mut Progress) {
        let typing = async {
            loop {
                if let Err(error) = self.shared.rest.typing(self.incoming.channel).await {
                    tracing::debug!("{error}");
                }
                sleep(TYPING).await;
            }
        };
        // Nobody waits for it: should it not be written, the draft is found by what it replies to.
        let (post, mut posted) = watch::channel(None);
        let noting = async {
            if let Ok(posted) = posted.wait_for(Option::is_some).await.map(|posted| posted.clone())
                && let Some(progress) = posted
            {
                self.shared.ledger.progress(self.incoming.id, &progress).await;
            }
            std::future::pending().await
        };
        let mut end = grown.clone();
        let growing = async {
            let mut pace = Pace::new(self.shared.settings.pace);
            let mut shown = None;
            loop {
                tokio::select! {
                    () = sleep(pace.wait()) => {}
                    _closed = end.wait_for(|_| false) => return,
                }
                let now = grown.borrow_and_update().shown();
                if now.is_none() || now == shown {
                    if grown.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
                let began = Instant::now();
                match self.draw(now.as_deref().unwrap_or_default(), progress).await {
                    Ok(()) => {
                        pace.took(began.elapsed());
                        post.send_if_modified(|posted| posted.is_none() && posted.replace(progress.clone()).is_none());
                    }
                    Err(error) => {
                        tracing::debug!("{error}");
                        pace.failed();
                    }
                }
                shown = now;
            }
        };
        tokio::select! {
            () = growing => {}
            () = typing => {}
            () = noting => {}
        }
    }

    async fn draw(&self, content: &str, progress: &mut Progress) -> Result<(), RestError> {
        let (rest, channel) = (&self.shared.rest, self.incoming.channel);
        if let Some(draft) = progress.draft {
            return rest.edit(channel, draft, content).await;
        }
        progress.draft = Some(rest.post(channel, self.first(content, &self.nonce(0))).await?);
        Ok(())
    }

    /// Sends the whole answer: into the message that showed it grow, and what does not fit, behind it.
    async fn deliver(&self, text: &str, progress: &mut Progress, known: &[Message]) -> Result<(), Unsent> {
        let (rest, channel) = (&self.shared.rest, self.incoming.channel);
        for (index, post) in layout(text).iter().enumerate() {
            let nonce = self.nonce(index);
            if index > 0 {
                // Sent already, by a process that did not live to note it.
                if known.iter().any(|message| message.content.trim() == post.content.trim()) {
                    continue;
                }
                let more = NewMessage {
                    content: &post.content,
                    file: post.file.as_ref(),
                    replies_to: None,
                    nonce: Some(&nonce),
                };
                self.shared.persist(|| rest.post(channel, more)).await?;
                continue;
            }
            if let Some(draft) = progress.draft {
                match self.shared.persist(|| rest.edit(channel, draft, &post.content)).await {
                    // Somebody removed it.
                    Err(Unsent::Refused(error)) if error.is_missing() => {}
                    edited => {
                        edited?;
                        continue;
                    }
                }
            }
            let again = format!("{nonce}b");
            let nonce = if progress.draft.is_some() { &again } else { &nonce };
            progress.draft = Some(self.shared.persist(|| rest.post(channel, self.first(&post.content, nonce))).await?);
            self.shared.ledger.progress(self.incoming.id, progress).await.ok_or(Unsent::Interrupted)?;
        }
        Ok(())
    }

    fn first<'a>(&self, content: &'a str, nonce: &'a str) -> NewMessage<'a> {
        NewMessage { content, file: None, replies_to: Some(self.incoming.id), nonce: Some(nonce) }
    }

    fn nonce(&self, index: usize) -> String {
        format!("{}.{index}", self.incoming.id)
    }

    /// What we said in the channel since the message.
    async fn own_messages(&self) -> Vec<Message> {
        let me = self.shared.me.get().copied();
        let (mut own, mut after) = (Vec::new(), self.incoming.id);
        for _page in 0..PAGES {
            let read = || self.shared.rest.messages(self.incoming.channel, Some(after));
            let Ok(page) = self.shared.persist(read).await else { break };
            let Some(last) = page.last() else { break };
            after = last.id;
            own.extend(page.into_iter().filter(|message| Some(message.author.id) == me));
        }
        own
    }
}

/// A failure, told to people: what was said about it, short, and what to do.
fn failure(backend: &str, text: &str) -> String {
    let text = text.trim().replace("```", "'''");
    let short: String = text.chars().take(1200).collect();
    let more = if short.len() < text.len() { " …" } else { "" };
    format!("⚠️ {backend} failed: {short}{more}\n-# Ask again, or use /new to begin another conversation.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_short_and_says_what_to_do() {
        let told = failure("m", "Query timed out");
        assert!(told.starts_with("⚠️ m failed: Query timed out\n") && told.contains("/new"), "{told}");
        let long = failure("m", &"x".repeat(9000));
        assert!(long.chars().count() < 1400 && long.contains(" …\n"));
        assert!(!failure("m", "```sh\nls").contains("```"));
    }
}
