//! A client that waits for its answers instead of sending again, so that every request visits what
//! the rules lead it to, however busy the machine is.

use std::time::Duration;

use curtail_client::tier::{TierRequests, TierSocket, TierTarget};
use curtail_codec::tiered::{
    DATAGRAM_BYTES_MAX, TieredDatagram, TieredFlags, TieredHead, TieredOpcode, TieredStatus,
};
use curtail_types::Key;

use super::test_tier::frames_from;

pub(crate) struct PatientClient {
    socket: TierSocket,
    requests: TierRequests,
    may_lose: bool,
    is_past_cache: bool,
    /// Requests without an answer.
    pub(crate) lost: u64,
}

/// What a `get` brought.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Got {
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) is_from_cache: bool,
}

impl PatientClient {
    pub(crate) fn open(target: TierTarget, number: u32) -> Self {
        let socket = TierSocket::open(&target, frames_from).unwrap();
        Self {
            requests: TierRequests::new(target, number, socket.own(), 1),
            socket,
            may_lose: false,
            is_past_cache: false,
            lost: 0,
        }
    }

    /// Open vSwitch drops a packet now and then while it revalidates: what has no answer is asked
    /// again then, as a new request. Others lose nothing.
    pub(crate) fn on_switch_that_loses(mut self, may_lose: bool) -> Self {
        self.may_lose = may_lose;
        let wait = if may_lose { 2 } else { 60 };
        let wait = Some(Duration::from_secs(wait));
        self.socket.socket().set_read_timeout(wait).unwrap();
        self
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Got {
        self.ask(TieredOpcode::Get, key, &[])
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.ask(TieredOpcode::Put, key, value);
    }

    /// From the key's back end.
    pub(crate) fn get_past_cache(&mut self, key: &[u8]) -> Got {
        self.is_past_cache = true;
        let got = self.get(key);
        self.is_past_cache = false;
        got
    }

    fn ask(&mut self, opcode: TieredOpcode, key: &[u8], value: &[u8]) -> Got {
        for _ in 0..LOST_MAX {
            if let Some(got) = self.ask_once(opcode, key, value) {
                return got;
            }
            assert!(self.may_lose, "a datagram was lost");
            self.lost += 1;
        }
        panic!("no answer to {LOST_MAX} requests");
    }

    fn ask_once(&mut self, opcode: TieredOpcode, key: &[u8], value: &[u8]) -> Option<Got> {
        let key = Key::new(key).unwrap();
        let mut head = self.requests.head(opcode, key);
        if self.is_past_cache {
            head = self.requests.again(head, key);
        }
        let (key, mut room) = (Some(key), [0; DATAGRAM_BYTES_MAX + 1]);
        let mut send = |client: &mut Self, head: TieredHead| {
            let asked = TieredDatagram { head, key, value };
            let bytes = asked.encode(&mut room, None).unwrap();
            let to = client.requests.destination(&head);
            client.socket.send(to, &room[..bytes]).unwrap();
        };
        send(self, head);
        let mut room = [0; DATAGRAM_BYTES_MAX + 1];
        loop {
            let bytes = self.socket.socket().recv(&mut room).ok()?;
            let Some(reply) = self.requests.reply(&room[..bytes]) else {
                continue;
            };
            if !TierRequests::answers(&head, &reply.head) {
                continue;
            }
            match reply.head.status {
                TieredStatus::Busy => {
                    std::thread::sleep(Duration::from_millis(10));
                    send(self, head);
                }
                TieredStatus::NotCached => {
                    head = self.requests.past_caches(head, key.unwrap());
                    send(self, head);
                }
                status => {
                    let is_found = status == TieredStatus::Done;
                    assert!(is_found || status == TieredStatus::NotFound);
                    return Some(Got {
                        value: is_found.then(|| reply.value.to_vec()),
                        is_from_cache: reply.head.flags.has(TieredFlags::FROM_CACHE),
                    });
                }
            }
        }
    }
}

/// In a row.
const LOST_MAX: u32 = 5;
