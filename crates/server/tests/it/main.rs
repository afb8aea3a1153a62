//! The server over real sockets, with scripted runs behind the door.

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
