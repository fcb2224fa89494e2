//! One node and a store that answers at once.

mod world;

use alloc::vec::Vec;

use super::*;

const MS: u64 = 1_000_000;
const LEASE: u64 = 1000 * MS;

/// A machine, what the store holds, and the clock.
struct Desk {
    machine: Membership,
    members: Members,
    revision: u64,
    now: u64,
    /// What it asked of the store and was not answered yet.
    asked: Option<Output>,
}

impl Desk {
    fn new(me: u8, members: Members) -> Self {
        let config = Config::with_lease(NodeId(me), LEASE);
        Self {
            machine: Membership::new(config),
            members,
            revision: 10,
            now: 0,
            asked: None,
        }
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        let now = Instant { ns: self.now };
        self.machine.step(now, input, |output| outputs.push(output));
        for output in &outputs {
            if matches!(output, Output::Read | Output::Propose { .. }) {
                assert_eq!(self.asked.replace(*output), None, "one thing at a time");
            }
        }
        outputs
    }

    /// Lets `ns` pass, with every request to the store answered at once.
    fn run(&mut self, ns: u64) -> Vec<Output> {
        let end = self.now + ns;
        let mut all = Vec::new();
        let mut outputs = self.step(Input::Tick);
        loop {
            all.append(&mut outputs);
            outputs = match self.asked.take() {
                Some(Output::Propose { expected, change }) => self.decide(expected, change),
                Some(_) => self.answer(),
                None if self.machine.deadline().ns > end => break,
                None => {
                    self.now = self.machine.deadline().ns.max(self.now);
                    self.step(Input::Tick)
                }
            };
        }
        self.now = end;
        all
    }

    fn answer(&mut self) -> Vec<Output> {
        let (started, members) = (Instant { ns: self.now }, self.members);
        let revision = self.revision;
        self.step(Input::Read {
            started,
            revision,
            members: &members,
        })
    }

    fn decide(&mut self, expected: u64, change: Change) -> Vec<Output> {
        assert_eq!(expected, self.revision);
        let me = self.machine.config.me;
        self.members = self.members.after(change, me, 1).unwrap();
        self.revision += 1;
        let revision = self.revision;
        self.step(Input::Won { revision })
    }

    /// Lets `ns` pass, with heartbeats of `node`.
    fn run_hearing(&mut self, node: u8, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.hear(node);
            self.run((50 * MS).min(end - self.now));
        }
    }

    /// Somebody else changes the store.
    fn others(&mut self, change: Change, node: u8) {
        self.members = self.members.after(change, NodeId(node), 1).unwrap();
        self.revision += 1;
    }

    fn hear(&mut self, node: u8) {
        let incarnation = self.members.incarnation(NodeId(node));
        let view = self.members.view.number;
        self.step(Input::Heartbeat {
            from: NodeId(node),
            incarnation,
            view,
        });
    }
}

fn serving(outputs: &[Output]) -> bool {
    outputs
        .iter()
        .any(|output| matches!(output, Output::Serve { .. }))
}

/// Three nodes, this one among them and serving.
fn three(me: u8) -> Desk {
    let mut desk = Desk::new(me, Members::NOBODY);
    for node in (0..3).filter(|&node| node != me) {
        desk.others(Change::Join(Incarnation(u64::from(node) + 1)), node);
    }
    desk.others(Change::Join(Incarnation(50)), me);
    desk.others(Change::Form, me);
    desk.step(Input::Join(Incarnation(50)));
    let outputs = desk.run(10 * MS);
    assert!(serving(&outputs));
    desk
}

#[test]
fn a_lonely_node_forms_a_cluster_and_serves() {
    let mut desk = Desk::new(0, Members::NOBODY);
    assert!(!serving(&desk.run(LEASE)), "nobody asked it to join");
    desk.step(Input::Join(Incarnation(5)));
    let outputs = desk.run(LEASE);
    assert!(serving(&outputs));
    assert_eq!(desk.machine.adopted().live, NodeSet::only(NodeId(0)));
    assert!(!outputs.contains(&Output::StopServing), "readings renew it");
}

#[test]
fn a_lease_counts_from_the_start_of_a_reading_and_ends_by_itself() {
    let mut desk = three(0);
    desk.now += LEASE / 2;
    let started = Instant { ns: desk.now };
    desk.step(Input::Tick);
    desk.now += 100 * MS;
    let (revision, members) = (desk.revision, desk.members);
    assert_eq!(desk.asked.take(), Some(Output::Read));
    let outputs = desk.step(Input::Read {
        started,
        revision,
        members: &members,
    });
    let until = Instant {
        ns: started.ns + LEASE,
    };
    assert!(outputs.contains(&Output::Serve { until }));
    desk.now = until.ns;
    let outputs = desk.step(Input::Tick);
    assert!(outputs.contains(&Output::StopServing));
    assert!(outputs.contains(&Output::Event(Event::Fenced)));
    assert_eq!(desk.asked.take(), Some(Output::Read));
    desk.step(Input::ReadFailed);
    let outputs = desk.run(LEASE / 2);
    assert!(outputs.contains(&Output::Event(Event::Resumed)));
    assert!(desk.machine.serves());
}

#[test]
fn a_view_without_a_node_waits_for_its_lease() {
    let mut desk = three(0);
    desk.others(Change::Remove(NodeSet::only(NodeId(2))), 1);
    desk.hear(1);
    let wait = LEASE + desk.machine.config.margin_ns;
    desk.run(0);
    desk.run_hearing(1, wait - MS);
    assert_eq!(desk.machine.adopted().number, ViewNumber(4));
    desk.run(2 * MS);
    assert_eq!(desk.machine.adopted().number, ViewNumber(5));
}

#[test]
fn a_node_that_departs_is_not_waited_for() {
    let mut desk = three(0);
    desk.others(Change::Drain(NodeId(2)), 2);
    desk.others(Change::Place, 1);
    desk.others(Change::Settle, 1);
    desk.others(Change::Depart, 2);
    desk.hear(1);
    desk.run(MS);
    assert_eq!(desk.machine.adopted(), &desk.members.view);
}

#[test]
fn the_lowest_who_is_heard_removes_the_silent() {
    let mut desk = three(0);
    desk.run_hearing(1, LEASE);
    assert_eq!(desk.members.view.live.to_bits(), 0b011);
    let mut desk = three(1);
    desk.run_hearing(0, LEASE);
    assert_eq!(
        desk.members.view.live.to_bits(),
        0b111,
        "that is for node 0"
    );
    let mut desk = three(1);
    desk.run_hearing(2, LEASE);
    assert_eq!(desk.members.view.live.to_bits(), 0b110);
}

#[test]
fn whoever_hears_nobody_waits_longer() {
    let mut desk = three(0);
    let outputs = desk.run(3 * desk.machine.config.suspicion_ns);
    let suspects = outputs.contains(&Output::Event(Event::Suspected(NodeId(2))));
    let proposes = |outputs: &[Output]| {
        let propose = |output: &Output| matches!(output, Output::Propose { .. });
        outputs.iter().any(propose)
    };
    assert!(suspects && !proposes(&outputs));
    assert!(proposes(&desk.run(2 * desk.machine.config.suspicion_ns)));
}

/// Goal: a node that is cut off does not take those for dead that it heard a little earlier than
/// others. Method: eight nodes whose last heartbeats came one after the other; it looks often.
#[test]
fn a_silence_that_begins_bit_by_bit_is_one() {
    let mut desk = Desk::new(0, Members::NOBODY);
    for node in 1..8 {
        desk.others(Change::Join(Incarnation(u64::from(node) + 1)), node);
    }
    desk.others(Change::Join(Incarnation(50)), 0);
    desk.others(Change::Form, 0);
    desk.step(Input::Join(Incarnation(50)));
    desk.run(10 * MS);
    for node in 1..8 {
        desk.hear(node);
        desk.run(12 * MS);
    }
    for _ in 0..60 {
        desk.run(10 * MS);
    }
    assert_eq!(desk.members.view.live.len(), 8);
}

/// Goal: whom the others hear is not removed by a node whose own line is bad, but after a long
/// silence. Method: of five nodes it hears all but one, of which the others say this or that.
#[test]
fn whom_others_hear_is_not_removed_at_once() {
    for is_heard in [false, true] {
        let mut desk = Desk::new(0, Members::NOBODY);
        for node in 1..5 {
            desk.others(Change::Join(Incarnation(u64::from(node) + 1)), node);
        }
        desk.others(Change::Join(Incarnation(50)), 0);
        desk.others(Change::Form, 0);
        desk.step(Input::Join(Incarnation(50)));
        desk.run(10 * MS);
        let mut live = Vec::new();
        for _ in 0..60 {
            for node in 1..4 {
                desk.hear(node);
                let from = NodeId(node);
                let nodes = NodeSet::from_bits(if is_heard { 0b11111 } else { 0b01111 });
                desk.step(Input::Hears { from, nodes });
            }
            desk.run(50 * MS);
            live.push(desk.members.view.live.len());
        }
        assert_eq!(live[14], if is_heard { 5 } else { 4 }, "{live:?}");
        assert_eq!(live[59], 4, "{live:?}");
    }
}

/// Goal: a node that is cut off from all others, but not from the store, never takes the cluster
/// from them. Method: it is removed, joins, and is removed again by those who do not hear it.
#[test]
fn a_node_that_joins_again_and_again_removes_nobody() {
    let mut desk = three(2);
    let mut lives = 50;
    for _ in 0..20 {
        desk.others(Change::Remove(NodeSet::only(NodeId(2))), 0);
        desk.run(LEASE / 2);
        lives += 1;
        desk.step(Input::Join(Incarnation(lives)));
        desk.run(LEASE / 2 + 200 * MS);
        let others = NodeSet::from_bits(0b11);
        assert_eq!(desk.members.view.live, others, "life {lives}");
    }
    // When nobody removes it, nobody is there.
    desk.run(3 * LEASE);
    assert_eq!(desk.members.view.live, NodeSet::only(NodeId(2)));
}

/// Whether somebody is suspected in `outputs`.
fn suspects(outputs: &[Output]) -> bool {
    let suspicion = |output: &Output| matches!(output, Output::Event(Event::Suspected(_)));
    outputs.iter().any(suspicion)
}

#[test]
fn a_node_that_was_asleep_suspects_nobody() {
    let mut desk = three(0);
    desk.now += LEASE * 8 / 10;
    assert!(!suspects(&desk.run(100 * MS)), "a nap within the lease");
    desk.now += 10 * LEASE;
    let outputs = desk.run(100 * MS);
    assert!(outputs.contains(&Output::Event(Event::Fenced)));
    assert!(!suspects(&outputs), "a long sleep");
}

#[test]
fn who_does_not_even_hear_itself_suspects_nobody() {
    let mut desk = three(0);
    desk.hear(0);
    assert!(!suspects(&desk.run(3 * LEASE)), "nothing is received here");
    let mut suspicion = false;
    for _ in 0..20 {
        desk.hear(0);
        suspicion |= suspects(&desk.run(50 * MS));
    }
    assert!(suspicion, "it hears itself and nobody else");
}

#[test]
fn who_cannot_read_the_store_is_silent_and_suspects_nobody() {
    // While the store is away nobody may send heartbeats; that is held against nobody afterwards.
    let mut desk = three(0);
    while desk.now < 4 * LEASE {
        desk.now += 30 * MS;
        let mut outputs = desk.step(Input::Tick);
        if desk.asked.take().is_some() {
            outputs.append(&mut desk.step(Input::ReadFailed));
        }
        let heartbeat = |output: &Output| matches!(output, Output::Heartbeat { .. });
        let silent = !outputs.iter().any(heartbeat);
        assert!(silent || desk.now < 2 * LEASE);
    }
    assert!(!desk.machine.serves());
    assert!(!suspects(&desk.run(400 * MS)));
    assert!(desk.machine.serves());
}

#[test]
fn a_node_that_was_removed_stops_at_once_and_may_join_anew() {
    let mut desk = three(2);
    desk.others(Change::Remove(NodeSet::only(NodeId(2))), 0);
    desk.hear(0);
    let outputs = desk.run(MS);
    assert!(outputs.contains(&Output::StopServing));
    assert!(outputs.contains(&Output::Event(Event::Removed)));
    desk.step(Input::Join(Incarnation(51)));
    desk.run(MS);
    desk.run_hearing(0, LEASE + 50 * MS);
    assert!(desk.members.view.joining.contains(NodeId(2)));
    let view = desk.machine.adopted().number;
    assert_eq!(view, desk.members.view.number);
    desk.step(Input::Ready { view });
    desk.run(MS);
    let live = desk.members.view.live;
    assert!(!live.contains(NodeId(2)), "node 1 is not heard");
    desk.hear(1);
    desk.run(MS);
    assert!(desk.members.view.live.contains(NodeId(2)));
    assert!(desk.machine.serves());
}

#[test]
fn a_second_process_of_a_node_ends_the_first() {
    let mut desk = three(1);
    desk.others(Change::Join(Incarnation(99)), 1);
    desk.hear(0);
    let outputs = desk.run(MS);
    assert!(outputs.contains(&Output::Event(Event::Replaced)));
    assert!(!desk.machine.serves());
}

#[test]
fn a_node_leaves_when_its_keys_are_elsewhere() {
    let mut desk = three(0);
    desk.step(Input::Leave);
    desk.run(MS);
    assert!(desk.members.leaving.contains(NodeId(0)));
    // Everybody learns that keys are about to move before they do.
    for _ in 0..LEASE / (100 * MS) + 1 {
        assert!(!desk.members.view.moves());
        (1..3).for_each(|node| desk.hear(node));
        desk.run(50 * MS);
    }
    assert!(desk.members.view.moves() && desk.machine.serves());
    for from in 0..3 {
        let view = desk.members.view.number;
        desk.step(Input::MovesDone {
            from: NodeId(from),
            view,
        });
    }
    let outputs = desk.run(MS);
    let stops = outputs
        .iter()
        .position(|output| *output == Output::StopServing);
    let departs = outputs.iter().position(|output| {
        let change = Change::Depart;
        matches!(output, Output::Propose { change: asked, .. } if *asked == change)
    });
    assert!(stops.is_some() && stops < departs);
    assert!(outputs.contains(&Output::Event(Event::Departed)));
    assert!(!desk.members.view.live.contains(NodeId(0)));
}

#[test]
fn an_older_store_is_not_believed() {
    let mut desk = three(0);
    desk.members = Members::NOBODY;
    let outputs = desk.run(2 * LEASE);
    assert!(outputs.contains(&Output::Event(Event::StoreWentBack)));
    assert!(!desk.machine.serves());
}
