//! Tools of clients: which tools a CLI is offered, how its calls reach the gateway, and how the results reach the CLI.
//!
//! ```text
//! client_tools   the tools of a request, under names that every CLI accepts
//! ports          places where an MCP server delivers calls; one for each process
//! exchange       calls of one process that wait for results
//! ```
//!
//! A run ends with the calls, and its process waits in [`crate::runs`]; the run of the next request continues it.

mod client_tools;
mod exchange;
mod ports;

pub(crate) use client_tools::ClientTools;
pub(crate) use exchange::{StdioAnswer, ToolExchange};
pub use ports::{ToolEndpoint, ToolPort, ToolPorts};
