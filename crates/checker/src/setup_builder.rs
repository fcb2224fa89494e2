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

impl Setup {
    /// Without node 0: of two writes with one clock that of node 2 is later than the home's, and
    /// that of node 0 would be earlier.
    pub(crate) const fn pair(mut self) -> Self {
        self.nodes = 0b110;
        self
    }

    /// Without node 2.
    pub(crate) const fn lower_pair(mut self) -> Self {
        self.nodes = 0b011;
        self
    }

    /// Node 2 comes, and the key moves to it.
    pub(crate) const fn comes(mut self) -> Self {
        self.change = Some(Change::Comes);
        self
    }

    /// The home is to leave, and the key moves from it.
    pub(crate) const fn goes(mut self) -> Self {
        self.change = Some(Change::Goes);
        self
    }

    /// As many nodes of `victims` die as it has, one after the other, and keys move meanwhile.
    pub(crate) const fn dies(mut self, victims: u8) -> Self {
        self.change = Some(Change::Dies);
        self.chances.crashes = victims.count_ones() as u8;
        self.chances.victims = victims;
        self
    }

    /// Threads do not hear of a view all at once.
    pub(crate) const fn slow_threads(mut self) -> Self {
        self.slow_threads = true;
        self
    }

    /// Keys begin to move whatever becomes of the hot set.
    pub(crate) const fn unannounced(mut self) -> Self {
        self.is_unannounced = true;
        self
    }

    pub(crate) const fn replicas(mut self, replicas: u8) -> Self {
        self.replicas = replicas;
        self
    }

    pub(crate) const fn sc(mut self) -> Self {
        self.model = Sc;
        self
    }

    pub(crate) const fn readers(mut self) -> Self {
        self.readers_take_time = true;
        self
    }

    pub(crate) const fn ordered(mut self) -> Self {
        self.network = Network::Ordered;
        self
    }

    pub(crate) const fn repeating(mut self) -> Self {
        self.network = Network::Repeating;
        self
    }

    pub(crate) const fn sees(mut self, sees: &'static [Witness]) -> Self {
        self.sees = sees;
        self
    }

    pub(crate) const fn deep(mut self) -> Self {
        self.is_deep = true;
        self
    }

    pub(crate) const fn losses(mut self, losses: u8) -> Self {
        self.chances.losses = losses;
        self
    }

    pub(crate) const fn duplicates(mut self, duplicates: u8) -> Self {
        self.chances.duplicates = duplicates;
        self
    }

    pub(crate) const fn early_timers(mut self, early_timers: u8) -> Self {
        self.chances.early_timers = early_timers;
        self
    }

    pub(crate) const fn epochs(mut self, epochs: u8) -> Self {
        self.chances.promotions = epochs;
        self.chances.demotions = epochs;
        self
    }

    pub(crate) const fn demotion(mut self) -> Self {
        self.chances.demotions = 1;
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

    pub(crate) const fn join(mut self) -> Self {
        self.chances.joins = 1;
        self
    }

    pub(crate) const fn rejoin(mut self) -> Self {
        self.chances.rejoins = 1;
        self
    }
}
