//! Input format of the targets: the first two bytes select what is tested, the rest is the untrusted data.

/// A parsed input.
pub struct FuzzInput<'a> {
    /// Selects what is tested.
    pub choice: usize,
    /// Size of the pieces, minus one.
    cut: usize,
    pub bytes: &'a [u8],
}

impl<'a> FuzzInput<'a> {
    /// Parses an input; `None` if it is shorter than two bytes.
    #[must_use]
    pub fn read(data: &'a [u8]) -> Option<Self> {
        let [choice, cut, bytes @ ..] = data else { return None };
        Some(Self { choice: usize::from(*choice), cut: usize::from(*cut), bytes })
    }

    /// The data in pieces of equal size; the last one may be shorter.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        self.bytes.chunks(self.cut + 1)
    }
}
