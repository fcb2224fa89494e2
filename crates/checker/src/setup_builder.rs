//! Builds setups by stating how they differ from a plain one.

use curtail_consistency::symmetric::Model::{Lin, Sc};

use crate::setup::{Chances, Change, Kind, Network, Setup, Witness};

/// Three nodes that have a hot key.
pub(crate) const fn hot(name: &'static str, operations: &'static [Kind]) -> Setup {
    Setup {
        name,
        model: Lin,
        nodes: 0b111,
        replicas: 1,
        starts_hot: true,
        operations,
        chances: Chances::NONE,
        change: None,
        slow_threads: false,
        is_unannounced: false,
        network: Network::Unordered,
        readers_take_time: false,
        sees: &[],
        is_deep: false,
    }
}

/// Three nodes, of which the first holds the key.
pub(crate) const fn cold(name: &'static str, operations: &'static [Kind]) -> Setup {
    Setup {
        starts_hot: false,
        ..hot(name, operations)
    }
}

/// Methods that change one thing each.
macro_rules! words {
    ($($(#[$doc:meta])*
        $word:ident($($argument:ident: $kind:ty)?) $($field:ident).+ = $value:expr;)*) => {
        impl Setup {$(
            $(#[$doc])*
            pub(crate) const fn $word(mut self $(, $argument: $kind)?) -> Self {
                self.$($field).+ = $value;
                self
            }
        )*}
    };
}

words! {
    /// Without node 0: of two writes with one clock that of node 2 is later than the home's, and
    /// that of node 0 would be earlier.
    pair() nodes = 0b110;
    /// Without node 2.
    lower_pair() nodes = 0b011;
    /// Node 2 comes, and the key moves to it.
    comes() change = Some(Change::Comes);
    /// The home is to leave, and the key moves from it.
    goes() change = Some(Change::Goes);
    /// Threads do not hear of a view all at once.
    slow_threads() slow_threads = true;
    /// Keys begin to move whatever becomes of the hot set.
    unannounced() is_unannounced = true;
    replicas(replicas: u8) replicas = replicas;
    sc() model = Sc;
    readers() readers_take_time = true;
    ordered() network = Network::Ordered;
    repeating() network = Network::Repeating;
    sees(sees: &'static [Witness]) sees = sees;
    deep() is_deep = true;
    losses(losses: u8) chances.losses = losses;
    duplicates(duplicates: u8) chances.duplicates = duplicates;
    early_timers(early_timers: u8) chances.early_timers = early_timers;
    demotion() chances.demotions = 1;
    join() chances.joins = 1;
    rejoin() chances.rejoins = 1;
}

impl Setup {
    /// As many nodes of `victims` die as it has, one after the other, and keys move meanwhile.
    pub(crate) const fn dies(mut self, victims: u8) -> Self {
        self.change = Some(Change::Dies);
        self.chances.crashes = victims.count_ones() as u8;
        self.chances.victims = victims;
        self
    }

    pub(crate) const fn epochs(mut self, epochs: u8) -> Self {
        self.chances.promotions = epochs;
        self.chances.demotions = epochs;
        self
    }

    pub(crate) const fn crash(self, node: u8) -> Self {
        self.crash_one_of(1 << node)
    }

    pub(crate) const fn crash_one_of(mut self, victims: u8) -> Self {
        self.chances.crashes = 1;
        self.chances.victims = victims;
        self
    }

    pub(crate) const fn lease(mut self, node: u8) -> Self {
        self.chances.lost_leases = 1;
        self.chances.victims = 1 << node;
        self
    }
}
