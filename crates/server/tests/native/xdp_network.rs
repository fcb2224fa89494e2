//! The XDP program behind a network: a server at one end of a veth acknowledges by it,
//! clients at the other end see every key linearizable, and lost packets change nothing.

use std::net::SocketAddr;

use curtail_ordered_queue::layout;
use curtail_runtime::{Attach, NicOptions, Xdp, XdpOptions};
use curtail_server::{Config, NativeMode};
use curtail_testing::{native_config, start};

use crate::{
    faults::count_over_bad_networks,
    histories::{Amount, FEW, Spread, judge_many, judge_right},
    veth::{CLIENT_INTERFACE, INTERFACE, SERVER, Veth, in_a_thread},
};

/// Where a server and its clients are.
pub(crate) struct Network<'a> {
    pub(crate) link: &'a Veth,
    /// Who runs the program.
    pub(crate) attach: Attach,
    /// Whether datagrams are lost, doubled, delayed and reordered.
    pub(crate) is_lossy: bool,
    /// What the driver needs at the other end.
    _peer: Option<Xdp>,
}

impl<'a> Network<'a> {
    pub(crate) fn new(link: &'a Veth, attach: Attach, is_lossy: bool) -> Self {
        Self {
            link,
            attach,
            is_lossy,
            _peer: (attach == Attach::Native).then(|| link.at_client(|| pass_all(link))),
        }
    }

    /// Has a server acknowledge by the program.
    pub(crate) fn configure(&self, config: &mut Config) {
        config.listen[0].address = SocketAddr::from((SERVER, 0));
        let native = config.native.as_mut().unwrap();
        native.mode = Some(NativeMode::Xdp);
        native.interface = Some(INTERFACE.to_owned());
        native.attach = self.attach;
        native.pin = self.link.namespace.pins.join("curtail");
    }
}

/// A program that passes everything at the client's end: without one, answers of the driver's
/// program do not arrive there. It is the same one, for a port that nobody uses.
fn pass_all(link: &Veth) -> Xdp {
    let slots = 64;
    let options = XdpOptions {
        interface: CLIENT_INTERFACE.to_owned(),
        pin_directory: link.namespace.pins.join("peer"),
        attach: Attach::Native,
        nic: NicOptions {
            port: 9,
            queues: 1,
            slots,
            queue_words: layout::queue_words(slots.into()),
            value_words: layout::VALUE_WORDS,
            stamp_words: layout::STAMP_WORDS,
            places: 1,
            session_words: layout::SESSION_WORDS,
            secrets: [0; 4],
            heartbeat_ns_max: 0,
            lease_ns: 0,
            datagram_bytes_max: 0,
            value_bytes_max: 0,
            redirect: false,
            on_node: false,
        },
    };
    Xdp::start(&options).unwrap()
}

#[test]
fn the_program_in_the_kernels_stack_keeps_every_key_linearizable() {
    in_a_thread(|| {
        if let Some(link) = Veth::join() {
            let network = Network::new(&link, Attach::Generic, false);
            for workers in [1, 3] {
                let spread = Spread::new(NativeMode::Xdp, workers);
                judge_right(Some(&network), spread, FEW);
            }
        }
    });
}

#[test]
fn the_program_in_the_driver_keeps_every_key_linearizable() {
    in_a_thread(|| {
        if let Some(link) = Veth::join() {
            let network = Network::new(&link, Attach::Native, false);
            judge_right(Some(&network), Spread::new(NativeMode::Xdp, 2), FEW);
        }
    });
}

/// The same where an eighth of the packets each way is lost and an eighth doubled.
#[test]
fn lost_packets_keep_every_key_linearizable() {
    const LESS: Amount = Amount {
        rounds: 60,
        keys: 4,
    };
    in_a_thread(|| {
        if let Some(link) = Veth::join() {
            let network = Network::new(&link, Attach::Generic, true);
            judge_right(Some(&network), Spread::new(NativeMode::Xdp, 2), LESS);
        }
    });
}

/// Counters equal what was acknowledged (JB-T3), although packets are lost and doubled.
#[test]
fn counters_are_exact_although_packets_are_lost() {
    in_a_thread(|| {
        let Some(link) = Veth::join() else {
            return;
        };
        for (attach, backlog_max) in [(Attach::Generic, 8), (Attach::Native, 256)] {
            let network = Network::new(&link, attach, true);
            let mut config = native_config(NativeMode::Xdp);
            network.configure(&mut config);
            let native = config.native.as_mut().unwrap();
            (native.slots, native.backlog_max) = (Some(64), backlog_max);
            let server = start(Config {
                workers: 2,
                ..config
            });
            link.at_client(|| count_over_bad_networks(&server));
        }
    });
}

#[test]
#[ignore = "minutes: run by cargo xtask test --all"]
fn a_million_requests_behind_the_program_stay_linearizable() {
    in_a_thread(|| {
        if let Some(link) = Veth::join() {
            let network = Network::new(&link, Attach::Generic, false);
            judge_many(Some(&network), NativeMode::Xdp);
        }
    });
}

/// The judge notices a bug over this path too.
#[test]
#[cfg(debug_assertions)]
fn planted_bugs_behind_the_program_are_caught() {
    use crate::histories::{RUNS_MAX, judge};
    use curtail_history::Verdict;
    use curtail_server::Fault;

    in_a_thread(|| {
        let Some(link) = Veth::join() else {
            return;
        };
        let network = Network::new(&link, Attach::Generic, false);
        for fault in [Fault::SkipsStamps, Fault::RedoesWrites] {
            let caught = (0..RUNS_MAX).any(|_| {
                let spread = Spread::new(NativeMode::Xdp, 2);
                let judged = judge(Some(&network), spread, FEW, fault);
                matches!(judged.verdict, Verdict::Violation(_))
            });
            assert!(caught, "{fault:?} went unnoticed");
        }
    });
}
