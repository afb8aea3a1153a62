//! The words between the gateway and a keeper, as bytes.
//!
//! Requests are frames (`kind`, length, payload) of length-prefixed byte strings, so that paths and arguments need not
//! be UTF-8; reports are eight bytes each. Both ends are the same binary, so there is no version and no leniency.
//! Nothing here does I/O; the three descriptors of a run travel beside its frame.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::confinement::Places;
use crate::spec::{Spec, StopSignal};

const RUN: u32 = 1;
const STOP: u32 = 2;
const HOLD: u32 = 3;
const HEADER: usize = 8;
/// Far more than any kernel takes for argv and environment together.
const LONGEST: usize = 16 << 20;

/// What a keeper is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    Run(Job<'a>),
    Stop {
        signal: StopSignal,
        grace: Duration,
    },
    /// The run is to stand still, or to go on.
    Hold {
        still: bool,
    },
}

/// The part of a [`Spec`] that the keeper needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job<'a> {
    pub(crate) program: &'a OsStr,
    pub(crate) cwd: &'a OsStr,
    pub(crate) args: Vec<&'a OsStr>,
    pub(crate) env: Vec<(&'a OsStr, &'a OsStr)>,
    /// Where it may write; none means everywhere.
    pub(crate) places: Option<Places<'a>>,
}

/// What a keeper says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The program runs, with this pid.
    Started(u32),
    /// It does not, because of this errno.
    Failed(Blame, i32),
    /// The main process ended, with this wait status.
    Exited(i32),
    /// Every process of the run is dead and reaped; ready for the next.
    Clean,
    /// Something of the run will not die (uninterruptible, or another user's).
    Dirty,
}

/// What a failed start is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    Program,
    Directory,
    Confinement,
}

/// Encodes the request to run `spec`.
pub(crate) fn run(spec: &Spec) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER];
    put(&mut frame, spec.program.as_os_str());
    put(&mut frame, spec.cwd.as_os_str());
    put_count(&mut frame, spec.args.len());
    spec.args.iter().for_each(|arg| put(&mut frame, arg));
    put_count(&mut frame, spec.env.len());
    for (name, value) in &spec.env {
        put(&mut frame, name);
        put(&mut frame, value);
    }
    put_count(&mut frame, usize::from(spec.confinement.is_some()));
    if let Some(confinement) = &spec.confinement {
        for paths in [&confinement.writable, &confinement.pinned] {
            put_count(&mut frame, paths.len());
            paths.iter().for_each(|path| put(&mut frame, path.as_os_str()));
        }
    }
    if frame.len() > LONGEST {
        return Err(Errno::TOOBIG.into());
    }
    let length = (frame.len() - HEADER) as u32;
    frame[..4].copy_from_slice(&RUN.to_le_bytes());
    frame[4..HEADER].copy_from_slice(&length.to_le_bytes());
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

/// Encodes the request to have the run stand still, or go on.
pub(crate) fn hold(still: bool) -> [u8; 12] {
    let mut frame = [0; 12];
    frame[..4].copy_from_slice(&HOLD.to_le_bytes());
    frame[4..8].copy_from_slice(&4u32.to_le_bytes());
    frame[8..].copy_from_slice(&u32::from(still).to_le_bytes());
    frame
}

/// The length of the first frame of `bytes`, if all of it is there.
pub(crate) fn whole(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(4..HEADER)?;
    let end = HEADER + u32::from_le_bytes(length.try_into().ok()?) as usize;
    (bytes.len() >= end).then_some(end)
}

impl<'a> Request<'a> {
    /// Reads one whole frame; `None` for one that no gateway of this build sends.
    pub(crate) fn decode(frame: &'a [u8]) -> Option<Self> {
        let mut rest = frame;
        let kind = take_u32(&mut rest)?;
        let _length = take_u32(&mut rest)?;
        match kind {
            RUN => Some(Self::Run(Job {
                program: take(&mut rest)?,
                cwd: take(&mut rest)?,
                args: (0..take_u32(&mut rest)?).map(|_| take(&mut rest)).collect::<Option<_>>()?,
                env: (0..take_u32(&mut rest)?)
                    .map(|_| Some((take(&mut rest)?, take(&mut rest)?)))
                    .collect::<Option<_>>()?,
                places: match take_u32(&mut rest)? {
                    0 => None,
                    _ => Some(Places { writable: take_paths(&mut rest)?, pinned: take_paths(&mut rest)? }),
                },
            })),
            STOP => {
                let signal = take_u32(&mut rest)?;
                let signal = if signal == Signal::INT.as_raw() as u32 { StopSignal::Int } else { StopSignal::Term };
                Some(Self::Stop { signal, grace: Duration::from_millis(take_u32(&mut rest)?.into()) })
            }
            HOLD => Some(Self::Hold { still: take_u32(&mut rest)? != 0 }),
            _ => None,
        }
    }
}

impl Report {
    pub(crate) const SIZE: usize = 8;

    pub(crate) fn encode(self) -> [u8; Self::SIZE] {
        let (kind, value) = match self {
            Self::Started(pid) => (1u32, pid),
            Self::Failed(Blame::Program, errno) => (2, errno as u32),
            Self::Failed(Blame::Directory, errno) => (3, errno as u32),
            Self::Failed(Blame::Confinement, errno) => (7, errno as u32),
            Self::Exited(status) => (4, status as u32),
            Self::Clean => (5, 0),
            Self::Dirty => (6, 0),
        };
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; Self::SIZE]) -> Option<Self> {
        let mut rest = &bytes[..];
        let kind = take_u32(&mut rest)?;
        let value = take_u32(&mut rest)?;
        match kind {
            1 => Some(Self::Started(value)),
            2 => Some(Self::Failed(Blame::Program, value as i32)),
            3 => Some(Self::Failed(Blame::Directory, value as i32)),
            4 => Some(Self::Exited(value as i32)),
            5 => Some(Self::Clean),
            6 => Some(Self::Dirty),
            7 => Some(Self::Failed(Blame::Confinement, value as i32)),
            _ => None,
        }
    }
}

fn put(frame: &mut Vec<u8>, string: &OsStr) {
    put_count(frame, string.len());
    frame.extend_from_slice(string.as_bytes());
}

/// A count that does not fit belongs to a frame that `LONGEST` refuses anyway.
fn put_count(frame: &mut Vec<u8>, count: usize) {
    frame.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a OsStr> {
    let length = take_u32(rest)? as usize;
    let (string, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(OsStr::from_bytes(string))
}

fn take_paths<'a>(rest: &mut &'a [u8]) -> Option<Vec<&'a Path>> {
    (0..take_u32(rest)?).map(|_| take(rest).map(Path::new)).collect()
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confinement::Confinement;
    use trunkline_core::limits::Limits;

    fn spec() -> Spec {
        Spec {
            program: "/bin/x".into(),
            args: vec!["-p".into(), OsStr::from_bytes(b"\xff\xfe").into(), "".into()],
            env: vec![("A".into(), "1=2".into()), ("B".into(), "".into())],
            cwd: "/tmp".into(),
            stdin: Vec::new(),
            stop: StopSignal::Term,
            grace: Duration::ZERO,
            limits: Limits::NONE,
            confinement: Some(Confinement {
                writable: vec!["/w".into(), OsStr::from_bytes(b"/\xff").into()],
                pinned: vec!["/p".into()],
            }),
        }
    }

    #[test]
    fn a_run_arrives_as_it_was_sent() {
        let spec = spec();
        let frame = run(&spec).unwrap();
        assert_eq!(whole(&frame), Some(frame.len()));
        let Some(Request::Run(job)) = Request::decode(&frame) else { panic!("not a run") };
        assert_eq!(job.program, "/bin/x");
        assert_eq!(job.cwd, "/tmp");
        assert_eq!(job.args, spec.args);
        assert_eq!(job.env, [("A".as_ref(), "1=2".as_ref()), ("B".as_ref(), OsStr::new(""))]);
        let writable = vec![Path::new("/w"), Path::new(OsStr::from_bytes(b"/\xff"))];
        assert_eq!(job.places, Some(Places { writable, pinned: vec![Path::new("/p")] }));
        for confinement in [None, Some(Confinement::default())] {
            let places = confinement.as_ref().map(|_| Places::default());
            let frame = run(&Spec { confinement, ..spec.clone() }).unwrap();
            let Some(Request::Run(job)) = Request::decode(&frame) else { panic!("not a run") };
            assert_eq!(job.places, places);
        }
    }

    #[test]
    fn a_cut_frame_is_never_read() {
        let frame = run(&spec()).unwrap();
        for end in 0..frame.len() {
            assert_eq!(whole(&frame[..end]), None);
            assert_eq!(Request::decode(&frame[..end]), None);
        }
    }

    #[test]
    fn stop_and_reports() {
        let grace = Duration::from_millis(1500);
        for signal in [StopSignal::Term, StopSignal::Int] {
            assert_eq!(Request::decode(&stop(signal, grace)), Some(Request::Stop { signal, grace }));
        }
        for still in [true, false] {
            assert_eq!(Request::decode(&hold(still)), Some(Request::Hold { still }));
        }
        for report in [
            Report::Started(77),
            Report::Failed(Blame::Program, 2),
            Report::Failed(Blame::Directory, 13),
            Report::Failed(Blame::Confinement, 7),
            Report::Exited(0x80 | 11),
            Report::Clean,
            Report::Dirty,
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
    }
}
