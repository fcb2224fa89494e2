//! Changes of rules as messages have them: an address of eight bytes each. One of a `get` installs
//! the rule of its key, with its class's lowest bit set one that is spread (CC-81); one of a back
//! end withdraws it.

use curtail_codec::tiered::{AddressClass, TierAddress};
use curtail_consistency::tiered::RuleChange;

/// The bytes of a change.
pub(crate) fn encode(change: &RuleChange) -> [u8; ADDRESS_BYTES] {
    let address = match change.is_install {
        true => TierAddress::get(change.key),
        false => TierAddress::back_end(change.key),
    };
    (address.to_word() | u64::from(change.is_spread) << SPREAD_BIT).to_le_bytes()
}

/// The change that these bytes are, if they are one.
pub(crate) fn decode(word: [u8; ADDRESS_BYTES]) -> Option<RuleChange> {
    let word = u64::from_le_bytes(word);
    let is_spread = word >> SPREAD_BIT & 1 == 1;
    let address = TierAddress::from_word(word & !(1 << SPREAD_BIT))?;
    let is_install = match address.class {
        AddressClass::CachedGet => true,
        AddressClass::BackEnd => false,
        AddressClass::Host => return None,
    };
    (is_install || !is_spread).then_some(RuleChange {
        key: address.key,
        is_install,
        is_spread,
    })
}

/// Changes in a message.
pub(crate) const CHANGES_MAX: usize = 160;
pub(crate) const ADDRESS_BYTES: usize = 8;
/// In the class.
const SPREAD_BIT: u32 = 56;

#[cfg(test)]
mod tests {
    use curtail_types::{BackEndId, KeyAddress, KeyTag};

    use super::*;

    #[test]
    fn a_change_survives_its_bytes() {
        let key = KeyAddress {
            back_end: BackEndId(7),
            tag: KeyTag::from_bits(0x12_3456_789a),
        };
        for (is_install, is_spread) in [(true, false), (true, true), (false, false)] {
            let change = RuleChange {
                key,
                is_install,
                is_spread,
            };
            assert_eq!(decode(encode(&change)), Some(change));
        }
        let withdrawn = RuleChange {
            key,
            is_install: false,
            is_spread: true,
        };
        assert_eq!(decode(encode(&withdrawn)), None);
        assert_eq!(decode([0xff; ADDRESS_BYTES]), None);
    }
}
