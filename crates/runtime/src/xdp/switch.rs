//! The switch program of a cache tier and its maps (SwitchKV requirement SW-88).
//!
//! It runs on every interface that is a port of the switch and redirects frames among them. With a
//! directory of pins, program and rules outlive the process, and the next one finds them:
//!
//! ```text
//! PIN DIRECTORY/            mode 0700, locked by the process that controls the switch
//!     keys routes ports macs spread network unknown        maps
//!     link-INTERFACE                                       what attaches the program
//! ```

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use aya::maps::xdp::DevMap;
use aya::maps::{Array, Map, MapError, PerCpuArray, PerCpuHashMap, PerCpuValues};
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::XdpLink;
use aya::programs::{TestRun as _, TestRunOptions, Xdp as Program};
use aya::util::nr_cpus;
use aya::{Ebpf, EbpfLoader};

use super::attached::{Attach, attach_anew, lock, make_directory, see_interface};
use super::error::XdpError;
use super::program::load;

/// How the program reads addresses.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SwitchNetwork {
    /// From IPv6 destinations of the cluster with this number.
    Ipv6(u32),
    /// From MAC destinations, and IPv4 destinations of the network that begins like this.
    Mac([u8; 2]),
}

/// A rule or a route: where frames go, and how many went.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SwitchRule {
    /// The controller's; the program does not look at it.
    pub cookie: u64,
    /// The number of the port; with [`SwitchProgram::SPREAD`] the frame's slot has another.
    pub port: u32,
    /// Frames that it has redirected.
    pub packets: u64,
}

/// What the program did with a frame.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SwitchFate {
    /// It went to a port.
    Forwarded,
    /// It has nowhere to go.
    Dropped,
    /// It is the kernel's.
    Passed,
    /// The program met what cannot be.
    Aborted,
}

/// The program, its maps, and the interfaces that it runs on.
pub struct SwitchProgram {
    ebpf: Ebpf,
    /// Processors that have copies of counters.
    cpus: usize,
    links: Vec<PinnedOrNot>,
    directory: Option<PathBuf>,
    is_fresh: bool,
    /// Held for its lock.
    _lock: Option<File>,
}

/// Keeps the program attached.
enum PinnedOrNot {
    Pinned(#[expect(dead_code, reason = "held")] PinnedLink),
    Not(#[expect(dead_code, reason = "held")] FdLink),
}

/// A rule in the map: cookie, port, packets.
type Words = [u64; 3];

const MAPS: [&str; 7] = [
    "keys", "routes", "ports", "macs", "spread", "network", "unknown",
];
const PROGRAM: &str = "curtail_switch";
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../bpf/switch.bpf.o");
const ENCODING: u32 = 0;
const NETWORK: u32 = 1;

impl SwitchProgram {
    /// Ports that it may have, numbered from 1.
    pub const PORTS_MAX: u32 = 1023;
    /// In the port of a rule: frames go to the port of their slot, by the sender's UDP port.
    pub const SPREAD: u32 = 1 << 31;

    /// Loads the program through the kernel's verifier, with room for `rules_max` rules of keys.
    /// With `pins`, its maps are found in that directory or pinned there; without, they end with
    /// the value.
    pub fn load(
        network: SwitchNetwork,
        rules_max: u32,
        pins: Option<&Path>,
    ) -> Result<Self, XdpError> {
        Self::load_object(OBJECT, network, rules_max, pins)
    }

    /// The same with another object, for tests.
    pub fn load_object(
        object: &[u8],
        network: SwitchNetwork,
        rules_max: u32,
        pins: Option<&Path>,
    ) -> Result<Self, XdpError> {
        let mut lock_file = None;
        let mut is_fresh = true;
        if let Some(directory) = pins {
            make_directory(directory)?;
            lock_file = Some(lock(directory, "of the switch")?);
            is_fresh = !MAPS.iter().all(|map| directory.join(map).exists());
            if is_fresh {
                remove_pins(directory);
            }
        }
        let mut loader = EbpfLoader::new();
        // Nothing in the object depends on the kernel's own types, which take long to read.
        loader.btf(None);
        loader.map_max_entries("keys", rules_max);
        if let Some(directory) = pins {
            for map in MAPS {
                loader.map_pin_path(map, directory.join(map));
            }
        }
        let ebpf = loader.load(object).map_err(|e| XdpError::loading(&e))?;
        let (_, cpus) = (
            0,
            nr_cpus().map_err(|(_, error)| XdpError::system("counting the processors", &error))?,
        );
        let mut switch = Self {
            ebpf,
            cpus,
            links: Vec::new(),
            directory: pins.map(Path::to_path_buf),
            is_fresh,
            _lock: lock_file,
        };
        switch.settle(network, rules_max)?;
        load(switch.program()?)?;
        Ok(switch)
    }

    /// Whether the maps were made now, and not found.
    pub const fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Makes an interface the port with this number: the program runs there, and frames may be sent
    /// there, with this MAC destination if one is given. An interface that an earlier process
    /// attached the program to gets this program in its place.
    pub fn add_port(
        &mut self,
        port: u32,
        interface: &str,
        mac: Option<[u8; 6]>,
        attach: Attach,
    ) -> Result<(), XdpError> {
        self.point_port(port, interface, mac)?;
        let pin = self.directory.as_ref();
        let pin = pin.map(|directory| directory.join(format!("link-{interface}")));
        if let Some(pin) = pin.as_ref().filter(|pin| pin.exists())
            && let Some(link) = replace(self.program()?, pin)?
        {
            self.links.push(PinnedOrNot::Pinned(link));
            return Ok(());
        }
        let (link, _) = attach_anew(self.program()?, interface, attach)?;
        let link = match pin {
            Some(pin) => PinnedOrNot::Pinned(
                link.pin(&pin)
                    .map_err(|error| XdpError::other("pinning the link", &error))?,
            ),
            None => PinnedOrNot::Not(link),
        };
        self.links.push(link);
        Ok(())
    }

    /// Has the port with this number send to an interface, without running the program there.
    pub fn point_port(
        &mut self,
        port: u32,
        interface: &str,
        mac: Option<[u8; 6]>,
    ) -> Result<(), XdpError> {
        let doing = "setting up a port";
        if !(1..=Self::PORTS_MAX).contains(&port) {
            let reason = format!("ports are numbered from 1 to {}", Self::PORTS_MAX);
            return Err(XdpError::System { doing, reason });
        }
        let failed = |error| XdpError::map(doing, &error);
        let index = see_interface(interface)?;
        let mut ports: DevMap<_> = self.map("ports")?.try_into().map_err(failed)?;
        let set = ports.set(port, index, None, 0);
        set.map_err(|error| XdpError::other(doing, &error))?;
        let [a, b, c, d, e, f] = mac.unwrap_or_default();
        let mac = u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]);
        let mut macs: Array<_, u64> = self.map("macs")?.try_into().map_err(failed)?;
        macs.set(port, mac, 0).map_err(failed)
    }

    /// Installs rules of keys, by the words of their addresses. `Ok(false)` if the map is full; the
    /// rules before that one are there then.
    pub fn install(&mut self, rules: &[(u64, SwitchRule)]) -> Result<bool, XdpError> {
        self.insert("keys", rules)
    }

    /// Deletes rules of keys; whether each was there makes no difference.
    pub fn delete(&mut self, words: &[u64]) -> Result<(), XdpError> {
        self.remove("keys", words)
    }

    /// Every rule of a key.
    pub fn rules(&self) -> Result<Vec<(u64, SwitchRule)>, XdpError> {
        self.entries("keys")
    }

    /// Where frames for a host or a back end go, by the word of its address; that of a back end
    /// has tag 0. Port 0 for nowhere. What the route has counted begins at the rule's `packets`.
    pub fn set_route(&mut self, word: u64, rule: SwitchRule) -> Result<(), XdpError> {
        match rule.port {
            0 => self.remove("routes", &[word]),
            _ if self.insert("routes", &[(word, rule)])? => Ok(()),
            _ => Err(XdpError::System {
                doing: "installing a route",
                reason: "there is no room for another".to_string(),
            }),
        }
    }

    /// The port of each slot, for rules that are [`SPREAD`](Self::SPREAD).
    pub fn set_slots(&mut self, ports: impl IntoIterator<Item = u32>) -> Result<(), XdpError> {
        let failed = |error| XdpError::map("dividing the senders", &error);
        let mut map: Array<_, u64> = self.map("spread")?.try_into().map_err(failed)?;
        for (slot, port) in (0..).zip(ports) {
            map.set(slot, u64::from(port), 0).map_err(failed)?;
        }
        Ok(())
    }

    /// Every route.
    pub fn routes(&self) -> Result<Vec<(u64, SwitchRule)>, XdpError> {
        self.entries("routes")
    }

    /// Frames that had nowhere to go.
    pub fn unknown(&self) -> Result<u64, XdpError> {
        let failed = |error| XdpError::map("reading the counts", &error);
        let map = self.ebpf.map("unknown").ok_or_else(missing)?;
        let map: PerCpuArray<_, u64> = map.try_into().map_err(failed)?;
        Ok(map.get(&0, 0).map_err(failed)?.iter().sum())
    }

    /// Gives the program a frame, `repeat` times, without a network: what it did, the frame
    /// afterwards, and how long it took, in nanoseconds.
    pub fn run(
        &mut self,
        frame: &[u8],
        repeat: u32,
    ) -> Result<(SwitchFate, Vec<u8>, u64), XdpError> {
        let mut out = vec![0; frame.len() + 256];
        let program = self.program()?;
        let answer = program.test_run(TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..TestRunOptions::new()
        });
        let answer = answer.map_err(|e| XdpError::other("running the program", &e))?;
        out.truncate(answer.data_size_out as usize);
        let fate = match answer.return_value {
            1 => SwitchFate::Dropped,
            2 => SwitchFate::Passed,
            4 => SwitchFate::Forwarded,
            _ => SwitchFate::Aborted,
        };
        Ok((fate, out, answer.duration.as_nanos() as u64))
    }

    /// Removes the pins, for a planned stop: the program and all rules end with this value.
    pub fn unpin(&self) {
        if let Some(directory) = &self.directory {
            remove_pins(directory);
            let _ = fs::remove_dir(directory);
        }
    }

    /// Says how addresses are read. A table that was found must be as large, and read the same way.
    fn settle(&mut self, network: SwitchNetwork, rules_max: u32) -> Result<(), XdpError> {
        let failed = |error| XdpError::map("reading the settings", &error);
        let (encoding, number) = match network {
            SwitchNetwork::Ipv6(cluster) => (0, u64::from(cluster)),
            SwitchNetwork::Mac(network) => (1, u64::from(u16::from_be_bytes(network))),
        };
        let found = match self.ebpf.map("keys") {
            Some(Map::PerCpuHashMap(map)) => map.info().map_err(failed)?.max_entries(),
            _ => return Err(missing()),
        };
        let directory = self.directory.clone().unwrap_or_default();
        let shape = |what, found, wanted| match found == wanted {
            true => Ok(()),
            false => Err(XdpError::Shape {
                what,
                found,
                wanted,
                directory: directory.clone(),
            }),
        };
        shape("rules at most", u64::from(found), u64::from(rules_max))?;
        let is_fresh = self.is_fresh;
        let mut map: Array<_, u64> = self.map("network")?.try_into().map_err(failed)?;
        for (at, value) in [(ENCODING, encoding), (NETWORK, number)] {
            if !is_fresh {
                shape("as its network", map.get(&at, 0).map_err(failed)?, value)?;
            }
            map.set(at, value, 0).map_err(failed)?;
        }
        Ok(())
    }

    fn insert(&mut self, name: &str, rules: &[(u64, SwitchRule)]) -> Result<bool, XdpError> {
        let failed = |error| XdpError::map("installing a rule", &error);
        let cpus = self.cpus;
        let map = self.ebpf.map_mut(name).ok_or_else(missing)?;
        let mut map: PerCpuHashMap<_, u64, Words> = map.try_into().map_err(failed)?;
        for (word, rule) in rules {
            match map.insert(word, copies(cpus, *rule)?, 0) {
                Err(MapError::SyscallError(call))
                    if call.io_error.raw_os_error() == Some(libc::E2BIG) =>
                {
                    return Ok(false);
                }
                done => done.map_err(failed)?,
            }
        }
        Ok(true)
    }

    fn remove(&mut self, name: &str, words: &[u64]) -> Result<(), XdpError> {
        let failed = |error| XdpError::map("deleting a rule", &error);
        let map = self.map(name)?;
        let mut map: PerCpuHashMap<_, u64, Words> = map.try_into().map_err(failed)?;
        for word in words {
            match map.remove(word) {
                Err(MapError::KeyNotFound) => {}
                Err(MapError::SyscallError(call))
                    if call.io_error.raw_os_error() == Some(libc::ENOENT) => {}
                done => done.map_err(failed)?,
            }
        }
        Ok(())
    }

    fn entries(&self, name: &str) -> Result<Vec<(u64, SwitchRule)>, XdpError> {
        let failed = |error| XdpError::map("reading the rules", &error);
        let map = self.ebpf.map(name).ok_or_else(missing)?;
        let map: PerCpuHashMap<_, u64, Words> = map.try_into().map_err(failed)?;
        let mut entries = Vec::new();
        for entry in map.iter() {
            let (word, values) = entry.map_err(failed)?;
            entries.push((word, sum(values.iter())));
        }
        Ok(entries)
    }

    fn map(&mut self, name: &str) -> Result<&mut Map, XdpError> {
        self.ebpf.map_mut(name).ok_or_else(missing)
    }

    fn program(&mut self) -> Result<&mut Program, XdpError> {
        let program = self.ebpf.program_mut(PROGRAM).ok_or_else(missing)?;
        program
            .try_into()
            .map_err(|error| XdpError::other("opening the program", &error))
    }
}

impl fmt::Debug for SwitchProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("SwitchProgram");
        let fields = fields.field("directory", &self.directory);
        fields
            .field("ports", &self.links.len())
            .finish_non_exhaustive()
    }
}

/// The copies of a rule for the processors. What it has counted starts on the first.
fn copies(cpus: usize, rule: SwitchRule) -> Result<PerCpuValues<Words>, XdpError> {
    let mut values = vec![[rule.cookie, u64::from(rule.port), 0]; cpus];
    if let Some([_, _, packets]) = values.first_mut() {
        *packets = rule.packets;
    }
    let copies = values.try_into();
    copies.map_err(|error| XdpError::system("counting the processors", &error))
}

fn sum<'a>(values: impl Iterator<Item = &'a Words>) -> SwitchRule {
    values.fold(SwitchRule::default(), |all, [cookie, port, packets]| {
        SwitchRule {
            cookie: *cookie,
            port: *port as u32,
            packets: all.packets + packets,
        }
    })
}

/// Puts the program in the place of the pinned link's. `None` if the link is that of an interface
/// that is gone; its pin is removed then.
fn replace(program: &mut Program, pin: &Path) -> Result<Option<PinnedLink>, XdpError> {
    let doing = "taking over the pinned link";
    let other = |error: &dyn fmt::Display| XdpError::other(doing, error);
    let pinned = PinnedLink::from_pin(pin).map_err(|error| other(&error))?;
    let link = XdpLink::try_from(FdLink::from(pinned)).map_err(|error| other(&error))?;
    let Ok(id) = program.attach_to_link(link) else {
        fs::remove_file(pin).map_err(|error| XdpError::system(doing, &error))?;
        return Ok(None);
    };
    drop(program.take_link(id).map_err(|error| other(&error))?); // the pin holds it
    let pinned = PinnedLink::from_pin(pin).map_err(|error| other(&error))?;
    Ok(Some(pinned))
}

/// What is not there need not be removed, and what cannot be is found by the next process.
fn remove_pins(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let _ = fs::remove_file(entry.path());
    }
}

fn missing() -> XdpError {
    XdpError::System {
        doing: "reading the object",
        reason: "it has not all maps and the program".to_string(),
    }
}
