//! Models as variations of others: what differs is set by name.

/// Declares functions that set these fields of a setup.
macro_rules! setters {
    ($setup:ty { $($field:ident: $type:ty,)+ }) => {
        impl $setup {
            $(const fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            })+
        }
    };
}

pub(crate) use setters;
