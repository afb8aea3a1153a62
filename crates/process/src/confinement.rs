//! Confines a program to writing in named places, enforced by the kernel with Landlock.
//!
//! # Purpose
//!
//! An agent runs as the same user as the gateway, so file permissions do not limit what it can change. Landlock does: it
//! needs no privileges, and neither the program nor anything that it starts can lift the restriction again.
//!
//! # Restrictions
//!
//! - *Writing*: creating, changing, truncating, renaming and removing files, device control included, everywhere but below
//!   the paths of a [`Confinement`]. Creating device nodes is forbidden everywhere.
//! - *Reaching other processes*: the program cannot trace a process outside of its confinement. From Landlock ABI 6 on, it
//!   can neither signal such a process nor connect to its abstract sockets.
//! - *Privileges*: `sudo` and the like do not work (`no_new_privs`), and capabilities that reach around Landlock are
//!   dropped.
//!
//! Reading is not restricted. A ruleset can only allow, so hiding one secret would mean listing everything around it.
//!
//! # How it is applied
//!
//! Landlock restricts the calling thread and its future children, irrevocably. So the keeper applies it on a thread of its
//! own ([`within`]) that starts the program and ends:
//!
//! ```text
//! keeper: open paths, create ruleset
//!    ├──▶ thread: drop capabilities ▸ restrict itself ▸ spawn ──▶ program (restricted)
//!    └─── stays unrestricted, and serves the next run
//! ```
//!
//! # Invariants
//!
//! - A run that asks for a confinement and cannot get it is not started: [`within`] fails instead.
//! - The keeper itself is never restricted: it has to kill and reap what the program leaves behind.
//! - A path that does not exist is skipped, never created. A *pinned* path is skipped if any part of it is a symbolic link,
//!   because an earlier run could have planted the link to make the folder behind it writable.
//! - Access rights that a newer kernel adds are not used ([`KNOWN_ABI`]): a program that works today must not break with a
//!   kernel update.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;

use landlock::{
    ABI, Access, AccessFs, BitFlags, LandlockStatus, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

/// Newest version of the kernel interface whose access rights are used.
const KNOWN_ABI: ABI = ABI::V6;

/// Stack size of a thread that starts one program.
const STACK_BYTES: usize = 128 * 1024;

/// The places that a program and everything it starts may write to. See the module page for the rest that it restricts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Writable paths like the following, which many programs have in common.
    pub shared: Arc<[PathBuf]>,
    /// Writable files, and folders with everything below them. A path that does not exist is skipped.
    pub writable: Vec<PathBuf>,
    /// The same for canonical paths in places that an earlier run could have changed. A path with a symbolic link anywhere
    /// in it is skipped, so that a planted link does not make the folder behind it writable.
    pub pinned: Vec<PathBuf>,
}

/// Landlock as this machine's kernel offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landlock {
    /// Version of the kernel interface.
    pub abi: u32,
}

impl Landlock {
    /// Landlock of this machine, probed once.
    ///
    /// ABI 1 counts as unavailable: it has no right for moving files between folders, so it forbids all such moves, also
    /// inside the workspace.
    pub fn here() -> Result<Self, LandlockUnavailable> {
        static HERE: OnceLock<Result<Landlock, LandlockUnavailable>> = OnceLock::new();
        *HERE.get_or_init(probe)
    }

    /// Whether truncating a file outside is prevented.
    #[must_use]
    pub const fn holds_truncation(self) -> bool {
        self.abi >= 3
    }

    /// Whether controlling (`ioctl`) a device outside is prevented.
    #[must_use]
    pub const fn holds_devices(self) -> bool {
        self.abi >= 5
    }

    /// Whether signalling a process outside, or connecting to an abstract socket outside, is prevented.
    #[must_use]
    pub const fn holds_signals(self) -> bool {
        self.abi >= 6
    }
}

/// Reason why this machine cannot confine programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LandlockUnavailable {
    #[error("this kernel has no Landlock: Linux 5.19 or newer has it")]
    Unknown,
    #[error("Landlock is not among the kernel's security modules: start it with `lsm=landlock,…`")]
    Disabled,
    #[error("this kernel's Landlock is too old: Linux 5.19 or newer is needed")]
    TooOld,
    #[error("Landlock is not allowed here: a container's filter may be in the way")]
    Refused,
}

/// Applies a ruleset to a thread that does nothing else, to see what the kernel makes of it.
fn probe() -> Result<Landlock, LandlockUnavailable> {
    let restrict = || Ruleset::default().handle_access(AccessFs::MakeChar)?.create()?.restrict_self();
    let tried = thread::Builder::new().stack_size(STACK_BYTES).spawn(restrict).map(thread::JoinHandle::join);
    let Ok(Ok(Ok(status))) = tried else { return Err(LandlockUnavailable::Refused) };
    match status.landlock {
        LandlockStatus::NotImplemented => Err(LandlockUnavailable::Unknown),
        LandlockStatus::NotEnabled => Err(LandlockUnavailable::Disabled),
        LandlockStatus::Available { effective_abi: ABI::V1, .. } => Err(LandlockUnavailable::TooOld),
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            Ok(Landlock { abi: kernel_abi.unwrap_or(effective_abi as i32).unsigned_abs() })
        }
    }
}

/// Runs `start` on a confined thread of its own, so that the process it starts is confined and this thread is not. The
/// outer error means that the thread could not be confined and `start` was not called.
pub(crate) fn within<T: Send>(
    paths: &ConfinedPaths<'_>,
    start: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<Result<T, io::Error>> {
    let rules = rules(paths)?;
    let confined = || {
        drop_capabilities();
        let status = rules.restrict_self().map_err(errno_error)?;
        match status.ruleset {
            RulesetStatus::NotEnforced => Err(io::ErrorKind::Unsupported.into()),
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(start()),
        }
    };
    thread::scope(|scope| {
        let working = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, confined)?;
        working.join().unwrap_or_else(|_panicked| Err(io::Error::other("the thread that starts the program panicked")))
    })
}

/// Drops the capabilities that reach around a confinement, for this thread and the programs it starts. Landlock does not
/// keep a privileged user from reading the environment of a process outside, or from loading a kernel module.
fn drop_capabilities() {
    let all = CapabilitySet::SYS_PTRACE
        | CapabilitySet::SYS_ADMIN
        | CapabilitySet::SYS_MODULE
        | CapabilitySet::SYS_RAWIO
        | CapabilitySet::SYS_BOOT
        | CapabilitySet::SYS_TIME
        | CapabilitySet::SYSLOG
        | CapabilitySet::MKNOD
        | CapabilitySet::MAC_ADMIN
        | CapabilitySet::MAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::PERFMON
        | CapabilitySet::BPF
        | CapabilitySet::CHECKPOINT_RESTORE;
    for capability in all.iter() {
        // Fails for an ordinary user, which is fine: such a process has no capabilities.
        let _ = remove_capability_from_bounding_set(capability);
    }
}

/// The paths of a [`Confinement`], borrowed from the request that a keeper received.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfinedPaths<'a> {
    pub(crate) writable: Vec<&'a Path>,
    pub(crate) pinned: Vec<&'a Path>,
}

impl ConfinedPaths<'_> {
    /// Opens the paths that exist.
    fn open(&self) -> impl Iterator<Item = OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let writable = self.writable.iter().filter_map(move |path| open(*path, flags, Mode::empty()).ok());
        let no_links = ResolveFlags::NO_SYMLINKS;
        let pinned =
            self.pinned.iter().filter_map(move |path| openat2(CWD, *path, flags, Mode::empty(), no_links).ok());
        writable.chain(pinned)
    }
}

fn rules(paths: &ConfinedPaths<'_>) -> io::Result<RulesetCreated> {
    let handled = AccessFs::from_write(KNOWN_ABI);
    let ruleset =
        Ruleset::default().handle_access(handled).and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN_ABI)));
    let mut ruleset = ruleset.and_then(Ruleset::create).map_err(errno_error)?;
    // Everything may be created below a writable folder, except devices.
    let granted: BitFlags<AccessFs> = handled & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    for path in paths.open() {
        ruleset = ruleset.add_rule(PathBeneath::new(path, granted)).map_err(errno_error)?;
    }
    Ok(ruleset)
}

/// Returns the errno of the kernel, if the error has one.
fn errno_error(error: RulesetError) -> io::Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(cause) = source {
        if let Some(errno) = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(errno);
        }
        source = cause.source();
    }
    io::Error::other(error)
}
