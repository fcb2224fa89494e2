//! Every interleaving of a lease with the reuse of its segment.

use std::sync::Arc;

use loom::thread;

use super::*;

fn tiny() -> Arc<Segments> {
    let segments = Segments::new(SegmentsConfig {
        segment_bytes: 64,
        segments_max: 1,
        pages: Pages::Small,
    })
    .unwrap();
    segments.set_resident_max(1);
    Arc::new(segments)
}

/// Goal: who holds a lease that was validated never reads a word of the next use. Method: a
/// stand-in for the index's version is bumped before the segment is retired, as the store does;
/// the reader takes a lease, validates, and reads; the reclaimer overwrites when it may.
#[test]
fn a_validated_lease_keeps_the_words() {
    loom::model(|| {
        let segments = tiny();
        let whole = segments.take_whole(SegmentClaim::Any).unwrap();
        let reference = whole.reference();
        segments.words(reference)[0].store(1, Ordering::Relaxed);
        let version = Arc::new(AtomicU64::new(0));
        let reader = {
            let (segments, version) = (Arc::clone(&segments), Arc::clone(&version));
            thread::spawn(move || {
                let lease = Lease::new(&segments, reference).unwrap();
                if version.load(Ordering::Acquire) == 0 {
                    assert_eq!(segments.words(reference)[0].load(Ordering::Relaxed), 1);
                }
                drop(lease);
            })
        };
        version.store(1, Ordering::Release);
        segments.retire(segments.segment_of(reference).unwrap());
        if let Some(next) = segments.take_whole(SegmentClaim::Any) {
            segments.words(next.reference())[0].store(2, Ordering::Relaxed);
        }
        reader.join().unwrap();
    });
}

/// What `use_again` writes into a segment that another thread retires is read by nobody whose
/// validation succeeds. The stand-in for the index's version changes as a stripe's does when it is
/// locked, and the reader validates as a reader of stripes does.
fn used_again_beside_read(use_again: impl Fn(&Segments) + Clone + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let segments = tiny();
        let whole = segments.take_whole(SegmentClaim::Any).unwrap();
        let reference = whole.reference();
        segments.words(reference)[0].store(1, Ordering::Relaxed);
        let version = Arc::new(AtomicU64::new(0));
        let reclaimer = {
            let (segments, version) = (Arc::clone(&segments), Arc::clone(&version));
            thread::spawn(move || {
                version.store(1, Ordering::Relaxed);
                fence(Ordering::Release);
                segments.retire(segments.segment_of(reference).unwrap());
            })
        };
        let user = {
            let (segments, use_again) = (Arc::clone(&segments), use_again.clone());
            thread::spawn(move || use_again(&segments))
        };
        let reader = thread::spawn(move || {
            let word = segments.words(reference)[0].load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            (word, version.load(Ordering::Relaxed))
        });
        let seen = reader.join().unwrap();
        assert!(matches!(seen, (1, _) | (_, 1)), "{seen:?}");
        reclaimer.join().unwrap();
        user.join().unwrap();
    });
}

#[test]
fn loom_a_whole_segment_is_used_again_beside_a_read() {
    used_again_beside_read(|segments| {
        if let Some(next) = segments.take_whole(SegmentClaim::Any) {
            segments.words(next.reference())[0].store(2, Ordering::Relaxed);
        }
    });
}

#[test]
fn loom_words_are_allocated_beside_a_read() {
    used_again_beside_read(|segments| {
        if let Some(id) = segments.open(1, 0, 0, SegmentClaim::Any) {
            let next = segments.allocate(id, 1, 1).unwrap();
            segments.words(next.reference())[0].store(2, Ordering::Relaxed);
        }
    });
}

/// Goal: a retired segment is never lost: the thread that comes last frees it, and only once.
#[test]
fn the_last_of_reader_and_reclaimer_frees() {
    loom::model(|| {
        let segments = tiny();
        let whole = segments.take_whole(SegmentClaim::Any).unwrap();
        let reference = whole.reference();
        let lease = Lease::new(&segments, reference).unwrap();
        let reader = thread::spawn(move || drop(lease));
        segments.retire(segments.segment_of(reference).unwrap());
        reader.join().unwrap();
        assert_eq!(segments.available(), 1);
        assert!(segments.take_whole(SegmentClaim::Any).is_some());
        assert!(segments.take_whole(SegmentClaim::Any).is_none());
    });
}
