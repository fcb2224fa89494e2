//! Logs once why a node cannot be linked, not at every attempt.

use std::{collections::VecDeque, net::IpAddr};

use curtail_codec::node::RefusalReason;

/// What was logged already.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    said: VecDeque<(IpAddr, RefusalReason)>,
    said_of_tls: VecDeque<(IpAddr, String)>,
}

/// Messages that are remembered; beyond, the oldest may be logged again.
const SAID_MAX: usize = 64;

impl Complaints {
    /// What to log about a failure with `address`; `None` if it was logged. `here` says whether
    /// this side refused.
    pub(crate) fn about(
        &mut self,
        address: IpAddr,
        reason: RefusalReason,
        here: bool,
    ) -> Option<String> {
        // A node that is not known yet is no fault: it tries again, and the list of peers changes.
        if reason == RefusalReason::Unknown || !note(&mut self.said, (address, reason)) {
            return None;
        }
        let advice = match reason {
            RefusalReason::Version => {
                "the two nodes have no protocol version in common; docs/operations/upgrades.md \
                 says how to upgrade"
            }
            RefusalReason::Cluster => {
                "the cluster names of the two nodes differ; compare `name` in their cluster files"
            }
            RefusalReason::Secret => {
                "the secrets of the two nodes differ; give all nodes the same file"
            }
            RefusalReason::NotMe if here => {
                "it took this node for another one; compare the cluster files"
            }
            RefusalReason::NotMe => {
                "this node expected another node there; compare the cluster files"
            }
            RefusalReason::Unknown => "one of the two nodes does not know the other (yet)",
        };
        Some(match here {
            true => format!("this node refused a node at {address}: {advice}"),
            false => format!("a node at {address} refused this node: {advice}"),
        })
    }

    /// The same of TLS.
    pub(crate) fn about_tls(&mut self, address: IpAddr, advice: String) -> Option<String> {
        let complaint = format!("no link with a node at {address}: {advice}");
        note(&mut self.said_of_tls, (address, advice)).then_some(complaint)
    }

    /// There is a link with `address` now: the next failure is logged again.
    pub(crate) fn forget(&mut self, address: IpAddr) {
        self.said.retain(|(said, _)| *said != address);
        self.said_of_tls.retain(|(said, _)| *said != address);
    }
}

/// Remembers what is logged now; false if it was before.
fn note<T: PartialEq>(said: &mut VecDeque<T>, one: T) -> bool {
    let is_new = !said.contains(&one);
    if is_new && said.len() == SAID_MAX {
        said.pop_front();
    }
    said.extend(is_new.then_some(one));
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_says_which_node_took_the_other_for_another_one() {
        let address = IpAddr::from([10, 0, 0, 7]);
        let complaint = |here| {
            let told = Complaints::default().about(address, RefusalReason::NotMe, here);
            told.unwrap_or_default()
        };
        assert_eq!(
            complaint(true),
            "this node refused a node at 10.0.0.7: it took this node for another one; compare \
             the cluster files"
        );
        assert_eq!(
            complaint(false),
            "a node at 10.0.0.7 refused this node: this node expected another node there; \
             compare the cluster files"
        );
    }
}
