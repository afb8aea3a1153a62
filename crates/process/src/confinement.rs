//! What a run may write, held by the kernel: Landlock, which needs no privilege and which nobody can take off again.
//!
//! Only writing is confined. Reading stays open: a ruleset can only allow, and what lies around a secret cannot be told
//! apart from it without naming all of it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use landlock::{
    ABI, Access, AccessFs, BitFlags, LandlockStatus, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

/// The newest rights we ask for: what a later kernel adds is not tried here, and may break what works.
const KNOWN: ABI = ABI::V6;

/// The stack of a thread that starts one program.
const STACK: usize = 128 * 1024;

/// The bounds of a run. Whoever asks for them gets them: a run that cannot be confined is not started.
///
/// They hold for everything that the run starts, and for the keeper not at all. Besides, no program of the run gains
/// privileges (`sudo` does not work), traces a process outside, or, where the kernel knows how, signals one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Files, and folders with all that is in them, that may be written; one that is not there is passed over.
    pub writable: Vec<PathBuf>,
    /// The same for canonical paths in places that an earlier run could have changed: a path with a symbolic link
    /// anywhere in it is passed over, so that a planted link cannot open the folder it points to.
    pub pinned: Vec<PathBuf>,
}

/// What the kernel of this machine can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landlock {
    /// The version of its interface.
    pub abi: u32,
}

impl Landlock {
    /// Of this machine, looked at once; none where nothing can be confined.
    ///
    /// The first version does not count: it knows no moves from folder to folder, and so forbids them all, also inside
    /// the workspace.
    pub fn here() -> Result<Self, Missing> {
        static HERE: OnceLock<Result<Landlock, Missing>> = OnceLock::new();
        *HERE.get_or_init(look)
    }

    /// A file outside cannot be emptied by its name.
    #[must_use]
    pub const fn holds_truncation(self) -> bool {
        self.abi >= 3
    }

    /// A device outside cannot be controlled.
    #[must_use]
    pub const fn holds_devices(self) -> bool {
        self.abi >= 5
    }

    /// A process outside cannot be signalled, nor an abstract socket outside be connected to.
    #[must_use]
    pub const fn holds_signals(self) -> bool {
        self.abi >= 6
    }
}

/// Why nothing can be confined here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("this kernel has no Landlock: Linux 5.19 or newer has it")]
    Unknown,
    #[error("Landlock is not among the kernel's security modules: start it with `lsm=landlock,…`")]
    Disabled,
    #[error("this kernel's Landlock is too old: Linux 5.19 or newer is needed")]
    TooOld,
    #[error("Landlock is not allowed here: a container's filter may be in the way")]
    Refused,
}

/// Tries it on a thread that does nothing else.
fn look() -> Result<Landlock, Missing> {
    let restrict = || Ruleset::default().handle_access(AccessFs::MakeChar)?.create()?.restrict_self();
    let tried = thread::Builder::new().stack_size(STACK).spawn(restrict).map(thread::JoinHandle::join);
    let Ok(Ok(Ok(status))) = tried else { return Err(Missing::Refused) };
    match status.landlock {
        LandlockStatus::NotImplemented => Err(Missing::Unknown),
        LandlockStatus::NotEnabled => Err(Missing::Disabled),
        LandlockStatus::Available { effective_abi: ABI::V1, .. } => Err(Missing::TooOld),
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            Ok(Landlock { abi: kernel_abi.unwrap_or(effective_abi as i32).unsigned_abs() })
        }
    }
}

/// Runs `start` on a thread of its own that is confined: what it starts there is confined with it, and nobody else is.
pub(crate) fn within<T: Send>(
    places: &Places<'_>,
    start: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<Result<T, io::Error>> {
    let rules = rules(places)?;
    let confined = || {
        give_up_capabilities();
        let status = rules.restrict_self().map_err(refused)?;
        match status.ruleset {
            RulesetStatus::NotEnforced => Err(io::ErrorKind::Unsupported.into()),
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(start()),
        }
    };
    thread::scope(|scope| {
        let working = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, confined)?;
        working.join().unwrap_or_else(|_panicked| Err(io::Error::other("panicked")))
    })
}

/// Takes from this thread, and from the programs it starts, the capabilities that reach around a confinement. Landlock
/// does not keep a privileged user from reading the environment of a process outside, or from loading a module.
fn give_up_capabilities() {
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
        // An ordinary user has none of them, and may not give them up.
        let _ = remove_capability_from_bounding_set(capability);
    }
}

/// The paths of a [`Confinement`], as a keeper is told them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Places<'a> {
    pub(crate) writable: Vec<&'a Path>,
    pub(crate) pinned: Vec<&'a Path>,
}

impl Places<'_> {
    /// Descriptors of the places that exist.
    fn open(&self) -> impl Iterator<Item = OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let writable = self.writable.iter().filter_map(move |path| open(*path, flags, Mode::empty()).ok());
        let unlinked = ResolveFlags::NO_SYMLINKS;
        let pinned =
            self.pinned.iter().filter_map(move |path| openat2(CWD, *path, flags, Mode::empty(), unlinked).ok());
        writable.chain(pinned)
    }
}

fn rules(places: &Places<'_>) -> io::Result<RulesetCreated> {
    let handled = AccessFs::from_write(KNOWN);
    let ruleset = Ruleset::default().handle_access(handled).and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN)));
    let mut ruleset = ruleset.and_then(Ruleset::create).map_err(refused)?;
    // A folder may hold everything but devices.
    let granted: BitFlags<AccessFs> = handled & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    for place in places.open() {
        ruleset = ruleset.add_rule(PathBeneath::new(place, granted)).map_err(refused)?;
    }
    Ok(ruleset)
}

/// The kernel's own word, where there is one.
fn refused(error: RulesetError) -> io::Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(cause) = source {
        if let Some(errno) = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(errno);
        }
        source = cause.source();
    }
    io::Error::other(error)
}
