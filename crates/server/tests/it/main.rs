//! The server over real sockets, with a scripted engine.

#[cfg(test)]
mod edge;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod page;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod support;
