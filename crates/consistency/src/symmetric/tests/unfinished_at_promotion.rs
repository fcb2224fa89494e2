//! Writes that had not completed when their key was promoted or demoted.

use curtail_types::{Message, ViewNumber};

use super::*;

/// Goal: a write that a promotion overtakes is not said to be done. Method: the home of an absent
/// key promotes it, with a version of nothing, before it hears of the write of another holder.
#[test]
fn a_write_that_nothing_overtakes_is_not_done() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = Cluster::new(3, 2, model);
        cluster.place.home = NodeId(1);
        cluster.view(all());
        let written = cluster.request(1, Access::Replace);
        cluster.place.home = NodeId(0);
        cluster.view(all());
        cluster.links.clear();
        let floor = Cas::new(100, WriterId::of(NodeId(0), 0));
        cluster.promote(1, floor);
        cluster.settle();
        assert!(cluster.all_store(floor));
        assert_eq!(cluster.answer(written), Some(Err(Refusal::View)));
    }
}

/// Goal: a node that showed a key while it joined does not keep it when all who were live are gone,
/// though it learns of that only when other nodes have been live since. Method: it becomes live and
/// a holder, one more view comes before its home says that it knows nothing.
#[test]
fn who_was_not_live_when_all_who_were_are_gone_keeps_nothing() {
    let mut cluster = hot_with(1, Model::Lin);
    cluster.join_view(set([0]), set([1, 2]));
    cluster.settle();
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Valid));
    cluster.restart(0, Model::Lin);
    cluster.place.holders = set([0, 1]);
    cluster.view(set([0, 1]));
    cluster.links.clear();
    cluster.view(set([0, 1]));
    for _ in 0..3 {
        cluster.settle();
        cluster.pass(10);
    }
    assert_eq!(cluster.nodes[1].stored, Cas(0));
    assert!(
        cluster.nodes[..2]
            .iter()
            .all(|node| node.machine.keys().count() == 0)
    );
}

/// Goal: a demotion ends though a node that joined late has a write of a dead one that the home
/// has not. Method: its invalidation reaches nobody else, and the home's fill never comes.
#[test]
fn a_demotion_takes_what_a_dead_node_told_only_one_who_joined() {
    let mut cluster = hot(Model::Lin);
    cluster.restart(2, Model::Lin);
    cluster.view(all());
    cluster.links.clear();
    cluster.request(1, Access::Replace);
    let (message, value) = cluster.links[&(1, 2)][0];
    cluster.deliver((1, 2), message, value);
    cluster.view(set([0, 2]));
    cluster.links.clear();
    cluster.demote(0);
    for _ in 0..10 {
        cluster.settle();
        cluster.pass(100);
    }
    assert_eq!(cluster.nodes[0].mode, Some(Mode::Cold));
    assert_eq!(cluster.nodes[0].stored, message.ts);
    assert_eq!(cluster.nodes[2].machine.keys().count(), 0);
}

/// Goal: a write that an update overtakes is done if the update has read it, and else it is not,
/// for it never took effect. Method: a holder that was home writes, and the new home, which has
/// heard of that or not, carries out an update where it has nothing, or has that write.
#[test]
fn a_write_that_an_update_has_not_read_is_not_done() {
    for reads in [false, true] {
        let mut cluster = Cluster::new(3, 2, Model::Lin);
        cluster.place.home = NodeId(1);
        cluster.view(all());
        let written = cluster.request(1, Access::Replace);
        let version = cluster.nodes[1].stored;
        cluster.place.home = NodeId(0);
        cluster.view(all());
        let (message, value) = cluster.links[&(1, 0)][0];
        cluster.links.clear();
        if reads {
            let message = Message {
                view: ViewNumber(3),
                ..message
            };
            cluster.deliver((1, 0), message, value);
            cluster.links.clear();
            cluster.deliver((1, 0), validation(message), value);
        }
        let floor = Cas::new(100, WriterId::of(NodeId(0), 0));
        let floor = if reads { Cas(0) } else { floor };
        let updated = cluster.request_above(0, Access::Update, floor);
        cluster.settle();
        let updated = cluster.version_of(updated);
        assert_eq!(cluster.nodes[1].stored, updated);
        assert_eq!(
            updated.clock(),
            if reads { version.clock() + 1 } else { 101 }
        );
        let is_done = cluster.answer(written).expect("answered").is_ok();
        assert_eq!(is_done, reads);
    }
}

/// What says that the write of `message` is complete.
fn validation(message: Message) -> Message {
    let kind = MessageKind::Validate;
    Message { kind, ..message }
}

/// Goal: who has left, and completes a write whose end it has not heard of, hears that the key is
/// hot no more. Method: the validation is lost to it, and so is DROP; the home has acknowledged
/// what it completes, and the other holder, which has forgotten the promotion, does not.
#[test]
fn who_has_left_and_completes_a_write_hears_of_the_end() {
    let mut cluster = hot_with(3, Model::Lin);
    cluster.request(0, Access::Replace);
    for pair in [(0, 1), (0, 2), (1, 0), (2, 0)] {
        let (message, value) = cluster.links[&pair][0];
        cluster.links.remove(&pair);
        cluster.deliver(pair, message, value);
    }
    cluster.settle_without(1);
    cluster.demote(0);
    cluster.links.remove(&(0, 2));
    cluster.settle();
    cluster.pass(400);
    cluster.links.remove(&(0, 2));
    cluster.links.remove(&(1, 2));
    cluster.settle();
    cluster.pass(10);
    cluster.links.remove(&(1, 2));
    cluster.settle_without(1);
    assert_eq!(cluster.nodes[0].mode, Some(Mode::Cold));
    assert_eq!(cluster.nodes[1].machine.keys().count(), 1);
    for _ in 0..10 {
        cluster.pass(100);
        cluster.settle();
    }
    assert!(cluster.is_forgotten());
}

/// Goal: who answers for a hot key keeps it, though a new home never says that it goes on with it,
/// and dies. Method: all say nothing under two views; the holder that was not home is left alone.
#[test]
fn who_answers_for_a_key_keeps_it_though_its_homes_are_silent() {
    let mut cluster = hot_with(2, Model::Lin);
    let version = cluster.nodes[0].stored;
    for (home, holders, live, before) in [
        (2, all(), all(), set([0, 1])),
        (2, set([0, 2]), all(), all()),
        (0, set([0, 1]), set([0, 1]), all()),
        (1, set([1]), set([1]), all()),
    ] {
        cluster.place.home = NodeId(home);
        cluster.place.holders = holders;
        cluster.view_of_moves(live, before);
        cluster.links.clear();
        cluster.pass(10);
        cluster.links.clear();
    }
    let read = cluster.request(1, Access::Read);
    assert_eq!(cluster.answer(read), Some(Ok(version)));
}

/// Goal: nobody becomes live who knows nothing of a key that others still answer for. Method: a
/// node joins while a key is being demoted, says that it has nothing of it, and waits for the end.
#[test]
fn who_joins_waits_for_the_end_of_a_demotion() {
    let mut cluster = hot(Model::Lin);
    cluster.restart(2, Model::Lin);
    cluster.join_view(set([0, 1]), set([2]));
    cluster.links.clear();
    cluster.demote(0);
    cluster.settle_without(1);
    assert!(cluster.nodes[0].machine.is_unfilled(NodeId(2)));
    cluster.pass(10);
    cluster.settle();
    assert_eq!(cluster.nodes[0].mode, Some(Mode::Cold));
    assert!(!cluster.nodes[0].machine.is_unfilled(NodeId(2)));
}

/// Goal: nothing, of the version that a promotion gave it, which did not come to its end, does not
/// overtake a write of who has never heard of it. Method: the next home is one of the holders that
/// lacks the promotion's fill, and writes with an earlier version before it hears of it.
#[test]
fn nothing_overtakes_no_write() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = Cluster::new(3, 3, model);
        let clock = Cas::new(100, WriterId::of(NodeId(0), 0));
        cluster.promote(1, nothing_since(NodeId(0), clock));
        cluster.settle_without(1);
        cluster.place.home = NodeId(1);
        cluster.place.holders = set([1, 2]);
        cluster.view(set([1, 2]));
        let written = cluster.request(1, Access::Replace);
        for _ in 0..3 {
            cluster.settle();
            cluster.pass(10);
        }
        let version = cluster.version_of(written);
        assert!(version < clock);
        assert_eq!(cluster.nodes[1].stored, version);
        assert_eq!(cluster.nodes[2].stored, version);
    }
}

/// Goal: a holder that knows of a promotion by a write only, and had nothing before, keeps that
/// write when it is left alone: it has held the key all along. Method: FILL is lost to it.
#[test]
fn a_holder_that_had_nothing_keeps_what_it_has_acknowledged() {
    let mut cluster = Cluster::new(3, 3, Model::Lin);
    cluster.promote(1, Cas::new(100, WriterId::of(NodeId(0), 0)));
    cluster.links.remove(&(0, 2));
    cluster.settle();
    let written = cluster.request(0, Access::Replace);
    for pair in [(0, 1), (0, 2), (1, 0), (2, 0)] {
        let (message, value) = cluster.links[&pair][0];
        cluster.links.remove(&pair);
        cluster.deliver(pair, message, value);
    }
    cluster.lose(MessageKind::Fill);
    cluster.settle();
    let version = cluster.version_of(written);
    cluster.move_home(2);
    cluster.view_of_moves(set([2]), all());
    cluster.settle();
    assert!(cluster.sent_back.is_empty());
    assert_eq!(cluster.nodes[2].stored, version);
    let read = cluster.request(2, Access::Read);
    assert_eq!(cluster.answer(read), Some(Ok(version)));
}

/// Goal: a node that was to hold a key keeps what its promotion ended with, though it hears of the
/// end a view late: what was moved to it before may be older. Method: it has left when it becomes a
/// holder, and nothing reaches it until the next view, which places nothing elsewhere.
#[test]
fn who_hears_a_view_late_of_the_end_keeps_what_it_has() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = hot_with(1, model);
        let written = cluster.request(1, Access::Replace);
        cluster.settle();
        let version = cluster.version_of(written);
        cluster.demote_without(2);
        cluster.place.holders = set([0, 1]);
        cluster.view(all());
        for _ in 0..3 {
            cluster.settle_without(1);
            cluster.pass(10);
        }
        assert_eq!(cluster.nodes[0].mode, Some(Mode::Cold));
        assert_eq!(cluster.nodes[1].machine.keys().count(), 1);
        cluster.view(all());
        cluster.settle();
        assert_eq!(cluster.nodes[1].state, Some(Visibility::Ordinary));
        assert_eq!(cluster.nodes[1].stored, version);
        assert!(cluster.is_forgotten());
    }
}
