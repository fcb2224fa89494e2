//! What can happen to a cluster of processes, and how to make it happen.

use std::time::Duration;

use curtail_types::{NodeId, listed_enum};

use crate::{processes::Processes, wrong_clocks::WrongBy};

listed_enum! {
    /// What happens to a cluster. Keys become hot and cease to be all the time.
    pub(crate) enum Trouble {
        /// A process is killed, and started again when the others have gone on without it.
        Kill,
        /// A process is stopped for less than a lease.
        ShortStop,
        /// For several.
        LongStop,
        /// A node cannot read the view.
        LoseView,
        /// A node and the others do not reach each other; it reads the view.
        PartOne,
        /// The same, and it does not read it.
        Isolate,
        /// Half of the nodes and the other half do not reach each other.
        PartHalf,
        /// Two nodes do not reach each other; all others reach both.
        PartTwo,
        /// What one node sends to another does not arrive.
        PartOneWay,
        /// A node's line carries 400 kbit a second.
        Slow,
        /// A node's line drops the packets that find a few others waiting.
        Lossy,
        /// A node's clock gains 1 % and its wall clock jumps by 1000 s; another's loses 1 %.
        Clocks,
        /// The keys that were hot all the time become hot and cease to be, too, again and again.
        Churn,
        /// A node is removed in order, ends, and is added again.
        Leave,
        /// etcd is killed and started again at once.
        StoreDies,
        /// etcd is killed and stays away for several leases.
        StoreAway,
    }
}

/// What an episode needs that makes it happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Lines that can be cut.
    pub(crate) has_network: bool,
    pub(crate) has_wrong_clocks: bool,
    pub(crate) view_in_etcd: bool,
}

impl Trouble {
    /// Those that can be made to happen there.
    pub(crate) fn at(place: Place) -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(move |trouble| trouble.can_be(place))
    }

    fn can_be(self, place: Place) -> bool {
        match self {
            Self::Kill | Self::ShortStop | Self::LongStop | Self::Churn | Self::Leave => true,
            // A file cannot be hidden that there is none of.
            Self::LoseView => !place.view_in_etcd,
            Self::Isolate => place.has_network && !place.view_in_etcd,
            Self::PartOne | Self::PartHalf | Self::PartTwo | Self::PartOneWay => place.has_network,
            Self::Slow | Self::Lossy => place.has_network,
            Self::Clocks => place.has_wrong_clocks,
            Self::StoreDies | Self::StoreAway => place.view_in_etcd,
        }
    }

    /// How long it lasts.
    pub(crate) fn lasts(self, lease: Duration) -> Duration {
        match self {
            Self::ShortStop => lease * 2 / 5,
            Self::Slow | Self::Lossy | Self::Churn => lease * 2,
            Self::StoreDies => Duration::ZERO,
            Self::PartTwo | Self::PartOneWay => lease * 6,
            _ => lease * 7 / 2,
        }
    }

    /// Whether it lasts until that is over and the node has left.
    pub(crate) fn is_over(self, cluster: &Processes, victims: &[usize]) -> bool {
        self != Self::Leave || !cluster.is_member(victims[0])
    }

    /// To whom it happens.
    pub(crate) fn victims(self, nodes: usize, number: usize) -> Vec<usize> {
        // Whenever all troubles have been had, each has another victim.
        let first = (number + number / Self::ALL.len()) % nodes;
        let count = match self {
            Self::PartHalf => nodes / 2,
            Self::Clocks | Self::PartTwo | Self::PartOneWay => 2,
            _ => 1,
        };
        (0..count).map(|index| (first + index) % nodes).collect()
    }

    /// Has it come, or go.
    pub(crate) fn set(self, cluster: &mut Processes, victims: &[usize], begins: bool) {
        let first = victims[0];
        match self {
            Self::Kill if begins => cluster.kill(first),
            Self::Leave if begins => cluster.leave(first),
            Self::Leave => {
                cluster.kill(first);
                cluster.revive(first);
            }
            Self::Kill => cluster.revive(first),
            Self::ShortStop | Self::LongStop => cluster.stop(first, begins),
            Self::LoseView | Self::Isolate => cluster.hide_view(first, begins),
            Self::Clocks => set_clocks(cluster, victims, begins),
            Self::StoreDies | Self::StoreAway => {
                if let Some(etcd) = &mut cluster.etcd {
                    match begins {
                        true => etcd.kill(),
                        false => etcd.revive(),
                    }
                }
            }
            _ => {}
        }
        let Some(network) = &mut cluster.network else {
            return;
        };
        match self {
            Self::PartOne | Self::PartHalf | Self::Isolate if begins => network.part(victims),
            Self::PartTwo if begins => network.part_two(first, victims[1], true),
            Self::PartOneWay if begins => network.part_two(first, victims[1], false),
            Self::PartOne | Self::PartHalf | Self::PartTwo | Self::PartOneWay | Self::Isolate => {
                network.join();
            }
            Self::Slow => network.slow(first, begins),
            Self::Lossy => {
                if !begins {
                    let dropped = network.dropped(first);
                    cluster.log.note(&format!("{dropped} packets were dropped"));
                }
                network.lose(first, begins);
            }
            _ => {}
        }
    }

    /// Who may be removed because of it: of two halves either.
    pub(crate) fn wants_removed(self, nodes: usize, victims: &[usize]) -> Vec<NodeId> {
        let node = |id: &usize| NodeId(*id as u8);
        match self {
            Self::PartHalf => (0..nodes as u8).map(NodeId).collect(),
            Self::ShortStop | Self::Clocks | Self::Churn | Self::StoreDies | Self::StoreAway => {
                Vec::new()
            }
            _ => victims.iter().map(node).collect(),
        }
    }

    /// Whether keys may be away for longer than one failure makes them (CL-20): a bad line is one
    /// all the time, without its store no view can follow, and whom others hear is removed late.
    pub(crate) fn is_unbounded(self) -> bool {
        matches!(
            self,
            Self::Slow | Self::Lossy | Self::StoreAway | Self::PartTwo | Self::PartOneWay
        )
    }
}

fn set_clocks(cluster: &Processes, victims: &[usize], begins: bool) {
    let Some(clocks) = &cluster.clocks else {
        return;
    };
    let wrong = [(10_000, 1000), (-10_000, 0)];
    for (&id, (gain_ppm, wall_s)) in victims.iter().zip(wrong) {
        let by = WrongBy { gain_ppm, wall_s };
        clocks.set(id, if begins { by } else { WrongBy::default() });
    }
}
