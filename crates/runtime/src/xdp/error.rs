//! The reasons why the XDP program does not run, worded for the operator.

use std::fmt;
use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use thiserror::Error;

/// Why the program could not be loaded, attached or kept.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XdpError {
    /// There is no such interface in this network namespace; the operator's to correct.
    #[error("there is no network interface named {interface}")]
    NoInterface {
        /// Its name.
        interface: String,
    },
    /// The directory of the pins does not lie in a mounted BPF file system; the operator mounts it.
    #[error(
        "{directory} is not in a mounted BPF file system; `mount -t bpf bpf /sys/fs/bpf` makes one \
         (`ip netns exec` hides it, `nsenter --net` does not)"
    )]
    NoFileSystem {
        /// The directory.
        directory: PathBuf,
    },
    /// The process may not load programs; the operator grants it, or does without.
    #[error(
        "{doing}: the kernel refused this for lack of permission; the process needs root, or the \
         capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    NotAllowed {
        /// What was refused.
        doing: &'static str,
    },
    /// Another server runs on this interface.
    #[error("another curtail server runs on the network interface {interface}")]
    InUse {
        /// The interface.
        interface: String,
    },
    /// Another program is attached to this interface.
    #[error("another XDP program is attached to the network interface {interface}")]
    Occupied {
        /// The interface.
        interface: String,
    },
    /// What was found was made with other settings, so that its entries cannot be taken over.
    #[error(
        "the queues that an earlier server left in {directory} have {found} {what}, not {wanted}; \
         start with the settings of that server, or remove the directory and with it the \
         writes that wait there"
    )]
    Shape {
        /// Which setting.
        what: &'static str,
        /// What was found.
        found: u64,
        /// What was asked for.
        wanted: u64,
        /// Where it is.
        directory: PathBuf,
    },
    /// The kernel does not accept the program: too old, or built without what it needs.
    #[error("the kernel refuses the program: {reason}")]
    Refused {
        /// The last line of what the kernel said.
        reason: String,
    },
    /// Something else failed.
    #[error("{doing} failed: {reason}")]
    System {
        /// What was done.
        doing: &'static str,
        /// What was said.
        reason: String,
    },
}

impl XdpError {
    pub(super) fn system(doing: &'static str, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotAllowed { doing },
            _ => Self::System {
                doing,
                reason: error.to_string(),
            },
        }
    }

    pub(super) fn loading(error: &EbpfError) -> Self {
        let doing = "creating BPF maps";
        match error {
            EbpfError::MapError(error) => Self::map(doing, error),
            EbpfError::BtfError(error) => Self::other(doing, error),
            other => Self::other(doing, other),
        }
    }

    pub(super) fn map(doing: &'static str, error: &MapError) -> Self {
        match io_error(error) {
            Some(error) => Self::system(doing, error),
            None => Self::other(doing, error),
        }
    }

    pub(super) fn verifying(error: &ProgramError) -> Self {
        let ProgramError::LoadError {
            io_error,
            verifier_log,
        } = error
        else {
            return Self::other("loading the program", error);
        };
        let log = verifier_log.to_string();
        match (io_error.raw_os_error(), log.trim().is_empty()) {
            (Some(libc::EPERM), _) => Self::system("loading a BPF program", io_error),
            (_, true) => Self::Refused {
                reason: io_error.to_string(),
            },
            _ => Self::Refused {
                reason: last_words(&log),
            },
        }
    }

    pub(super) fn attaching(interface: &str, error: &ProgramError) -> Self {
        let doing = "attaching the program to the interface";
        let cause = io_error(error);
        match cause.and_then(io::Error::raw_os_error) {
            Some(libc::EBUSY | libc::EEXIST) => Self::Occupied {
                interface: interface.to_string(),
            },
            Some(_) => cause.map_or_else(|| Self::other(doing, error), |e| Self::system(doing, e)),
            None => Self::other(doing, error),
        }
    }

    pub(super) fn other(doing: &'static str, error: &dyn fmt::Display) -> Self {
        Self::System {
            doing,
            reason: error.to_string(),
        }
    }
}

/// What the operating system said, at the bottom of an error.
fn io_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error);
        }
        if let Some(call) = error.downcast_ref::<aya::sys::SyscallError>() {
            return Some(&call.io_error);
        }
        cause = error.source();
    }
    None
}

/// The verifier says what is wrong before its closing statistics.
fn last_words(log: &str) -> String {
    let is_said = |line: &&str| {
        let statistics = ["processed ", "stack depth", "verification time"];
        !line.is_empty() && !statistics.iter().any(|word| line.starts_with(word))
    };
    let last = log.lines().map(str::trim).rfind(is_said);
    last.unwrap_or_default().chars().take(200).collect()
}
