mod commands;
use clap::Parser;
#[derive(clap::Parser)]
enum Cli {
    Decode(commands::decode::Decode),
}
fn main() -> anyhow::Result<()> {
    match Cli::parse() {
        Cli::Decode(d) => d.run(),
    }
}
