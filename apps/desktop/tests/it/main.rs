//! End-to-end tests of the window: the real program on an X server of its own, with a window manager, a keyboard, a
//! clipboard and the real gateway. `cargo xtask desktop --test` installs the tools they need and runs them.

#![cfg(test)] // redundant for an integration test, but clippy's `allow-unwrap-in-tests` needs it

mod desktop;
mod fake_gateway;
mod gateway;
mod gateway_errors;
mod package;
mod page;
mod page_isolation;
mod screen;
mod shutdown;
