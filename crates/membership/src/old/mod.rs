//! The members of a cluster as nodes of protocol 2 kept them. To be removed with the server's use
//! of it.

mod drain;
mod member;
mod roster;

pub use drain::drain;
pub use member::{Member, MemberEvent, MemberHandle, Observer};
pub use roster::{Roster, RosterError, StoredRoster, read, replace};
