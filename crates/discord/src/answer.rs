//! Answers one message of the inbox: runs the backend, shows the draft, records the answer, and sends it.
//!
//! The answer is recorded before it is sent, so that each message is answered exactly once even if the process is killed. A
//! recorded answer is sent again, except for parts that are already in the channel. Without a recorded answer the backend
//! runs again.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use trunkline_core::turn::{AnswerTiming, Role};

use crate::backend::{BackendRequest, EventResult, Partial, Partials};
use crate::bridge_store::{AnswerProgress, ChannelConversation};
use crate::draft::{Draft, EditPace};
use crate::incoming::IncomingMessage;
use crate::layout::layout;
use crate::rest::{NewMessage, RestError};
use crate::shared::{BridgeShared, Undelivered};
use crate::wire::DiscordMessage;

/// Attempts to answer a message. The message itself may be what ends the process.
const MAX_ATTEMPTS: u32 = 3;

const TOO_MANY_ATTEMPTS: &str = "⚠️ Several attempts to answer this message did not finish. It is not tried again.";

/// Interval of typing notifications, which Discord shows for ten seconds.
const TYPING_INTERVAL: Duration = Duration::from_secs(8);

/// Pages that are searched for the bot's own messages.
const MAX_PAGES: usize = 5;

/// End of the backend's work.
enum AnswerEnd {
    Ran(EventResult),
    /// A user has stopped it.
    Stopped,
    /// The bridge is shutting down.
    Interrupted,
}

/// Answers a message. `stop` is cancelled when a user stops the answer. `None` if the bridge shuts down: the message stays
/// recorded as it is.
pub(crate) async fn answer(
    shared: &BridgeShared,
    incoming: &IncomingMessage,
    mut progress: AnswerProgress,
    stop: &CancellationToken,
) -> Option<()> {
    let task = AnswerTask { shared, incoming };
    let known = if progress.attempts > 0 { task.own_messages().await } else { Vec::new() };
    if progress.draft.is_none() {
        let is_reply = |message: &&DiscordMessage| {
            message.message_reference.as_ref().and_then(|reference| reference.message_id) == Some(incoming.id)
        };
        progress.draft = known.iter().find(is_reply).map(|message| message.id);
    }
    if progress.answer.is_none() {
        task.run_backend(&mut progress, stop).await?;
        shared.store.save_progress(incoming.id, &progress).await?;
    }
    let text = progress.answer.clone()?;
    match task.deliver(&text, &mut progress, &known).await {
        Ok(()) => shared.store.mark_answered(incoming.id, "sent").await,
        Err(Undelivered::Interrupted) => None,
        Err(Undelivered::Refused(error)) => {
            tracing::warn!(channel = %incoming.channel, "cannot send an answer: {error}");
            shared.store.mark_failed(incoming.id, &error.to_string()).await
        }
    }
}

/// The answer to one message.
struct AnswerTask<'a> {
    shared: &'a BridgeShared,
    incoming: &'a IncomingMessage,
}

impl AnswerTask<'_> {
    /// Runs the backend and records its answer, unless the bridge shuts down. The attempt is recorded first.
    async fn run_backend(&self, progress: &mut AnswerProgress, stop: &CancellationToken) -> Option<()> {
        let Self { shared, incoming } = self;
        if progress.attempts >= MAX_ATTEMPTS {
            progress.answer = Some(TOO_MANY_ATTEMPTS.to_owned());
            return Some(());
        }
        progress.attempts += 1;
        shared.store.save_progress(incoming.id, progress).await?;

        let conversation = shared.store.conversation(incoming.channel).await?;
        let backend = conversation.model.as_ref().and_then(|name| shared.backends.named(name));
        let backend = backend.unwrap_or_else(|| shared.backends.first());
        let fetched = shared.files.fetch(incoming, backend.takes_images()).await;
        let prompt = [incoming.text.as_str(), &fetched.list].join("\n\n").trim().to_owned();
        let request = BackendRequest {
            prompt: &prompt,
            system_prompt: &shared.settings.system_prompt,
            session: conversation.stored.session.as_ref(),
            history: &conversation.stored.history,
            images: fetched.images,
        };
        let (draft_sender, draft_receiver) = watch::channel(Draft::default());
        let work = async move {
            let mut apply = |partial: Partial<'_>| draft_sender.send_modify(|draft| draft.apply(partial));
            let partials: Option<Partials<'_>> = match shared.settings.shown {
                AnswerTiming::AsItComes => Some(&mut apply),
                AnswerTiming::AtTheEnd => None,
            };
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => AnswerEnd::Stopped,
                () = shared.interrupted.cancelled() => AnswerEnd::Interrupted,
                result = backend.execute(request, partials) => AnswerEnd::Ran(result),
            };
            let so_far = draft_sender.borrow().text().to_owned();
            (outcome, so_far)
        };
        let ((outcome, so_far), ()) = tokio::join!(work, self.show(draft_receiver, progress));
        let answer = match outcome {
            AnswerEnd::Interrupted => {
                progress.attempts -= 1;
                return Some(());
            }
            AnswerEnd::Stopped => format!("{so_far}\n-# ⏹️ Stopped."),
            AnswerEnd::Ran(EventResult { is_error: true, ref response_text, .. }) => {
                failure(backend.name(), response_text.as_deref().unwrap_or("no reason given"))
            }
            AnswerEnd::Ran(EventResult { ref response_text, .. }) => response_text.clone().unwrap_or_default(),
        };
        // The answer is recorded before the conversation: running the backend twice is worse than a gap in the history.
        progress.answer = Some(answer);
        shared.store.save_progress(incoming.id, progress).await?;
        self.update_conversation(&conversation, &prompt, &outcome, &so_far).await
    }

    /// Adds the turn to the conversation, unless a new conversation has started in the meantime.
    async fn update_conversation(
        &self,
        before: &ChannelConversation,
        prompt: &str,
        outcome: &AnswerEnd,
        so_far: &str,
    ) -> Option<()> {
        let change = |conversation: &mut ChannelConversation| {
            if conversation.stored.epoch != before.stored.epoch {
                return;
            }
            conversation.stored.guild = self.incoming.guild;
            let answer = match outcome {
                AnswerEnd::Ran(result) => {
                    conversation.stored.session.clone_from(&result.session_id);
                    result.response_text.as_deref().filter(|_| !result.is_error)
                }
                AnswerEnd::Stopped => Some(so_far).filter(|text| !text.is_empty()).or(Some("[interrupted]")),
                AnswerEnd::Interrupted => None,
            };
            if let Some(answer) = answer {
                conversation.add(Role::User, prompt);
                conversation.add(Role::Assistant, answer);
            }
        };
        self.shared.store.update_conversation(self.incoming.channel, change).await
    }

    /// Shows the draft until its sender is dropped. A call in flight is completed, because the id of a posted message must
    /// be known.
    async fn show(&self, mut draft: watch::Receiver<Draft>, progress: &mut AnswerProgress) {
        let typing = async {
            loop {
                if let Err(error) = self.shared.rest.typing(self.incoming.channel).await {
                    tracing::debug!("{error}");
                }
                sleep(TYPING_INTERVAL).await;
            }
        };
        // Saved in the background. If that fails, the draft is found by the message it replies to.
        let (post, mut posted) = watch::channel(None);
        let saving = async {
            if let Ok(posted) = posted.wait_for(Option::is_some).await.map(|posted| posted.clone())
                && let Some(progress) = posted
            {
                self.shared.store.save_progress(self.incoming.id, &progress).await;
            }
            std::future::pending().await
        };
        let mut end = draft.clone();
        let editing = async {
            let mut pace = EditPace::new(self.shared.settings.pace);
            let mut shown = None;
            loop {
                tokio::select! {
                    () = sleep(pace.interval()) => {}
                    _closed = end.wait_for(|_| false) => return,
                }
                let now = draft.borrow_and_update().shown();
                if now.is_none() || now == shown {
                    if draft.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
                let started = Instant::now();
                match self.post_draft(now.as_deref().unwrap_or_default(), progress).await {
                    Ok(()) => {
                        pace.succeeded(started.elapsed());
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
            () = editing => {}
            () = typing => {}
            () = saving => {}
        }
    }

    /// Edits the draft message, or posts it if there is none yet.
    async fn post_draft(&self, content: &str, progress: &mut AnswerProgress) -> Result<(), RestError> {
        let (rest, channel) = (&self.shared.rest, self.incoming.channel);
        if let Some(draft) = progress.draft {
            return rest.edit(channel, draft, content).await;
        }
        progress.draft = Some(rest.post(channel, self.reply(content, &self.nonce(0))).await?);
        Ok(())
    }

    /// Sends the whole answer: its first part replaces the draft, further parts follow as new messages.
    async fn deliver(
        &self,
        text: &str,
        progress: &mut AnswerProgress,
        known: &[DiscordMessage],
    ) -> Result<(), Undelivered> {
        let (rest, channel) = (&self.shared.rest, self.incoming.channel);
        for (index, post) in layout(text).iter().enumerate() {
            let nonce = self.nonce(index);
            if index > 0 {
                // Already sent by a process that was killed before it could record that.
                if known.iter().any(|message| message.content.trim() == post.content.trim()) {
                    continue;
                }
                let message = NewMessage {
                    content: &post.content,
                    file: post.file.as_ref(),
                    replies_to: None,
                    nonce: Some(&nonce),
                };
                self.shared.retry(|| rest.post(channel, message)).await?;
                continue;
            }
            if let Some(draft) = progress.draft {
                match self.shared.retry(|| rest.edit(channel, draft, &post.content)).await {
                    // The draft was deleted by a user.
                    Err(Undelivered::Refused(error)) if error.is_missing() => {}
                    edited => {
                        edited?;
                        continue;
                    }
                }
            }
            let second_nonce = format!("{nonce}b");
            let nonce = if progress.draft.is_some() { &second_nonce } else { &nonce };
            progress.draft = Some(self.shared.retry(|| rest.post(channel, self.reply(&post.content, nonce))).await?);
            self.shared.store.save_progress(self.incoming.id, progress).await.ok_or(Undelivered::Interrupted)?;
        }
        Ok(())
    }

    /// The first message of an answer, a reply.
    fn reply<'a>(&self, content: &'a str, nonce: &'a str) -> NewMessage<'a> {
        NewMessage { content, file: None, replies_to: Some(self.incoming.id), nonce: Some(nonce) }
    }

    fn nonce(&self, index: usize) -> String {
        format!("{}.{index}", self.incoming.id)
    }

    /// The bot's own messages in the channel since the message.
    async fn own_messages(&self) -> Vec<DiscordMessage> {
        let me = self.shared.me.get().copied();
        let (mut own, mut after) = (Vec::new(), self.incoming.id);
        for _page in 0..MAX_PAGES {
            let read = || self.shared.rest.messages(self.incoming.channel, Some(after));
            let Ok(page) = self.shared.retry(read).await else { break };
            let Some(last) = page.last() else { break };
            after = last.id;
            own.extend(page.into_iter().filter(|message| Some(message.author.id) == me));
        }
        own
    }
}

/// Text of a failure for users: a short reason, and what to do.
fn failure(backend: &str, text: &str) -> String {
    let text = text.trim().replace("```", "'''");
    let short: String = text.chars().take(1200).collect();
    let more = if short.len() < text.len() { " …" } else { "" };
    format!("⚠️ {backend} failed: {short}{more}\n-# Try again, or use /new to start a new conversation.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_text_is_short_and_says_what_to_do() {
        let text = failure("m", "Query timed out");
        assert!(text.starts_with("⚠️ m failed: Query timed out\n") && text.contains("/new"), "{text}");
        let long = failure("m", &"x".repeat(9000));
        assert!(long.chars().count() < 1400 && long.contains(" …\n"));
        assert!(!failure("m", "```sh\nls").contains("```"));
    }
}
