//! The queues' memory as maps of the XDP program, which admits and acknowledges writes
//! before this process has run, and goes on while it is away.

use curtail_ordered_queue::{OrderedQueue, layout};
use curtail_runtime::{Attach, MapsOrigin, Nic, NicOptions, Xdp, XdpOptions};
use curtail_types::HashSeed;
use tracing::error;

use crate::{
    log::component,
    native::{
        HEARTBEAT_NS_MAX, NativeConfig,
        queue_memory::{QueueMemory, Secrets, Shape},
    },
    sync::AtomicU64,
};

/// The program on an interface, and what it shares with this process.
pub(super) struct NicMemory {
    xdp: Xdp,
    interface: String,
    /// Whether the words hold queues already; who died before the last one was made has taken
    /// nothing.
    is_found: bool,
}

impl NicMemory {
    /// Attaches the program to `interface` for datagrams to `port`, or takes over what an earlier
    /// process left there; says in words why it cannot.
    pub(super) fn start(
        config: &NativeConfig,
        interface: &str,
        shape: Shape,
        port: u16,
        (item_bytes_max, on_node): (usize, bool),
    ) -> Result<Self, String> {
        let datagram_bytes_max = match interface {
            "lo" => layout::PAYLOAD_BYTES_MAX,
            _ => config.datagram_bytes_max.min(layout::PAYLOAD_BYTES_MAX),
        };
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let options = XdpOptions {
            interface: interface.to_owned(),
            pin_directory: config.pin.clone(),
            attach: config.attach,
            nic: NicOptions {
                port,
                queues: narrow(shape.queues),
                slots: u32::try_from(shape.slots).unwrap_or(u32::MAX),
                queue_words: layout::queue_words(shape.slots),
                value_words: layout::VALUE_WORDS,
                stamp_words: layout::STAMP_WORDS,
                places: narrow(shape.sessions),
                session_words: layout::SESSION_WORDS,
                secrets: [0; 4],
                heartbeat_ns_max: HEARTBEAT_NS_MAX,
                lease_ns: u64::from(config.lease_ms) * 1_000_000,
                datagram_bytes_max: narrow(datagram_bytes_max),
                value_bytes_max: narrow(item_bytes_max),
                redirect: false,
                on_node,
            },
        };
        let xdp = Xdp::start(&options).map_err(|error| error.to_string())?;
        let queue_words = options.nic.queue_words;
        let last = xdp.nic().queues().rchunks_exact(queue_words).next();
        let is_made = last.is_some_and(|words| OrderedQueue::open(words).is_ok());
        Ok(Self {
            is_found: is_made && xdp.nic().origin() == MapsOrigin::Found,
            xdp,
            interface: interface.to_owned(),
        })
    }
}

impl QueueMemory for NicMemory {
    fn queues(&self) -> &[AtomicU64] {
        self.xdp.nic().queues()
    }

    fn stamps(&self) -> &[AtomicU64] {
        self.xdp.nic().stamps()
    }

    fn sessions(&self) -> &[AtomicU64] {
        self.xdp.nic().sessions()
    }

    fn gates(&self) -> &[AtomicU64] {
        self.xdp.nic().gates()
    }

    fn is_found(&self) -> bool {
        self.is_found
    }

    fn secrets(&self) -> Option<Secrets> {
        let [a, b, c, d] = self.xdp.nic().secrets();
        self.is_found.then_some(Secrets {
            seed: HashSeed([a, b]),
            tokens: HashSeed([c, d]),
        })
    }

    fn adopt(&self, secrets: Secrets) {
        let ([a, b], [c, d]) = (secrets.seed.0, secrets.tokens.0);
        self.xdp.nic().set_secrets([a, b, c, d]);
    }

    fn place(&self) -> Option<String> {
        let runs = match self.xdp.attached() {
            Attach::Generic => "the kernel's stack",
            _ => "the driver",
        };
        Some(format!(
            "XDP on {}, run by {runs}, pinned in {}",
            self.interface,
            self.xdp.directory().display()
        ))
    }

    fn acknowledges(&self) -> bool {
        true
    }

    fn beat(&self, unix_ns: u64) {
        self.xdp.nic().set_clock(unix_ns);
    }

    fn quiesce(&self) {
        if let Err(error) = Nic::quiesce() {
            error!(
                target: component::NATIVE,
                "the server could not wait until the XDP program had finished the packets in \
                 progress: {error}. If the program acknowledges a write in one of these packets, \
                 the write may be lost"
            );
        }
    }

    fn stop(&self) {
        self.xdp.unpin();
    }
}
