//! Classes of requests: what was done, and how long the value was.

use curtail_types::named_enum;

use crate::protocol::{Reply, Verb};

named_enum! {
    /// What a request turned out to do.
    pub(crate) enum Operation {
        GetHit = "get hit",
        GetMiss = "get miss",
        Set = "set",
        Add = "add",
        Replace = "replace",
        Append = "append",
        Prepend = "prepend",
        Cas = "cas",
        Delete = "delete",
        Increment = "incr",
        Decrement = "decr",
        /// A write that ended when it was accepted, whatever it does.
        Accepted = "accepted",
        Error = "error",
    }
}

/// Limits between size classes, in bytes of the value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SizeClasses(Vec<u32>);

/// An operation and a size class as one small number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Class(u8);

/// More limits than this divide nothing that a person would compare.
pub(crate) const SIZE_LIMITS_MAX: usize = 6;

/// Size classes at most: no value, and one more than there are limits.
const SIZES_MAX: usize = SIZE_LIMITS_MAX + 2;

/// The number of classes.
pub(crate) const CLASSES: usize = Operation::ALL.len() * SIZES_MAX;

const _: () = assert!(CLASSES <= u8::MAX as usize);

impl Operation {
    pub(crate) fn of(verb: Verb, reply: Reply) -> Self {
        match (verb, reply) {
            (_, Reply::Error) => Self::Error,
            (Verb::Get | Verb::Gets, Reply::Hit { .. }) => Self::GetHit,
            (Verb::Get | Verb::Gets, _) => Self::GetMiss,
            (Verb::Set, _) => Self::Set,
            (Verb::Add, _) => Self::Add,
            (Verb::Replace, _) => Self::Replace,
            (Verb::Append, _) => Self::Append,
            (Verb::Prepend, _) => Self::Prepend,
            (Verb::Cas, _) => Self::Cas,
            (Verb::Delete, _) => Self::Delete,
            (Verb::Increment, _) => Self::Increment,
            (Verb::Decrement, _) => Self::Decrement,
        }
    }

    /// Whether it carries a value, there or back.
    const fn has_value(self) -> bool {
        !matches!(
            self,
            Self::GetMiss | Self::Delete | Self::Increment | Self::Decrement | Self::Error
        )
    }
}

impl SizeClasses {
    /// Limits in ascending order, at most [`SIZE_LIMITS_MAX`] of them.
    pub(crate) fn new(limits: &[u32]) -> Option<Self> {
        let ascending = limits.windows(2).all(|pair| pair[0] < pair[1]);
        (ascending && limits.len() <= SIZE_LIMITS_MAX).then(|| Self(limits.to_vec()))
    }

    #[inline]
    pub(crate) fn class(&self, operation: Operation, value_bytes: u32) -> Class {
        let size = if operation.has_value() {
            let above = self.0.iter().filter(|limit| value_bytes > **limit);
            1 + above.count()
        } else {
            0
        };
        Class((operation as usize * SIZES_MAX + size) as u8)
    }

    /// In words: `1401 to 65536 B`; empty for requests without a value and where there is only one
    /// class.
    pub(crate) fn name(&self, class: Class) -> String {
        let size = usize::from(class.0) % SIZES_MAX;
        let below = size.checked_sub(1).and_then(|size| self.0.get(size));
        let above = size.checked_sub(2).and_then(|size| self.0.get(size));
        match (above, below) {
            _ if size == 0 => String::new(),
            (None, None) => String::new(),
            (None, Some(last)) => format!("to {last} B"),
            (Some(limit), None) => format!("above {limit} B"),
            (Some(limit), Some(last)) => format!("{} to {last} B", limit + 1),
        }
    }
}

impl Class {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES as u8).map(Self)
    }

    pub(crate) fn index(self) -> usize {
        self.0.into()
    }

    /// Without a value, or with one of the lowest size class.
    #[inline]
    pub(crate) fn is_small(self) -> bool {
        usize::from(self.0) % SIZES_MAX <= 1
    }

    pub(crate) fn operation(self) -> Operation {
        Operation::ALL[usize::from(self.0) / SIZES_MAX]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_keep_operation_and_size() {
        let sizes = SizeClasses::new(&[1400, 65_536]).unwrap();
        let cases = [
            (Operation::Set, 1400, "to 1400 B"),
            (Operation::Set, 1401, "1401 to 65536 B"),
            (Operation::GetHit, 65_537, "above 65536 B"),
            (Operation::GetMiss, 65_537, ""),
        ];
        for (operation, bytes, name) in cases {
            let class = sizes.class(operation, bytes);
            assert_eq!(class.operation(), operation);
            assert_eq!(sizes.name(class), name);
            assert_eq!(class.is_small(), bytes == 1400 || name.is_empty());
        }
        let numbered: Vec<usize> = Class::all().map(Class::index).collect();
        assert_eq!(numbered, (0..CLASSES).collect::<Vec<usize>>());
    }

    #[test]
    fn limits_ascend_and_are_few() {
        assert_eq!(SizeClasses::new(&[2, 1]), None);
        assert_eq!(SizeClasses::new(&[1, 2, 3, 4, 5, 6, 7]), None);
    }
}
