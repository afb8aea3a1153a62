//! Trunkline in a window: starts a gateway if none is running, shows its chat page, and stops what it started on exit.
//!
//! The page gets no privileges beyond those a browser gives it. Its only channel to this process is the page title.

mod app;
mod args;
mod chat_page;
mod gateway;
mod instance;
mod links;
mod menu;
mod notifications;
mod panel;
mod paths;
mod saved_window;
mod signals;
mod view;
mod wake_timer;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use tao::event_loop::EventLoopBuilder;
use tao::platform::run_return::EventLoopExtRunReturn;

use app::{AppEvent, DesktopApp};
use args::Args;
use instance::Instance;
use paths::DesktopPaths;
use saved_window::SavedWindow;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log_stderr(&format!("trunkline-desktop: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let paths = DesktopPaths::find(args)?;
    let Some(instance) = Instance::claim(&paths)? else {
        log_stderr("Trunkline is already open; its window was brought to the front");
        return Ok(());
    };
    // Must match the name of the .desktop file: task bars group windows by it.
    gtk::glib::set_prgname(Some("trunkline-desktop"));
    gtk::glib::set_application_name("Trunkline");
    if gtk::init().is_err() {
        bail!("there is no display to open a window on; `trunkline serve` offers the same page to a browser");
    }
    let mut event_loop = EventLoopBuilder::<AppEvent>::with_user_event().build();
    let events = event_loop.create_proxy();
    signals::listen(events.clone())?;
    instance.listen(events.clone())?;
    let saved = SavedWindow::load(&paths.saved_window());
    let mut app = DesktopApp::open(&event_loop, events, paths, saved, args.port)?;
    event_loop.run_return(|event, _, flow| *flow = app.on(event));
    app.close();
    Ok(())
}

/// Writes a line to stderr. Ignores errors: a closed stderr is no reason to exit.
fn log_stderr(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
