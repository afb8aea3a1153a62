//! A larger stack for recursive code whose depth a client or a model chooses.

use std::io;
use std::panic::resume_unwind;
use std::thread::Builder;

/// Room for the deepest schema and answer that the limits allow, also in a debug build.
const STACK_BYTES: usize = 128 * 1024 * 1024;

/// Calls a function on a thread with a large stack, of which only the used part takes memory.
/// Fails if the machine cannot start another thread.
pub(super) fn on_deep_stack<T: Send>(call: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = Builder::new().name("schema".to_owned()).stack_size(STACK_BYTES).spawn_scoped(scope, call)?;
        Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
