//! Reasoning in answers: in most APIs a client has to ask for it.

/// Whether the reasoning is a part of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reasoning {
    Shown,
    Hidden,
}
