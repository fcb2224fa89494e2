//! A gateway whose tier loses replies: a write that is sent again keeps its number, by which a back
//! end knows it, so it runs once (SW-14).

use std::{
    collections::BTreeSet,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use curtail_codec::tiered::{
    DATAGRAM_BYTES_MAX, HostId, TierAddress, TieredDatagram, TieredFlags, TieredOpcode,
    TieredStatus,
};
use curtail_server::{Config, Fault};
use curtail_testing::{Client, gateway_config, start};
use curtail_types::Cas;

/// A back end that runs each write with its own number once, and whose first reply is lost: how
/// often it ran the only write of a client.
fn runs_of_one_write(fault: Fault) -> usize {
    let tier = UdpSocket::bind("127.0.0.1:0").unwrap();
    tier.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let server = start(Config {
        faults: fault.into(),
        ..gateway_config(tier.local_addr().unwrap())
    });
    let mut client = Client::connect(&server);
    client.send("set key 0 0 1\r\nx\r\n");
    let (mut ran, mut room) = (BTreeSet::new(), [0; DATAGRAM_BYTES_MAX + 1]);
    for copy in 0..2 {
        let (bytes, _) = tier.recv_from(&mut room).unwrap();
        let put = TieredDatagram::decode(&room[..bytes], None).unwrap();
        let head = put.head;
        assert_eq!(head.opcode, TieredOpcode::Put);
        assert_eq!(head.flags.has(TieredFlags::RETRY), copy == 1);
        ran.insert((head.sender, head.sequence));
        if copy == 0 {
            continue;
        }
        let mut reply = head.reply(TierAddress::host(HostId(head.sender)), TieredStatus::Done);
        reply.version = Cas(1);
        let (key, value) = (put.key, &[][..]);
        let reply = TieredDatagram {
            head: reply,
            key,
            value,
        };
        let mut out = [0; DATAGRAM_BYTES_MAX];
        let bytes = reply.encode(&mut out, None).unwrap();
        let client_at = SocketAddr::from(([127, 0, 0, 1], head.client_port));
        tier.send_to(&out[..bytes], client_at).unwrap();
    }
    client.expect("STORED\r\n");
    ran.len()
}

#[test]
fn a_write_that_is_sent_again_keeps_its_number() {
    assert_eq!(runs_of_one_write(Fault::Nothing), 1);
}

#[test]
#[cfg(debug_assertions)]
fn a_new_number_for_a_write_that_is_sent_again_is_found() {
    assert_eq!(runs_of_one_write(Fault::NumbersAgain), 2);
}
