//! Calls over real sockets, with a scripted server at the other end.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod limits;
