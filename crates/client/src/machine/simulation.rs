//! Whole sessions in virtual time, from a seed: machines, a faulty network and a model of the
//! server.
//!
//! Goal: a write is executed once if it was acknowledged, never twice, and not at all if its error
//! says that nothing was done (JB-T3, JB-46). Method: two clients increment through a network that
//! drops, repeats and delays; the server keeps sessions and slots as the protocol says, refuses
//! when its queue is full, and now and then forgets a session; at the end every ticket is compared
//! with what was executed. A safety phase with faults is followed by a liveness phase without, in
//! which everything must end. A failure names its seed.

#![allow(clippy::unwrap_used, reason = "what is missing fails the test")]

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    time::Duration,
};

use curtail_codec::native::{
    Ack, Echo, ErrorCode, Grant, Head, Nack, NackReason, Opcode, Place, Promise, Reply, ReplyError,
    Session, Status,
};
use curtail_types::Instant;

use super::{Ask, Machine, MachineInput, MachineOutput, Transmission, random::Random};
use crate::{ClientError, Command, Config, Event};

const US: u64 = 1000;
const MS: u64 = 1000 * US;
const CLIENTS: usize = 2;
const WRITES: u64 = 60;
/// Faults end here.
const HEAL_NS: u64 = 400 * MS;

/// What a client sends.
#[derive(Clone, Debug)]
enum Sent {
    Alone(Head),
    Write(Transmission, Write),
}

/// A write as the server's model needs it.
#[derive(Clone, Copy, Debug)]
struct Write {
    ticket: u64,
    is_marked: bool,
}

/// What is under way, either way.
#[derive(Clone, Debug)]
enum Datagram {
    ToServer(Sent),
    ToClient(Reply<'static>),
}

#[derive(Debug, Default)]
struct Slot {
    newest: u64,
    is_taken: bool,
    pos: u64,
    is_executed: bool,
}

/// The server's side of one session.
#[derive(Debug)]
struct Holder {
    client: usize,
    is_live: bool,
    slots: HashMap<u8, Slot>,
}

#[derive(Debug, Default)]
struct Server {
    holders: Vec<Holder>,
    /// Positions given out, and executed so far.
    tail: u64,
    queue: Vec<(u64, usize, Transmission, Write)>,
    /// How often each client's ticket was executed.
    executed: BTreeMap<(usize, u64), u64>,
    capacity: usize,
}

struct World {
    now_ns: u64,
    random: Random,
    machines: Vec<Machine>,
    next: Vec<u64>,
    asked: Vec<BTreeMap<u64, Write>>,
    ended: BTreeMap<(usize, u64), Result<(), ClientError>>,
    /// By slot, for writes that are outstanding.
    under_way: Vec<HashMap<u8, Write>>,
    server: Server,
    network: BinaryHeap<Reverse<(u64, u64)>>,
    datagrams: HashMap<u64, (usize, Datagram)>,
    count: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let config = Config {
            patience: Duration::from_millis(50 + random.next() % 400),
            ..Config::default()
        };
        let machines = (0..CLIENTS)
            .map(|_| Machine::new(config, random.next()))
            .collect();
        let capacity = 1 + (random.next() % 12) as usize;
        Self {
            now_ns: 0,
            random,
            machines,
            next: vec![0; CLIENTS],
            asked: vec![BTreeMap::new(); CLIENTS],
            ended: BTreeMap::new(),
            under_way: vec![HashMap::new(); CLIENTS],
            server: Server {
                capacity,
                ..Server::default()
            },
            network: BinaryHeap::new(),
            datagrams: HashMap::new(),
            count: 0,
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.now_ns < HEAL_NS && self.random.next() % 100 < percent
    }

    fn send(&mut self, client: usize, datagram: &Datagram) {
        if self.chance(15) {
            return;
        }
        let copies = if self.chance(15) { 3 } else { 1 };
        for _ in 0..copies {
            let spread_ns = if self.chance(30) { 8 * MS } else { 30 * US };
            let at_ns = self.now_ns + 10 * US + self.random.next() % spread_ns;
            self.count += 1;
            self.network.push(Reverse((at_ns, self.count)));
            self.datagrams
                .insert(self.count, (client, datagram.clone()));
        }
    }

    /// Hands something to a client's machine and carries out what it says.
    fn step(&mut self, client: usize, input: MachineInput<'_>) {
        let mut outputs = Vec::new();
        let now = Instant { ns: self.now_ns };
        self.machines[client].step(now, input, &mut |output| {
            outputs.push(match output {
                MachineOutput::Send(head) => Ok(Sent::Alone(head)),
                MachineOutput::Transmit(sent) => {
                    let ticket = u64::MAX; // looked up below
                    let is_marked = false;
                    Ok(Sent::Write(sent, Write { ticket, is_marked }))
                }
                MachineOutput::Tell(
                    Event::Accepted { ticket, .. } | Event::Answered { ticket, .. },
                ) => Err((ticket, Ok(()))),
                MachineOutput::Tell(Event::Failed { ticket, error }) => Err((ticket, Err(error))),
                MachineOutput::Tell(Event::Durable { .. }) | MachineOutput::Open => return,
            });
        });
        for output in outputs {
            match output {
                Ok(Sent::Alone(head)) => self.send(client, &Datagram::ToServer(Sent::Alone(head))),
                Ok(Sent::Write(sent, _)) => {
                    let write = self.under_way[client][&sent.slot];
                    self.send(client, &Datagram::ToServer(Sent::Write(sent, write)));
                }
                Err((ticket, end)) => {
                    let before = self.ended.insert((client, ticket), end);
                    assert!(before.is_none(), "ticket {ticket} ended twice");
                }
            }
        }
    }

    /// Asks for writes as long as there is room.
    fn ask(&mut self, client: usize) {
        while self.next[client] < WRITES {
            let ticket = self.next[client];
            let is_marked = !ticket.is_multiple_of(3);
            let command = Command::increment(b"n", 1);
            let command = if is_marked { command.marked() } else { command };
            let ask = Ask::new(&command, ticket, ticket % 5);
            let now = Instant { ns: self.now_ns };
            let Some(sent) = self.machines[client].assign(now, &ask) else {
                return;
            };
            let write = Write { ticket, is_marked };
            self.next[client] += 1;
            self.asked[client].insert(ticket, write);
            self.under_way[client].insert(sent.slot, write);
            self.send(client, &Datagram::ToServer(Sent::Write(sent, write)));
        }
    }

    /// The server meets a datagram.
    fn serve(&mut self, client: usize, sent: Sent) {
        match sent {
            Sent::Alone(head) => {
                if let Some(reply) = self.server.greet(client, &head) {
                    self.send(client, &Datagram::ToClient(reply));
                }
            }
            Sent::Write(sent, write) => {
                if let Some(reply) = self.server.write(client, sent, write) {
                    self.send(client, &Datagram::ToClient(reply));
                }
            }
        }
        if self.chance(1) {
            let index = (self.random.next() % 8) as usize;
            if let Some(holder) = self.server.holders.get_mut(index) {
                holder.is_live = false;
            }
        }
    }

    /// The server executes what is first in its queue.
    fn execute(&mut self) {
        if self.server.queue.is_empty() || self.random.next().is_multiple_of(4) {
            return;
        }
        let (_, client, sent, write) = self.server.queue.remove(0);
        *self
            .server
            .executed
            .entry((client, write.ticket))
            .or_default() += 1;
        let holder = &mut self.server.holders[sent.session.index as usize];
        if let Some(slot) = holder.slots.get_mut(&sent.slot)
            && slot.newest == sent.sequence
        {
            slot.is_executed = true;
            if !write.is_marked {
                let reply = result(&sent, slot.pos);
                self.send(client, &Datagram::ToClient(reply));
            }
        }
    }

    fn run(&mut self, seed: u64) {
        let end_ns = HEAL_NS + 3000 * MS;
        while self.now_ns < end_ns && self.ended.len() < CLIENTS * WRITES as usize {
            let arrival_ns = self
                .network
                .peek()
                .map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns);
            let due = self.machines.iter().filter_map(Machine::deadline);
            let due_ns = due.map(|due| due.ns).min().unwrap_or(u64::MAX);
            let tick_ns = self.now_ns + 200 * US;
            self.now_ns = arrival_ns.min(due_ns).min(tick_ns).max(self.now_ns);
            self.execute();
            while let Some(Reverse((at_ns, number))) = self.network.peek().copied() {
                if at_ns > self.now_ns {
                    break;
                }
                self.network.pop();
                let (client, datagram) = self.datagrams.remove(&number).unwrap();
                match datagram {
                    Datagram::ToServer(sent) => self.serve(client, sent),
                    Datagram::ToClient(reply) => self.step(client, MachineInput::Reply(reply)),
                }
            }
            for client in 0..CLIENTS {
                self.step(client, MachineInput::Tick);
                self.ask(client);
            }
        }
        // What is left in the queue and the network may still be executed.
        while !self.server.queue.is_empty() || !self.network.is_empty() {
            self.execute();
            if let Some(Reverse((_, number))) = self.network.pop() {
                let (client, datagram) = self.datagrams.remove(&number).unwrap();
                if let Datagram::ToServer(sent) = datagram {
                    self.serve(client, sent);
                }
            }
        }
        self.judge(seed);
    }

    fn judge(&self, seed: u64) {
        let all = CLIENTS * WRITES as usize;
        assert_eq!(
            self.ended.len(),
            all,
            "seed {seed}: everything ends once the network heals"
        );
        for ((client, ticket), end) in &self.ended {
            let times = self
                .server
                .executed
                .get(&(*client, *ticket))
                .copied()
                .unwrap_or(0);
            let allowed = match end {
                Ok(()) => 1..=1,
                Err(ClientError::Indeterminate(_)) => 0..=1,
                Err(_) => 0..=0,
            };
            assert!(
                allowed.contains(&times),
                "seed {seed}: ticket {ticket} of client {client} ended with {end:?} and was \
                 executed {times} times"
            );
        }
        for machine in &self.machines {
            assert_eq!(machine.outstanding(), 0, "seed {seed}");
            assert!(machine.counts().sessions > 0, "seed {seed}");
        }
    }
}

impl Server {
    /// Hello, confirm and ping.
    fn greet(&mut self, client: usize, head: &Head) -> Option<Reply<'static>> {
        let (nonce, stamp) = (head.argument, head.stamp);
        match head.opcode {
            Opcode::Hello => Some(Reply::Cookie {
                nonce,
                cookie: nonce ^ 1,
                stamp,
            }),
            Opcode::Confirm if head.session.token == nonce ^ 1 => {
                let token = nonce;
                let same = |holder: &Holder| holder.is_live && holder.client == client;
                let index = self.holders.iter().position(same).unwrap_or_else(|| {
                    self.holders.push(Holder {
                        client,
                        is_live: true,
                        slots: HashMap::new(),
                    });
                    self.holders.len() - 1
                });
                // Another nonce is another session.
                let known = self.holders[index].slots.is_empty();
                let index = if known {
                    index
                } else {
                    self.holders[index].is_live = false;
                    self.holders.push(Holder {
                        client,
                        is_live: true,
                        slots: HashMap::new(),
                    });
                    self.holders.len() - 1
                };
                Some(Reply::Grant(Grant {
                    session: Session {
                        index: index as u32,
                        generation: 1,
                        token,
                    },
                    nonce,
                    stamp,
                    incarnation: 1,
                    slots: 16,
                    queues: 1,
                    credits: 8,
                    lease_ms: 60_000,
                    datagram_bytes_max: 1400,
                }))
            }
            Opcode::Ping => {
                let (echo, place) = (head.echo(), self.place(0));
                Some(Reply::Pong { echo, place })
            }
            _ => None,
        }
    }

    fn write(&mut self, client: usize, sent: Transmission, write: Write) -> Option<Reply<'static>> {
        let echo = echo(&sent);
        let place = self.place(0);
        let is_full = self.queue.len() >= self.capacity;
        let tail = self.tail;
        let holder = self.holders.get_mut(sent.session.index as usize);
        let holder = holder.filter(|holder| holder.is_live && holder.client == client);
        let Some(holder) = holder else {
            return Some(Reply::Error(ReplyError {
                echo,
                code: ErrorCode::Session,
                incarnation: 1,
            }));
        };
        let slot = holder.slots.entry(sent.slot).or_default();
        if sent.sequence < slot.newest {
            return None;
        }
        let accepted = |pos| {
            let (place, promise) = (Place { pos, ..place }, Promise::Accepted);
            Reply::Ack(Ack {
                echo,
                place,
                promise,
            })
        };
        if sent.sequence == slot.newest && slot.is_taken {
            return match (write.is_marked, slot.is_executed) {
                (true, _) => Some(accepted(slot.pos)),
                (false, true) => Some(result(&sent, slot.pos)),
                (false, false) => None,
            };
        }
        if is_full {
            let reason = NackReason::Full;
            return Some(Reply::Nack(Nack {
                echo,
                place,
                reason,
            }));
        }
        *slot = Slot {
            newest: sent.sequence,
            is_taken: true,
            pos: tail,
            is_executed: false,
        };
        self.tail += 1;
        self.queue.push((tail, client, sent, write));
        write.is_marked.then(|| accepted(tail))
    }

    fn place(&self, pos: u64) -> Place {
        Place {
            queue: 0,
            credits: (self.capacity - self.queue.len()) as u32,
            incarnation: 1,
            pos,
            durable_pos: 0,
        }
    }
}

fn echo(sent: &Transmission) -> Echo {
    Echo {
        index: sent.session.index,
        generation: sent.session.generation,
        slot: sent.slot,
        sequence: sent.sequence,
        stamp: sent.stamp,
    }
}

fn result(sent: &Transmission, pos: u64) -> Reply<'static> {
    Reply::Result {
        echo: echo(sent),
        place: Place {
            pos,
            credits: 1,
            incarnation: 1,
            ..Place::default()
        },
        status: Status::Done,
        version: 1,
        number: 1,
        item_flags: 0,
        value: b"",
    }
}

#[test]
fn a_write_is_executed_once_on_any_network() {
    for seed in 0..60 {
        World::new(seed).run(seed);
    }
}

#[test]
#[ignore = "thousands of seeds"]
fn a_write_is_executed_once_on_any_network_for_long() {
    for seed in 1000..6000 {
        World::new(seed).run(seed);
    }
}
