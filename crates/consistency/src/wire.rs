//! Values as bytes for other nodes, little-endian, without padding. What is written of a type is
//! declared once, so that it is read back in the same order.

use alloc::{boxed::Box, vec::Vec};

use curtail_types::{Cas, Load, NodeId, NodeSet, RouteHash, ViewNumber};

use crate::slice_view::{RowChange, RowStep, SliceId};

/// A value that travels.
pub(crate) trait Wire: Sized {
    /// Appends its bytes.
    fn put(&self, bytes: &mut Vec<u8>);

    /// Takes it off the front of what arrived; `None` if that does not begin with one.
    fn take(bytes: &mut &[u8]) -> Option<Self>;
}

macro_rules! wire_numbers {
    ($($number:ident),+) => {
        $(impl Wire for $number {
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                let (taken, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*taken))
            }
        })+
    };
}

/// Structs, with all their fields in the order in which they are written.
macro_rules! wire_structs {
    ($($name:ident { $($field:tt),+ })+) => {
        $(impl $crate::wire::Wire for $name {
            fn put(&self, bytes: &mut alloc::vec::Vec<u8>) {
                $(self.$field.put(bytes);)+
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::wire::Wire::take(bytes)?,)+ })
            }
        })+
    };
}

/// An enum: the number of a variant, then its fields.
macro_rules! wire_enum {
    ($name:ident {
        $($number:literal = $variant:ident $(($one:ident))? $({ $($field:ident),+ })?,)+
    }) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, bytes: &mut alloc::vec::Vec<u8>) {
                match self {
                    $(Self::$variant $(($one))? $({ $($field),+ })? => {
                        bytes.push($number);
                        $($one.put(bytes);)?
                        $($($field.put(bytes);)+)?
                    })+
                }
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                match u8::take(bytes)? {
                    $($number => {
                        $(let $one = $crate::wire::Wire::take(bytes)?;)?
                        $($(let $field = $crate::wire::Wire::take(bytes)?;)+)?
                        Some(Self::$variant $(($one))? $({ $($field),+ })?)
                    })+
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use {wire_enum, wire_structs};

wire_numbers!(u8, u16, u32, u64);

wire_structs! {
    Cas { 0 }
    Load { 0 }
    RouteHash { 0 }
    SliceId { 0 }
    ViewNumber { 0 }
    RowChange { view, slice, step }
}

wire_enum! {
    RowStep {
        0 = Hold(node),
        1 = Enter(node),
        2 = Exit(node),
        3 = HandOver(node),
    }
}

impl Wire for NodeId {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.0.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let node = u8::take(bytes).filter(|node| usize::from(*node) < NodeSet::NODES_MAX);
        node.map(Self)
    }
}

impl Wire for bool {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(*self));
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        match u8::take(bytes)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// Whatever is left.
impl<T: Wire> Wire for Box<[T]> {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.iter().for_each(|one| one.put(bytes));
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            all.push(T::take(bytes)?);
        }
        Some(all.into())
    }
}
