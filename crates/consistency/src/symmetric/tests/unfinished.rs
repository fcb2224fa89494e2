//! Writes that did not come to their end before the key became hot, or ceased to be.

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
