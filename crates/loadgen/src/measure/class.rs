//! Classes of requests: what was done, and how long the value was.

use curtail_workload::Kind;

use crate::text_protocol::Reply;

/// What a request turned out to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Operation {
    GetHit,
    GetMiss,
    Change(Kind),
    /// A write that ended when it was accepted, whatever it does.
    Accepted,
    Error,
}

/// Limits between size classes, in bytes of the value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SizeClasses(Vec<u32>);

/// An operation and a size class.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Class {
    pub(crate) operation: Operation,
    /// 0 has no value.
    size: u8,
}

/// More limits than this divide nothing that a person would compare.
pub(crate) const SIZE_LIMITS_MAX: usize = 6;

/// Size classes at most: no value, and one more than there are limits.
const SIZES_MAX: usize = SIZE_LIMITS_MAX + 2;

/// Commands of a workload.
const KINDS: usize = Kind::ALL.len();

/// Indexes of classes are below.
pub(crate) const CLASSES: usize = (KINDS + 2) * SIZES_MAX;

impl Operation {
    pub(crate) fn of(verb: Kind, reply: Reply) -> Self {
        match reply {
            Reply::Error => Self::Error,
            _ if verb.is_write() => Self::Change(verb),
            Reply::Hit { .. } => Self::GetHit,
            _ => Self::GetMiss,
        }
    }

    /// What a request is if all goes well.
    pub(crate) fn hoped(verb: Kind) -> Self {
        match verb.is_write() {
            true => Self::Change(verb),
            false => Self::GetHit,
        }
    }

    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::GetHit | Self::GetMiss)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::GetHit => "get hit",
            Self::GetMiss => "get miss",
            Self::Change(verb) => verb.name(),
            Self::Accepted => "accepted",
            Self::Error => "error",
        }
    }

    /// Reads have the first two numbers among the commands, too.
    const fn number(self) -> usize {
        match self {
            Self::GetHit => Kind::Get as usize,
            Self::GetMiss => Kind::Gets as usize,
            Self::Change(verb) => verb as usize,
            Self::Accepted => KINDS,
            Self::Error => KINDS + 1,
        }
    }

    /// Whether it carries a value, there or back.
    fn has_value(self) -> bool {
        match self {
            Self::GetHit | Self::Accepted => true,
            Self::Change(verb) => verb.has_value(),
            Self::GetMiss | Self::Error => false,
        }
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
        let size = size as u8;
        Class { operation, size }
    }

    /// In words: `1401 to 65536 B`; empty for requests without a value and where there is only one
    /// class.
    pub(crate) fn name(&self, class: Class) -> String {
        let size = usize::from(class.size);
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
    /// Small: classes in this order are in that of the reports.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.operation.number() * SIZES_MAX + usize::from(self.size)
    }

    /// Without a value, or with one of the lowest size class.
    #[inline]
    pub(crate) fn is_small(self) -> bool {
        self.size <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_keep_operation_and_size() {
        let sizes = SizeClasses::new(&[1400, 65_536]).unwrap();
        let cases = [
            (Operation::Change(Kind::Set), 1400, "to 1400 B"),
            (Operation::Change(Kind::Set), 1401, "1401 to 65536 B"),
            (Operation::GetHit, 65_537, "above 65536 B"),
            (Operation::GetMiss, 65_537, ""),
        ];
        for (operation, bytes, name) in cases {
            let class = sizes.class(operation, bytes);
            assert_eq!(class.operation, operation);
            assert_eq!(sizes.name(class), name);
            assert_eq!(class.is_small(), bytes == 1400 || name.is_empty());
        }
    }

    /// Goal: no two operations have an index in common, in the order of the reports.
    #[test]
    fn every_operation_stands_at_its_number() {
        let operations = [
            Operation::GetHit,
            Operation::GetMiss,
            Operation::Change(Kind::Set),
            Operation::Change(Kind::Add),
            Operation::Change(Kind::Replace),
            Operation::Change(Kind::Append),
            Operation::Change(Kind::Prepend),
            Operation::Change(Kind::Cas),
            Operation::Change(Kind::Delete),
            Operation::Change(Kind::Increment),
            Operation::Change(Kind::Decrement),
            Operation::Accepted,
            Operation::Error,
        ];
        let numbers = operations.map(Operation::number);
        assert!(
            numbers.is_sorted_by(|one, other| one < other),
            "{numbers:?}"
        );
        let last = SizeClasses::new(&[1, 2, 3, 4, 5, 6]).unwrap();
        assert!(last.class(Operation::Accepted, 7).index() < CLASSES);
        assert_eq!(SizeClasses::new(&[2, 1]), None);
        assert_eq!(SizeClasses::new(&[1, 2, 3, 4, 5, 6, 7]), None);
    }
}
