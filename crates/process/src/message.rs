//! The messages between the gateway and a keeper, encoded as bytes.
//!
//! A request is a frame (kind, length, payload) of length-prefixed byte strings, so that paths and arguments need not be
//! UTF-8. A report is eight bytes. Both ends are the same binary, so the format has no version and no leniency. Nothing
//! here does I/O: the descriptors of a run are sent with its frame as ancillary data.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::confinement::{ConfinedPaths, Confinement};
use crate::encoding::{put, put_count, take, take_u32};
use crate::spec::{Spec, StopSignal};

const RUN: u32 = 1;
const STOP: u32 = 2;
const PAUSE: u32 = 3;
const HEADER_BYTES: usize = 8;
/// Room for the arguments and paths of a usual request.
const USUAL_BYTES: usize = 2048;
/// Far more than any kernel accepts for arguments and environment together.
const MAX_FRAME_BYTES: usize = 16 << 20;

/// A request from the gateway to a keeper.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeeperRequest<'a> {
    Run(ProcessJob<'a>),
    Stop {
        signal: StopSignal,
        grace: Duration,
    },
    /// Stops (`SIGSTOP`) or continues the program.
    Pause {
        paused: bool,
    },
}

/// The part of a [`Spec`] that the keeper needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProcessJob<'a> {
    pub(crate) program: &'a OsStr,
    pub(crate) cwd: &'a OsStr,
    pub(crate) args: Vec<&'a OsStr>,
    pub(crate) env: Vec<(&'a OsStr, &'a OsStr)>,
    /// Its whole input, if that is sent with the request. None if its stdin is among the descriptors.
    pub(crate) stdin: Option<&'a [u8]>,
    /// The paths that it may write to. None if it is not confined.
    pub(crate) confined_to: Option<ConfinedPaths<'a>>,
}

/// A report from a keeper to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeeperReport {
    /// The program was started, with this pid.
    Started(u32),
    /// The program could not be started, with this errno.
    Failed(FailedPart, i32),
    /// The main process ended, with this wait status.
    Exited(i32),
    /// Every process of the run is dead and reaped. The keeper is ready for the next run.
    Clean,
    /// A process of the run does not die (uninterruptible, or another user's).
    Dirty,
}

/// The part of a request that a failed start is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedPart {
    Program,
    Directory,
    Confinement,
}

/// Encodes the request to run `spec`. Its input is encoded only if it is passed as `stdin`.
pub(crate) fn run(spec: &Spec, stdin: Option<&[u8]>) -> io::Result<Vec<u8>> {
    let ((count, arguments), (variables, environment)) = (spec.args.encoded(), spec.env.encoded());
    // Enough for a usual request: it is then allocated once.
    let mut frame =
        Vec::with_capacity(arguments.len() + environment.len() + stdin.map_or(0, <[u8]>::len) + USUAL_BYTES);
    frame.resize(HEADER_BYTES, 0);
    put(&mut frame, spec.program.as_os_str());
    put(&mut frame, spec.cwd.as_os_str());
    put_count(&mut frame, count);
    frame.extend_from_slice(arguments);
    put_count(&mut frame, variables);
    frame.extend_from_slice(environment);
    put_count(&mut frame, usize::from(stdin.is_some()));
    stdin.into_iter().for_each(|stdin| put(&mut frame, OsStr::from_bytes(stdin)));
    put_count(&mut frame, usize::from(spec.confinement.is_some()));
    if let Some(confinement) = &spec.confinement {
        let Confinement { shared, writable, pinned } = confinement;
        put_count(&mut frame, shared.len() + writable.len());
        shared.iter().chain(writable).for_each(|path| put(&mut frame, path.as_os_str()));
        put_count(&mut frame, pinned.len());
        pinned.iter().for_each(|path| put(&mut frame, path.as_os_str()));
    }
    if frame.len() > MAX_FRAME_BYTES {
        return Err(Errno::TOOBIG.into());
    }
    let length = (frame.len() - HEADER_BYTES) as u32;
    frame[..4].copy_from_slice(&RUN.to_le_bytes());
    frame[4..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Encodes the request to stop the run.
pub(crate) fn stop(signal: StopSignal, grace: Duration) -> [u8; 16] {
    let grace = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX);
    let mut frame = [0; 16];
    frame[..4].copy_from_slice(&STOP.to_le_bytes());
    frame[4..8].copy_from_slice(&8u32.to_le_bytes());
    frame[8..12].copy_from_slice(&signal.signal().as_raw().to_le_bytes());
    frame[12..].copy_from_slice(&grace.to_le_bytes());
    frame
}

/// Encodes the request to stop (`SIGSTOP`) or continue the program.
pub(crate) fn pause(paused: bool) -> [u8; 12] {
    let mut frame = [0; 12];
    frame[..4].copy_from_slice(&PAUSE.to_le_bytes());
    frame[4..8].copy_from_slice(&4u32.to_le_bytes());
    frame[8..].copy_from_slice(&u32::from(paused).to_le_bytes());
    frame
}

/// Returns the length of the first frame in `bytes`, if it is complete.
pub(crate) fn frame_length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(4..HEADER_BYTES)?;
    let end = HEADER_BYTES + u32::from_le_bytes(length.try_into().ok()?) as usize;
    (bytes.len() >= end).then_some(end)
}

impl<'a> KeeperRequest<'a> {
    /// Decodes a complete frame. `None` if no gateway of this build sends such a frame.
    pub(crate) fn decode(frame: &'a [u8]) -> Option<Self> {
        let mut rest = frame;
        let kind = take_u32(&mut rest)?;
        let _length = take_u32(&mut rest)?;
        match kind {
            RUN => Some(Self::Run(ProcessJob {
                program: take(&mut rest)?,
                cwd: take(&mut rest)?,
                args: (0..take_u32(&mut rest)?).map(|_| take(&mut rest)).collect::<Option<_>>()?,
                env: (0..take_u32(&mut rest)?)
                    .map(|_| Some((take(&mut rest)?, take(&mut rest)?)))
                    .collect::<Option<_>>()?,
                stdin: match take_u32(&mut rest)? {
                    0 => None,
                    _ => Some(take(&mut rest)?.as_bytes()),
                },
                confined_to: match take_u32(&mut rest)? {
                    0 => None,
                    _ => Some(ConfinedPaths { writable: take_paths(&mut rest)?, pinned: take_paths(&mut rest)? }),
                },
            })),
            STOP => {
                let signal = take_u32(&mut rest)?;
                let signal = if signal == Signal::INT.as_raw() as u32 { StopSignal::Int } else { StopSignal::Term };
                Some(Self::Stop { signal, grace: Duration::from_millis(take_u32(&mut rest)?.into()) })
            }
            PAUSE => Some(Self::Pause { paused: take_u32(&mut rest)? != 0 }),
            _ => None,
        }
    }
}

impl KeeperReport {
    pub(crate) const BYTES: usize = 8;

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let (kind, value) = match self {
            Self::Started(pid) => (1u32, pid),
            Self::Failed(FailedPart::Program, errno) => (2, errno as u32),
            Self::Failed(FailedPart::Directory, errno) => (3, errno as u32),
            Self::Failed(FailedPart::Confinement, errno) => (7, errno as u32),
            Self::Exited(status) => (4, status as u32),
            Self::Clean => (5, 0),
            Self::Dirty => (6, 0),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let mut rest = &bytes[..];
        let kind = take_u32(&mut rest)?;
        let value = take_u32(&mut rest)?;
        match kind {
            1 => Some(Self::Started(value)),
            2 => Some(Self::Failed(FailedPart::Program, value as i32)),
            3 => Some(Self::Failed(FailedPart::Directory, value as i32)),
            4 => Some(Self::Exited(value as i32)),
            5 => Some(Self::Clean),
            6 => Some(Self::Dirty),
            7 => Some(Self::Failed(FailedPart::Confinement, value as i32)),
            _ => None,
        }
    }
}

fn take_paths<'a>(rest: &mut &'a [u8]) -> Option<Vec<&'a Path>> {
    (0..take_u32(rest)?).map(|_| take(rest).map(Path::new)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_core::limits::RunLimits;

    fn spec() -> Spec {
        Spec {
            program: "/bin/x".into(),
            args: [OsStr::new("-p"), OsStr::from_bytes(b"\xff\xfe"), OsStr::new("")].into_iter().collect(),
            env: [("A", "1=2"), ("B", "")].into_iter().collect(),
            cwd: "/tmp".into(),
            stdin: Vec::new(),
            stop: StopSignal::Term,
            grace: Duration::ZERO,
            limits: RunLimits::NONE,
            confinement: Some(Confinement {
                shared: ["/w".into()].into(),
                writable: vec![OsStr::from_bytes(b"/\xff").into()],
                pinned: vec!["/p".into()],
            }),
        }
    }

    #[test]
    fn run_request_is_decoded_as_it_was_encoded() {
        let spec = spec();
        let frame = run(&spec, None).unwrap();
        assert_eq!(frame_length(&frame), Some(frame.len()));
        let Some(KeeperRequest::Run(job)) = KeeperRequest::decode(&frame) else { panic!("not a run") };
        assert_eq!((job.program, job.stdin), ("/bin/x".as_ref(), None));
        assert_eq!(job.cwd, "/tmp");
        assert_eq!(job.args, spec.args.iter().collect::<Vec<_>>());
        assert_eq!(job.env, [("A".as_ref(), "1=2".as_ref()), ("B".as_ref(), OsStr::new(""))]);
        let writable = vec![Path::new("/w"), Path::new(OsStr::from_bytes(b"/\xff"))];
        assert_eq!(job.confined_to, Some(ConfinedPaths { writable, pinned: vec![Path::new("/p")] }));
        for confinement in [None, Some(Confinement::default())] {
            let paths = confinement.as_ref().map(|_| ConfinedPaths::default());
            let frame = run(&Spec { confinement, ..spec.clone() }, Some(b"in")).unwrap();
            let Some(KeeperRequest::Run(job)) = KeeperRequest::decode(&frame) else { panic!("not a run") };
            assert_eq!((job.confined_to, job.stdin), (paths, Some(&b"in"[..])));
        }
    }

    #[test]
    fn incomplete_frame_is_never_decoded() {
        let frame = run(&spec(), Some(b"in")).unwrap();
        for end in 0..frame.len() {
            assert_eq!(frame_length(&frame[..end]), None);
            assert_eq!(KeeperRequest::decode(&frame[..end]), None);
        }
    }

    #[test]
    fn other_requests_and_reports_are_decoded_as_they_were_encoded() {
        let grace = Duration::from_millis(1500);
        for signal in [StopSignal::Term, StopSignal::Int] {
            assert_eq!(KeeperRequest::decode(&stop(signal, grace)), Some(KeeperRequest::Stop { signal, grace }));
        }
        for paused in [true, false] {
            assert_eq!(KeeperRequest::decode(&pause(paused)), Some(KeeperRequest::Pause { paused }));
        }
        for report in [
            KeeperReport::Started(77),
            KeeperReport::Failed(FailedPart::Program, 2),
            KeeperReport::Failed(FailedPart::Directory, 13),
            KeeperReport::Failed(FailedPart::Confinement, 7),
            KeeperReport::Exited(0x80 | 11),
            KeeperReport::Clean,
            KeeperReport::Dirty,
        ] {
            assert_eq!(KeeperReport::decode(report.encode()), Some(report));
        }
    }
}
