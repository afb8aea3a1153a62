//! Protects the gateway's environment and memory from other processes of the same user.
//!
//! An agent runs as the same user as the gateway, and the gateway's secrets, API keys above all, are in its environment
//! and memory. A privileged process is not kept out.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, dumpable_behavior, getrlimit, set_dumpable_behavior, setrlimit,
};

/// Makes this process undumpable: other processes cannot read its `/proc/PID/environ` or memory nor attach a debugger, and
/// it leaves no core file. Returns whether it is undumpable now.
///
/// A program that it executes is dumpable again.
pub fn set_undumpable() -> bool {
    let set = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Child processes inherit this limit, and may raise it again.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), ..getrlimit(Resource::Core) });
    set.is_ok() && dumpable_behavior() == Ok(DumpableBehavior::NotDumpable)
}
