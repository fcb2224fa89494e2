//! The interface of a policy to the replay: it is asked for an object and answers hit or miss.

use crate::trace::{ObjectId, Trace};

/// A simulated cache.
pub(crate) trait Policy {
    /// Asks for `object` and, when it is not there, puts it in. Returns whether it was there.
    fn request(&mut self, object: ObjectId) -> bool;

    /// The sizes of all objects that the policy copied inside the cache, summed up.
    fn copied(&self) -> u64 {
        0
    }
}

/// What a replay counted.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    /// Hits per request.
    pub(crate) hit_ratio: f64,
    /// Bytes hit per byte requested.
    pub(crate) byte_hit_ratio: f64,
    /// Bytes copied by the eviction per byte inserted by a miss.
    pub(crate) write_amplification: f64,
}

/// Replays the whole trace.
pub(crate) fn replay(trace: &Trace, policy: &mut dyn Policy) -> Outcome {
    let (mut hits, mut bytes, mut bytes_hit) = (0_u64, 0_u64, 0_u64);
    for &object in &trace.requests {
        let size = u64::from(trace.sizes[object as usize]);
        bytes += size;
        if policy.request(object) {
            hits += 1;
            bytes_hit += size;
        }
    }
    Outcome {
        hit_ratio: hits as f64 / trace.requests.len() as f64,
        byte_hit_ratio: bytes_hit as f64 / bytes as f64,
        write_amplification: policy.copied() as f64 / (bytes - bytes_hit).max(1) as f64,
    }
}
