//! The arguments of a program, in the form in which they are sent to a keeper.
//!
//! All arguments are in one buffer, like the variables of an [`Environment`](crate::Environment): as separate strings they
//! would be many allocations for each start.

use std::ffi::OsStr;
use std::fmt;

use crate::encoding::{put, take};

/// Room for the arguments of a usual program: they are then allocated once.
const USUAL_BYTES: usize = 1024;

/// Arguments of a program, without its name.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ArgumentList {
    /// The arguments, each with its length before it.
    bytes: Vec<u8>,
    count: usize,
}

impl ArgumentList {
    /// Adds an argument.
    pub fn push(&mut self, argument: impl AsRef<OsStr>) {
        put(&mut self.bytes, argument.as_ref());
        self.count += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = &OsStr> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || take(&mut rest))
    }

    /// The number of arguments, and their encoding in a request.
    pub(crate) fn encoded(&self) -> (usize, &[u8]) {
        (self.count, &self.bytes)
    }
}

impl<A: AsRef<OsStr>> FromIterator<A> for ArgumentList {
    fn from_iter<I: IntoIterator<Item = A>>(arguments: I) -> Self {
        let mut list = Self { bytes: Vec::with_capacity(USUAL_BYTES), count: 0 };
        list.extend(arguments);
        list
    }
}

impl<A: AsRef<OsStr>> Extend<A> for ArgumentList {
    fn extend<I: IntoIterator<Item = A>>(&mut self, arguments: I) {
        arguments.into_iter().for_each(|argument| self.push(argument));
    }
}

impl fmt::Debug for ArgumentList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
