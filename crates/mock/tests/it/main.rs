//! Tests of the mock over real sockets: routes, streams and injected faults.

#![cfg(test)] // redundant for an integration test, but clippy's `allow-unwrap-in-tests` needs it

mod faults;
mod mock;
mod routes;
