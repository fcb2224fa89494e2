//! The switches of memcached's crawler, stored without effect: items expire without a crawler.

use crate::sync::{AtomicBool, AtomicU32};

/// The switches of the crawler, as `stats settings` shows them.
#[derive(Debug)]
pub(crate) struct Crawler {
    pub(crate) enabled: AtomicBool,
    pub(crate) sleep_us: AtomicU32,
    pub(crate) crawl_items_max: AtomicU32,
}

impl Crawler {
    pub(crate) const fn new(enabled: bool) -> Self {
        Self {
            enabled: AtomicBool::new(enabled),
            sleep_us: AtomicU32::new(100),
            crawl_items_max: AtomicU32::new(0),
        }
    }
}
