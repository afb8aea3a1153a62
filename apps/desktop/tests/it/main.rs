//! The window as its users have it: the real program on an X server of its own, with a window manager, a keyboard and a
//! clipboard, and the real gateway behind it. `cargo xtask desktop --test` installs what that needs and runs it.

#![cfg(test)] // all of this is; it says so once more for clippy's `allow-unwrap-in-tests`

mod ends;
mod gateway;
mod package;
mod page;
mod powers;
mod screen;
mod standin;
mod trouble;
mod world;
