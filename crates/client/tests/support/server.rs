//! A server of the native protocol in memory: sessions with cookies, slots with numbers, queues
//! that are executed late if wanted. One lock around everything; what it shares with the product
//! is the codec alone, so that the client is not tested against itself.

use std::{
    collections::{HashMap, VecDeque},
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use curtail_codec::native::{
    Ack, Cookies, ErrorCode, Flags, Grant, HEADER_BYTES, Head, Nack, NackReason, Opcode, Peer,
    Place, Promise, Reply, ReplyError, Request, SLOTS, Session, Status,
};
use curtail_types::HashSeed;

/// How the server behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Slots of each queue.
    pub capacity: u64,
    /// How long one execution takes; zero executes at once.
    pub service: Duration,
    pub queues: u16,
    pub lease_ms: u32,
    pub datagram_bytes_max: u32,
    /// Every position that is executed is durable.
    pub durable: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            capacity: 64,
            service: Duration::ZERO,
            queues: 4,
            lease_ms: 60_000,
            datagram_bytes_max: 1400,
            durable: false,
        }
    }
}

/// A running server; stops when it is dropped.
pub(crate) struct Server {
    pub address: SocketAddr,
    pub state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) struct State {
    pub behaviour: Behaviour,
    pub incarnation: u64,
    sessions: Vec<Holder>,
    queues: Vec<Queue>,
    items: HashMap<Vec<u8>, Item>,
    version: u64,
    /// Writes that were executed, and requests that were taken for repeated ones.
    pub executed: u64,
    pub repeated: u64,
    pub nacks: u64,
    pub sessions_granted: u64,
    udp: UdpSocket,
}

struct Holder {
    peer: SocketAddr,
    nonce: u64,
    session: Session,
    is_live: bool,
    slots: Vec<Slot>,
}

#[derive(Clone, Default)]
struct Slot {
    sequence: u64,
    taken: bool,
    is_nilext: bool,
    place: Place,
    reply: Option<Vec<u8>>,
}

#[derive(Default)]
struct Queue {
    tail: u64,
    head: u64,
    pending: VecDeque<Pending>,
    busy_until: Option<Instant>,
}

struct Pending {
    bytes: Vec<u8>,
    holder: usize,
    is_nilext: bool,
    via: Via,
}

#[derive(Clone)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    version: u64,
}

/// How an answer goes back.
#[derive(Clone)]
enum Via {
    Udp(SocketAddr),
    Tcp(Arc<TcpStream>),
}

impl Server {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let (udp, tcp) = sockets();
        let address = udp.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            behaviour,
            incarnation: 1,
            sessions: Vec::new(),
            queues: (0..behaviour.queues).map(|_| Queue::default()).collect(),
            items: HashMap::new(),
            version: 0,
            executed: 0,
            repeated: 0,
            nacks: 0,
            sessions_granted: 0,
            udp: udp.try_clone().unwrap(),
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let datagrams = {
            let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
            thread::spawn(move || serve_datagrams(&udp, &state, &stop))
        };
        let streams = {
            let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
            thread::spawn(move || serve_streams(&tcp, &state, &stop))
        };
        Self {
            address,
            state,
            stop,
            threads: vec![datagrams, streams],
        }
    }

    /// As after a restart that lost everything but the items.
    pub(crate) fn forget_sessions(&self) {
        let mut state = self.state.lock().unwrap();
        state
            .sessions
            .iter_mut()
            .for_each(|holder| holder.is_live = false);
        state.incarnation += 1;
        let queues = state.behaviour.queues;
        state.queues = (0..queues).map(|_| Queue::default()).collect();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.threads
            .drain(..)
            .for_each(|thread| thread.join().unwrap());
    }
}

/// UDP and TCP on the same number.
pub(crate) fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
            udp.set_nonblocking(true).unwrap();
            tcp.set_nonblocking(true).unwrap();
            return (udp, tcp);
        }
    }
    panic!("no port that is free for both");
}

fn serve_datagrams(udp: &UdpSocket, state: &Mutex<State>, stop: &AtomicBool) {
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::SeqCst) {
        state.lock().unwrap().execute_due(Instant::now());
        match udp.recv_from(&mut buffer) {
            Ok((bytes, peer)) => {
                let datagram = &buffer[..bytes];
                let mut state = state.lock().unwrap();
                match Request::decode(datagram) {
                    Ok(request) => state.request(&request, peer, &Via::Udp(peer)),
                    Err(why) => {
                        if let Some(reply) = Reply::refuse(datagram, why, state.incarnation) {
                            state.send(&Via::Udp(peer), &reply);
                        }
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_micros(30));
            }
            Err(_) => {}
        }
    }
}

fn serve_streams(tcp: &TcpListener, state: &Arc<Mutex<State>>, stop: &Arc<AtomicBool>) {
    let mut running = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        match tcp.accept() {
            Ok((stream, peer)) => {
                let (state, stop) = (Arc::clone(state), Arc::clone(stop));
                running.push(thread::spawn(move || {
                    serve_stream(stream, peer, &state, &stop)
                }));
            }
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    running
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

fn serve_stream(stream: TcpStream, peer: SocketAddr, state: &Mutex<State>, stop: &AtomicBool) {
    stream.set_nonblocking(false).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let stream = Arc::new(stream);
    let mut input = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while !stop.load(Ordering::SeqCst) {
        match (&*stream).read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => input.extend_from_slice(&buffer[..bytes]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
        while let Ok(head) = Head::decode(&input) {
            let frame_bytes = HEADER_BYTES + head.body_bytes();
            if input.len() < frame_bytes {
                break;
            }
            let frame: Vec<u8> = input.drain(..frame_bytes).collect();
            assert_eq!(Request::checksum(&frame), Some(head.checksum));
            let request = Request::from_parts(head, &frame[HEADER_BYTES..]).unwrap();
            state
                .lock()
                .unwrap()
                .request(&request, peer, &Via::Tcp(Arc::clone(&stream)));
        }
    }
}

impl State {
    fn request(&mut self, request: &Request<'_>, peer: SocketAddr, via: &Via) {
        let head = &request.head;
        match head.opcode {
            Opcode::Hello => {
                let cookie = cookies().cookie(named(peer), head.argument, 800);
                let (nonce, stamp) = (head.argument, head.stamp);
                self.send(
                    via,
                    &Reply::Cookie {
                        nonce,
                        cookie,
                        stamp,
                    },
                );
            }
            Opcode::Confirm => self.confirm(head, peer, via),
            _ => match self.holder(&head.session, peer, via) {
                Some(holder) => self.in_session(holder, request, via),
                None => self.error(head, ErrorCode::Session, via),
            },
        }
    }

    fn confirm(&mut self, head: &Head, peer: SocketAddr, via: &Via) {
        if !cookies().is_good(head.session.token, named(peer), head.argument, 800) {
            return self.error(head, ErrorCode::Cookie, via);
        }
        let same = |holder: &Holder| {
            holder.is_live && holder.peer == peer && holder.nonce == head.argument
        };
        let index = self.sessions.iter().position(same).unwrap_or_else(|| {
            let index = self.sessions.len();
            let generation = 1;
            let token = cookies().token(named(peer), index as u32, generation, self.incarnation);
            self.sessions.push(Holder {
                peer,
                nonce: head.argument,
                session: Session {
                    index: index as u32,
                    generation,
                    token,
                },
                is_live: true,
                slots: vec![Slot::default(); SLOTS.into()],
            });
            self.sessions_granted += 1;
            index
        });
        let grant = Grant {
            session: self.sessions[index].session,
            nonce: head.argument,
            stamp: head.stamp,
            incarnation: self.incarnation,
            slots: SLOTS,
            queues: self.behaviour.queues,
            credits: 32,
            lease_ms: self.behaviour.lease_ms,
            datagram_bytes_max: self.behaviour.datagram_bytes_max,
        };
        self.send(via, &Reply::Grant(grant));
    }

    /// Whose session it is; over TCP the port may be another one.
    fn holder(&self, session: &Session, peer: SocketAddr, via: &Via) -> Option<usize> {
        let holder = self.sessions.get(session.index as usize)?;
        let is_same_place = match via {
            Via::Udp(_) => holder.peer == peer,
            Via::Tcp(_) => holder.peer.ip() == peer.ip(),
        };
        (holder.is_live && holder.session == *session && is_same_place)
            .then_some(session.index as usize)
    }

    fn in_session(&mut self, holder: usize, request: &Request<'_>, via: &Via) {
        let head = &request.head;
        match head.opcode {
            Opcode::Close => self.sessions[holder].is_live = false,
            Opcode::Ping => {
                let Some(queue) = self.queues.get(head.argument as usize) else {
                    return self.error(head, ErrorCode::Malformed, via);
                };
                let pos = queue.head;
                let place = self.place(head.argument as u16, pos);
                self.send(
                    via,
                    &Reply::Pong {
                        echo: head.echo(),
                        place,
                    },
                );
            }
            Opcode::Get => {
                let queue = self.queue_of(request);
                self.drain(queue); // every accepted write of the key is seen
                let bytes = self.execute(request, self.place(queue, 0));
                self.reply_or_too_large(head, bytes, via);
            }
            Opcode::Flush => {
                (0..self.behaviour.queues).for_each(|queue| self.drain(queue));
                self.items.clear();
                let bytes = self.result(head, Place::default(), Status::Done, 0, None);
                self.deliver(via, &bytes);
            }
            _ => self.queued(holder, request, via),
        }
    }

    fn queued(&mut self, holder: usize, request: &Request<'_>, via: &Via) {
        let head = &request.head;
        let index = usize::from(head.slot);
        let slot = self.sessions[holder].slots[index].clone();
        if head.sequence < slot.sequence {
            return;
        }
        if head.sequence == slot.sequence && slot.taken {
            self.repeated += 1;
            return match (slot.is_nilext, slot.reply) {
                (true, _) => self.acknowledge(head, slot.place, via),
                (false, Some(reply)) => self.deliver(via, &reply),
                (false, None) => {}
            };
        }
        let queue = self.queue_of(request);
        let (tail, first) = (
            self.queues[queue as usize].tail,
            self.queues[queue as usize].head,
        );
        if tail - first >= self.behaviour.capacity {
            self.nacks += 1;
            let place = self.place(queue, 0);
            let (echo, reason) = (head.echo(), NackReason::Full);
            return self.send(
                via,
                &Reply::Nack(Nack {
                    echo,
                    place,
                    reason,
                }),
            );
        }
        let is_nilext = head.flags.has(Flags::NILEXT);
        let mut bytes = vec![0; HEADER_BYTES + head.body_bytes()];
        request.encode(&mut bytes).unwrap();
        self.queues[queue as usize].tail += 1;
        self.queues[queue as usize].pending.push_back(Pending {
            bytes,
            holder,
            is_nilext,
            via: via.clone(),
        });
        let place = self.place(queue, tail);
        self.sessions[holder].slots[index] = Slot {
            sequence: head.sequence,
            taken: true,
            is_nilext,
            place,
            reply: None,
        };
        if is_nilext {
            self.acknowledge(head, place, via);
        }
        if self.behaviour.service.is_zero() {
            self.drain(queue);
        }
    }

    fn acknowledge(&mut self, head: &Head, place: Place, via: &Via) {
        let (echo, promise) = (head.echo(), Promise::Accepted);
        self.send(
            via,
            &Reply::Ack(Ack {
                echo,
                place,
                promise,
            }),
        );
    }

    /// Executes what has had its time.
    fn execute_due(&mut self, now: Instant) {
        let service = self.behaviour.service;
        for queue in 0..self.behaviour.queues {
            let own = &mut self.queues[queue as usize];
            match own.busy_until {
                _ if own.pending.is_empty() => own.busy_until = None,
                None => own.busy_until = Some(now + service),
                Some(until) if until <= now => {
                    self.execute_first(queue);
                    self.queues[queue as usize].busy_until = Some(now + service);
                }
                Some(_) => {}
            }
        }
    }

    fn drain(&mut self, queue: u16) {
        while !self.queues[queue as usize].pending.is_empty() {
            self.execute_first(queue);
        }
    }

    fn execute_first(&mut self, queue: u16) {
        let own = &mut self.queues[queue as usize];
        let Some(pending) = own.pending.pop_front() else {
            return;
        };
        let pos = own.head;
        own.head += 1;
        self.executed += 1;
        let head = Head::decode(&pending.bytes).unwrap();
        let request = Request::from_parts(head, &pending.bytes[HEADER_BYTES..]).unwrap();
        let place = self.place(queue, pos);
        let reply = self.execute(&request, place);
        if pending.is_nilext {
            return;
        }
        let slot = &mut self.sessions[pending.holder].slots[usize::from(head.slot)];
        if slot.sequence == head.sequence {
            slot.reply = Some(reply.clone());
        }
        self.reply_or_too_large(&head, reply, &pending.via);
    }

    /// The reply of an execution, as bytes.
    fn execute(&mut self, request: &Request<'_>, place: Place) -> Vec<u8> {
        let head = &request.head;
        let key = request.key.unwrap().bytes().to_vec();
        let found = self.items.get(&key).cloned();
        let compared = head.flags.has(Flags::COMPARE).then_some(head.argument);
        if let (Some(version), Some(item)) = (compared, &found)
            && item.version != version
        {
            return self.result(head, place, Status::Exists, 0, None);
        }
        let store = |state: &mut Self, value: Vec<u8>, flags: u32| {
            state.version += 1;
            let version = state.version;
            let item = Item {
                value,
                flags,
                version,
            };
            state.items.insert(key.clone(), item);
            state.result(head, place, Status::Done, 0, None)
        };
        match (head.opcode, found) {
            (Opcode::Get | Opcode::GetTouch, Some(item)) => {
                self.result(head, place, Status::Value, 0, Some(&item))
            }
            (Opcode::Set, _) | (Opcode::Add, None) | (Opcode::Replace, Some(_)) => {
                store(self, request.value.to_vec(), head.item_flags)
            }
            (Opcode::Add, Some(_)) | (Opcode::Replace | Opcode::Append | Opcode::Prepend, None) => {
                self.result(head, place, Status::NotStored, 0, None)
            }
            (Opcode::Append, Some(item)) => {
                store(self, [&item.value, request.value].concat(), item.flags)
            }
            (Opcode::Prepend, Some(item)) => {
                store(self, [request.value, &item.value].concat(), item.flags)
            }
            (Opcode::Delete, Some(_)) => {
                self.items.remove(&key);
                self.result(head, place, Status::Done, 0, None)
            }
            (Opcode::Touch, Some(_)) => self.result(head, place, Status::Done, 0, None),
            (Opcode::Increment | Opcode::Decrement, Some(item)) => {
                let text = String::from_utf8(item.value).unwrap();
                let Ok(number) = text.parse::<u64>() else {
                    return self.result(head, place, Status::NotANumber, 0, None);
                };
                let number = match head.opcode {
                    Opcode::Increment => number.wrapping_add(head.argument),
                    _ => number.saturating_sub(head.argument),
                };
                store(self, number.to_string().into_bytes(), item.flags);
                self.result(head, place, Status::Done, number, None)
            }
            _ => self.result(head, place, Status::NotFound, 0, None),
        }
    }

    fn result(
        &self,
        head: &Head,
        place: Place,
        status: Status,
        number: u64,
        item: Option<&Item>,
    ) -> Vec<u8> {
        encoded(&Reply::Result {
            echo: head.echo(),
            place,
            status,
            version: item.map_or(0, |item| item.version),
            number,
            item_flags: item.map_or(0, |item| item.flags),
            value: item.map_or(&[], |item| &item.value),
        })
    }

    fn place(&self, queue: u16, pos: u64) -> Place {
        let own = &self.queues[queue as usize];
        let used = own.tail - own.head;
        Place {
            queue,
            credits: self.behaviour.capacity.saturating_sub(used) as u32,
            incarnation: self.incarnation,
            pos,
            durable_pos: if self.behaviour.durable { own.head } else { 0 },
        }
    }

    fn queue_of(&self, request: &Request<'_>) -> u16 {
        let hash = HashSeed([5, 6]).hash(request.key.unwrap().bytes()).0;
        (hash % u64::from(self.behaviour.queues)) as u16
    }

    fn error(&mut self, head: &Head, code: ErrorCode, via: &Via) {
        let incarnation = self.incarnation;
        let echo = head.echo();
        self.send(
            via,
            &Reply::Error(ReplyError {
                echo,
                code,
                incarnation,
            }),
        );
    }

    fn reply_or_too_large(&mut self, head: &Head, bytes: Vec<u8>, via: &Via) {
        let is_long = bytes.len() > self.behaviour.datagram_bytes_max as usize;
        match via {
            Via::Udp(_) if is_long => self.error(head, ErrorCode::TooLarge, via),
            _ => self.deliver(via, &bytes),
        }
    }

    fn send(&mut self, via: &Via, reply: &Reply<'_>) {
        self.deliver(via, &encoded(reply));
    }

    fn deliver(&mut self, via: &Via, bytes: &[u8]) {
        match via {
            Via::Udp(peer) => drop(self.udp.send_to(bytes, peer)),
            Via::Tcp(stream) => drop((&**stream).write_all(bytes)),
        }
    }
}

fn encoded(reply: &Reply<'_>) -> Vec<u8> {
    let mut bytes = vec![0; reply.bytes()];
    reply.encode(&mut bytes).unwrap();
    bytes
}

fn cookies() -> Cookies {
    Cookies::new(HashSeed([11, 12]))
}

fn named(peer: SocketAddr) -> Peer {
    let address = match peer.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    Peer {
        address,
        port: peer.port(),
    }
}
