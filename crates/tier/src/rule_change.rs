//! Changes of rules as messages have them: an address of eight bytes each. One of a `get` installs
//! the rule of its key, one of a back end withdraws it.

use curtail_codec::tiered::{AddressClass, TierAddress};
use curtail_consistency::tiered::RuleChange;

/// The bytes of a change.
pub(crate) fn encode(change: &RuleChange) -> [u8; ADDRESS_BYTES] {
    let address = match change.is_install {
        true => TierAddress::get(change.key),
        false => TierAddress::back_end(change.key),
    };
    address.to_word().to_le_bytes()
}

/// The change that these bytes are, if they are one.
pub(crate) fn decode(word: [u8; ADDRESS_BYTES]) -> Option<RuleChange> {
    let address = TierAddress::from_word(u64::from_le_bytes(word))?;
    let is_install = match address.class {
        AddressClass::CachedGet => true,
        AddressClass::BackEnd => false,
        AddressClass::Host => return None,
    };
    let key = address.key;
    Some(RuleChange { key, is_install })
}

/// Changes in a message.
pub(crate) const CHANGES_MAX: usize = 160;
pub(crate) const ADDRESS_BYTES: usize = 8;

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
        for is_install in [true, false] {
            let change = RuleChange { key, is_install };
            assert_eq!(decode(encode(&change)), Some(change));
        }
        assert_eq!(decode([0xff; ADDRESS_BYTES]), None);
    }
}
