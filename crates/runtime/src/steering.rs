//! Which of several sockets at one address a datagram comes to, decided by a few instructions that
//! the kernel runs for each (classic BPF, `SO_ATTACH_REUSEPORT_CBPF`; needs no privileges): the
//! part of a network card that has a queue for each core and hashes keys (MICA, NSDI 2014; Minos,
//! NSDI 2019, section 3).
//!
//! ```text
//!   datagram --> opcode, key --> hash % sockets --> the socket that was bound as number so
//! ```
//!
//! The hash has no secret: who aims at one socket makes one core busy, and nothing else follows.

use std::io;

use crate::DatagramSocket;

/// What decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SteerBy {
    /// Chance.
    Random,
    /// The key, of everything but reads; chance for these.
    WritesByKey,
    /// The key.
    Key,
}

/// How datagrams are spread over sockets, and where they have what decides. Offsets are in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Steering {
    /// What decides.
    pub by: SteerBy,
    /// Sockets at the address, at least 1.
    pub sockets: u32,
    /// The byte that says what is asked for.
    pub opcode_at: u32,
    /// Its value for reads.
    pub read_opcode: u8,
    /// The byte that says how long the key is; where it is 0 chance decides.
    pub key_bytes_at: u32,
    /// The first byte of the key.
    pub key_at: u32,
}

impl DatagramSocket {
    /// Has the kernel spread what comes to this socket's address over the sockets bound there, in
    /// the order in which they were bound.
    pub fn steer(&self, steering: &Steering) -> io::Result<()> {
        let mut program = steering.program();
        let filter = libc::sock_fprog {
            len: u16::try_from(program.len()).unwrap_or(u16::MAX),
            filter: program.as_mut_ptr(),
        };
        let bytes = size_of_val(&filter) as libc::socklen_t;
        // SAFETY: `filter` is the program that this option takes: it points to `len` instructions,
        // which the kernel copies before the call returns and `program` keeps until then.
        let answer = unsafe {
            libc::setsockopt(
                self.number(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_REUSEPORT_CBPF,
                (&raw const filter).cast(),
                bytes,
            )
        };
        match answer {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Steering {
    /// The instructions. The hash multiplies and folds four bytes of the key at a time; its state
    /// is memory word 0, the key's length memory word 1.
    fn program(&self) -> Vec<libc::sock_filter> {
        let mut code = Vec::with_capacity(WORDS_MAX * 12 + 40);
        let random = [
            step(LD_ABS_W, RANDOM),
            step(MOD_K, self.sockets),
            step(RET_A, 0),
        ];
        if self.by == SteerBy::Random {
            return random.to_vec();
        }
        // A datagram without a header: its loads would end the program.
        code.push(step(LD_LEN, 0));
        code.push(jump(JGE_K, self.key_at, random.len() as u8, 0));
        code.extend(random);
        if self.by == SteerBy::WritesByKey {
            code.push(step(LD_ABS_B, self.opcode_at));
            let read = u32::from(self.read_opcode);
            code.push(jump(JEQ_K, read, 0, random.len() as u8));
            code.extend(random);
        }
        code.push(step(LD_ABS_B, self.key_bytes_at));
        code.push(step(ST, 1));
        code.push(jump(JEQ_K, 0, 0, random.len() as u8));
        code.extend(random);
        code.push(step(LD_IMM, SEED));
        code.push(step(ST, 0));
        // Four bytes at a time, as long as there are so many; then the rest, byte by byte.
        let mut leaves = Vec::new();
        for word in 0..WORDS_MAX as u32 {
            code.push(step(LD_MEM, 1));
            code.push(jump(JGE_K, 4 * (word + 1), 1, 0));
            leaves.push(code.len());
            code.push(step(JA, 0));
            code.push(step(LD_ABS_W, self.key_at + 4 * word));
            code.extend(FOLD);
        }
        let rest = code.len();
        for leave in leaves {
            if let Some(instruction) = code.get_mut(leave) {
                instruction.k = (rest - leave - 1) as u32;
            }
        }
        for byte in 0..3 {
            // X: where the rest begins; A: how much of it there is.
            code.extend([step(LD_MEM, 1), step(AND_K, !3), step(TAX, 0)]);
            code.extend([step(LD_MEM, 1), step(AND_K, 3)]);
            code.push(jump(JGT_K, byte, 0, 1 + FOLD.len() as u8));
            code.push(step(LD_IND_B, self.key_at + byte));
            code.extend(FOLD);
        }
        code.extend([step(LD_MEM, 0), step(RSH_K, 8), step(MOD_K, self.sockets)]);
        code.push(step(RET_A, 0));
        code
    }
}

/// Takes the accumulator into the hash.
const FOLD: [libc::sock_filter; 8] = [
    step(LDX_MEM, 0),
    step(XOR_X, 0),
    step(MUL_K, PRIME),
    step(ST, 0),
    step(TAX, 0),
    step(RSH_K, 15),
    step(XOR_X, 0),
    step(ST, 0),
];

/// Whole words of the longest key, 250 bytes.
const WORDS_MAX: usize = 62;
const SEED: u32 = 0x9747_b28c;
const PRIME: u32 = 0x9e37_79b1;
/// Where a load finds a random number (`SKF_AD_OFF + SKF_AD_RANDOM`).
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;

const LD_ABS_W: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LD_ABS_B: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LD_IND_B: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
const LD_LEN: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;
const LD_IMM: u32 = libc::BPF_LD | libc::BPF_IMM;
const LD_MEM: u32 = libc::BPF_LD | libc::BPF_MEM;
const LDX_MEM: u32 = libc::BPF_LDX | libc::BPF_MEM;
const ST: u32 = libc::BPF_ST;
const TAX: u32 = libc::BPF_MISC | libc::BPF_TAX;
const AND_K: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const MUL_K: u32 = libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K;
const MOD_K: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
const RSH_K: u32 = libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K;
const XOR_X: u32 = libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X;
const JA: u32 = libc::BPF_JMP | libc::BPF_JA;
const JEQ_K: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JGE_K: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const JGT_K: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const RET_A: u32 = libc::BPF_RET | libc::BPF_A;

const fn step(code: u32, k: u32) -> libc::sock_filter {
    jump(code, k, 0, 0)
}

/// An instruction that passes over so many if it is true, or if not.
const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::UdpSocket;

    use super::*;
    use crate::{DatagramOptions, Inbox, bind_udp};

    const SOCKETS: usize = 4;
    const READ: u8 = 5;
    const WRITE: u8 = 8;

    /// A header of 64 bytes as the native protocol has it, as far as it matters here.
    fn datagram(opcode: u8, key: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[3] = opcode;
        bytes[7] = key.len() as u8;
        bytes.extend(key);
        bytes.extend(b"value");
        bytes
    }

    /// Sends each datagram several times, from different ports; at which sockets it came.
    fn arrivals(by: SteerBy, datagrams: &[Vec<u8>]) -> Vec<BTreeMap<usize, usize>> {
        let options = DatagramOptions {
            shared: true,
            ..DatagramOptions::default()
        };
        let first = bind_udp("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let address = first.address().unwrap();
        let mut sockets = vec![first];
        for _ in 1..SOCKETS {
            sockets.push(bind_udp(address, options).unwrap());
        }
        let steering = Steering {
            by,
            sockets: SOCKETS as u32,
            opcode_at: 3,
            read_opcode: READ,
            key_bytes_at: 7,
            key_at: 64,
        };
        sockets[0].steer(&steering).unwrap();
        let mut inbox = Inbox::new(64);
        let of = |bytes: &Vec<u8>| {
            for _ in 0..12 {
                let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
                sender.send_to(bytes, address).unwrap();
            }
            let count = |number: usize| (number, inbox.receive(&sockets[number]));
            let all = (0..SOCKETS).map(count).filter(|(_, count)| *count > 0);
            all.collect()
        };
        datagrams.iter().map(of).collect()
    }

    /// Goal: a key's datagrams come to one socket from any sender, and keys of every length are
    /// spread over all. Method: keys of 1 to 250 bytes that differ in their last byte alone.
    #[test]
    fn a_key_has_one_socket_and_keys_are_spread() {
        let key = |length: usize, last: u8| {
            let mut key = vec![b'k'; length - 1];
            key.push(last);
            datagram(WRITE, &key)
        };
        for length in [1, 2, 3, 4, 5, 16, 41, 248, 250] {
            let keys: Vec<_> = (b'a'..=b'z').map(|last| key(length, last)).collect();
            let came = arrivals(SteerBy::Key, &keys);
            assert!(came.iter().all(|of| of.len() == 1), "{length}: {came:?}");
            let used: std::collections::BTreeSet<usize> =
                came.iter().flat_map(|of| of.keys().copied()).collect();
            assert_eq!(used.len(), SOCKETS, "keys of {length} bytes: {came:?}");
        }
    }

    /// Goal: reads go anywhere and writes by their key, chance spreads everything, and what is too
    /// short for a header, or has no key, arrives too.
    #[test]
    fn reads_go_anywhere_where_writes_go_by_key() {
        let both = [datagram(READ, b"some key"), datagram(WRITE, b"some key")];
        let came = arrivals(SteerBy::WritesByKey, &both);
        assert!(came[0].len() > 1, "{came:?}");
        assert_eq!(came[1].len(), 1);
        let came = arrivals(SteerBy::Random, &both);
        assert!(came.iter().all(|of| of.len() > 1), "{came:?}");
        let odd = [b"short".to_vec(), Vec::new(), datagram(WRITE, b"")];
        for by in [SteerBy::Random, SteerBy::WritesByKey, SteerBy::Key] {
            let came = arrivals(by, &odd);
            let all: Vec<usize> = came.iter().map(|of| of.values().sum()).collect();
            assert_eq!(all, [12, 12, 12], "{by:?}");
        }
    }
}
