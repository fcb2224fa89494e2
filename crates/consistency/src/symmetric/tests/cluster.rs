//! A few machines, and a network that loses nothing and delivers a pair's messages in order.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use curtail_types::{
    Cas, HotEpoch, Instant, Message, MessageKind, NodeId, NodeSet, RouteHash, View, ViewNumber,
    WriterId,
};

use super::super::*;

pub(super) const KEY: RouteHash = RouteHash(7);

/// What a node's driver keeps of [`KEY`], and what clients were told.
pub(super) struct Node {
    pub(super) machine: Symmetric,
    pub(super) stored: Cas,
    pub(super) state: Option<Visibility>,
    /// Requests and what became of them: the version that was read or written, or why not.
    pub(super) answers: BTreeMap<Ticket, Result<Cas, Refusal>>,
    pub(super) mode: Option<Mode>,
    runs: Vec<(Ticket, Cas)>,
    accesses: BTreeMap<Ticket, Access>,
}

pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) links: BTreeMap<(usize, usize), VecDeque<(Message, Cas)>>,
    pub(super) place: Place,
    pub(super) now: Instant,
    /// Requests that their own home has sent back, to wait for the item.
    pub(super) sent_back: Vec<Ticket>,
    tickets: u64,
    views: u32,
}

/// These nodes.
pub(super) fn set<const COUNT: usize>(ids: [u8; COUNT]) -> NodeSet {
    ids.into_iter().map(NodeId).collect()
}

/// All three.
pub(super) fn all() -> NodeSet {
    set([0, 1, 2])
}

impl Cluster {
    pub(super) fn new(count: u8, replicas: u8, model: Model) -> Self {
        let nodes = (0..count).map(|id| Node::new(NodeId(id), model)).collect();
        let mut cluster = Self {
            nodes,
            links: BTreeMap::new(),
            place: Place {
                home: NodeId(0),
                holders: (0..replicas).map(NodeId).collect(),
            },
            now: Instant::default(),
            sent_back: Vec::new(),
            tickets: 0,
            views: 0,
        };
        cluster.view((0..count).map(NodeId).collect());
        cluster
    }

    /// Everybody in `live` learns of the next view; the key's place is where `self.place` says.
    pub(super) fn view(&mut self, live: NodeSet) {
        self.view_of_moves(live, live);
    }

    /// The same, and keys move from `before` to `live`.
    pub(super) fn view_of_moves(&mut self, live: NodeSet, before: NodeSet) {
        self.enter(View {
            live,
            placed: live,
            placed_before: before,
            ..View::default()
        });
    }

    /// The same, and others are joining.
    pub(super) fn join_view(&mut self, live: NodeSet, joining: NodeSet) {
        self.enter(View {
            live,
            joining,
            placed: live,
            placed_before: live,
            ..View::default()
        });
    }

    fn enter(&mut self, view: View) {
        self.views += 1;
        let view = View {
            number: ViewNumber(self.views),
            ..view
        };
        let (key, place) = (KEY, self.place);
        for node in view.followers() {
            let node = usize::from(node.0);
            self.input(node, Input::View(view), Cas(0));
            self.input(node, Input::Placed { key, place }, Cas(0));
        }
    }

    /// From the next view on `home` alone holds the key.
    pub(super) fn move_home(&mut self, home: u8) {
        self.place.home = NodeId(home);
        self.place.holders = NodeSet::only(NodeId(home));
    }

    pub(super) fn promote(&mut self, epoch: u64, floor: Cas) {
        let promote = Input::Promote {
            key: KEY,
            place: self.place,
            epoch: HotEpoch(epoch),
            floor,
        };
        self.input(0, promote, Cas(0));
    }

    /// Node `home` has the key cease to be hot.
    pub(super) fn demote(&mut self, home: usize) {
        self.input(home, Input::Demote { key: KEY }, Cas(0));
    }

    /// The same with node 0 as its home, but what goes to `deaf` is lost: if that is the home, it
    /// does not come to the end.
    pub(super) fn demote_without(&mut self, deaf: usize) {
        self.demote(0);
        self.settle_without(deaf);
    }

    /// A node with nothing in it takes the place of `at`.
    pub(super) fn restart(&mut self, at: u8, model: Model) {
        self.nodes[usize::from(at)] = Node::new(NodeId(at), model);
    }

    pub(super) fn request(&mut self, node: usize, access: Access) -> Ticket {
        self.request_after(node, access, Cas(0))
    }

    /// A request of a session that has seen the write `after`.
    pub(super) fn request_after(&mut self, node: usize, access: Access, after: Cas) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.ask(node, ticket, access, (after, Cas(0)));
        ticket
    }

    /// A request of a node whose clock shows `floor`, and which has no item.
    pub(super) fn request_above(&mut self, node: usize, access: Access, floor: Cas) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.ask(node, ticket, access, (Cas(0), floor));
        ticket
    }

    fn ask(&mut self, node: usize, ticket: Ticket, access: Access, (after, floor): (Cas, Cas)) {
        self.nodes[node].accesses.insert(ticket, access);
        let request = Input::Request {
            ticket,
            key: KEY,
            place: self.place,
            access,
            after,
            floor,
        };
        self.input(node, request, Cas(0));
    }

    /// A session of this node has seen the write `ts`, by way of another.
    pub(super) fn seen(&mut self, at: usize, ts: Cas) {
        self.input(at, Input::Seen { key: KEY, ts }, Cas(0));
    }

    /// Delivers until nothing is on its way.
    pub(super) fn settle(&mut self) {
        self.settle_if(|_, _| true);
    }

    /// The same, but what goes to `deaf` is lost.
    pub(super) fn settle_without(&mut self, deaf: usize) {
        self.settle_if(|(_, to), _| to != deaf);
    }

    /// The same, but only what `arrives` is not lost.
    pub(super) fn settle_if(&mut self, arrives: impl Fn((usize, usize), MessageKind) -> bool) {
        while let Some((pair, (message, value))) = self.next_message() {
            if arrives(pair, message.kind) {
                self.deliver(pair, message, value);
            }
        }
    }

    /// What is on its way of this kind is lost.
    pub(super) fn lose(&mut self, kind: MessageKind) {
        for queue in self.links.values_mut() {
            queue.retain(|(message, _)| message.kind != kind);
        }
    }

    fn next_message(&mut self) -> Option<((usize, usize), (Message, Cas))> {
        let (pair, queue) = self.links.iter_mut().find(|(_, queue)| !queue.is_empty())?;
        queue.pop_front().map(|message| (*pair, message))
    }

    pub(super) fn deliver(&mut self, (from, to): (usize, usize), message: Message, value: Cas) {
        let input = Input::Message {
            from: NodeId(from as u8),
            key: KEY,
            place: self.place,
            message,
        };
        self.input(to, input, value);
    }

    /// Time passes, and everything that is due happens.
    pub(super) fn pass(&mut self, ns: u64) {
        self.now.ns += ns;
        for node in 0..self.nodes.len() {
            self.input(node, Input::Tick, Cas(0));
        }
    }

    /// Steps one machine and does what it asks for.
    pub(super) fn input(&mut self, at: usize, input: Input, incoming: Cas) {
        let node = &mut self.nodes[at];
        let mut outputs = Vec::new();
        node.machine
            .step(self.now, input, node.stored, |output| outputs.push(output));
        for output in outputs {
            self.carry_out(at, output, incoming);
        }
        while let Some((ticket, ts)) = self.nodes[at].runs.pop() {
            self.nodes[at].stored = ts;
            let key = KEY;
            self.input(at, Input::Write { ticket, key }, Cas(0));
        }
    }

    fn carry_out(&mut self, at: usize, output: Output, incoming: Cas) {
        let node = &mut self.nodes[at];
        match output {
            Output::Run { ticket, .. } if node.accesses[&ticket] == Access::Read => {
                node.answers.insert(ticket, Ok(node.stored));
            }
            Output::Run { ticket, ts } => node.runs.push((ticket, ts)),
            Output::Done { ticket } => {
                node.answers.insert(ticket, Ok(node.stored));
            }
            Output::Refuse { ticket, reason } => {
                node.answers.insert(ticket, Err(reason));
            }
            Output::Forward { ticket, to, .. } if usize::from(to.0) == at => {
                self.sent_back.push(ticket);
            }
            Output::Forward { ticket, to, after } => {
                let access = node.accesses[&ticket];
                self.ask(usize::from(to.0), ticket, access, (after, Cas(0)));
            }
            Output::Publish {
                ts, state, value, ..
            } => {
                node.state = Some(state);
                if value == Value::Incoming {
                    assert_eq!(ts, incoming);
                }
                node.stored = ts;
                let keeps_nothing = state == Visibility::Ordinary && is_nothing(ts);
                if state == Visibility::Gone || keeps_nothing {
                    node.stored = Cas(0);
                }
            }
            Output::Send { to, message, .. } => {
                // What is not there yet is of the version that the machine says.
                let value = match node.stored {
                    Cas(0) => message.ts,
                    stored => stored,
                };
                for to in to {
                    let queue = self.links.entry((at, usize::from(to.0))).or_default();
                    queue.push_back((message, value));
                }
            }
            Output::Moved { mode, .. } => node.mode = Some(mode),
        }
    }

    /// No node knows anything about the key.
    pub(super) fn is_forgotten(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.all(|node| node.machine.keys().count() == 0)
    }

    pub(super) fn all_store(&self, version: Cas) -> bool {
        self.nodes.iter().all(|node| node.stored == version)
    }

    /// What a request that was carried out has read or written.
    #[track_caller]
    pub(super) fn version_of(&self, ticket: Ticket) -> Cas {
        self.answer(ticket).expect("answered").expect("done")
    }

    pub(super) fn answer(&self, ticket: Ticket) -> Option<Result<Cas, Refusal>> {
        let answers = |node: &Node| node.answers.get(&ticket).copied();
        self.nodes.iter().find_map(answers)
    }
}

impl Node {
    fn new(me: NodeId, model: Model) -> Self {
        let config = Config {
            me,
            model,
            keys_max: 4,
            waiting_max: 4,
            retransmit_ns: 10,
            replay_ns: 100,
            patience_ns: 1000,
            settle_ns: 50,
            writer: WriterId::of(me, 0),
        };
        Self {
            machine: Symmetric::new(config),
            stored: Cas(0),
            state: None,
            answers: BTreeMap::new(),
            mode: None,
            runs: Vec::new(),
            accesses: BTreeMap::new(),
        }
    }
}
