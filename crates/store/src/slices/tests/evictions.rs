//! What a full node evicts, and who is asked.

use super::*;

/// How many of the popular keys of the slices that this node decides about live through a stream of
/// writes of many times the memory, which two stages make room for; `None` if a key went of which
/// nobody was told, or more than once.
fn popular_survive(bug: SliceBug) -> Option<f64> {
    const POPULAR: u64 = 400;
    let mut node = Node::with_bug(2 * MIB, true, bug);
    let mut random = Random::new(7);
    let decides = |slice: u16| (slice / 2).is_multiple_of(2);
    let mut there = BTreeMap::new();
    let mut number = 0;
    let mut lost = 0;
    let all: Vec<u64> = (0..POPULAR).collect();
    let decided: Vec<u64> = all
        .iter()
        .copied()
        .filter(|&one| decides(node.slice(one)))
        .collect();
    // What other nodes decide about is half of everything, and is overwritten now and then.
    while number < 60_000 {
        number += 1;
        let popular = decided[random.below(decided.len() as u64) as usize];
        if !node.read(popular) {
            lost += u64::from(there.remove(&route_of(&name(popular)).0).is_some());
            write(&mut node, popular, decides, &mut there)?;
        }
        let one = POPULAR + number;
        if decides(node.slice(one)) {
            write(&mut node, one, decides, &mut there)?;
        } else if number % 8 == 0 {
            let followed = POPULAR + 1_000_000 + random.below(1500);
            if !decides(node.slice(followed)) {
                write(&mut node, followed, decides, &mut there)?;
            }
        }
    }
    let missing = there.values().filter(|&&one| node.item(one).is_none());
    if missing.count() > 0 || lost > 0 {
        return None;
    }
    let survive = decided.iter().filter(|&&one| node.item(one).is_some());
    Some(survive.count() as f64 / decided.len() as f64)
}

/// Writes a key, with evictions by the stages in turn until there is room; `None` if a key is shown
/// that was not there or may not be evicted.
fn write(
    node: &mut Node,
    number: u64,
    decides: fn(u16) -> bool,
    there: &mut BTreeMap<u64, u64>,
) -> Option<()> {
    for turn in 0..4000 {
        if matches!(node.set(number, &[1; 300]), ItemChange::Stored(_)) {
            there.insert(route_of(&name(number)).0, number);
            return Some(());
        }
        node.maintain(1);
        let stage = turn % STAGES;
        if node.store.wants_eviction(stage) {
            let bytes = node.store.eviction_bytes();
            for route in node.evict(stage, bytes, decides).1 {
                let gone = there.remove(&route)?;
                decides(node.slice(gone)).then_some(())?;
            }
        }
    }
    panic!("no room for {number}: {:?}", node.store);
}

/// Goal: popular keys stay in a full store, whose two stages each see half of the slices and decide
/// about a quarter of the items; whatever goes is shown once, and nothing goes that another node
/// decides about (CL-7). Method: a stream of keys that are never read, beside popular ones.
#[test]
fn popular_keys_survive() {
    let survive = popular_survive(SliceBug::None);
    assert!(survive.is_some_and(|share| share > 0.98), "{survive:?}");
}

/// Goal: the test above can fail.
#[test]
fn wrong_evictions_are_caught() {
    assert_eq!(popular_survive(SliceBug::EvictsUnasked), None);
}

/// Goal: an item that was read after it was judged stays, one that is of another node's slice
/// stays, and the rest goes. Method: all items of a store are condemned, some are read, then
/// evicted.
fn reads_after_judgement(bug: SliceBug) -> bool {
    let mut node = Node::with_bug(2 * MIB, true, bug);
    let mut number = 0;
    while node.set(number, &[1; 300]) != ItemChange::NoRoom {
        number += 1;
    }
    let store = Arc::clone(&node.store);
    let waiting = |stage| store.slices.get().unwrap().condemned(stage);
    while waiting(0) < 100 {
        let judged = store.evict_slices(
            &mut node.writer,
            node.now,
            1,
            u64::MAX,
            &mut |_| true,
            &mut |_, _| (),
        );
        assert!(judged > 0 || waiting(0) > 0);
    }
    let is_of_first = |node: &Node, one: u64| node.slice(one).is_multiple_of(STAGES);
    let read: Vec<u64> = (0..number)
        .filter(|&one| is_of_first(&node, one) && one % 3 == 0)
        .collect();
    // Often enough that no later judgement gives them up.
    for _ in 0..3 {
        assert!(read.iter().all(|&one| node.read(one)));
    }
    let (mut turns, mut gone) = (0, 0);
    while waiting(0) > 0 && turns < 1000 {
        turns += 1;
        gone += node.evict(0, 100, |slice| slice % 4 == 0).1.len();
    }
    assert!(gone > 0);
    let followed: Vec<u64> = (0..number)
        .filter(|&one| is_of_first(&node, one) && !node.slice(one).is_multiple_of(4))
        .collect();
    assert!(followed.iter().all(|&one| node.item(one).is_some()));
    read.iter().all(|&one| node.item(one).is_some())
}

#[test]
fn what_was_read_since_it_was_judged_stays() {
    assert!(reads_after_judgement(SliceBug::None));
    assert!(!reads_after_judgement(SliceBug::ReadsIgnored));
}

/// Goal: what the policy gives up waits for each stage, so that a stage need not fall back on what
/// is popular. Method: one stage asks; items of the other wait, unless that is broken.
#[test]
fn other_stages_have_their_share() {
    for (bug, expected) in [(SliceBug::None, true), (SliceBug::OtherStagesStay, false)] {
        let mut node = Node::with_bug(2 * MIB, true, bug);
        let mut number = 0;
        while node.set(number, &[1; 300]) != ItemChange::NoRoom {
            number += 1;
        }
        for _ in 0..20 {
            node.evict(0, 1 << 20, |_| true);
        }
        let slices = node.store.slices.get().unwrap();
        assert_eq!(slices.condemned(1) > 50, expected, "{bug:?}");
    }
}

/// Goal: free slices are evicted from without asking anybody, and no other.
#[test]
fn free_slices_make_room_by_themselves() {
    let mut node = Node::new(2 * MIB, true);
    for slice in (0..SLICES).step_by(2) {
        node.store.set_free(slice, true);
    }
    let set = Set::default();
    let store = Arc::clone(&node.store);
    let (mut bound, mut sets) = (BTreeSet::new(), 0);
    for number in 0..40_000 {
        let is_free = node.slice(number).is_multiple_of(2);
        if !is_free && bound.len() >= 1000 {
            continue;
        }
        let name = name(number);
        let key = Key::new(&name).unwrap();
        let hash = store.hash(&name);
        let outcome = store.set(&mut node.writer, node.now, key, hash, &set, &[1; 300]);
        assert!(matches!(outcome, SetOutcome::Stored(_)), "{number}");
        store.maintain(&mut node.writer, node.now, 64);
        sets += 1;
        if !is_free {
            bound.insert(number);
        }
    }
    assert!(sets > 15_000);
    assert!(bound.iter().all(|&one| node.item(one).is_some()));
    assert!(node.store.counters().evictions > 10_000);
}
