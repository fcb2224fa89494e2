//! Messages that arrive late or concern an earlier state, at a key that is not hot.

use alloc::vec::Vec;

use curtail_types::{Cas, HotEpoch, Message, RouteHash, ViewNumber, WriterId};

use super::cluster::{Cluster, KEY, all, set};
use super::*;

/// Goal: what sessions have seen of a key keeps nobody waiting once the key is not hot: its home
/// has all that there is. Method: a promotion's version of nothing, which no write ever has, is
/// waited for; its node is there, or is gone.
#[test]
fn a_key_that_is_not_hot_waits_for_no_other_write() {
    for writer in [1, 2] {
        let mut cluster = Cluster::new(3, 2, Model::Sc);
        let written = cluster.request(0, Access::Replace);
        cluster.settle();
        cluster.view(set([0, 1]));
        let seen = Cas::new(1000, WriterId::of(NodeId(writer), 0));
        let read = cluster.request_after(0, Access::Read, seen);
        assert_eq!(cluster.answer(read), Some(Ok(cluster.version_of(written))));
        let next = cluster.request_after(0, Access::Replace, seen);
        cluster.settle();
        assert!(cluster.version_of(next) > cluster.version_of(written));
    }
}

/// Goal: a write of a key that has nothing is later than whatever was there before, also if it is
/// not the first request that the machine hears of. Method: one that waits behind another, which
/// does not write.
#[test]
fn a_write_where_nothing_is_comes_after_what_was_there() {
    let mut cluster = Cluster::new(3, 2, Model::Lin);
    let (now, key, place) = (cluster.now, KEY, cluster.place);
    let mut runs = Vec::new();
    let mut step = |input| {
        let machine = &mut cluster.nodes[0].machine;
        machine.step(now, input, Cas(0), |output| {
            if let Output::Run { ts, .. } = output {
                runs.push(ts.clock());
            }
        });
    };
    for (ticket, clock) in [(1, 50), (2, 0)] {
        step(Input::Request {
            ticket: Ticket(ticket),
            key,
            place,
            access: Access::Update,
            after: Cas(0),
            floor: Cas::new(clock, WriterId::of(NodeId(1), 0)),
        });
    }
    let ticket = Ticket(1);
    step(Input::Decline { ticket, key });
    assert_eq!(runs, [51, 51]);
}

/// Goal: an update of an earlier view counts where the promotion is known, and does not begin one
/// that is over. Method: it comes a second time, after the key has ceased to be hot and the view is
/// another.
#[test]
fn an_update_of_an_earlier_view_begins_nothing() {
    let mut cluster = hot_with(2, Model::Sc);
    cluster.request(2, Access::Replace);
    let (message, value) = cluster.links[&(2, 1)][0];
    assert_eq!(message.kind, MessageKind::Update);
    cluster.settle();
    cluster.demote(0);
    cluster.settle();
    assert!(cluster.is_forgotten());
    cluster.view(all());
    cluster.deliver((2, 1), message, value);
    assert!(cluster.is_forgotten());
}

/// Goal: a holder that missed a write which was done at once does not go back to what it has when
/// the key ceases to be hot. Method: no message about the key that is not hot any more arrives.
#[test]
fn a_holder_that_missed_a_write_does_not_go_back_to_the_one_before() {
    let mut cluster = hot_with(2, Model::Sc);
    let written = cluster.request(0, Access::Replace);
    cluster.links.remove(&(0, 1));
    cluster.demote(0);
    cluster.settle_if(|_, kind| kind != MessageKind::Update);
    assert_eq!(cluster.nodes[0].mode, Some(Mode::Demoting));
    for _ in 0..3 {
        cluster.settle_if(|_, kind| kind != MessageKind::InvalidateUpdate);
        cluster.pass(10);
    }
    assert_eq!(cluster.nodes[0].mode, Some(Mode::Cold));
    assert_eq!(cluster.nodes[1].state, Some(Visibility::Ordinary));
    assert_eq!(cluster.nodes[1].stored, cluster.version_of(written));
    assert!(cluster.is_forgotten());
}

/// Goal: a write that is done at once waits until the key has ceased to be hot: who has left could
/// miss it. Method: one of the others does not hear that it is to leave; then it does.
#[test]
fn nothing_is_done_at_once_while_others_leave() {
    let mut cluster = hot_with(2, Model::Sc);
    cluster.demote_without(2);
    let written = cluster.request(0, Access::Replace);
    cluster.settle_without(2);
    assert_eq!(cluster.answer(written), None);
    for _ in 0..3 {
        cluster.pass(10);
        cluster.settle();
    }
    assert_eq!(cluster.nodes[1].stored, cluster.version_of(written));
    assert!(cluster.is_forgotten());
}

/// Goal: a write that was done at once does not give way to an earlier one while its holders agree
/// on it. Method: one of two holders has missed it; the next home knows nothing, so that both
/// return to what they have, and hears of the earlier one first.
#[test]
fn what_was_done_at_once_stays_while_the_holders_agree() {
    let mut cluster = hot_with(2, Model::Sc);
    let written = cluster.request(0, Access::Replace);
    let version = cluster.version_of(written);
    cluster.links.clear();
    cluster.restart(2, Model::Sc);
    cluster.place.home = NodeId(2);
    cluster.place.holders = all();
    cluster.view_of_moves(all(), set([0, 1]));
    let invalidates = [MessageKind::Invalidate, MessageKind::InvalidateUpdate];
    cluster.settle_if(|(from, _), kind| from != 0 || !invalidates.contains(&kind));
    for _ in 0..20 {
        let read = cluster.request(2, Access::Read);
        assert!(cluster.answer(read).is_none_or(|read| read == Ok(version)));
        cluster.settle();
        cluster.pass(50);
    }
    cluster.settle();
    assert!(cluster.all_store(version));
}

/// Goal: a write that died with its node is waited for no longer, though that node is back in the
/// next view that the others see. Method: it is taken out and joins anew at once.
#[test]
fn a_write_of_a_life_that_is_over_is_not_waited_for() {
    let mut cluster = hot(Model::Sc);
    let lost = cluster.request(2, Access::Replace);
    let ts = cluster.version_of(lost);
    cluster.links.clear();
    cluster.seen(1, ts);
    let read = cluster.request(1, Access::Read);
    cluster.restart(2, Model::Sc);
    cluster.join_view(set([0, 1]), set([2]));
    for _ in 0..3 {
        cluster.settle();
        cluster.pass(10);
    }
    assert_eq!(cluster.answer(read), Some(Ok(cluster.nodes[0].stored)));
}

/// Goal: a write of a node that has come to a later view, in which it is live, is not taken for one
/// that is nowhere. Method: that node joins in the home's view, and has answered in it; a session
/// has seen a write of it, and from then on it is silent.
#[test]
fn a_write_of_a_later_view_is_waited_for() {
    let mut cluster = hot(Model::Sc);
    cluster.join_view(set([0, 1]), set([2]));
    cluster.settle();
    cluster.request(0, Access::Replace);
    for _ in 0..3 {
        cluster.settle();
        cluster.pass(50);
    }
    let seen = Cas::new(1000, WriterId::of(NodeId(2), 0));
    let read = cluster.request_after(0, Access::Read, seen);
    for _ in 0..3 {
        cluster.pass(50);
        cluster.settle_if(|(from, _), _| from != 2);
    }
    assert_eq!(cluster.answer(read), None);
    cluster.pass(50);
    cluster.settle();
    assert_eq!(cluster.answer(read), Some(Ok(cluster.nodes[0].stored)));
}

/// Goal: what was removed does not come back by an invalidation that was late, and what remembers
/// that has a bound. Method: a holder forgets a key of which nothing is left; another holder's
/// invalidation of an earlier write comes, at once, after another removal, and after many.
#[test]
fn an_invalidation_from_before_a_removal_is_late() {
    for (others, is_taken) in [(0, false), (1, false), (128, true)] {
        let mut cluster = Cluster::new(3, 3, Model::Lin);
        let (now, place) = (cluster.now, cluster.place);
        let mut sent = Vec::new();
        let mut hear = |from, key, kind, clock| {
            let message = Message {
                kind,
                view: ViewNumber(1),
                epoch: HotEpoch(0),
                ts: Cas::new(clock, WriterId::of(NodeId(0), 0)),
            };
            let from = NodeId(from);
            let input = Input::Message {
                from,
                key,
                place,
                message,
            };
            let machine = &mut cluster.nodes[1].machine;
            machine.step(now, input, Cas(0), |output| sent.push(output));
        };
        for other in 0..=others {
            let key = RouteHash(KEY.0 + other);
            hear(0, key, MessageKind::InvalidateUpdate, 5);
            hear(0, key, MessageKind::Validate, 5);
        }
        hear(2, KEY, MessageKind::Invalidate, 4);
        assert!(matches!(
            sent.last(),
            Some(Output::Send { message, .. }) if message.kind == MessageKind::Ack
        ));
        assert_eq!(cluster.nodes[1].machine.knows(KEY), is_taken, "{others}");
    }
}
