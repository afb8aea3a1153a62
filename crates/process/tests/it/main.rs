//! Real keepers, real processes: small shell scripts play the CLIs.

#[cfg(test)] // all of this is; it says so once more for clippy's `allow-unwrap-in-tests`
mod confinement;
#[cfg(test)]
mod spool;
#[cfg(test)]
mod stage;

mod ending;
mod fault;
mod limits;
mod pipes;
mod start;
