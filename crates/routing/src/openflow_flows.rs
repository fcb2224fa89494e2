//! The flows that rules and routes become, so that Open vSwitch caches few decisions (SW-85).
//!
//! Its datapath caches every decision as a masked flow, and takes into the mask all bits that the
//! decision looked at. One exact table of MAC destinations would put all 48 into each, and every
//! key without a rule would become a flow of its own. So with encoding `mac` the tables are split
//! by class:
//!
//! ```text
//!   0: class ──┬─ 0x02 ─> 1: MAC of a key, UDP ─> port
//!              │               └─ none ─┐
//!              ├─ 0x06 ────────> 2: IPv4 of a back end ─> port, else dropped
//!              └─ 0x0a ────────> 3: MAC of a host ─> port, else dropped
//! ```
//!
//! A rule that is spread leads to table 4, where the lowest bits of the sender's UDP port say which
//! cache node gets the frame.
//!
//! With encoding `ipv6` keys are prefixes of 128 bits, back ends of 64, in one table whose
//! `prefixes` are set to `ipv6_dst`: the switch then looks at no more bits than it needs.

use curtail_codec::openflow::{FlowAction, FlowCommand, FlowMatch, FlowMod, TABLES_ALL};
use curtail_codec::tiered::{AddressClass, HostId, TierAddress};
use curtail_types::{BackEndId, CacheId, KeyAddress, KeyTag, Rule, SpreadSlots};

use crate::network::{Destination, Encoding, SwitchPort};
use crate::openflow_cookie as cookie;

const KEY_TABLE: u8 = 1;
const BACK_END_TABLE: u8 = 2;
const HOST_TABLE: u8 = 3;
const SPREAD_TABLE: u8 = 4;
const KEY_PRIORITY: u16 = 300;
const ROUTE_PRIORITY: u16 = 200;
const CLASS_PRIORITY: u16 = 100;
const NOBODY_PRIORITY: u16 = 1;
const MISS_PRIORITY: u16 = 0;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const UDP: u8 = 17;
// A slot is some bits of a port.
const _: () = assert!(SpreadSlots::COUNT.is_power_of_two());

/// Flows that there are whatever the rules.
pub(crate) fn structure(encoding: Encoding) -> Vec<FlowMod> {
    match encoding {
        Encoding::Ipv6 { cluster } => {
            let to = TierAddress::host(HostId(0)).to_ipv6(cluster);
            let nobody = flow(0, NOBODY_PRIORITY, cookie::UNKNOWN, ipv6(to, 48));
            vec![nobody]
        }
        Encoding::Mac { network } => {
            let class = |class: AddressClass, table| {
                let mask = ([class as u8, 0, 0, 0, 0, 0], [0xff, 0, 0, 0, 0, 0]);
                let eth_dst = Some(mask);
                let mut matching = FlowMatch {
                    eth_dst,
                    ..FlowMatch::ALL
                };
                if class != AddressClass::Host {
                    let ip = [network[0], network[1], 0, 0];
                    matching.eth_type = Some(ETHERTYPE_IPV4);
                    matching.ipv4_dst = Some((ip, [0xff, 0xff, 0, 0]));
                }
                let mut class = flow(0, CLASS_PRIORITY, cookie::STRUCTURE, matching);
                class.action = FlowAction::Table(table);
                class
            };
            let mut no_rule = flow(KEY_TABLE, MISS_PRIORITY, cookie::STRUCTURE, FlowMatch::ALL);
            no_rule.action = FlowAction::Table(BACK_END_TABLE);
            let nobody = |table| flow(table, NOBODY_PRIORITY, cookie::UNKNOWN, FlowMatch::ALL);
            vec![
                class(AddressClass::CachedGet, KEY_TABLE),
                class(AddressClass::BackEnd, BACK_END_TABLE),
                class(AddressClass::Host, HOST_TABLE),
                no_rule,
                nobody(BACK_END_TABLE),
                nobody(HOST_TABLE),
            ]
        }
    }
}

/// The flow of a key's rule to the port of its cache node.
pub(crate) fn rule(encoding: Encoding, rule: &Rule, port: &SwitchPort) -> FlowMod {
    FlowMod {
        command: FlowCommand::Add,
        cookie: cookie::of_rule(rule.cookie, rule.key.back_end),
        action: match rule.cookie.is_spread {
            true => FlowAction::Table(SPREAD_TABLE),
            false => output(port),
        },
        ..key(encoding, rule.key)
    }
}

/// The flows of the slots that these cache nodes have, in order; a frame that has no UDP port is of
/// the first slot.
pub(crate) fn slots(encoding: Encoding, caches: &[(CacheId, SwitchPort)]) -> Vec<FlowMod> {
    let ethertype = match encoding {
        Encoding::Ipv6 { .. } => ETHERTYPE_IPV6,
        Encoding::Mac { .. } => ETHERTYPE_IPV4,
    };
    let mask = (SpreadSlots::COUNT - 1).to_be_bytes();
    let of = |slot: u16, priority, matching| {
        let (cache, port) = SpreadSlots::owner(slot, caches)?;
        let cookie = cookie::of_slot(*cache, slot);
        Some(FlowMod {
            action: output(port),
            ..flow(SPREAD_TABLE, priority, cookie, matching)
        })
    };
    let by_port = (0..SpreadSlots::COUNT).filter_map(|slot| {
        let matching = FlowMatch {
            eth_type: Some(ethertype),
            ip_proto: Some(UDP),
            udp_src: Some((slot.to_be_bytes(), mask)),
            ..FlowMatch::ALL
        };
        of(slot, ROUTE_PRIORITY, matching)
    });
    let other = of(0, NOBODY_PRIORITY, FlowMatch::ALL);
    by_port.chain(other).collect()
}

/// Deletes the flow of a key's rule, if there is one.
pub(crate) fn no_rule(encoding: Encoding, address: KeyAddress) -> FlowMod {
    FlowMod {
        command: FlowCommand::DeleteStrict,
        ..key(encoding, address)
    }
}

/// Deletes all flows of this kind.
pub(crate) fn none_of(word: u64, mask: u64) -> FlowMod {
    FlowMod {
        command: FlowCommand::Delete,
        cookie_mask: mask,
        ..flow(TABLES_ALL, 0, word, FlowMatch::ALL)
    }
}

/// The key that a rule's flow matches; its back end is in the cookie.
pub(crate) fn key_of(
    encoding: Encoding,
    matching: &FlowMatch,
    back_end: BackEndId,
) -> Option<KeyAddress> {
    let key = match encoding {
        Encoding::Ipv6 { cluster } => {
            let (to, [0xff, .., 0xff]) = matching.ipv6_dst? else {
                return None;
            };
            TierAddress::from_ipv6(to, cluster)?.key
        }
        Encoding::Mac { .. } => {
            let ([_, a, b, c, d, e], [0xff, .., 0xff]) = matching.eth_dst? else {
                return None;
            };
            let tag = KeyTag::from_bits(u64::from_be_bytes([0, 0, 0, a, b, c, d, e]));
            KeyAddress { back_end, tag }
        }
    };
    (key.back_end == back_end).then_some(key)
}

/// The flow of a route to a port; deletes it if there is none.
pub(crate) fn route(
    encoding: Encoding,
    destination: Destination,
    port: Option<&SwitchPort>,
) -> FlowMod {
    let table = match (encoding, destination) {
        (Encoding::Ipv6 { .. }, _) => 0,
        (_, Destination::BackEnd(_)) => BACK_END_TABLE,
        (_, Destination::Host(_)) => HOST_TABLE,
    };
    let matching = match (encoding, destination) {
        (Encoding::Ipv6 { cluster }, Destination::BackEnd(id)) => {
            ipv6(address(id).to_ipv6(cluster), 64)
        }
        (Encoding::Ipv6 { cluster }, Destination::Host(id)) => {
            ipv6(TierAddress::host(id).to_ipv6(cluster), 128)
        }
        (Encoding::Mac { network }, Destination::BackEnd(id)) => FlowMatch {
            eth_type: Some(ETHERTYPE_IPV4),
            ipv4_dst: Some((address(id).to_ipv4(network), [0xff; 4])),
            ..FlowMatch::ALL
        },
        (Encoding::Mac { .. }, Destination::Host(id)) => {
            FlowMatch::mac(TierAddress::host(id).to_mac())
        }
    };
    let word = cookie::of_route(destination);
    let flow = flow(table, ROUTE_PRIORITY, word, matching);
    match port {
        Some(port) => FlowMod {
            action: output(port),
            ..flow
        },
        None => FlowMod {
            command: FlowCommand::DeleteStrict,
            ..flow
        },
    }
}

/// An address of a back end.
const fn address(back_end: BackEndId) -> TierAddress {
    let tag = KeyTag::from_bits(0);
    TierAddress::back_end(KeyAddress { back_end, tag })
}

/// Matches a key, and does nothing.
///
/// With encoding `mac` it also matches UDP, at which nothing looks that sends a read on without a
/// rule. So when a rule is added, no cached decision has all bits that the new one looks at, and
/// Open vSwitch deletes it. It would otherwise change its action, which can fail unnoticed if the
/// decision is being added just then (seen with 3.1: reads of a key with a rule went to the back
/// end as long as they did not pause for 10 s).
fn key(encoding: Encoding, key: KeyAddress) -> FlowMod {
    let get = TierAddress::get(key);
    let (table, matching) = match encoding {
        Encoding::Ipv6 { cluster } => (0, ipv6(get.to_ipv6(cluster), 128)),
        Encoding::Mac { .. } => {
            let matching = FlowMatch {
                eth_type: Some(ETHERTYPE_IPV4),
                ip_proto: Some(UDP),
                ..FlowMatch::mac(get.to_mac())
            };
            (KEY_TABLE, matching)
        }
    };
    flow(table, KEY_PRIORITY, 0, matching)
}

fn output(port: &SwitchPort) -> FlowAction {
    FlowAction::Output {
        port: port.number.0,
        eth_dst: port.mac,
    }
}

fn ipv6(to: [u8; 16], prefix: u32) -> FlowMatch {
    let mask = u128::MAX << (128 - prefix);
    let to = u128::from_be_bytes(to) & mask;
    FlowMatch {
        eth_type: Some(ETHERTYPE_IPV6),
        ipv6_dst: Some((to.to_be_bytes(), mask.to_be_bytes())),
        ..FlowMatch::ALL
    }
}

const fn flow(table: u8, priority: u16, cookie: u64, matching: FlowMatch) -> FlowMod {
    FlowMod {
        command: FlowCommand::Add,
        table,
        priority,
        cookie,
        cookie_mask: 0,
        matching,
        action: FlowAction::Drop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Open vSwitch relies on to delete a cached decision when a rule is added (see `key`).
    #[test]
    fn a_rule_looks_at_a_field_at_which_nothing_looks_without_it() {
        let encoding = Encoding::Mac { network: [10, 77] };
        let address = KeyAddress::default();
        assert_eq!(key(encoding, address).matching.ip_proto, Some(UDP));
        let back_end = route(encoding, Destination::BackEnd(address.back_end), None);
        let mut without = structure(encoding);
        without.push(back_end);
        assert!(without.iter().all(|flow| flow.matching.ip_proto.is_none()));
    }
}
