//! A server that is killed at any moment while the program acknowledges, and started again: the
//! next one executes what waits in the queues exactly once and in order, and whatever was
//! acknowledged after the death is among it.
//!
//! The store ends with its process, so what a key holds afterwards is the result of the last of its
//! accepted writes on nothing: of all from some position on, that is not after the first write that
//! was sent after the death. Writes are pairs of ADD and APPEND of a number, so that one too many,
//! one missing or two in the wrong order leave another text.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use curtail_codec::native::{Opcode, Place, Reply, Status};
use curtail_runtime::Attach;
use curtail_server::{Config, NativeMode};
use curtail_testing::{Client as Memcached, PATIENCE, native_config, start};
use curtail_workload::Random;

use crate::{
    support::{Answer, Ask, Client, Line},
    veth::{INTERFACE, SERVER, Veth, in_a_thread},
};

const PORT: u16 = 11_211;
const NATIVE_PORT: u16 = 11_311;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Slots of the session that are used, one request outstanding in each.
const WINDOW: u8 = 24;

/// Not a test: the server that the tests start and kill.
#[test]
#[ignore = "the server process of the other tests"]
fn server_process() {
    let Ok(pins) = std::env::var("XDP_KILLS_PINS") else {
        return;
    };
    let mut config = native_config(NativeMode::Xdp);
    config.listen[0].address = SocketAddr::from((SERVER, PORT));
    let native = config.native.as_mut().unwrap();
    native.port = NATIVE_PORT;
    native.interface = Some(INTERFACE.to_owned());
    native.attach = Attach::Generic;
    native.pin = pins.into();
    native.slots = Some(256);
    // Executions take a while, so that something waits whenever the process dies.
    native.service_ns = 100_000;
    (native.backlog_max, native.read_wait_us) = (200, 0);
    let server = start(Config {
        workers: 2,
        ..config
    });
    println!(
        "serves: {}",
        server.native().unwrap().note.unwrap_or_default()
    );
    std::thread::sleep(Duration::from_secs(60));
}

/// A server process, killed when this is dropped.
struct Process {
    child: Child,
    /// What it said of the queues that it found.
    note: String,
}

impl Process {
    fn start(link: &Veth) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "xdp_kills::server_process", "--ignored"])
            .args(["--nocapture", "--test-threads=1"])
            .env("XDP_KILLS_PINS", link.namespace.pins.join("curtail"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let mut lines = BufReader::new(output).lines().map(Result::unwrap);
        let Some(note) = lines.find(|line| line.contains("serves: ")) else {
            panic!("the server process did not start");
        };
        Self { child, note }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A write that is accepted, or will be.
#[derive(Clone, Copy, Debug)]
struct Write {
    key: usize,
    /// `None`: the key is added.
    appended: Option<u64>,
    /// How many deaths there were before it was first sent.
    deaths: usize,
}

struct Writer {
    client: Client,
    random: Random,
    next: u64,
    deaths: usize,
    outstanding: Vec<Option<(Write, Vec<u8>)>>,
    /// The last datagram of each slot that was answered.
    answered: Vec<Option<Vec<u8>>>,
    /// All writes of each key, by position.
    writes: [BTreeMap<u64, Write>; KEYS.len()],
    accepted: usize,
}

impl Writer {
    fn connect() -> Self {
        let client = Client::connect_to(SocketAddr::from((SERVER, NATIVE_PORT)));
        let patience = Some(Duration::from_millis(2));
        client.socket.set_read_timeout(patience).unwrap();
        Self {
            client,
            random: Random::new(7),
            next: 0,
            deaths: 0,
            outstanding: vec![None; usize::from(WINDOW)],
            answered: vec![None; usize::from(WINDOW)],
            writes: Default::default(),
            accepted: 0,
        }
    }

    /// Sends what is outstanding, twice now and then, and what was answered before, too.
    fn send(&mut self, has_more: bool) {
        for slot in 0..WINDOW {
            let place = usize::from(slot);
            if self.outstanding[place].is_none() && has_more {
                self.outstanding[place] = Some(self.draw(slot));
            }
            let copies = 1 + self.random.below(2);
            let outstanding = self.outstanding[place].as_ref().map(|(_, bytes)| bytes);
            let again = self.answered[place].as_ref();
            let again = again.filter(|_| copies > 1 || outstanding.is_none());
            for bytes in outstanding.into_iter().chain(again) {
                for _ in 0..copies {
                    // Nobody may be there any more.
                    let _ = self.client.socket.send_to(bytes, self.client.to);
                }
            }
        }
    }

    fn draw(&mut self, slot: u8) -> (Write, Vec<u8>) {
        self.next += 1;
        let key = self.random.below(KEYS.len() as u64) as usize;
        let is_add = self.random.below(3) == 0;
        let write = Write {
            key,
            appended: (!is_add).then_some(self.next),
            deaths: self.deaths,
        };
        let text = format!("{} ", self.next);
        let ask = match is_add {
            true => Ask::store(Opcode::Add, KEYS[key].as_bytes(), b""),
            false => Ask::store(Opcode::Append, KEYS[key].as_bytes(), text.as_bytes()),
        };
        (write, self.client.bytes(slot, ask.nilext()))
    }

    /// Takes the answers that are there; how many writes were accepted.
    fn receive(&mut self) -> usize {
        let mut count = 0;
        while let Some(answer) = self.client.receive() {
            count += usize::from(self.note(&answer));
        }
        count
    }

    fn note(&mut self, answer: &Answer) -> bool {
        let Some(place) = place_of(answer) else {
            return false;
        };
        let (slot, sequence) = answer.slot_and_sequence();
        let index = usize::from(slot);
        let is_newest = |(_, bytes): &mut (Write, Vec<u8>)| bytes[32..40] == sequence.to_le_bytes();
        let Some((write, bytes)) = self.outstanding[index].take_if(is_newest) else {
            return false;
        };
        self.answered[index] = Some(bytes);
        let before = self.writes[write.key].insert(place.pos, write);
        assert!(before.is_none(), "two writes have one position");
        self.accepted += 1;
        true
    }

    /// Goes on for a while; how many writes were accepted.
    fn go_on(&mut self, time: Duration) -> usize {
        let ends = Instant::now() + time;
        let mut count = 0;
        while Instant::now() < ends {
            self.send(true);
            count += self.receive();
        }
        count
    }

    /// Waits until every write is accepted, and then sends each slot's last one again, which the
    /// server before may have accepted.
    fn settle(&mut self) {
        let started = Instant::now();
        while self.outstanding.iter().any(Option::is_some) {
            self.send(false);
            self.receive();
            assert!(started.elapsed() < PATIENCE, "never accepted");
        }
        for _ in 0..2 {
            self.send(false);
            self.receive();
        }
    }

    /// What is wrong with what a key holds.
    fn fault(&self, key: usize, found: Option<&str>) -> Option<String> {
        let judge = Judge(self.writes[key].values().copied().collect());
        let is_right = judge.explains(found, self.deaths);
        (!is_right).then(|| format!("{}: {found:?} is not what {:?} leave", KEYS[key], judge.0))
    }
}

/// All writes of a key, in their order.
struct Judge(Vec<Write>);

impl Judge {
    /// Whether the writes from some point on leave this, after so many deaths: from a write on that
    /// is not behind the first one that was sent after the last death.
    fn explains(&self, found: Option<&str>, deaths: usize) -> bool {
        let writes = &self.0;
        let since = writes.iter().position(|write| write.deaths == deaths);
        let mut beginnings = 0..=since.unwrap_or(writes.len());
        beginnings.any(|beginning| replay(&writes[beginning..]).as_deref() == found)
    }
}

/// What writes leave on an empty store.
fn replay(writes: &[Write]) -> Option<String> {
    let mut value: Option<String> = None;
    for write in writes {
        match write.appended {
            None => drop(value.get_or_insert_default()),
            Some(number) => value
                .iter_mut()
                .for_each(|value| *value += &format!("{number} ")),
        }
    }
    value
}

/// The place of a write that is accepted or executed.
fn place_of(answer: &Answer) -> Option<Place> {
    match answer.reply() {
        Reply::Ack(ack) => Some(ack.place),
        Reply::Result { place, status, .. } => {
            assert!(matches!(status, Status::NotStored | Status::Executed));
            Some(place)
        }
        Reply::Nack(_) => None,
        other => panic!("{other:?}"),
    }
}

/// Kills servers so often, or more often on a machine so busy that hardly anything was accepted
/// without a server; the first fault that is found.
fn killed(link: &Veth, deaths: usize) -> Option<String> {
    let mut server = Process::start(link);
    link.at_client(|| {
        let mut writer = Writer::connect();
        let (mut alone, mut found) = (0, 0);
        while writer.deaths < deaths || (alone <= deaths && writer.deaths < 10 * deaths) {
            let lives = Duration::from_micros(20_000 + writer.random.below(60_000));
            writer.go_on(lives);
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            writer.deaths += 1;
            alone += writer.go_on(Duration::from_millis(30));
            server = restart(link);
            found += usize::from(server.note.contains("earlier process"));
            writer.settle();
            let mut memcached = Memcached::connect_to(SocketAddr::from((SERVER, PORT)));
            for (key, name) in KEYS.iter().enumerate() {
                let fault = writer.fault(key, memcached.get(name).as_deref());
                if fault.is_some() {
                    return fault;
                }
            }
        }
        println!(
            "{} deaths: {} accepted, {alone} of them without a server",
            writer.deaths, writer.accepted
        );
        assert_eq!(found, writer.deaths, "queues were not found");
        assert!(
            alone > deaths,
            "hardly anything was accepted without a server"
        );
        None
    })
}

/// The thread of the clients is in another namespace.
fn restart(link: &Veth) -> Process {
    link.at_server(|| Process::start(link))
}

/// JB-48, JB-T4 with the server itself, in mode D0.
#[test]
fn a_killed_server_is_followed_by_one_that_executes_what_waits_once() {
    in_a_thread(|| {
        if let Some(link) = Veth::join() {
            assert_eq!(killed(&link, 8), None);
        }
    });
}

/// Goal: a session that outlived a server is served by the next one as any other: the result of a
/// request is kept for its repeat. Method: whole requests are sent twice, by datagram and by TCP.
#[test]
fn a_session_from_before_has_its_results_kept() {
    in_a_thread(|| {
        let Some(link) = Veth::join() else {
            return;
        };
        let mut server = Process::start(&link);
        link.at_client(|| {
            let address = SocketAddr::from((SERVER, NATIVE_PORT));
            let mut client = Client::connect_to(address);
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            server = restart(&link);
            client.write(b"n", b"10");
            let count = client.bytes(0, Ask::new(Opcode::Increment, b"n").argument(5));
            assert_eq!(client.exchange(&count).number(), 15);
            assert_eq!(client.exchange(&count).number(), 15, "by datagram");
            let mut line = Line::connect_to(address);
            let count = client.bytes(1, Ask::new(Opcode::Increment, b"n").argument(5));
            assert_eq!(line.exchange(&count).number(), 20);
            assert_eq!(line.exchange(&count).number(), 20, "by TCP");
        });
    });
}

#[test]
#[ignore = "a minute: run by cargo xtask test --all"]
fn a_hundred_killed_servers_lose_and_repeat_nothing() {
    in_a_thread(|| {
        if let Some(link) = Veth::join() {
            assert_eq!(killed(&link, 100), None);
        }
    });
}

/// The judge notices a write that is executed twice, one that is left out and two that are swapped.
#[test]
fn the_judge_of_killed_servers_notices() {
    let write = |appended, deaths| Write {
        key: 0,
        appended,
        deaths,
    };
    let mut judge = Judge(vec![
        write(None, 0),
        write(Some(1), 0),
        write(None, 0),
        write(Some(2), 0),
        write(None, 1),
        write(Some(3), 1),
        write(Some(4), 1),
    ]);
    for right in ["1 2 3 4 ", "2 3 4 ", "3 4 "] {
        assert!(judge.explains(Some(right), 1), "{right}");
    }
    for wrong in ["1 1 2 3 4 ", "1 3 4 ", "2 4 3 ", "4 ", "", "2 3 "] {
        assert!(!judge.explains(Some(wrong), 1), "{wrong}");
    }
    assert!(!judge.explains(None, 1), "all lost");
    judge.0.truncate(4);
    assert!(judge.explains(None, 1), "all executed before the death");
}
