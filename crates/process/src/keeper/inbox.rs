//! Receives bytes and descriptors from the gateway's socket and assembles them into requests.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::message::{KeeperRequest, frame_length};

/// Amount that is read from the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// Bytes and descriptors that were received but not handled yet.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Inbox {
    pub(super) fn holds_frame(&self) -> bool {
        frame_length(&self.bytes).is_some()
    }

    /// Blocks until a whole request has arrived. False at the end of the stream.
    pub(super) fn fill_frame(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        while !self.holds_frame() {
            if self.receive(socket)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the first whole request, and the descriptors that arrived with requests to run.
    pub(super) fn request(&mut self) -> io::Result<(KeeperRequest<'_>, &mut Vec<OwnedFd>)> {
        let frame = frame_length(&self.bytes).and_then(|end| self.bytes.get(..end));
        let request = frame.and_then(KeeperRequest::decode).ok_or(io::ErrorKind::InvalidData)?;
        Ok((request, &mut self.fds))
    }

    /// Removes the first request.
    pub(super) fn pop(&mut self) {
        let end = frame_length(&self.bytes).unwrap_or(0);
        self.bytes.drain(..end);
        self.bytes.shrink_to(READ_BYTES);
    }

    fn receive(&mut self, socket: &OwnedFd) -> io::Result<usize> {
        let start = self.bytes.len();
        self.bytes.resize(start + READ_BYTES, 0);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut room = [IoSliceMut::new(&mut self.bytes[start..])];
            match recvmsg(socket, &mut room, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                result => break result.map(|message| message.bytes),
            }
        };
        self.bytes.truncate(start + received.unwrap_or(0));
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        Ok(received?)
    }
}
