//! What comes late, or was seen elsewhere, and what a key that is not hot makes of it.

use alloc::vec::Vec;

use curtail_types::{Cas, WriterId};

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

/// Goal: a write that was done at once does not give way to an earlier one while its holders agree
/// on it. Method: the home has written after one of two holders had left; that one does not hear of
/// it, nor that the key is cold, and returns to what it holds, because the next home knows nothing.
#[test]
fn what_was_done_at_once_stays_while_the_holders_agree() {
    let mut cluster = hot_with(2, Model::Sc);
    cluster.demote_without(2);
    let written = cluster.request(0, Access::Replace);
    let version = cluster.version_of(written);
    let before = cluster.nodes[1].stored;
    cluster.links.clear();
    assert!(before < version);
    cluster.pass(10);
    cluster.links.remove(&(0, 1));
    cluster.settle_without(1);
    assert_eq!(cluster.nodes[0].mode, Some(Mode::Cold));
    cluster.links.clear();
    cluster.place.home = NodeId(2);
    cluster.place.holders = all();
    cluster.view_of_moves(all(), set([0, 1]));
    for _ in 0..20 {
        cluster.settle();
        let read = cluster.request(2, Access::Read);
        assert!(cluster.answer(read).is_none_or(|read| read == Ok(version)));
        cluster.pass(50);
    }
    cluster.settle();
    assert!(cluster.all_store(version));
}
