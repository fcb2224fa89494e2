//! Delete, mark stale, increment and decrement.

use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, DeleteOutcome, ItemStatus, Key, KeyHash, Now,
};

use crate::{
    COPY_BYTES_MAX, Store, Writer,
    counters::Count,
    item::{Extension, Kind, copy_in},
    item_view::status_of,
    large_values::Value,
    store::Found,
    write::{ChangeContext, Fresh, Need},
};

/// The longest number: 2^64 - 1 has 20 digits.
const DIGITS_MAX: usize = 20;

impl Store {
    /// Removes the item of `key`, or changes it as `delete` asks.
    pub fn delete(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        delete: &Delete,
    ) -> DeleteOutcome {
        self.tick(now);
        self.with_room(writer, now, key, hash, |context, _| {
            let Some(found) = self.find_present(context) else {
                return Ok(DeleteOutcome::NotFound);
            };
            let cas = self.item(found.reference).cas();
            if delete.compare.is_some_and(|compare| compare != cas) {
                return Ok(DeleteOutcome::Exists);
            }
            if !delete.invalidate && !delete.drop_value {
                self.unlink(context.writer, &mut context.locked, found);
                return Ok(DeleteOutcome::Deleted);
            }
            let found = if delete.drop_value {
                self.drop_value(context, found, delete)?
            } else {
                found
            };
            if delete.invalidate {
                self.invalidate(context, found, delete)?;
            }
            Ok(DeleteOutcome::Deleted)
        })
        .unwrap_or(DeleteOutcome::OutOfMemory)
    }

    /// Puts an empty item in the place of a locked one: no flags, no end unless one is given.
    fn drop_value(
        &self,
        context: &mut ChangeContext<'_, '_>,
        found: Found,
        delete: &Delete,
    ) -> Result<Found, Need> {
        let cas = self.item(found.reference).cas();
        let fresh = Fresh {
            cas: delete.new_cas.unwrap_or(cas),
            extension: Extension {
                expiry: delete.touch.unwrap_or_default().expiry(context.now),
                flags: 0,
            },
            ..Fresh::default()
        };
        self.rewrite(context, found, fresh, &[])
    }

    /// Marks a locked item stale; the next reader wins the right to recache it.
    fn invalidate(
        &self,
        context: &mut ChangeContext<'_, '_>,
        found: Found,
        delete: &Delete,
    ) -> Result<(), Need> {
        let found = self
            .touch_found(context, found, delete.touch)
            .map_err(|(_, need)| need)?;
        let item = self.item(found.reference);
        item.set_meta(found.meta.with_stale(true).with_won(false));
        item.set_word(0, context.cas(delete.new_cas, Some(item.cas())).0);
        context.locked.changed(found.position);
        Ok(())
    }

    /// Counts up or down.
    pub fn arithmetic(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        arithmetic: &Arithmetic,
    ) -> ArithmeticOutcome {
        self.tick(now);
        self.with_room(writer, now, key, hash, |context, _| {
            match self.find_present(context) {
                Some(found) => self.count(context, found, arithmetic),
                None => self.count_anew(context, arithmetic),
            }
        })
        .unwrap_or(ArithmeticOutcome::OutOfMemory)
    }

    /// Counts in a locked item: over the old digits where the new ones fit, padded with spaces as
    /// memcached does.
    fn count(
        &self,
        context: &mut ChangeContext<'_, '_>,
        found: Found,
        arithmetic: &Arithmetic,
    ) -> Result<ArithmeticOutcome, Need> {
        let cas = self.item(found.reference).cas();
        // As with memcached: an empty value is no number, whatever its version is.
        let is_empty = found.meta.kind() == Kind::Inline && found.meta.value_bytes() == 0;
        if !is_empty && arithmetic.compare.is_some_and(|compare| compare != cas) {
            return Ok(ArithmeticOutcome::Exists);
        }
        let Some(old) = self.number_of(found) else {
            return Ok(ArithmeticOutcome::NotANumber);
        };
        let number = arithmetic.next(old);
        let digits = Digits::of(number, number);
        let found = self.write_digits(context, found, arithmetic.new_cas, &digits)?;
        let found = self
            .touch_found(context, found, arithmetic.touch)
            .unwrap_or_else(|(found, _)| found);
        Ok(self.counted(context.now, found.reference, number, false))
    }

    /// Counts `steps` times at once in the number of `key`, under one lock and one version: what
    /// was there before, and the item afterwards. Nobody sees the numbers between; they follow from
    /// the first.
    ///
    /// `None` leaves everything as it was: there is no number, or no room for it. Each step has to
    /// be carried out by itself then, to learn how it ends.
    ///
    /// The steps must neither compare versions nor set them, nor touch the item.
    pub fn arithmetic_run<'s>(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        steps: impl Iterator<Item = &'s Arithmetic> + Clone,
    ) -> Option<(u64, ItemStatus)> {
        self.tick(now);
        self.with_room(writer, now, key, hash, |context, _| {
            let Some(found) = self.find_present(context) else {
                return Ok(None);
            };
            let Some(before) = self.number_of(found) else {
                return Ok(None);
            };
            let (mut number, mut highest) = (before, 0);
            for step in steps.clone() {
                number = step.next(number);
                highest = number.max(highest);
            }
            let digits = Digits::of(number, highest);
            let found = self.write_digits(context, found, None, &digits)?;
            Ok(Some((before, self.status(now, found.reference))))
        })?
    }

    /// The number that a small item's value starts with, if it ends in the part that is copied.
    fn number_of(&self, found: Found) -> Option<u64> {
        if found.meta.kind() != Kind::Inline || found.meta.value_bytes() > COPY_BYTES_MAX {
            return None;
        }
        let mut digits = [0; 2 * DIGITS_MAX];
        let value = Value::of(found.reference, self.item(found.reference), found.meta);
        let length = value.copy(self.segments(), 0, &mut digits);
        number_in(&digits[..length], length < found.meta.value_bytes())
    }

    fn write_digits(
        &self,
        context: &mut ChangeContext<'_, '_>,
        found: Found,
        new_cas: Option<Cas>,
        digits: &Digits,
    ) -> Result<Found, Need> {
        let item = self.item(found.reference);
        let cas = context.cas(new_cas, Some(item.cas()));
        let value_bytes = found.meta.value_bytes();
        let digits = digits.bytes();
        if digits.len() <= value_bytes {
            let body = item.body(found.meta);
            copy_in(body, found.meta.key_bytes(), digits);
            for position in digits.len()..value_bytes {
                copy_in(body, found.meta.key_bytes() + position, b" ");
            }
            item.set_word(0, cas.0);
            context.locked.changed(found.position);
            self.mark_hit(&mut context.locked, found);
            context.writer.count(Count::InPlace);
            return Ok(found);
        }
        let fresh = Fresh {
            cas,
            extension: item.extension(found.meta),
            ..Fresh::default()
        };
        self.rewrite(context, found, fresh, digits)
    }

    /// Creates the number when nothing is there, if that is asked for.
    fn count_anew(
        &self,
        context: &mut ChangeContext<'_, '_>,
        arithmetic: &Arithmetic,
    ) -> Result<ArithmeticOutcome, Need> {
        let Some(exptime) = arithmetic.vivify else {
            return Ok(ArithmeticOutcome::NotFound);
        };
        let digits = Digits::of(arithmetic.initial, arithmetic.initial);
        let fresh = Fresh {
            cas: context.cas(arithmetic.new_cas, None),
            extension: Extension {
                expiry: exptime.expiry(context.now),
                flags: 0,
            },
            ..Fresh::default()
        };
        let reference = self.store_small(context, None, fresh, digits.bytes())?;
        context.writer.count(Count::ItemsTotal);
        Ok(self.counted(context.now, reference, arithmetic.initial, true))
    }

    fn counted(&self, now: Now, reference: u64, number: u64, created: bool) -> ArithmeticOutcome {
        ArithmeticOutcome::Counted {
            number,
            status: self.status(now, reference),
            created,
        }
    }

    fn status(&self, now: Now, reference: u64) -> ItemStatus {
        let item = self.item(reference);
        let meta = item.meta();
        let extension = item.extension(meta);
        status_of(item, meta, extension, meta.value_bytes(), now)
    }
}

/// The number that a value starts with, read as memcached reads it: white space, an optional plus,
/// digits, and then the end or white space. If `goes_on`, the value is longer than this part of it.
fn number_in(value: &[u8], goes_on: bool) -> Option<u64> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = value.iter().position(|byte| !is_space(byte))?;
    let value = &value[start..];
    let value = value.strip_prefix(b"+").unwrap_or(value);
    let count = value
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let ends = value.get(count).map_or(!goes_on, is_space);
    if count == 0 || !ends {
        return None;
    }
    value[..count].iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// A number as it is stored.
struct Digits {
    bytes: [u8; DIGITS_MAX],
    length: usize,
}

impl Digits {
    /// The digits of `number`, padded with spaces to the length of `highest`: a value that was
    /// longer once stays so.
    fn of(number: u64, highest: u64) -> Self {
        let length_of = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut bytes = [b' '; DIGITS_MAX];
        let mut rest = number;
        for digit in bytes[..length_of(number)].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let length = length_of(highest.max(number));
        Self { bytes, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_memcached_reads_them() {
        for (text, number) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("12  ", Some(12)),
            ("12 x", Some(12)),
            (" +7", Some(7)),
            ("-1", None),
            ("", None),
            ("  ", None),
            ("1x", None),
            ("x", None),
        ] {
            assert_eq!(number_in(text.as_bytes(), false), number, "{text:?}");
        }
    }

    /// Goal: no number is cut where what is looked at of a value ends. Method: numbers behind so
    /// much white space or so many zeros.
    #[test]
    fn a_number_is_counted_whole_or_not_at_all() {
        let store = Store::new(crate::StoreConfig::default()).expect("a store");
        let (mut writer, now) = (store.writer(curtail_types::WriterId(1)), Now::default());
        let key = Key::new(b"key").expect("a key");
        let (hash, set) = (store.hash(key.bytes()), curtail_types::Set::default());
        let arithmetic = Arithmetic {
            delta: 1,
            ..Arithmetic::default()
        };
        for before in 0..60 {
            for fill in [" ", "0"] {
                for behind in ["", " ", " x"] {
                    let text = format!("{}12345{behind}", fill.repeat(before));
                    store.set(&mut writer, now, key, hash, &set, text.as_bytes());
                    match store.arithmetic(&mut writer, now, key, hash, &arithmetic) {
                        ArithmeticOutcome::Counted { number, .. } => assert_eq!(number, 12346),
                        outcome => {
                            assert_eq!(outcome, ArithmeticOutcome::NotANumber);
                            assert!(before + 5 >= 2 * DIGITS_MAX, "{before}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_are_written_without_leading_zeros() {
        for number in [0, 9, 10, 99, 100, 12_345, u64::MAX] {
            let digits = Digits::of(number, number);
            assert_eq!(digits.bytes(), number.to_string().as_bytes());
        }
    }
}
