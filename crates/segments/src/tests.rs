//! All parts together: allocations, leases, queues and limits, without the store.

use std::sync::Arc;

use super::*;

fn small(segments: usize) -> Arc<Segments> {
    let config = SegmentsConfig {
        segment_bytes: 4096,
        segments_max: segments,
        pages: Pages::Small,
    };
    let made = Segments::new(config).unwrap();
    made.set_resident_max(segments);
    Arc::new(made)
}

/// Goal: allocations of one segment never overlap and never leave it. Method: four threads bump
/// one cursor until it is full, each writing its own mark; then every word has one owner.
#[test]
fn allocations_do_not_overlap() {
    let segments = small(2);
    let id = segments.open(7, 0, 0, SegmentClaim::Any).unwrap();
    let threads: Vec<_> = (1..=4_u64)
        .map(|mark| {
            let segments = Arc::clone(&segments);
            std::thread::spawn(move || {
                let mut words = 0;
                while let Ok(allocation) = segments.allocate(id, 7, 1 + words % 5) {
                    for word in &segments.words(allocation.reference())[..allocation.words()] {
                        assert_eq!(word.swap(mark, Ordering::Relaxed), 0);
                    }
                    words += allocation.words();
                    segments.finish(allocation);
                }
                words
            })
        })
        .collect();
    let total: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(total, segments.filled_words(id));
    assert_eq!(segments.pending(id), 0);
    assert!(total + 5 > segments.segment_words());
}

#[test]
fn a_segment_with_unpublished_words_is_not_taken() {
    let segments = small(2);
    let id = segments.open(1, 0, 0, SegmentClaim::Any).unwrap();
    let allocation = segments.allocate(id, 1, 4).unwrap();
    segments.seal(id, 0);
    assert_eq!(segments.allocate(id, 1, 4).unwrap_err(), NoRoom::Closed);
    assert_eq!(segments.take_oldest(0, |_| true), None);
    assert!(!segments.take_sealed(id));
    segments.finish(allocation);
    assert_eq!(segments.take_oldest(0, |live| live == 4), Some(id));
}

/// Goal: a writer that is late to finish a whole segment, which was freed and opened again
/// meanwhile, does not touch the new one's count. Method: exactly that, with one segment.
#[test]
fn finishing_a_whole_segment_late_is_harmless() {
    let segments = small(1);
    let whole = segments.take_whole(SegmentClaim::Any).unwrap();
    let id = segments.segment_of(whole.reference()).unwrap();
    assert!(segments.retire(id));
    assert_eq!(segments.open(1, 0, 0, SegmentClaim::Any), Some(id));
    let allocation = segments.allocate(id, 1, 4).unwrap();
    segments.finish(whole);
    assert_eq!(segments.pending(id), 1);
    segments.finish(allocation);
    assert_eq!(segments.pending(id), 0);
}

#[test]
fn a_leased_segment_is_free_only_when_the_lease_ends() {
    let segments = small(1);
    let whole = segments.take_whole(SegmentClaim::Any).unwrap();
    let id = segments.segment_of(whole.reference()).unwrap();
    let lease = Lease::new(&segments, whole.reference()).unwrap();
    let second = Lease::new(&segments, whole.reference() + 3).unwrap();
    assert!(!segments.retire(id));
    assert_eq!(segments.available(), 0);
    drop(lease);
    assert_eq!(segments.available(), 0);
    drop(second);
    assert_eq!(segments.available(), 1);
}

#[test]
fn memory_above_the_limit_is_released_and_reads_as_zero() {
    let segments = small(4);
    let mut taken: Vec<_> = (0..4)
        .map(|_| segments.take_whole(SegmentClaim::Any).unwrap())
        .collect();
    for allocation in &mut taken {
        segments.bytes_mut(allocation, 0).fill(0xab);
    }
    let references: Vec<_> = taken.iter().map(Allocation::reference).collect();
    for &reference in &references {
        assert!(segments.retire(segments.segment_of(reference).unwrap()));
    }
    segments.set_resident_max(1);
    assert_eq!(segments.available(), 1);
    assert_eq!(segments.release(2), 2);
    assert_eq!(segments.release(9), 1);
    assert_eq!(segments.resident(), (1, 1, 1));
    let zero = references
        .iter()
        .filter(|&&r| segments.words(r)[5].load(Ordering::Relaxed) == 0);
    assert_eq!(zero.count(), 3);
    assert!(segments.take_whole(SegmentClaim::Any).is_some());
    assert!(segments.take_whole(SegmentClaim::Any).is_none());
    segments.set_resident_max(4);
    assert_eq!(segments.available(), 3);
}

#[test]
fn references_to_nowhere_are_harmless() {
    let segments = small(1);
    assert!(segments.words(u64::MAX >> 24).is_empty());
    assert_eq!(segments.segment_of(3), None);
    assert_eq!(segments.words(512 + 500).len(), 12);
    let lease = Lease::new(&segments, 512).unwrap();
    assert!(lease.bytes(5, 0, 9).is_empty());
    assert_eq!(lease.bytes(512 + 511, 3, 99).len(), 5);
}

#[test]
fn the_reserve_is_kept() {
    let segments = small(3);
    assert!(segments.take_whole(SegmentClaim::Beyond(2)).is_some());
    assert!(segments.take_whole(SegmentClaim::Beyond(2)).is_none());
    assert!(segments.open(0, 0, 0, SegmentClaim::Beyond(1)).is_some());
    assert!(segments.open(0, 0, 0, SegmentClaim::Any).is_some());
    assert!(segments.open(0, 0, 0, SegmentClaim::Any).is_none());
}

/// Goal: threads that take beyond kept segments leave them, and their owner gets one
/// even beyond the limit, which is kept to again when it is free. Method: a memory of four
/// segments, three of them kept.
#[test]
fn kept_segments_are_for_whom_they_are_kept() {
    let segments = small(8);
    segments.set_resident_max(4);
    segments.keep(|available| {
        assert_eq!(available, 4);
        3
    });
    assert_eq!(segments.available(), 1);
    assert!(segments.take_whole(SegmentClaim::Beyond(1)).is_none());
    assert!(segments.take_whole(SegmentClaim::Beyond(0)).is_some());
    assert!(segments.take_whole(SegmentClaim::Beyond(0)).is_none());
    assert!(segments.take_whole(SegmentClaim::Any).is_some());
    let mut taken: Vec<_> = (0..3)
        .map(|_| segments.take_whole(SegmentClaim::Kept).expect("it is kept"))
        .collect();
    assert!(segments.take_whole(SegmentClaim::Any).is_none());
    assert_eq!(segments.resident().0, 5);
    segments.keep(|available| {
        assert_eq!(available, 0);
        0
    });
    let last = taken.pop().expect("three were taken");
    segments.retire(segments.segment_of(last.reference()).expect("a segment"));
    assert_eq!(segments.available(), 0);
    assert_eq!(segments.release(8), 1);
    assert_eq!(segments.resident().0, 4);
}
