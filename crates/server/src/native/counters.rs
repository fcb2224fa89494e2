//! What the path counts, under the names of `stats curtail`; the help of the metrics says what each
//! is.

use crate::metrics::counters::{Numbers, Published, counters};

counters! {
    NativeCount {
        ALL {
            Received = "native:received",
            Receives = "native:receives",
            Sent = "native:sent",
            LostSending = "native:lost_sending",
            Executed = "native:executed",
            Compacted = "native:compacted",
            NoMemory = "native:no_memory",
            Leases = "native:leases",
            Helped = "native:helped",
            Reacknowledged = "native:reacknowledged",
            Replayed = "native:replayed",
            NackFull = "native:nack_full",
            NackNotReady = "native:nack_not_ready",
            NackBusy = "native:nack_busy",
            Errors = "native:errors",
            DroppedForeign = "native:dropped_foreign",
            DroppedStale = "native:dropped_stale",
            DroppedHandshakes = "native:dropped_handshakes",
            DroppedAbsent = "native:dropped_absent",
            Cookies = "native:cookies",
            Grants = "native:grants",
            GrantsRefused = "native:grants_refused",
            GetHits = "native:get_hits",
            GetMisses = "native:get_misses",
            Forwarded = "native:forwarded",
            Parked = "native:parked",
            Stolen = "native:stolen",
            Direct = "native:direct",
            CorruptAfterAck = "native:corrupt_after_ack",
        }
    }
}

pub(crate) type NativeCounts = Numbers<NativeCount, { NativeCount::LENGTH }>;
pub(crate) type PublishedNativeCounts = Published<NativeCount, { NativeCount::LENGTH }>;
