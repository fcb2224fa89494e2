//! Changes of rows, and what becomes of the slices of nodes that are taken out.

use alloc::{vec, vec::Vec};

use super::*;

fn forwarded(outputs: &[MemberOutput]) -> Vec<(u8, usize)> {
    let forward = |output: &MemberOutput| match output {
        MemberOutput::Forward { to, changes } => Some((to.0, changes.len())),
        _ => None,
    };
    outputs.iter().filter_map(forward).collect()
}

fn written(outputs: &[MemberOutput]) -> Vec<usize> {
    let batch = |output: &MemberOutput| match output {
        MemberOutput::Propose {
            change: RecordChange::Rows(changes),
            ..
        } => Some(changes.len()),
        _ => None,
    };
    outputs.iter().filter_map(batch).collect()
}

fn holds(desk: &Desk, change: &RowChange) -> bool {
    let row = desk.record.slices().unwrap().row(change.slice).unwrap();
    row.holders.contains(change.step.node())
}

/// Goal: what several nodes want at a time is one view. Method: the lowest node is told of changes
/// by the primaries of slices, by itself and by one that is not the primary.
#[test]
fn the_lowest_node_writes_the_changes_of_all_together() {
    let mut desk = three(0);
    desk.run_among(&[1, 2], &[], LEASE);
    let before = desk.record.number;
    let (own, of_one, of_two) = (
        desk.applicable(0, 0),
        desk.applicable(1, 0),
        desk.applicable(2, 3),
    );
    let usurped = desk.applicable(2, 1);
    let mut outputs = desk.propose(NodeId(0), own);
    outputs.append(&mut desk.propose(NodeId(1), of_one));
    outputs.append(&mut desk.propose(NodeId(1), usurped));
    outputs.append(&mut desk.propose(NodeId(2), of_two));
    outputs.append(&mut desk.run_among(&[1, 2], &[], 10 * MS));
    assert_eq!(written(&outputs), [3]);
    assert_eq!(forwarded(&outputs), []);
    assert_eq!(desk.record.number.0, before.0 + 1);
    assert!(
        [own, of_one, of_two]
            .iter()
            .all(|change| holds(&desk, change))
    );
    assert!(!holds(&desk, &usurped));
    // Of another view they are void.
    let late = desk.propose(NodeId(1), usurped);
    assert_eq!(written(&late), []);
    assert_eq!(written(&desk.run_among(&[1, 2], &[], LEASE)), []);
}

/// Goal: view after view costs copies of hot keys, so that changes wait for each other unless a
/// request waits for them. Method: a change soon after a view, then one of the urgent kind.
#[test]
fn only_what_a_request_waits_for_is_written_soon_after_a_view() {
    let mut desk = three(0);
    desk.run_among(&[1, 2], &[], LEASE);
    let first = desk.applicable(0, 0);
    desk.propose(NodeId(0), first);
    assert_eq!(written(&desk.run_among(&[1, 2], &[], 3 * MS)), [1]);
    let second = desk.applicable(0, 1);
    desk.propose(NodeId(0), second);
    let calm = desk.machine.config.calm_ns;
    assert_eq!(written(&desk.run_among(&[1, 2], &[], calm - 10 * MS)), []);
    assert_eq!(written(&desk.run_among(&[1, 2], &[], 10 * MS)), [1]);
    let third = desk.applicable(0, 2);
    desk.propose(NodeId(0), third);
    let slices = desk.record.slices().unwrap();
    let row = slices.row(first.slice).unwrap();
    let urgent = RowChange {
        step: RowStep::HandOver(row.in_sync.without(NodeId(0)).first().unwrap()),
        view: desk.record.number,
        ..first
    };
    desk.propose(NodeId(0), urgent);
    assert_eq!(written(&desk.run_among(&[1, 2], &[], 3 * MS)), [2]);
}

/// Goal: what is wanted goes to the node that writes, again and again, until there is another view.
/// Method: the writer is silent, the next one is asked; then somebody changes the view.
#[test]
fn changes_are_sent_to_the_node_that_writes_until_the_view_changes() {
    let mut desk = three(2);
    desk.run_among(&[0, 1], &[], LEASE);
    let changes = [desk.applicable(2, 0), desk.applicable(2, 1)];
    for change in changes {
        assert_eq!(forwarded(&desk.propose(NodeId(2), change)), []);
    }
    let outputs = desk.run_among(&[0, 1], &[], 250 * MS);
    assert_eq!(forwarded(&outputs), [(0, 2); 3]);
    assert_eq!(written(&outputs), []);
    let outputs = desk.run_among(&[1], &[], LEASE * 3 / 5);
    assert!(
        forwarded(&outputs).ends_with(&[(1, 2)]),
        "{:?}",
        forwarded(&outputs)
    );
    desk.others(RecordChange::Drain(NodeId(1)), 1);
    desk.hear(1);
    let outputs = desk.run_among(&[0, 1], &[], 300 * MS);
    assert_eq!(forwarded(&outputs), []);
}

/// After the view store had been out of reach for some leases, a primary had a follower taken out
/// that it did not reach. Then, as the higher one of the two, it was removed itself, and the slice
/// was lost. Method: the follower does not answer heartbeats, then it does.
#[test]
fn a_node_that_does_not_answer_is_not_taken_out_of_rows() {
    let mut desk = three(2);
    desk.run_among(&[0, 1], &[], LEASE);
    let slices = desk.record.slices().unwrap();
    let is_shared = |row: &SliceRow| row.primary == NodeId(2) && row.in_sync.contains(NodeId(1));
    let (slice, _) = slices.rows().find(|(_, row)| is_shared(row)).unwrap();
    let exit = RowChange {
        slice,
        view: desk.record.number,
        step: RowStep::Exit(NodeId(1)),
    };
    desk.run_among(&[0], &[1], LEASE * 6 / 10);
    let mut outputs = desk.propose(NodeId(2), exit);
    outputs.append(&mut desk.run_among(&[0], &[1], 100 * MS));
    assert_eq!(forwarded(&outputs), []);
    let outputs = desk.run_among(&[0, 1], &[], 200 * MS);
    assert!(forwarded(&outputs).contains(&(0, 1)));
}

/// Goal: what a node wants of a view that this one has not seen is not forgotten. Method: the
/// change comes before the view does.
#[test]
fn a_change_of_a_later_view_is_kept_until_that_is_known() {
    let mut desk = three(0);
    desk.run_among(&[1, 2], &[], LEASE);
    desk.others(RecordChange::Drain(NodeId(2)), 2);
    let change = desk.applicable(1, 0);
    let outputs = desk.propose(NodeId(1), change);
    assert!(outputs.contains(&MemberOutput::Read), "it looks");
    assert_eq!(written(&desk.run_among(&[1, 2], &[], 100 * MS)), [1]);
    assert!(holds(&desk, &change));
}

/// Goal: a node that comes counts what others said before it knew them. Method: a node that waits
/// hears one that joined after it read the store, and the reading comes later.
#[test]
fn what_was_heard_of_nodes_ahead_is_counted_when_they_are_known() {
    let mut desk = Desk::new(0, ClusterRecord::NOBODY);
    desk.machine.config.founders = NodeSet::from_bits(0b11);
    desk.step(MemberInput::Join(Incarnation(50)));
    desk.run(10 * MS);
    desk.others(RecordChange::Join(Incarnation(2)), 1);
    desk.hear(1);
    desk.run(MS);
    let answered = desk.machine.heartbeat_to(NodeId(1)).answers;
    assert!(answered > Instant { ns: 0 }, "it is answered at once");
    assert_eq!(desk.record.slices().unwrap().members.to_bits(), 0b11);
}

fn events(outputs: Vec<MemberOutput>) -> Vec<MemberNotice> {
    let event = |output| match output {
        MemberOutput::Event(
            event @ (MemberNotice::Inherited { .. } | MemberNotice::Lost { .. }),
        ) => Some(event),
        _ => None,
    };
    outputs.into_iter().filter_map(event).collect()
}

/// Goal: heirs and losses are told, each slice by one node. Method: one of three nodes is removed
/// where each slice has two holders, and where it has one.
#[test]
fn heirs_and_losses_are_told() {
    for replicas in [1, 2] {
        let mut told = (0, 0, 0);
        for me in 0..2 {
            let mut desk = Desk::new(me, ClusterRecord::NOBODY);
            desk.plan.replicas = replicas;
            let (mut desk, outputs) = founded_at(desk, 3);
            assert_eq!(events(outputs), [], "a cluster begins empty");
            desk.run_among(&[1 - me, 2], &[], LEASE);
            desk.others(RecordChange::Remove(NodeSet::only(NodeId(2))), 1 - me);
            desk.hear(1 - me);
            let outputs = desk.run_among(&[1 - me], &[], 2 * LEASE);
            for event in events(outputs) {
                match event {
                    MemberNotice::Inherited { slices } => told.0 += slices,
                    MemberNotice::Lost { slices, here } => {
                        told.1 = slices;
                        told.2 += here;
                    }
                    _ => {}
                }
            }
        }
        let expected = match replicas {
            1 => (0, 8, 8),
            _ => (8, 0, 0),
        };
        assert_eq!(told, expected, "{replicas}");
    }
}

/// Goal: what is lost when the only holder starts again is told by it. Method: a node alone joins
/// under another life.
#[test]
fn a_node_that_starts_again_tells_what_is_lost() {
    let mut desk = founded(0, 1);
    desk.others(RecordChange::Join(Incarnation(51)), 0);
    let mut again = Desk::new(0, desk.record.clone());
    again.step(MemberInput::Join(Incarnation(51)));
    let outputs = again.run(2 * LEASE);
    let (slices, here) = (24, 24);
    assert_eq!(events(outputs), vec![MemberNotice::Lost { slices, here }]);
}
