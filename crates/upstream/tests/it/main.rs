//! Tests calls over real sockets, against a scripted server.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod limits;
