//! What the targets share: the first bytes of an input choose, the rest is what a stranger sent.

/// An input as its parts.
pub struct Input<'a> {
    /// Which of several things is tried.
    pub choice: usize,
    /// How the rest is cut into pieces.
    cut: usize,
    pub bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// None for an input that is too short to choose anything.
    #[must_use]
    pub fn read(data: &'a [u8]) -> Option<Self> {
        let [choice, cut, bytes @ ..] = data else { return None };
        Some(Self { choice: usize::from(*choice), cut: usize::from(*cut), bytes })
    }

    /// The bytes in pieces of one size, then what is left.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        self.bytes.chunks(self.cut + 1)
    }
}
