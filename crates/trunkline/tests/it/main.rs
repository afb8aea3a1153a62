//! The real binary over real sockets: small shell scripts play the CLIs, with the bytes that real ones printed.

// All of this is for tests; the attribute says so once more for clippy's `allow-unwrap-in-tests`.
#[cfg(test)]
mod http;
#[cfg(test)]
mod line;
#[cfg(test)]
mod look;

#[cfg(test)]
mod providers;
#[cfg(test)]
mod prompt;
