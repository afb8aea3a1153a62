//! Requests as they come in: bytes and descriptors from one socket, put together to frames.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::message::{Request, whole};

const READ: usize = 64 * 1024;

/// What was received and not yet dealt with.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Inbox {
    pub(super) fn holds_frame(&self) -> bool {
        whole(&self.bytes).is_some()
    }

    /// Blocks until a whole request is here; false at the end of the stream.
    pub(super) fn fill_frame(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        while !self.holds_frame() {
            if self.receive(socket)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first whole request, and the descriptors that a run takes from.
    pub(super) fn request(&mut self) -> io::Result<(Request<'_>, &mut Vec<OwnedFd>)> {
        let frame = whole(&self.bytes).and_then(|end| self.bytes.get(..end));
        let request = frame.and_then(Request::decode).ok_or(io::ErrorKind::InvalidData)?;
        Ok((request, &mut self.fds))
    }

    /// Forgets the first request.
    pub(super) fn done(&mut self) {
        let end = whole(&self.bytes).unwrap_or(0);
        self.bytes.drain(..end);
        self.bytes.shrink_to(READ);
    }

    fn receive(&mut self, socket: &OwnedFd) -> io::Result<usize> {
        let start = self.bytes.len();
        self.bytes.resize(start + READ, 0);
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
