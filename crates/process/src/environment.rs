//! The environment of a program, in the form in which it is sent to a keeper.
//!
//! All variables are in one buffer. An environment of fifty variables is built from that of its model for every run, and
//! as separate strings it would be most of the allocations of a start.

use std::ffi::{OsStr, OsString};
use std::fmt;

use crate::encoding::{put, take};

/// Variables of a program. A variable that is set again replaces its earlier value.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// Names and values in turn, each with its length before it.
    bytes: Vec<u8>,
    count: usize,
}

impl Environment {
    /// Sets a variable.
    pub fn set(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
        put(&mut self.bytes, name.as_ref());
        put(&mut self.bytes, value.as_ref());
        self.count += 1;
    }

    /// Returns the value of a variable.
    #[must_use]
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        let name = name.as_ref();
        self.iter().filter(|(known, _)| *known == name).last().map(|(_, value)| value)
    }

    /// Returns the variables in the order in which they were set. A name may occur several times; the last one counts.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || Some((take(&mut rest)?, take(&mut rest)?)))
    }

    /// Copies it, with room for this many bytes of further variables.
    #[must_use]
    pub fn clone_with_room(&self, room: usize) -> Self {
        let mut bytes = Vec::with_capacity(self.bytes.len() + room);
        bytes.extend_from_slice(&self.bytes);
        Self { bytes, count: self.count }
    }

    /// The number of entries, and their encoding in a request.
    pub(crate) fn encoded(&self) -> (usize, &[u8]) {
        (self.count, &self.bytes)
    }
}

impl<N: AsRef<OsStr>, V: AsRef<OsStr>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let mut environment = Self::default();
        variables.into_iter().for_each(|(name, value)| environment.set(name, value));
        environment
    }
}

impl From<Vec<(OsString, OsString)>> for Environment {
    fn from(variables: Vec<(OsString, OsString)>) -> Self {
        variables.into_iter().collect()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn last_value_counts_when_a_variable_is_set_twice() {
        let odd = OsStr::from_bytes(b"\xff=");
        let mut environment: Environment = [("A", "1"), ("B", "")].into_iter().collect();
        environment.set("A", "2");
        environment.set("C", odd);
        assert_eq!(environment.get("A"), Some(OsStr::new("2")));
        assert_eq!(environment.get("B"), Some(OsStr::new("")));
        assert_eq!((environment.get("C"), environment.get("D")), (Some(odd), None));
        assert_eq!(environment.iter().count(), 4);
    }
}
