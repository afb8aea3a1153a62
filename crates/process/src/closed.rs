//! A process that others of the same user cannot look into: an agent runs as its user does, and what a gateway was given,
//! keys above all, stands in its environment and in its memory. Nobody is kept out who may do everything.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, dumpable_behavior, getrlimit, set_dumpable_behavior, setrlimit,
};

/// Closes this process to its like: no `/proc/PID/environ`, no memory, no debugger, no core. What it starts is open
/// again, as soon as that is another program. Says whether it is closed now.
pub fn close_to_others() -> bool {
    let closed = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // What it starts inherits this one, and may raise it again.
    let _as_it_was = setrlimit(Resource::Core, Rlimit { current: Some(0), ..getrlimit(Resource::Core) });
    closed.is_ok() && dumpable_behavior() == Ok(DumpableBehavior::NotDumpable)
}
