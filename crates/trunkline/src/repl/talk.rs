//! A conversation and what is kept of it: in mind, to be gone on with, and on paper.

use std::path::{Path, PathBuf};

use trunkline_core::conversation::Conversation;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::failure::Category;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{Surface, Turn};

use super::index::{Entry, Index};
use super::recall::recall;
use super::transcript::{self, REFUSED, Step, Transcript};

/// How many files of one conversation are named in the index.
const MOST_TRANSCRIPTS: usize = 100;

pub(crate) struct Talk {
    conversation: Conversation,
    index: Index,
    transcript: Transcript,
    transcripts: PathBuf,
    folder: PathBuf,
    /// The conversation of an earlier time that this one goes on with.
    earlier: Option<Entry>,
    /// It is still to be written down that it does.
    resumed: Option<SessionId>,
    model: String,
    /// An answer is awaited.
    open: bool,
    /// Something was heard of it.
    begun: bool,
    /// How the conversation began.
    title: Option<String>,
    /// The session that `--resume` will find.
    kept: Option<SessionId>,
    /// What its keeping met with, to be told.
    troubles: Vec<String>,
    /// The index failed, and that was said.
    index_broken: bool,
}

impl Talk {
    pub(crate) fn new(state: &Path, folder: &Path, secrets: Secrets) -> Self {
        Self {
            conversation: Conversation::default(),
            index: Index::new(state),
            transcript: Transcript::new(state, secrets),
            transcripts: transcript::folder(state),
            folder: folder.to_owned(),
            earlier: None,
            resumed: None,
            model: String::new(),
            open: false,
            begun: false,
            title: None,
            kept: None,
            troubles: Vec::new(),
            index_broken: false,
        }
    }

    /// Goes on with a conversation of an earlier time. A model that did not have it is told what was said; what there is
    /// to say about that.
    pub(crate) fn resume(&mut self, entry: Entry, model: &str) -> Option<String> {
        let said = recall(entry.transcripts.iter().map(|name| self.transcripts.join(name)), &entry.session);
        let note = (entry.model != model).then(|| {
            let known = if said.is_empty() { "does not know what was said" } else { "is told what was said" };
            format!("{model} {known}: the session itself is one of {}.", entry.model)
        });
        let conversation = match note {
            None => Conversation::resume(model, entry.session.clone()),
            Some(_) => Conversation::default(),
        };
        self.conversation = conversation.told(said);
        self.title = Some(entry.title.clone());
        (self.kept, self.resumed) = (Some(entry.session.clone()), Some(entry.session.clone()));
        self.earlier = Some(entry);
        note
    }

    /// Goes on with a session that only the model may know, from another surface.
    pub(crate) fn resume_unknown(&mut self, model: &str, session: SessionId) {
        self.conversation = Conversation::resume(model, session);
    }

    pub(crate) fn ask(&mut self, model: &str, text: &str) -> Turn {
        self.title.get_or_insert_with(|| text.to_owned());
        model.clone_into(&mut self.model);
        (self.open, self.begun) = (true, false);
        if let Some(session) = self.resumed.take() {
            self.write(Step::Resumed { session: &session.0 });
        }
        self.write(Step::User { model, text });
        Turn { surface: Surface::Repl, ..self.conversation.ask(model, text) }
    }

    pub(crate) fn hear(&mut self, event: &Event) {
        let written = self.transcript.hear(event);
        self.troubles.extend(written.err());
        self.conversation.hear(event);
        self.begun = true;
        self.open &= !matches!(event, Event::Finished(_) | Event::Failed(_));
        if matches!(event, Event::Finished(_)) {
            self.remember();
        }
    }

    /// The user has heard enough of the answer; nothing happens where it is complete.
    pub(crate) fn interrupt(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let written = self.transcript.said();
        self.troubles.extend(written.err());
        self.write(Step::Interrupted);
        self.conversation.interrupt();
        // A session that was only asked for may not be there.
        if self.begun {
            self.remember();
        }
    }

    /// What was asked was never begun.
    pub(crate) fn withdraw(&mut self, category: Category, why: &str) {
        self.write(Step::Failed { category: REFUSED, message: why });
        self.open = false;
        self.conversation.withdraw(category);
    }

    pub(super) fn clear(&mut self) {
        self.write(Step::Cleared);
        (self.conversation, self.title) = (Conversation::default(), None);
        (self.earlier, self.resumed) = (None, None);
    }

    pub(super) fn ran(&mut self, command: &str) {
        self.write(Step::Shell { command });
    }

    /// Whether the model remembers what was said.
    pub(super) fn is_remembered(&self) -> bool {
        self.conversation.session().is_some()
    }

    /// Under which name `--resume` finds the conversation.
    pub(super) fn session(&self) -> Option<&SessionId> {
        self.conversation.session().filter(|&session| self.kept.as_ref() == Some(session))
    }

    /// The conversations of this folder, the newest first.
    pub(super) fn sessions(&self) -> Vec<Entry> {
        self.index.of_folder(&self.folder)
    }

    /// What went wrong with keeping it, once.
    pub(crate) fn troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    fn write(&mut self, step: Step<'_>) {
        let written = self.transcript.add(step);
        self.troubles.extend(written.err());
    }

    fn remember(&mut self) {
        let Some(session) = self.conversation.session().filter(|_| !self.index_broken) else { return };
        // A conversation stays where it was begun, wherever it is gone on with.
        let folder = self.earlier.as_ref().map_or(&self.folder, |entry| &entry.folder);
        let mut entry = Entry::new(folder, &self.model, session, self.title.as_deref().unwrap_or_default());
        entry.transcripts = self.earlier.as_ref().map(|entry| entry.transcripts.clone()).unwrap_or_default();
        entry.transcripts.extend(self.transcript.name().map(str::to_owned));
        entry.transcripts.drain(..entry.transcripts.len().saturating_sub(MOST_TRANSCRIPTS));
        match self.index.add(&entry) {
            Ok(()) => self.kept = Some(entry.session),
            Err(error) => {
                self.index_broken = true;
                self.troubles.push(format!("this conversation will not be found by --resume: {error}"));
            }
        }
    }
}
