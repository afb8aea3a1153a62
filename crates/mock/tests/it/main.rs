//! The mock over real sockets: routes, streams, and everything that goes wrong on purpose.

#![cfg(test)] // all of this is; it says so once more for clippy's `allow-unwrap-in-tests`

mod faults;
mod mock;
mod routes;
