//! The protocol without faults, step by step. The checker covers the other orders.

mod cluster;
mod late_messages;
mod unfinished_at_promotion;

use curtail_types::{Cas, MessageKind, NodeId, NodeSet, WriterId};

use self::cluster::{Cluster, all, set};
use super::*;

fn hot(model: Model) -> Cluster {
    hot_with(1, model)
}

fn hot_with(replicas: u8, model: Model) -> Cluster {
    let mut cluster = Cluster::new(3, replicas, model);
    let first = cluster.request(0, Access::Replace);
    cluster.settle();
    cluster.version_of(first);
    cluster.promote(1, Cas(0));
    cluster.settle();
    assert_eq!(cluster.nodes[0].mode, Some(Mode::Hot));
    for node in &cluster.nodes {
        assert_eq!(node.state, Some(Visibility::Valid));
        assert_eq!(node.stored, cluster.nodes[0].stored);
    }
    cluster
}

#[test]
fn a_hot_key_is_written_anywhere_and_read_everywhere() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = hot(model);
        let written = cluster.request(2, Access::Replace);
        assert_eq!(cluster.answer(written).is_some(), model == Model::Sc);
        let early = cluster.request(2, Access::Read);
        assert_eq!(cluster.answer(early).is_some(), model == Model::Sc);
        cluster.settle();
        let version = cluster.answer(written).expect("done");
        assert_eq!(cluster.answer(early), Some(version));
        let read = cluster.request(1, Access::Read);
        assert_eq!(cluster.answer(read), Some(version));
    }
}

#[test]
fn an_update_runs_at_home_and_after_a_write_that_it_raced_with() {
    let mut cluster = hot(Model::Lin);
    let replaced = cluster.request(1, Access::Replace);
    let updated = cluster.request(2, Access::Update);
    cluster.settle();
    let (replaced, updated) = (cluster.answer(replaced), cluster.answer(updated));
    assert!(replaced.is_some() && updated.is_some());
    let version = updated.and_then(Result::ok).expect("done");
    assert_eq!(version.writer().node(), NodeId(0));
    assert!(cluster.all_store(version));
}

#[test]
fn a_key_that_was_hot_is_only_with_its_holders() {
    for (model, replicas) in [(Model::Lin, 1), (Model::Lin, 2), (Model::Sc, 2)] {
        let mut cluster = Cluster::new(3, replicas, model);
        cluster.request(0, Access::Replace);
        cluster.settle();
        cluster.promote(1, Cas(0));
        cluster.settle();
        cluster.request(2, Access::Replace);
        cluster.demote(0);
        cluster.settle();
        let stored = cluster.nodes[0].stored;
        assert_eq!(cluster.nodes[0].state, Some(Visibility::Ordinary));
        for (at, node) in cluster.nodes.iter().enumerate() {
            let holds = at < usize::from(replicas);
            assert_eq!(node.stored == stored, holds, "{model:?} {replicas} {at}");
            assert_eq!(node.machine.keys().count(), 0);
        }
        cluster.promote(2, Cas(0));
        cluster.settle();
        assert!(cluster.all_store(stored));
    }
}

#[test]
fn a_cold_key_with_two_holders_is_written_to_both_before_it_is_done() {
    let mut cluster = Cluster::new(3, 2, Model::Sc);
    let written = cluster.request(2, Access::Replace);
    assert_eq!(cluster.answer(written), None);
    cluster.settle();
    assert!(cluster.answer(written).is_some());
    assert_eq!(cluster.nodes[1].stored, cluster.nodes[0].stored);
    assert!(cluster.is_forgotten());
}

/// A writer dies after its invalidation and before its validation.
#[test]
fn what_a_dead_node_left_behind_is_completed() {
    let mut cluster = hot(Model::Lin);
    cluster.request(2, Access::Replace);
    cluster.links.remove(&(2, 1));
    cluster.settle();
    let waits = cluster.request(0, Access::Read);
    assert_eq!(cluster.answer(waits), None);
    cluster.view(set([0, 1]));
    cluster.settle();
    let version = cluster.version_of(waits);
    assert_eq!(version.writer().node(), NodeId(2));
    let read = cluster.request(1, Access::Read);
    assert_eq!(cluster.answer(read), Some(Ok(version)));
}

/// A node that is left alone needs nobody's acknowledgement any more.
#[test]
fn a_write_ends_when_all_who_could_acknowledge_it_are_gone() {
    let mut cluster = hot(Model::Lin);
    let written = cluster.request(2, Access::Replace);
    cluster.links.clear();
    cluster.view(NodeSet::only(NodeId(2)));
    cluster.settle();
    cluster.version_of(written);
    assert_eq!(cluster.nodes[2].state, Some(Visibility::Valid));
}

#[test]
fn a_hot_key_outlives_its_home() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = hot(model);
        let version = cluster.nodes[0].stored;
        cluster.move_home(1);
        cluster.view(set([1, 2]));
        cluster.settle();
        assert_eq!(cluster.nodes[1].mode, Some(Mode::Hot));
        let updated = cluster.request(2, Access::Update);
        cluster.settle();
        let later = cluster.version_of(updated);
        assert!(later > version);
        assert_eq!(cluster.nodes[2].stored, later);
        cluster.demote(1);
        cluster.settle();
        assert_eq!(cluster.nodes[1].stored, later);
        assert_eq!(cluster.nodes[1].state, Some(Visibility::Ordinary));
        assert_eq!(cluster.nodes[2].state, Some(Visibility::Gone));
    }
}

/// Under SC a write dies with its node that a session elsewhere has seen: the key is answered for
/// there all the same, once everybody has said that there is no such write. Method: node 2 writes,
/// nobody hears of it but a session of node 1, and node 2 dies.
#[test]
fn a_write_that_is_nowhere_is_not_waited_for() {
    let mut cluster = hot(Model::Sc);
    let kept = cluster.nodes[0].stored;
    let lost = cluster.request(2, Access::Replace);
    let ts = cluster.version_of(lost);
    cluster.links.clear();
    cluster.seen(1, ts);
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Unsettled));
    let (read, updated) = (
        cluster.request(1, Access::Read),
        cluster.request(1, Access::Update),
    );
    cluster.settle();
    assert_eq!(cluster.answer(read), None, "its writer lives");
    let later = cluster.request_after(1, Access::Read, ts);
    cluster.view(set([0, 1]));
    for _round in 0..3 {
        cluster.settle();
        cluster.pass(1);
    }
    assert_eq!(cluster.answer(read), Some(Ok(kept)));
    // It is not sought once more for who has seen it itself.
    assert!(matches!(cluster.answer(later), Some(Ok(_))));
    let updated = cluster.version_of(updated);
    assert!(updated > kept);
    assert_eq!(cluster.nodes[1].stored, updated);
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Valid));
}

#[test]
fn lost_messages_are_sent_again() {
    let mut cluster = hot(Model::Lin);
    let written = cluster.request(1, Access::Replace);
    cluster.links.clear();
    cluster.pass(10);
    cluster.settle();
    assert!(cluster.answer(written).is_some());
    let mut cluster = hot(Model::Sc);
    cluster.request(1, Access::Replace);
    cluster.links.clear();
    for _ in 0..3 {
        cluster.pass(50);
        cluster.settle();
    }
    let stored = cluster.nodes[1].stored;
    assert!(cluster.all_store(stored));
    assert_eq!(cluster.nodes[0].machine.deadline(), None);
}

#[test]
fn a_request_that_waits_too_long_is_refused_and_too_many_are_at_once() {
    let mut cluster = hot(Model::Lin);
    let written = cluster.request(1, Access::Replace);
    cluster.links.clear();
    let waiting: [Ticket; 5] = core::array::from_fn(|_| cluster.request(1, Access::Read));
    assert_eq!(cluster.answer(waiting[4]), Some(Err(Refusal::Full)));
    cluster.pass(1000);
    assert_eq!(cluster.answer(waiting[0]), Some(Err(Refusal::Late)));
    assert_eq!(cluster.answer(written), Some(Err(Refusal::Late)));
}

/// Goal: nobody but its writer knows whether an update is complete, for its writer may run it
/// again. Method: the writer hears nothing and repeats itself; another node completes what it has.
#[test]
fn an_update_is_complete_when_its_writer_says_so() {
    let mut cluster = hot(Model::Lin);
    let updated = cluster.request(0, Access::Update);
    cluster.settle_without(0);
    let read = cluster.request(1, Access::Read);
    for _ in 0..4 {
        cluster.pass(50);
        cluster.settle_without(0);
    }
    assert_eq!(cluster.answer(read), None);
    assert_eq!(cluster.answer(updated), None);
    cluster.pass(10);
    cluster.settle();
    cluster.version_of(updated);
    assert_eq!(cluster.answer(read), cluster.answer(updated));
}

/// Goal: a holder that a write of the cold key was on its way to is not invalid for ever when the
/// key becomes hot and nobody acknowledges writes any more; and a write waits until all know of the
/// promotion. Method: VALIDATE and the first FILL are lost.
#[test]
fn an_update_settles_what_the_key_waited_for_when_it_was_cold() {
    let mut cluster = Cluster::new(3, 2, Model::Sc);
    cluster.request(0, Access::Replace);
    let (invalidation, value) = cluster.links.remove(&(0, 1)).expect("sent")[0];
    cluster.deliver((0, 1), invalidation, value);
    cluster.settle_without(1);
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Unsettled));
    cluster.promote(1, Cas(0));
    cluster.settle_without(1);
    let written = cluster.request(0, Access::Replace);
    cluster.settle();
    assert_eq!(cluster.answer(written), None);
    cluster.pass(10);
    cluster.settle();
    assert!(cluster.answer(written).is_some());
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Valid));
    assert_eq!(cluster.nodes[1].stored, cluster.nodes[0].stored);
}

/// Goal: CC-70. Method: an invalidation comes a second time, after the key has ceased to be hot.
#[test]
fn what_is_late_does_not_make_a_key_hot_again() {
    let mut cluster = hot(Model::Lin);
    cluster.request(2, Access::Replace);
    let (message, value) = cluster.links[&(2, 1)][0];
    cluster.settle();
    cluster.demote(0);
    cluster.settle();
    cluster.deliver((2, 1), message, value);
    assert_eq!(cluster.nodes[1].machine.keys().count(), 0);
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Gone));
    assert!(cluster.links.values().all(|queue| queue.is_empty()));
    cluster.promote(2, Cas(0));
    cluster.settle();
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Valid));
}

/// Goal: who followed does not go on with a home that knows nothing of it, but neither is the value
/// thrown away. Method: all others are new.
#[test]
fn a_follower_whose_home_knows_nothing_gives_up_the_key() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = hot(model);
        cluster.restart(1, model);
        cluster.move_home(1);
        cluster.view(set([1, 2]));
        cluster.settle();
        assert_eq!(cluster.nodes[2].state, Some(Visibility::Ordinary));
        assert_eq!(cluster.nodes[2].machine.keys().count(), 0);
    }
}

/// Goal: a key that ceases to be hot while its home changes is not lost. Method: the new home has
/// been told to leave and cannot know whether the old one went on alone, for what that says is
/// lost; it gives its value up, the old one keeps its own, to be moved, and a request at the new
/// one waits for that.
#[test]
fn a_home_that_is_in_doubt_leaves_the_value_to_who_held_the_key() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = hot(model);
        cluster.demote_without(0);
        cluster.move_home(1);
        cluster.view(all());
        cluster.lose(MessageKind::FillAck);
        let read = cluster.request(1, Access::Read);
        let version = cluster.nodes[0].stored;
        cluster.settle();
        assert_eq!(cluster.nodes[1].state, Some(Visibility::Gone));
        assert_eq!(cluster.nodes[0].state, Some(Visibility::Ordinary));
        assert_eq!(cluster.nodes[0].stored, version);
        assert_eq!(cluster.sent_back, [read]);
        assert!(cluster.is_forgotten());
    }
}

/// Goal: it ends as well if what the old home says arrives: the new one goes on with the value.
#[test]
fn a_home_that_was_demoting_vouches_for_the_value() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = hot(model);
        cluster.demote_without(0);
        cluster.move_home(1);
        cluster.view(all());
        let version = cluster.nodes[0].stored;
        cluster.settle();
        assert_eq!(cluster.nodes[1].state, Some(Visibility::Ordinary));
        assert_eq!(cluster.nodes[1].stored, version);
        assert_eq!(cluster.nodes[0].state, Some(Visibility::Gone));
    }
}

/// Goal: who answers for a key does not leave a home in doubt, which would give the value up.
/// Method: the home before died when it had told one of two nodes to leave, and that one is the
/// next home; the first that the other says to it is lost.
#[test]
fn who_answers_for_a_key_ends_the_doubt_of_its_home() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = hot(model);
        cluster.demote_without(2);
        let version = cluster.nodes[2].stored;
        cluster.links.clear();
        cluster.move_home(1);
        cluster.view(set([1, 2]));
        cluster.lose(MessageKind::FillAck);
        cluster.settle();
        assert_eq!(cluster.nodes[1].state, Some(Visibility::Ordinary));
        assert_eq!(cluster.nodes[1].stored, version);
    }
}

/// Goal: the node that a key moves from is sure of it as long as it has not sent it on, however
/// many views come meanwhile. Method: as before, and another view comes while the key moves; a
/// write was on its way.
#[test]
fn another_view_during_a_move_makes_its_source_no_less_sure() {
    let mut cluster = hot(Model::Lin);
    cluster.demote_without(0);
    let written = cluster.request(0, Access::Replace);
    cluster.links.clear();
    cluster.move_home(1);
    let (all, source) = (all(), NodeSet::only(NodeId(0)));
    cluster.view_of_moves(all, source);
    cluster.links.clear();
    cluster.view_of_moves(all, source);
    cluster.lose(MessageKind::FillAck);
    cluster.settle();
    let version = cluster.version_of(written);
    assert_eq!(cluster.nodes[0].state, Some(Visibility::Ordinary));
    assert_eq!(cluster.nodes[0].stored, version);
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Gone));
}

/// Goal: the same when the move comes to nothing. Method: the key's promotion had not come to its
/// end, and the new home dies before it learns of the move.
#[test]
fn a_home_that_gets_its_key_back_is_sure_of_it() {
    let mut cluster = Cluster::new(3, 1, Model::Lin);
    let written = cluster.request(0, Access::Replace);
    let version = cluster.version_of(written);
    cluster.promote(1, Cas(0));
    cluster.settle_without(2);
    cluster.move_home(1);
    let two = set([0, 2]);
    cluster.view_of_moves(two, NodeSet::only(NodeId(0)));
    cluster.links.clear();
    cluster.move_home(0);
    cluster.view(two);
    cluster.settle();
    assert_eq!(cluster.nodes[0].stored, version);
    let read = cluster.request(0, Access::Read);
    assert_eq!(cluster.answer(read), Some(Ok(version)));
}

/// Goal: what a home in doubt gives up is given up by all, and who follows only because of it is no
/// witness for it. Method: a node that has nothing hears of the key from such a home first, which
/// completes a write that a dead node left behind.
#[test]
fn who_had_nothing_does_not_keep_what_a_home_in_doubt_sent() {
    for replicas in [1, 2] {
        let mut cluster = hot_with(replicas, Model::Lin);
        cluster.demote_without(0);
        cluster.request(0, Access::Replace);
        let (message, value) = cluster.links[&(0, 2)][0];
        cluster.deliver((0, 2), message, value);
        cluster.links.clear();
        cluster.restart(1, Model::Lin);
        cluster.move_home(2);
        let both = set([1, 2]);
        if replicas == 2 {
            cluster.place.holders = both;
        }
        cluster.view(both);
        cluster.settle();
        for node in &cluster.nodes[1..] {
            assert_eq!(node.stored, Cas(0));
            assert_eq!(node.machine.keys().count(), 0);
        }
    }
}

/// Goal: when a key ceases to be hot all of its holders have it. Method: one is new, and has left
/// the promotion with nothing.
#[test]
fn a_holder_that_left_with_nothing_has_the_key_when_it_is_cold() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = hot_with(2, model);
        cluster.demote(0);
        cluster.restart(1, model);
        cluster.view(all());
        let version = cluster.nodes[0].stored;
        cluster.settle();
        assert_eq!(cluster.nodes[0].state, Some(Visibility::Ordinary));
        assert_eq!(cluster.nodes[1].stored, version);
        assert_eq!(cluster.nodes[1].state, Some(Visibility::Ordinary));
    }
}

/// Goal: what an earlier promotion left behind is not taken for a later write, whatever its
/// version. Method: the key was lost with its home, and promoted anew by a node whose clock lags.
#[test]
fn what_an_earlier_promotion_left_counts_for_nothing() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = Cluster::new(3, 1, model);
        let early = Cas::new(100, WriterId::of(NodeId(0), 0));
        cluster.promote(1, early);
        cluster.settle();
        cluster.restart(0, model);
        cluster.view(all());
        cluster.links.clear();
        let late = Cas::new(50, WriterId::of(NodeId(0), 0));
        cluster.promote(2, late);
        cluster.settle();
        assert!(cluster.all_store(late));
        let written = cluster.request(2, Access::Replace);
        cluster.settle();
        let version = cluster.version_of(written);
        assert!(cluster.all_store(version));
    }
}

/// Goal: a home that hears of a later promotion than its own gives up what it has. Method: it did
/// not hear of the end of its own, nor of the later one, before it became home.
#[test]
fn a_home_whose_promotion_is_long_over_gives_up() {
    let mut cluster = hot(Model::Lin);
    cluster.demote_without(0);
    cluster.pass(10);
    cluster.settle_without(1);
    cluster.request(0, Access::Replace);
    cluster.promote(2, Cas(0));
    cluster.settle_without(1);
    let version = cluster.nodes[0].stored;
    cluster.move_home(1);
    cluster.view_of_moves(all(), NodeSet::only(NodeId(0)));
    for _ in 0..3 {
        cluster.settle();
        cluster.pass(10);
    }
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Gone));
    assert_eq!(cluster.nodes[0].state, Some(Visibility::Ordinary));
    assert_eq!(cluster.nodes[0].stored, version);
    assert!(cluster.is_forgotten());
}

/// Goal: a home in doubt does not put what it has in the place of what others hold. Method: a write
/// was on its way to it when the promotion ended without it, and its version is the greater one of
/// that which the node before has by now.
#[test]
fn a_home_in_doubt_completes_no_write() {
    let mut cluster = hot(Model::Lin);
    cluster.demote_without(0);
    cluster.request(0, Access::Replace);
    let (message, value) = cluster.links[&(0, 1)][0];
    cluster.deliver((0, 1), message, value);
    cluster.links.clear();
    cluster.restart(0, Model::Lin);
    let held = Cas::new(1, WriterId::of(NodeId(0), 9));
    cluster.nodes[0].stored = held;
    cluster.move_home(1);
    cluster.view_of_moves(all(), NodeSet::only(NodeId(0)));
    for _ in 0..3 {
        cluster.settle();
        cluster.pass(200);
    }
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Gone));
    assert_eq!(cluster.nodes[0].stored, held);
}

/// Goal: the same with two holders, who are sure of the value: they stay as they are, and agree.
#[test]
fn holders_return_to_what_they_hold_when_their_new_home_is_in_doubt() {
    let mut cluster = hot_with(2, Model::Lin);
    cluster.demote_without(0);
    cluster.move_home(2);
    cluster.place.holders = all();
    cluster.view(all());
    cluster.lose(MessageKind::FillAck);
    let version = cluster.nodes[0].stored;
    cluster.settle();
    assert_eq!(cluster.nodes[2].state, Some(Visibility::Gone));
    for holder in &cluster.nodes[..2] {
        assert_eq!(holder.state, Some(Visibility::Ordinary));
        assert_eq!(holder.stored, version);
    }
}

/// Goal: a doubt ends when the home is known to go on with the promotion. Method: a node begins to
/// hold a key that is being demoted, hears of its home again, and becomes its home.
#[test]
fn who_hears_of_the_home_again_is_sure_of_the_value() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = hot(model);
        cluster.demote_without(0);
        cluster.place.holders = set([0, 1]);
        cluster.view(all());
        cluster.settle_without(0);
        let version = cluster.nodes[1].stored;
        cluster.move_home(1);
        cluster.view(set([1, 2]));
        cluster.settle();
        assert_eq!(cluster.nodes[1].state, Some(Visibility::Ordinary));
        assert_eq!(cluster.nodes[1].stored, version);
    }
}

/// Goal: the same when somebody's write is on its way still: the home before cannot have come to
/// the end without it, and nothing that was moved before the write is to take its place.
#[test]
fn who_hears_of_a_write_is_sure_of_the_value() {
    let mut cluster = hot_with(2, Model::Lin);
    let written = cluster.request(1, Access::Replace);
    cluster.links.clear();
    cluster.demote_without(0);
    cluster.move_home(2);
    cluster.place.holders = all();
    cluster.view(all());
    cluster.settle();
    let version = cluster.version_of(written);
    assert_eq!(cluster.nodes[2].state, Some(Visibility::Ordinary));
    assert_eq!(cluster.nodes[2].stored, version);
}

/// Goal: versions rise across a delete. Method: a key without item is promoted.
#[test]
fn an_absent_key_is_promoted_with_the_version_that_it_is_told() {
    for model in [Model::Lin, Model::Sc] {
        let mut cluster = Cluster::new(3, 1, model);
        let floor = Cas::new(100, WriterId::of(NodeId(0), 0));
        cluster.promote(1, floor);
        cluster.settle();
        assert!(cluster.all_store(floor));
        let written = cluster.request(2, Access::Replace);
        cluster.settle();
        let version = cluster.version_of(written);
        assert!(version > floor);
    }
}
