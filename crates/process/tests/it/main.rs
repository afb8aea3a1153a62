//! Tests with real keepers and real processes: small shell scripts stand in for the CLIs.

#[cfg(test)] // redundant here, but clippy's `allow-unwrap-in-tests` needs it
mod confinement;
#[cfg(test)]
mod keeper_test;
#[cfg(test)]
mod spool;

mod ending;
mod fault;
mod limits;
mod pipes;
mod start;
