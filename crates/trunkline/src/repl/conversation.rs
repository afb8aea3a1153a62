//! A conversation of the REPL: its messages, its entry in the index, and its transcript.

use std::path::{Path, PathBuf};

use trunkline_core::conversation::Conversation;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::failure::Category;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{Surface, Turn};

use super::index::{ConversationIndex, SavedConversation};
use super::recall::recall;
use super::transcript::{self, REFUSED, ReplTranscript, TranscriptStep};

/// Transcript files of one conversation that are listed in the index.
const MAX_TRANSCRIPTS: usize = 100;

pub(crate) struct ReplConversation {
    conversation: Conversation,
    index: ConversationIndex,
    transcript: ReplTranscript,
    transcripts: PathBuf,
    folder: PathBuf,
    /// The earlier conversation that this one continues.
    earlier: Option<SavedConversation>,
    /// Session that was resumed, until that is written to the transcript.
    resumed: Option<SessionId>,
    model: String,
    /// A turn is in flight.
    open: bool,
    /// At least one event of it arrived.
    begun: bool,
    /// The first message.
    title: Option<String>,
    /// The session that `--resume` will find.
    indexed: Option<SessionId>,
    /// Problems with the index or the transcript that were not shown yet.
    problems: Vec<String>,
    /// Writing the index failed, and that was reported.
    index_broken: bool,
}

impl ReplConversation {
    pub(crate) fn new(state: &Path, folder: &Path, secrets: Secrets) -> Self {
        Self {
            conversation: Conversation::default(),
            index: ConversationIndex::new(state),
            transcript: ReplTranscript::new(state, secrets),
            transcripts: transcript::folder(state),
            folder: folder.to_owned(),
            earlier: None,
            resumed: None,
            model: String::new(),
            open: false,
            begun: false,
            title: None,
            indexed: None,
            problems: Vec::new(),
            index_broken: false,
        }
    }

    /// Continues an earlier conversation. Another model than the one that had it gets the messages as text. Returns a note
    /// for the user about that.
    pub(crate) fn resume(&mut self, entry: SavedConversation, model: &str) -> Option<String> {
        let messages = recall(entry.transcripts.iter().map(|name| self.transcripts.join(name)), &entry.session);
        let note = (entry.model != model).then(|| {
            let known = if messages.is_empty() { "does not know" } else { "gets the text of" };
            format!("{model} {known} the earlier conversation: the session belongs to {}.", entry.model)
        });
        let conversation = match note {
            None => Conversation::resume(model, entry.session.clone()),
            Some(_) => Conversation::default(),
        };
        self.conversation = conversation.told(messages);
        self.title = Some(entry.title.clone());
        (self.indexed, self.resumed) = (Some(entry.session.clone()), Some(entry.session.clone()));
        self.earlier = Some(entry);
        note
    }

    /// Continues a session that is not in the index. The model may know it from another surface.
    pub(crate) fn resume_unknown(&mut self, model: &str, session: SessionId) {
        self.conversation = Conversation::resume(model, session);
    }

    pub(crate) fn ask(&mut self, model: &str, text: &str) -> Turn {
        self.title.get_or_insert_with(|| text.to_owned());
        model.clone_into(&mut self.model);
        (self.open, self.begun) = (true, false);
        if let Some(session) = self.resumed.take() {
            self.write(TranscriptStep::Resumed { session: &session.0 });
        }
        self.write(TranscriptStep::User { model, text });
        Turn { surface: Surface::Repl, ..self.conversation.ask(model, text) }
    }

    pub(crate) fn record(&mut self, event: &Event) {
        let written = self.transcript.add_event(event);
        self.problems.extend(written.err());
        self.conversation.hear(event);
        self.begun = true;
        self.open &= !matches!(event, Event::Finished(_) | Event::Failed(_));
        if matches!(event, Event::Finished(_)) {
            self.update_index();
        }
    }

    /// Ends the turn in flight, if there is one.
    pub(crate) fn interrupt(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let written = self.transcript.flush_text();
        self.problems.extend(written.err());
        self.write(TranscriptStep::Interrupted);
        self.conversation.interrupt();
        // Before the first event the session may not exist yet.
        if self.begun {
            self.update_index();
        }
    }

    /// Records that the turn was not started.
    pub(crate) fn withdraw(&mut self, category: Category, why: &str) {
        self.write(TranscriptStep::Failed { category: REFUSED, message: why });
        self.open = false;
        self.conversation.withdraw(category);
    }

    pub(super) fn clear(&mut self) {
        self.write(TranscriptStep::Cleared);
        (self.conversation, self.title) = (Conversation::default(), None);
        (self.earlier, self.resumed) = (None, None);
    }

    /// Records a shell command of the user.
    pub(super) fn ran(&mut self, command: &str) {
        self.write(TranscriptStep::Shell { command });
    }

    /// Whether the model has a session of the conversation.
    pub(super) fn has_session(&self) -> bool {
        self.conversation.session().is_some()
    }

    /// Session id with which `--resume` finds the conversation.
    pub(super) fn session(&self) -> Option<&SessionId> {
        self.conversation.session().filter(|&session| self.indexed.as_ref() == Some(session))
    }

    /// Conversations of this folder, newest first.
    pub(super) fn sessions(&self) -> Vec<SavedConversation> {
        self.index.of_folder(&self.folder)
    }

    /// Takes the problems with the index or the transcript, to show each once.
    pub(crate) fn take_problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    fn write(&mut self, step: TranscriptStep<'_>) {
        let written = self.transcript.add(step);
        self.problems.extend(written.err());
    }

    fn update_index(&mut self) {
        let Some(session) = self.conversation.session().filter(|_| !self.index_broken) else { return };
        // A conversation belongs to the folder where it began, wherever it is continued.
        let folder = self.earlier.as_ref().map_or(&self.folder, |entry| &entry.folder);
        let mut entry = SavedConversation::new(folder, &self.model, session, self.title.as_deref().unwrap_or_default());
        entry.transcripts = self.earlier.as_ref().map(|entry| entry.transcripts.clone()).unwrap_or_default();
        entry.transcripts.extend(self.transcript.name().map(str::to_owned));
        entry.transcripts.drain(..entry.transcripts.len().saturating_sub(MAX_TRANSCRIPTS));
        match self.index.add(&entry) {
            Ok(()) => self.indexed = Some(entry.session),
            Err(error) => {
                self.index_broken = true;
                self.problems.push(format!("this conversation will not be found by --resume: {error}"));
            }
        }
    }
}
