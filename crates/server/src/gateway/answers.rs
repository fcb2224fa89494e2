//! What a reply of the tier says in memcached's words.

use curtail_codec::tiered::{TieredFlags, TieredHead, TieredStatus};
use curtail_types::{
    ArithmeticOutcome, DeleteOutcome, Expiry, Failure, ItemStatus, Now, Operation, Outcome,
    SetOutcome,
};

/// The outcome that a reply to such a request tells; none of a flush, which has no operation. Its
/// value is what a read shows, or the number that arithmetic came to.
pub(crate) fn outcome_of(
    operation: Option<&Operation>,
    told: &TieredHead,
    value: &[u8],
    now: Now,
) -> Result<Option<Outcome>, Failure> {
    use TieredStatus as S;
    let outcome = match (operation, told.status) {
        (None, S::Done) => return Ok(None),
        (Some(Operation::Get(_)), S::Done) => Outcome::Found(status_of(told, value, now)),
        (Some(Operation::Get(_)), S::NotFound) => Outcome::Missing,
        (Some(Operation::Set(_)), status) => Outcome::Set(match status {
            S::Done => SetOutcome::Stored(told.version),
            S::NotStored => SetOutcome::NotStored,
            S::Exists => SetOutcome::Exists,
            S::NotFound => SetOutcome::NotFound,
            S::TooLarge => SetOutcome::TooLarge,
            _ => SetOutcome::OutOfMemory,
        }),
        (Some(Operation::Delete(_)), status) => Outcome::Delete(match status {
            S::Done => DeleteOutcome::Deleted,
            S::Exists => DeleteOutcome::Exists,
            S::NotFound => DeleteOutcome::NotFound,
            _ => DeleteOutcome::OutOfMemory,
        }),
        (Some(Operation::Arithmetic(_)), status) => Outcome::Arithmetic(match status {
            S::Done => counted(told, value, now).ok_or(Failure::Late)?,
            S::Exists => ArithmeticOutcome::Exists,
            S::NotFound => ArithmeticOutcome::NotFound,
            S::NotANumber => ArithmeticOutcome::NotANumber,
            _ => ArithmeticOutcome::OutOfMemory,
        }),
        (None | Some(Operation::Get(_)), _) => return Err(Failure::OutOfMemory),
    };
    Ok(Some(outcome))
}

fn counted(told: &TieredHead, value: &[u8], now: Now) -> Option<ArithmeticOutcome> {
    Some(ArithmeticOutcome::Counted {
        number: std::str::from_utf8(value).ok()?.parse().ok()?,
        status: status_of(told, value, now),
        created: false,
    })
}

fn status_of(told: &TieredHead, value: &[u8], now: Now) -> ItemStatus {
    let expiry = match told.flags.has(TieredFlags::EXPIRES) {
        true => Expiry::at(i64::from(told.exptime)),
        false => Expiry::NEVER,
    };
    ItemStatus {
        flags: told.item_flags,
        cas: told.version,
        value_bytes: u32::try_from(value.len()).unwrap_or(u32::MAX),
        ttl_seconds: expiry.remaining_seconds(now),
        ..ItemStatus::default()
    }
}
