//! Requests of clients and of other nodes: where each is carried out, and carrying it out.

use curtail_consistency::symmetric::{Access, Input, Refusal, Ticket};
use curtail_types::{Cas, NodeId};

use super::{Deed, Node};
use crate::cluster::{
    mutant::Mutant,
    packet::{Answer, Command, Demand, Done, Effect, Item, Packet},
};

/// A request that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    demand: Demand,
    origin: Origin,
    /// The session has seen this write of the key.
    after: Cas,
    began: u64,
    waits: Waits,
    /// What it did when it ran last.
    effect: Option<Effect>,
    /// Whether it ran here and may have written.
    may_have_run: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    Client,
    /// Another node in this life, and what it calls the request.
    Node((NodeId, u64), u64),
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Waits {
    /// The key's item, on its way to this node.
    Item,
    /// The machine.
    Machine,
    /// Another node.
    Asked(NodeId),
    /// A moment, in the world's time: then it begins anew.
    Until(u64),
}

impl Open {
    pub(super) fn due(&self) -> Option<u64> {
        match self.waits {
            Waits::Until(at) => Some(at),
            _ => None,
        }
    }

    fn access(&self) -> Access {
        match self.demand.command {
            Command::Get => Access::Read,
            Command::Set(_) => Access::Replace,
            _ => Access::Update,
        }
    }
}

impl Node<'_> {
    /// A client's request arrived.
    pub(in crate::cluster) fn admit(&mut self, demand: Demand) {
        self.begin(Origin::Client, demand, Cas(0));
    }

    pub(super) fn begin(&mut self, origin: Origin, demand: Demand, after: Cas) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let open = Open {
            demand,
            origin,
            after,
            began: self.now,
            waits: Waits::Machine,
            effect: None,
            may_have_run: false,
        };
        self.open.insert(ticket, open);
        self.route(ticket);
    }

    /// Decides where a request is carried out.
    fn route(&mut self, ticket: Ticket) {
        let Some(open) = self.open.get(&ticket).copied() else {
            return;
        };
        let key = open.demand.key;
        if !self.serves(self.now) {
            return self.turn_away(ticket);
        }
        let is_recent = self.items[key].version >= open.after;
        if open.access() == Access::Read && is_recent && self.reads_beside(key) {
            let item = self.visible(key);
            return self.finish(ticket, Answer::Carried(read(item)));
        }
        let place = self.places[key];
        let home_here = place.home == self.me;
        if self.is_awaited(key) {
            match home_here {
                true => {
                    self.wait(ticket, Waits::Item);
                    self.ask_for_item(key);
                }
                false => self.ask(ticket, place.home, open.after),
            }
            return;
        }
        if self.index[key].is_some() || place.holders.len() > 1 || self.machine_knows(key) {
            self.wait(ticket, Waits::Machine);
            // As on a server, which keeps no version with nothing; what the machine knows is later.
            let there = self.items[key];
            let known = self.machine_knows(key);
            let absent = there.version == Cas(0) || (there.value.is_none() && !known);
            let floor = match absent {
                true => self.hybrid.next(self.clock.now(self.now)),
                false => Cas(0),
            };
            let input = Input::Request {
                ticket,
                key: self.keys.route(key),
                place,
                access: open.access(),
                after: open.after,
                floor,
            };
            return self.tell(key, input);
        }
        match home_here {
            true => self.run_beside(ticket),
            false => self.ask(ticket, place.home, open.after),
        }
    }

    /// Whether readers may read the key without the machine.
    fn reads_beside(&self, key: usize) -> bool {
        let stale = self.stale[key].is_some_and(|(until, _)| self.now < until);
        let beside =
            self.run.mutant == Some(Mutant::HomeBeside) && self.places[key].home == self.me;
        self.index[key] == Some(true) || stale || beside && !self.is_awaited(key)
    }

    fn visible(&self, key: usize) -> Item {
        match self.stale[key] {
            Some((until, item)) if self.now < until => item,
            _ => self.items[key],
        }
    }

    /// A cold key of one holder: here and now.
    fn run_beside(&mut self, ticket: Ticket) {
        let Some(open) = self.open.get(&ticket).copied() else {
            return;
        };
        let key = open.demand.key;
        let there = self.items[key];
        let clock = self.hybrid.next(self.clock.now(self.now)).clock();
        let version = Cas::new(clock.max(there.version.clock() + 1), self.writer());
        let (write, effect) = make(open.demand.command, there, version);
        if let Some(value) = write {
            self.items[key] = Item { version, value };
            self.note_run(&open, there, version);
            self.trace(key, || format!("{:?} makes {effect:?}", open.demand));
        }
        self.finish(ticket, Answer::Carried(effect));
    }

    /// The machine says that it is this request's turn, and which version it writes.
    pub(super) fn run(&mut self, ticket: Ticket, version: Cas) {
        let Some(open) = self.open.get(&ticket).copied() else {
            return self.broken("a request that is answered runs");
        };
        let (key, route) = (open.demand.key, self.keys.route(open.demand.key));
        let there = self.items[key];
        let serves = self.serves(self.now);
        if open.access() == Access::Read {
            return match serves {
                true => self.finish(ticket, Answer::Carried(read(there))),
                false => self.turn_away(ticket),
            };
        }
        let declined = Input::Decline { ticket, key: route };
        let (write, effect) = make(open.demand.command, there, version);
        match write {
            _ if !serves => {
                self.tell(key, declined);
                self.turn_away(ticket);
            }
            None => {
                self.finish(ticket, Answer::Carried(effect));
                self.tell(key, declined);
            }
            Some(value) => {
                self.observe(version);
                self.items[key] = Item { version, value };
                self.note_deleted(key);
                self.index[key] = Some(false);
                if let Some(open) = self.open.get_mut(&ticket) {
                    (open.effect, open.may_have_run) = (Some(effect), true);
                }
                self.note_run(&open, there, version);
                self.tell(key, Input::Write { ticket, key: route });
                if self.run.mutant == Some(Mutant::EarlyAnswer) && self.open.contains_key(&ticket) {
                    self.finish(ticket, Answer::Carried(effect));
                }
            }
        }
    }

    fn note_run(&mut self, open: &Open, there: Item, version: Cas) {
        let (number, from) = (open.demand.number, there.value);
        self.deeds.push(Deed::Ran {
            number,
            from,
            version,
        });
    }

    /// Its write is complete.
    pub(super) fn done(&mut self, ticket: Ticket) {
        match self.open.get(&ticket).map(|open| open.effect) {
            Some(Some(effect)) => self.finish(ticket, Answer::Carried(effect)),
            Some(None) => self.broken("a write is done that never ran"),
            None if self.run.mutant == Some(Mutant::EarlyAnswer) => {}
            None => self.broken("a write is done twice"),
        }
    }

    pub(super) fn refused(&mut self, ticket: Ticket, reason: Refusal) {
        if let Some(open) = self.open.get(&ticket) {
            let answer = match open.may_have_run && reason != Refusal::Full {
                true => Answer::Unknown,
                false => Answer::Refused,
            };
            self.finish(ticket, answer);
        }
    }

    /// The machine wants it to be carried out elsewhere, or here when the key's item has come.
    pub(super) fn forward(&mut self, ticket: Ticket, to: NodeId, after: Cas) {
        match to == self.me {
            true => self.route(ticket),
            false => self.ask(ticket, to, after),
        }
    }

    /// Asks another node. Nobody passes on what was passed on to it: whoever asked asks again.
    fn ask(&mut self, ticket: Ticket, to: NodeId, after: Cas) {
        let Some(open) = self.open.get(&ticket).copied() else {
            return;
        };
        if matches!(open.origin, Origin::Node(..)) || !self.view.live.contains(to) || to == self.me
        {
            return self.turn_away(ticket);
        }
        self.wait(ticket, Waits::Asked(to));
        self.send_ahead(open.demand.key, to);
        let (number, demand) = (ticket.0, open.demand);
        let packet = Packet::Ask {
            number,
            demand,
            after,
        };
        self.send(to, packet);
    }

    /// The other node's answer.
    pub(super) fn told(&mut self, from: NodeId, number: u64, answer: Answer) {
        let ticket = Ticket(number);
        let Some(open) = self.open.get(&ticket).copied() else {
            return;
        };
        // Since then it may have been asked elsewhere.
        if open.waits != Waits::Asked(from) {
            return;
        }
        match answer {
            Answer::Elsewhere if self.now - open.began > PATIENCE_NS => self.turn_away(ticket),
            Answer::Elsewhere => self.wait(ticket, Waits::Until(self.now + AGAIN_NS)),
            // It ran here once, and lost: the other node knows nothing of that.
            Answer::Refused if open.may_have_run => self.finish(ticket, Answer::Unknown),
            Answer::Carried(effect) => {
                self.observe(effect.version);
                let (key, ts) = (open.demand.key, effect.version);
                if self.run.mutant != Some(Mutant::SeenUntold) {
                    let route = self.keys.route(key);
                    self.tell(key, Input::Seen { key: route, ts });
                }
                self.finish(ticket, answer);
            }
            Answer::Refused | Answer::Unknown => self.finish(ticket, answer),
        }
    }

    /// What waited for its moment begins anew.
    pub(super) fn ask_again(&mut self) {
        let now = self.now;
        self.route_all(|open| open.due().is_some_and(|due| due <= now));
    }

    /// Whether a request waits for a key's item.
    pub(super) fn waits_for_item(&self, key: usize) -> bool {
        let of_key = |open: &Open| open.waits == Waits::Item && open.demand.key == key;
        self.open.values().any(of_key)
    }

    /// A key's item has come.
    pub(super) fn resume(&mut self, key: usize) {
        self.route_all(|open| open.waits == Waits::Item && open.demand.key == key);
    }

    /// The link to a node is new at its other end: what it was asked may have been done or not.
    pub(in crate::cluster) fn reset(&mut self, peer: NodeId) {
        self.lose_all(|to| to == peer);
    }

    /// Who was asked and is not live any more will not answer.
    pub(super) fn forget_askers(&mut self) {
        let live = self.view.live;
        self.lose_all(|to| !live.contains(to));
        self.route_all(|open| open.waits == Waits::Item);
    }

    fn tickets(&self, which: impl Fn(&Open) -> bool) -> Vec<Ticket> {
        let open = self.open.iter().filter(|(_, open)| which(open));
        open.map(|(ticket, _)| *ticket).collect()
    }

    fn route_all(&mut self, which: impl Fn(&Open) -> bool) {
        for ticket in self.tickets(which) {
            self.route(ticket);
        }
    }

    /// Nobody will answer what these nodes were asked.
    fn lose_all(&mut self, asked: impl Fn(NodeId) -> bool) {
        let of_it = |open: &Open| matches!(open.waits, Waits::Asked(to) if asked(to));
        for ticket in self.tickets(of_it) {
            let reads = self.open[&ticket].access() == Access::Read;
            match reads || self.run.mutant == Some(Mutant::AskTwice) {
                true => self.wait(ticket, Waits::Until(self.now + AGAIN_NS)),
                false => self.finish(ticket, Answer::Unknown),
            }
        }
    }

    /// Not carried out, and not by this node.
    fn turn_away(&mut self, ticket: Ticket) {
        if let Some(open) = self.open.get(&ticket) {
            let answer = match open.origin {
                _ if open.may_have_run => Answer::Unknown,
                Origin::Client => Answer::Refused,
                Origin::Node(..) => Answer::Elsewhere,
            };
            self.finish(ticket, answer);
        }
    }

    fn finish(&mut self, ticket: Ticket, answer: Answer) {
        let Some(open) = self.open.remove(&ticket) else {
            return;
        };
        match open.origin {
            Origin::Client => self.deeds.push(Deed::Reply {
                number: open.demand.number,
                answer,
            }),
            Origin::Node((to, life), number) => {
                self.send(
                    to,
                    Packet::Tell {
                        life,
                        number,
                        answer,
                    },
                );
            }
        }
    }

    fn wait(&mut self, ticket: Ticket, waits: Waits) {
        if let Some(open) = self.open.get_mut(&ticket) {
            open.waits = waits;
        }
    }

    /// Requests that are not answered yet, as a person wants to see them.
    pub(in crate::cluster) fn unanswered(&self) -> Vec<String> {
        self.open
            .values()
            .map(|open| format!("{:?} waits for {:?}", open.demand, open.waits))
            .collect()
    }
}

fn read(item: Item) -> Effect {
    make(Command::Get, item, item.version).1
}

/// Carries a command out on an item: what is written, if anything is, and with which effect. Its
/// write would have `version`.
fn make(command: Command, there: Item, version: Cas) -> (Option<Option<u64>>, Effect) {
    let (write, outcome) = match (command, there.value) {
        (Command::Get, value) => (None, value.map_or(Done::Missing, Done::Value)),
        (Command::Set(value), _) | (Command::Add(value), None) => {
            (Some(Some(value)), Done::Written)
        }
        (Command::Add(_), Some(_)) => (None, Done::Exists),
        (_, None) => (None, Done::Missing),
        (Command::Delete, Some(_)) => (Some(None), Done::Written),
        (Command::Increment(by), Some(from)) => {
            let to = from + by;
            (Some(Some(to)), Done::Counted { from, to })
        }
        (Command::Swap { version, new, .. }, _) if version == there.version => {
            (Some(Some(new)), Done::Written)
        }
        (Command::Swap { .. }, _) => (None, Done::Exists),
    };
    let effect = Effect {
        outcome,
        version: write.map_or(there.version, |_| version),
        replaced: there.version,
    };
    (write, effect)
}

/// How long a request that is sent from node to node is tried.
const PATIENCE_NS: u64 = 100_000_000;
/// After which time it is tried again.
const AGAIN_NS: u64 = 500_000;
