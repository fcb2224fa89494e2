//! The program on an interface: pinned, so that it outlives the process, and locked, so that one
//! process at a time has it.
//!
//! ```text
//! PIN DIRECTORY/INTERFACE/     mode 0700, locked by the server that runs
//!     settings queues stamps sessions counts     maps; of a node of a cluster gates, too
//!     link                                       what attaches the program
//! ```
//!
//! The program stays when the process dies, and goes on as long as the heartbeat's age allows. The
//! next process finds the maps and puts its own program in the place of the old one, atomically.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aya::programs::Xdp as Program;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::{XdpLink, XdpMode};
use curtail_types::named_enum;
use rustix::fs::statfs;

use super::error::XdpError;
use super::program::{GATES, MAPS, Nic, NicOptions, object};
use super::settings;

/// Where the program is to be attached, and how.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// The interface.
    pub interface: String,
    /// Where pins are kept, a directory for each interface; in a BPF file system.
    pub pin_directory: PathBuf,
    /// Whether the driver runs the program.
    pub attach: Attach,
    /// The program and its maps.
    pub nic: NicOptions,
}

named_enum! {
    /// Who is to run the program.
    #[derive(Default)]
    pub enum Attach {
        /// The driver, or the kernel's stack if the driver cannot; for a veth the stack, since
        /// there the driver's answers are lost unless the other end has a program too.
        #[default]
        Any = "any",
        /// The driver, before the kernel makes a buffer of the frame.
        Native = "native",
        /// The kernel's stack, behind that; works with every interface.
        Generic = "generic",
    }
}

/// The attached program.
#[derive(Debug)]
pub struct Xdp {
    nic: Nic,
    /// Keeps the program attached when its pin is removed.
    _link: PinnedLink,
    attached: Attach,
    directory: PathBuf,
    /// Held for its lock.
    _lock: File,
}

impl Xdp {
    /// Loads and attaches the program, or takes over what an earlier process left. Nothing is
    /// acknowledged until the queues are open and their heartbeat runs.
    pub fn start(options: &XdpOptions) -> Result<Self, XdpError> {
        Self::start_object(object(&options.nic), options)
    }

    /// Whether [`start`](Self::start) would get as far as the interface: the directory of the pins
    /// lies in a BPF file system where this process may write, and the kernel takes the program.
    /// Nothing is attached, and nothing stays.
    pub fn probe(pin_directory: &Path) -> Result<(), XdpError> {
        let parent = see_file_system(pin_directory)?;
        see_writable(parent)?;
        Nic::probe()
    }

    /// The same with another object, for measurements of one beside the other.
    pub fn start_object(object: &[u8], options: &XdpOptions) -> Result<Self, XdpError> {
        see_interface(&options.interface)?;
        let directory = options.pin_directory.join(&options.interface);
        make_directory(&directory)?;
        let lock = lock(&directory, &options.interface)?;
        remove_half_made(&directory);
        let nic = Nic::load_object(object, &options.nic, Some(&directory));
        let attached = nic.and_then(|mut nic| {
            let (link, attached) = attach(&mut nic, options, &directory)?;
            Ok((nic, link, attached))
        });
        match attached {
            Ok((nic, link, attached)) => Ok(Self {
                nic,
                _link: link,
                attached,
                directory,
                _lock: lock,
            }),
            Err(error) => {
                // What holds no promise does not stay.
                if !directory.join(LINK).exists() && !matches!(error, XdpError::Shape { .. }) {
                    remove_pins(&directory);
                }
                Err(error)
            }
        }
    }

    /// The program and its maps.
    pub const fn nic(&self) -> &Nic {
        &self.nic
    }

    /// Who runs it; never [`Attach::Any`].
    pub const fn attached(&self) -> Attach {
        self.attached
    }

    /// Where it is pinned.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes the pins, for a planned stop, when the queues are empty: program and queues end with
    /// this value, and the next server makes new ones.
    pub fn unpin(&self) {
        remove_pins(&self.directory);
    }
}

/// Puts the program in the place of the pinned one, or attaches it.
fn attach(
    nic: &mut Nic,
    options: &XdpOptions,
    directory: &Path,
) -> Result<(PinnedLink, Attach), XdpError> {
    let path = directory.join(LINK);
    if path.exists()
        && let Some(attached) = replace(nic, &path)?
    {
        return Ok(attached);
    }
    let (link, attached) = attach_anew(nic.program()?, &options.interface, options.attach)?;
    let link = link
        .pin(&path)
        .map_err(|error| XdpError::other("pinning the link", &error))?;
    nic.set(settings::ATTACHED, attached as u64);
    Ok((link, attached))
}

/// `None` if the link is that of an interface that is gone; it is removed then.
fn replace(nic: &mut Nic, path: &Path) -> Result<Option<(PinnedLink, Attach)>, XdpError> {
    let doing = "taking over the pinned link";
    let other = |error: &dyn std::fmt::Display| XdpError::other(doing, error);
    let attached = match nic.setting(settings::ATTACHED) {
        2 => Attach::Generic,
        _ => Attach::Native,
    };
    let pinned = PinnedLink::from_pin(path).map_err(|error| other(&error))?;
    let link = XdpLink::try_from(FdLink::from(pinned)).map_err(|error| other(&error))?;
    let program = nic.program()?;
    let Ok(id) = program.attach_to_link(link) else {
        fs::remove_file(path).map_err(|error| XdpError::system(doing, &error))?;
        return Ok(None);
    };
    let link = program.take_link(id).map_err(|error| other(&error))?;
    drop(link); // the pin holds it
    let pinned = PinnedLink::from_pin(path).map_err(|error| other(&error))?;
    Ok(Some((pinned, attached)))
}

/// Attaches a loaded program to an interface that has none; who runs it.
pub(super) fn attach_anew(
    program: &mut Program,
    interface: &str,
    attach: Attach,
) -> Result<(FdLink, Attach), XdpError> {
    let modes: &[(XdpMode, Attach)] = match attach {
        Attach::Any if driver(interface).as_deref() == Some("veth") => &[GENERIC],
        Attach::Any => &[NATIVE, GENERIC],
        Attach::Native => &[NATIVE],
        Attach::Generic => &[GENERIC],
    };
    let mut refusal = None;
    for (mode, attached) in modes {
        let link = match program.attach(interface, *mode) {
            Ok(id) => program.take_link(id),
            Err(error) => {
                let error = XdpError::attaching(interface, &error);
                if matches!(error, XdpError::Occupied { .. }) {
                    return Err(error);
                }
                refusal.get_or_insert(error);
                continue;
            }
        };
        let link = link.map_err(|error| XdpError::attaching(interface, &error))?;
        match FdLink::try_from(link) {
            Ok(link) => return Ok((link, *attached)),
            // Attached the old way, which cannot be pinned; dropping it has detached it.
            Err(error) => {
                refusal.get_or_insert(XdpError::other("attaching by a link", &error));
            }
        }
    }
    Err(refusal.unwrap_or(XdpError::NotAllowed { doing: "attaching" }))
}

/// The number of an interface, which there must be.
pub(super) fn see_interface(interface: &str) -> Result<u32, XdpError> {
    let missing = || XdpError::NoInterface {
        interface: interface.to_string(),
    };
    let name = std::ffi::CString::new(interface).map_err(|_| missing())?;
    // SAFETY: the name ends with a zero byte and lives past the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    match index {
        0 => Err(missing()),
        index => Ok(index),
    }
}

/// The name of an interface's driver, if it tells one (ETHTOOL_GDRVINFO).
fn driver(interface: &str) -> Option<String> {
    let mut information = DriverInformation {
        command: DRIVER_INFORMATION,
        driver: [0; 32],
        _rest: [0; 160],
    };
    // SAFETY: all of it may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes().take(15)) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut information).cast();
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // SAFETY: the request names an interface and points to a structure that is as long as the
    // kernel's; both live past the call.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL, &mut request) };
    let name = information.driver.split(|byte| *byte == 0).next()?;
    let name = String::from_utf8_lossy(name).into_owned();
    (answer == 0).then_some(name)
}

/// struct ethtool_drvinfo, as far as it is read here.
#[repr(C)]
struct DriverInformation {
    command: u32,
    driver: [u8; 32],
    _rest: [u8; 160],
}

/// The nearest folder of `directory` that there is, if it lies in a BPF file system.
fn see_file_system(directory: &Path) -> Result<&Path, XdpError> {
    let parent = directory.ancestors().find(|parent| parent.exists());
    let parent = parent.filter(|parent| is_bpf_file_system(parent));
    parent.ok_or_else(|| XdpError::NoFileSystem {
        directory: directory.to_path_buf(),
    })
}

/// Whether this process may make folders in `directory`, by its effective rights.
fn see_writable(directory: &Path) -> Result<(), XdpError> {
    let doing = "making the directory of the pins";
    let name = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes());
    let name = name.map_err(|error| XdpError::other(doing, &error))?;
    let rights = libc::W_OK | libc::X_OK;
    // SAFETY: the name ends with a zero byte and lives past the call.
    let answer =
        unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), rights, libc::AT_EACCESS) };
    match answer {
        0 => Ok(()),
        _ => Err(XdpError::system(doing, &io::Error::last_os_error())),
    }
}

/// Makes the directory of the pins, in a BPF file system.
pub(super) fn make_directory(directory: &Path) -> Result<(), XdpError> {
    see_file_system(directory)?;
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(|error| XdpError::system("making the directory of the pins", &error))
}

fn is_bpf_file_system(directory: &Path) -> bool {
    statfs(directory).is_ok_and(|found| i128::from(found.f_type) == BPF_FILE_SYSTEM)
}

/// The kernel gives the lock back when the process ends, however it ends.
pub(super) fn lock(directory: &Path, interface: &str) -> Result<File, XdpError> {
    let doing = "locking the directory of the pins";
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
        .open(directory)
        .map_err(|error| XdpError::system(doing, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(XdpError::InUse {
            interface: interface.to_string(),
        }),
        Err(TryLockError::Error(error)) => Err(XdpError::system(doing, &error)),
    }
}

/// Pins of a process that died before it attached anything hold no promise.
fn remove_half_made(directory: &Path) {
    let whole = MAPS.iter().all(|map| directory.join(map).exists());
    if !whole {
        remove_files(directory);
    }
}

fn remove_pins(directory: &Path) {
    remove_files(directory);
    let _ = fs::remove_dir(directory);
}

/// What is not there need not be removed, and what cannot be is found by the next server.
fn remove_files(directory: &Path) {
    for name in MAPS.iter().chain([&GATES, &LINK]) {
        let _ = fs::remove_file(directory.join(name));
    }
}

const ETHTOOL: libc::Ioctl = 0x8946;
const DRIVER_INFORMATION: u32 = 3;
const LINK: &str = "link";
const NATIVE: (XdpMode, Attach) = (XdpMode::Driver, Attach::Native);
const GENERIC: (XdpMode, Attach) = (XdpMode::Skb, Attach::Generic);
/// BPF_FS_MAGIC.
const BPF_FILE_SYSTEM: i128 = 0xcafe_4a11;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what the server would refuse, the probe refuses with the same words, whatever rights
    /// the process has. Method: pins in a folder of an ordinary file system.
    #[test]
    fn a_probe_sees_that_there_is_no_bpf_file_system() {
        let directory = std::env::temp_dir().join("curtail-no-bpf-file-system");
        let probed = Xdp::probe(&directory).unwrap_err();
        assert!(matches!(probed, XdpError::NoFileSystem { .. }), "{probed}");
        let told = make_directory(&directory).unwrap_err().to_string();
        assert_eq!(probed.to_string(), told);
        assert!(!directory.exists(), "a probe makes nothing");
    }
}
