//! Requests of clients and of other nodes: where each is carried out, and carrying it out.

use curtail_consistency::symmetric::{Access, Input, Ticket};
use curtail_types::{Cas, NodeId};

use super::{Deed, Node, slice_of};
use crate::cluster::{
    keys::Keys,
    mutant::Mutant,
    packet::{Answer, Command, Demand, Done, Effect, Item, Packet, Told},
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
enum Origin {
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

/// What a command makes of an item.
enum Made {
    Write(Option<u64>, Effect),
    Nothing(Effect),
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

impl Node {
    /// A client's request arrived.
    pub(in crate::cluster) fn admit(&mut self, at: u64, keys: &mut Keys, demand: Demand) {
        self.begin(at, keys, Origin::Client, demand, Cas(0));
        self.settle(at, keys);
    }

    /// Another node's client's.
    pub(super) fn admit_of_node(
        &mut self,
        at: u64,
        keys: &mut Keys,
        (from, number): ((NodeId, u64), u64),
        demand: Demand,
        after: Cas,
    ) {
        self.begin(at, keys, Origin::Node(from, number), demand, after);
    }

    fn begin(&mut self, at: u64, keys: &mut Keys, origin: Origin, demand: Demand, after: Cas) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let open = Open {
            demand,
            origin,
            after,
            began: at,
            waits: Waits::Machine,
            effect: None,
            may_have_run: false,
        };
        self.open.insert(ticket, open);
        self.route(at, keys, ticket);
    }

    /// Decides where a request is carried out.
    fn route(&mut self, at: u64, keys: &mut Keys, ticket: Ticket) {
        let Some(open) = self.open.get(&ticket).copied() else {
            return;
        };
        let key = open.demand.key;
        if !self.serves(at) {
            return self.turn_away(ticket);
        }
        let is_recent = self.items[key].version >= open.after;
        if open.access() == Access::Read && is_recent && self.reads_beside(at, key) {
            let item = self.visible(at, key);
            return self.finish(ticket, Answer::Carried(read(item)));
        }
        let place = self.places[key];
        let home_here = place.home == self.me;
        if self.is_awaited(key) {
            match home_here {
                true => self.wait_for_item(keys, ticket, key),
                false => self.ask((at, keys), ticket, place.home, open.after),
            }
            return;
        }
        if self.index[key].is_some() || place.holders.len() > 1 || self.machine_knows(keys, key) {
            self.wait(ticket, Waits::Machine);
            // As on a server, which keeps no version with nothing; what the machine knows is later.
            let there = self.items[key];
            let known = self.machine_knows(keys, key);
            let absent = there.version == Cas(0) || (there.value.is_none() && !known);
            let floor = if absent {
                self.hybrid.next(self.clock.now(at))
            } else {
                Cas(0)
            };
            let input = Input::Request {
                ticket,
                key: keys.route(key),
                place,
                access: open.access(),
                after: open.after,
                floor,
            };
            return self.step(at, keys, slice_of(key), input, Item::default());
        }
        match home_here {
            true => self.run_beside(at, ticket),
            false => self.ask((at, keys), ticket, place.home, open.after),
        }
    }

    /// Lets it wait for the key's item, which whoever has it is asked for.
    fn wait_for_item(&mut self, keys: &mut Keys, ticket: Ticket, key: usize) {
        self.wait(ticket, Waits::Item);
        self.ask_for_item(keys, key);
    }

    /// Whether readers may read the key without the machine.
    fn reads_beside(&self, at: u64, key: usize) -> bool {
        let stale = self.stale[key].is_some_and(|(until, _)| at < until);
        let beside = self.mutant == Some(Mutant::HomeBeside) && self.places[key].home == self.me;
        self.index[key] == Some(true) || stale || beside && !self.is_awaited(key)
    }

    fn visible(&self, at: u64, key: usize) -> Item {
        match self.stale[key] {
            Some((until, item)) if at < until => item,
            _ => self.items[key],
        }
    }

    /// A cold key of one holder: here and now.
    fn run_beside(&mut self, at: u64, ticket: Ticket) {
        let Some(open) = self.open.get(&ticket).copied() else {
            return;
        };
        let key = open.demand.key;
        let there = self.items[key];
        let clock = self.hybrid.next(self.clock.now(at)).clock();
        let version = Cas::new(clock.max(there.version.clock() + 1), self.writer());
        let effect = match make(open.demand.command, there, version) {
            Made::Nothing(effect) => effect,
            Made::Write(value, effect) => {
                self.items[key] = Item { version, value };
                self.note_run(&open, there, version);
                self.trace(at, key, || format!("{:?} makes {effect:?}", open.demand));
                effect
            }
        };
        self.finish(ticket, Answer::Carried(effect));
    }

    /// The machine says that it is this request's turn, and which version it writes.
    pub(super) fn run(&mut self, at: u64, keys: &mut Keys, ticket: Ticket, version: Cas) {
        let Some(open) = self.open.get(&ticket).copied() else {
            return self
                .deeds
                .push(Deed::Broken("a request that is answered runs"));
        };
        let (key, route) = (open.demand.key, keys.route(open.demand.key));
        let there = self.items[key];
        let serves = self.serves(at);
        if open.access() == Access::Read {
            return match serves {
                true => self.finish(ticket, Answer::Carried(read(there))),
                false => self.turn_away(ticket),
            };
        }
        let declined = Input::Decline { ticket, key: route };
        match make(open.demand.command, there, version) {
            _ if !serves => {
                self.step(at, keys, slice_of(key), declined, Item::default());
                self.turn_away(ticket);
            }
            Made::Nothing(effect) => {
                self.finish(ticket, Answer::Carried(effect));
                self.step(at, keys, slice_of(key), declined, Item::default());
            }
            Made::Write(value, effect) => {
                self.observe(version);
                self.items[key] = Item { version, value };
                self.note_deleted(keys, key);
                self.index[key] = Some(false);
                if let Some(open) = self.open.get_mut(&ticket) {
                    (open.effect, open.may_have_run) = (Some(effect), true);
                }
                self.note_run(&open, there, version);
                let written = Input::Write { ticket, key: route };
                self.step(at, keys, slice_of(key), written, Item::default());
                if self.mutant == Some(Mutant::EarlyAnswer) && self.open.contains_key(&ticket) {
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
            Some(None) => self
                .deeds
                .push(Deed::Broken("a write is done that never ran")),
            None if self.mutant == Some(Mutant::EarlyAnswer) => {}
            None => self.deeds.push(Deed::Broken("a write is done twice")),
        }
    }

    pub(super) fn refused(
        &mut self,
        ticket: Ticket,
        reason: curtail_consistency::symmetric::Refusal,
    ) {
        if let Some(open) = self.open.get(&ticket) {
            let answer = Answer::of_refusal(reason, open.may_have_run);
            self.finish(ticket, answer);
        }
    }

    /// The machine wants it to be carried out elsewhere, or here when the key's item has come.
    pub(super) fn forward(
        &mut self,
        (at, keys): (u64, &mut Keys),
        ticket: Ticket,
        to: NodeId,
        after: Cas,
    ) {
        match to == self.me {
            true => self.route(at, keys, ticket),
            false => self.ask((at, keys), ticket, to, after),
        }
    }

    /// Asks another node. Nobody passes on what was passed on to it: whoever asked asks again.
    fn ask(&mut self, (at, keys): (u64, &mut Keys), ticket: Ticket, to: NodeId, after: Cas) {
        let Some(open) = self.open.get(&ticket).copied() else {
            return;
        };
        if matches!(open.origin, Origin::Node(..)) || !self.view.live.contains(to) || to == self.me
        {
            return self.turn_away(ticket);
        }
        self.wait(ticket, Waits::Asked(to));
        self.send_ahead(at, keys, open.demand.key, to);
        let (number, demand) = (ticket.0, open.demand);
        self.send(
            to,
            Packet::Ask {
                number,
                demand,
                after,
            },
        );
    }

    /// The other node's answer.
    pub(super) fn told(
        &mut self,
        at: u64,
        keys: &mut Keys,
        (from, number): (NodeId, u64),
        told: Told,
    ) {
        let ticket = Ticket(number);
        let Some(open) = self.open.get(&ticket).copied() else {
            return;
        };
        // Since then it may have been asked elsewhere.
        if open.waits != Waits::Asked(from) {
            return;
        }
        match told {
            Told::Answer(answer) => {
                if let Answer::Carried(effect) = answer {
                    self.observe(effect.version);
                    let key = open.demand.key;
                    let route = keys.route(key);
                    let seen = Input::Seen {
                        key: route,
                        ts: effect.version,
                    };
                    if self.mutant != Some(Mutant::SeenUntold) {
                        self.step(at, keys, slice_of(key), seen, Item::default());
                    }
                }
                // It ran here once, and lost: the other node knows nothing of that.
                let is_unsure = answer == Answer::Refused && open.may_have_run;
                self.finish(ticket, if is_unsure { Answer::Unknown } else { answer });
            }
            Told::Elsewhere if at - open.began > PATIENCE_NS => self.turn_away(ticket),
            Told::Elsewhere => self.wait(ticket, Waits::Until(at + AGAIN_NS)),
        }
    }

    /// What waited for its moment begins anew.
    pub(super) fn ask_again(&mut self, at: u64, keys: &mut Keys) {
        let due = |open: &Open| open.due().is_some_and(|due| due <= at);
        let tickets: Vec<Ticket> = self
            .open
            .iter()
            .filter(|(_, open)| due(open))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in tickets {
            self.route(at, keys, ticket);
        }
    }

    /// Whether a request waits for a key's item.
    pub(super) fn waits_for_item(&self, key: usize) -> bool {
        let of_key = |open: &Open| open.waits == Waits::Item && open.demand.key == key;
        self.open.values().any(of_key)
    }

    /// A key's item has come.
    pub(super) fn resume(&mut self, at: u64, keys: &mut Keys, key: usize) {
        let of_key = |open: &Open| open.waits == Waits::Item && open.demand.key == key;
        let tickets: Vec<Ticket> = self
            .open
            .iter()
            .filter(|(_, open)| of_key(open))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in tickets {
            self.route(at, keys, ticket);
        }
    }

    /// The link to a node is new at its other end: what it was asked may have been done or not.
    pub(in crate::cluster) fn reset(&mut self, at: u64, keys: &mut Keys, peer: NodeId) {
        let tickets: Vec<Ticket> = self.asked(|to| to == peer);
        for ticket in tickets {
            self.lose(at, ticket);
        }
        self.settle(at, keys);
    }

    /// Who was asked and is not live any more will not answer.
    pub(super) fn forget_askers(&mut self, at: u64, keys: &mut Keys) {
        let live = self.view.live;
        for ticket in self.asked(|to| !live.contains(to)) {
            self.lose(at, ticket);
        }
        let waits = |open: &Open| open.waits == Waits::Item;
        let waiting: Vec<Ticket> = self
            .open
            .iter()
            .filter(|(_, open)| waits(open))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in waiting {
            self.route(at, keys, ticket);
        }
    }

    fn asked(&self, which: impl Fn(NodeId) -> bool) -> Vec<Ticket> {
        let of_it = |open: &Open| matches!(open.waits, Waits::Asked(to) if which(to));
        self.open
            .iter()
            .filter(|(_, open)| of_it(open))
            .map(|(ticket, _)| *ticket)
            .collect()
    }

    fn lose(&mut self, at: u64, ticket: Ticket) {
        let reads = self
            .open
            .get(&ticket)
            .is_some_and(|open| open.access() == Access::Read);
        match reads || self.mutant == Some(Mutant::AskTwice) {
            true => self.wait(ticket, Waits::Until(at + AGAIN_NS)),
            false => self.finish(ticket, Answer::Unknown),
        }
    }

    /// Not carried out, and not by this node.
    fn turn_away(&mut self, ticket: Ticket) {
        let Some(open) = self.open.remove(&ticket) else {
            return;
        };
        match open.origin {
            Origin::Client if open.may_have_run => self.reply(open.demand.number, Answer::Unknown),
            Origin::Client => self.reply(open.demand.number, Answer::Refused),
            Origin::Node((to, life), number) => {
                let told = match open.may_have_run {
                    true => Told::Answer(Answer::Unknown),
                    false => Told::Elsewhere,
                };
                self.send(to, Packet::Tell { life, number, told });
            }
        }
    }

    fn finish(&mut self, ticket: Ticket, answer: Answer) {
        let Some(open) = self.open.remove(&ticket) else {
            return;
        };
        match open.origin {
            Origin::Client => self.reply(open.demand.number, answer),
            Origin::Node((to, life), number) => {
                let told = Told::Answer(answer);
                self.send(to, Packet::Tell { life, number, told });
            }
        }
    }

    fn reply(&mut self, number: u64, answer: Answer) {
        self.deeds.push(Deed::Reply { number, answer });
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
    Effect {
        outcome: item.value.map_or(Done::Missing, Done::Value),
        version: item.version,
        replaced: item.version,
    }
}

/// Carries a command out on an item; its write would have `version`.
fn make(command: Command, there: Item, version: Cas) -> Made {
    let seen = |outcome| {
        Made::Nothing(Effect {
            outcome,
            version: there.version,
            replaced: there.version,
        })
    };
    let write = |value, outcome| {
        let replaced = there.version;
        Made::Write(
            value,
            Effect {
                outcome,
                version,
                replaced,
            },
        )
    };
    match (command, there.value) {
        (Command::Get, _) => Made::Nothing(read(there)),
        (Command::Set(value), _) | (Command::Add(value), None) => write(Some(value), Done::Written),
        (Command::Add(_), Some(_)) => seen(Done::Exists),
        (Command::Delete | Command::Increment(_) | Command::Swap { .. }, None) => {
            seen(Done::Missing)
        }
        (Command::Delete, Some(_)) => write(None, Done::Written),
        (Command::Increment(by), Some(from)) => write(
            Some(from + by),
            Done::Counted {
                from,
                to: from + by,
            },
        ),
        (
            Command::Swap {
                version: expected,
                new,
                ..
            },
            Some(_),
        ) => match expected == there.version {
            true => write(Some(new), Done::Written),
            false => seen(Done::Exists),
        },
    }
}

/// How long a request that is sent from node to node is tried.
const PATIENCE_NS: u64 = 100_000_000;
/// After which time it is tried again.
const AGAIN_NS: u64 = 500_000;
