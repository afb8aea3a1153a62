//! Reads from descriptors that are polled like pipes: sockets of keepers, and inotify.

use std::io;

use tokio::net::unix::pipe::Receiver;

/// Reads what is available. If that does not fill the buffer, the stream is empty and no longer counts as readable, so that
/// the next poll waits without another read.
pub(crate) fn read_available(stream: &Receiver, buffer: &mut [u8]) -> io::Result<usize> {
    let (room, mut read) = (buffer.len(), None);
    let tried = stream.try_io(|| {
        let count = rustix::io::read(stream, &mut *buffer)?;
        read = Some(count);
        // This error only clears the readiness from before the read. The end of the stream is kept.
        if (1..room).contains(&count) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match read {
        Some(count) => Ok(count),
        None => tried.map(|()| 0),
    }
}
