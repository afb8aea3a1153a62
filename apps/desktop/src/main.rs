//! Trunkline in a window: starts a gateway if none answers, shows its chat page, and takes along what it started.
//!
//! The page gets nothing here that a browser would not give it: there is no channel from it to us but its title.

mod alarm;
mod app;
mod args;
mod gateway;
mod instance;
mod links;
mod memory;
mod menu;
mod notice;
mod page;
mod panel;
mod places;
mod signals;
mod view;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use tao::event_loop::EventLoopBuilder;
use tao::platform::run_return::EventLoopExtRunReturn;

use app::{App, Said};
use args::Args;
use instance::Instance;
use memory::Memory;
use places::Places;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("trunkline-desktop: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let places = Places::find(args)?;
    let Some(instance) = Instance::claim(&places)? else {
        tell("Trunkline is open already: here is its window");
        return Ok(());
    };
    // What a desktop's entry names, and what its task bar groups by.
    gtk::glib::set_prgname(Some("trunkline-desktop"));
    gtk::glib::set_application_name("Trunkline");
    if gtk::init().is_err() {
        bail!("there is no display to open a window on; `trunkline serve` has the same page for a browser");
    }
    let mut event_loop = EventLoopBuilder::<Said>::with_user_event().build();
    let said = event_loop.create_proxy();
    signals::listen(said.clone())?;
    instance.listen(said.clone())?;
    let memory = Memory::recall(&places.memory());
    let mut app = App::open(&event_loop, said, places, memory, args.port)?;
    event_loop.run_return(|event, _, flow| *flow = app.on(event));
    app.close();
    Ok(())
}

/// A line on stderr. That nobody can read it is no reason to end.
fn tell(line: &str) {
    let _unread = writeln!(io::stderr(), "{line}");
}
