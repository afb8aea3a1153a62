//! A conversation and what is kept of it: in mind, to be gone on with, and on paper.

use std::path::{Path, PathBuf};

use trunkline_core::conversation::Conversation;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{Surface, Turn};

use super::index::{Entry, Index};
use super::transcript::{Step, Transcript};

pub(crate) struct Talk {
    conversation: Conversation,
    index: Index,
    transcript: Transcript,
    folder: PathBuf,
    model: String,
    /// An answer is awaited.
    open: bool,
    /// How the conversation began.
    title: Option<String>,
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
            folder: folder.to_owned(),
            model: String::new(),
            open: false,
            title: None,
            troubles: Vec::new(),
            index_broken: false,
        }
    }

    /// Goes on with a conversation of an earlier time.
    pub(crate) fn resume(&mut self, model: &str, session: SessionId, title: Option<String>) {
        self.conversation = Conversation::resume(model, session);
        self.title = title;
    }

    pub(crate) fn ask(&mut self, model: &str, text: &str) -> Turn {
        self.title.get_or_insert_with(|| text.to_owned());
        model.clone_into(&mut self.model);
        self.open = true;
        self.write(Step::User { model, text });
        Turn { surface: Surface::Repl, ..self.conversation.ask(model, text) }
    }

    pub(crate) fn hear(&mut self, event: &Event) {
        let written = self.transcript.hear(event);
        self.troubles.extend(written.err());
        self.conversation.hear(event);
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
        self.remember();
    }

    /// What was asked was never begun.
    pub(crate) fn withdraw(&mut self, why: &str) {
        self.write(Step::Failed { category: "refused", message: why });
        self.open = false;
        self.conversation.withdraw();
    }

    pub(super) fn clear(&mut self) {
        self.write(Step::Cleared);
        (self.conversation, self.title) = (Conversation::default(), None);
    }

    pub(super) fn ran(&mut self, command: &str) {
        self.write(Step::Shell { command });
    }

    /// Under which name the conversation can be gone on with.
    pub(super) fn session(&self) -> Option<&SessionId> {
        self.conversation.session()
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
        let entry = Entry::new(&self.folder, &self.model, session, self.title.as_deref().unwrap_or_default());
        if let Err(error) = self.index.add(&entry) {
            self.index_broken = true;
            self.troubles.push(format!("this conversation will not be found by --resume: {error}"));
        }
    }
}
