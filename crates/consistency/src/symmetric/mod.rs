//! Symmetric caching: every node may answer for every hot key (ccKVS, EuroSys 2018).
//!
//! A [`Symmetric`] is stepped with what happens and emits what to do. It decides about keys that
//! are hot, which every node has, and about the others while a write of theirs is on its way to
//! their holders. Writes of both go round in Hermes' form (Katsarakis et al., ASPLOS 2020, section
//! 3): the writer sends an *invalidation* with the value, everybody acknowledges it, and a
//! *validation* without value lets readers see it. What is left behind by a writer that died is
//! completed by whoever needs it, for the value is everywhere. Under [`Model::Sc`] writes of hot
//! keys are *updates* that wait for nobody (ccKVS, section 5.2).
//!
//! | file | what |
//! |---|---|
//! | `machine` | a step, from input to outputs |
//! | `table` | the keys it knows something about, and the requests that wait |
//! | `entry` | what it knows about a key, and which request runs next |
//! | `agreement` | a write and its way round: Lin, and cold keys with several holders |
//! | `updates` | a write and its way round: SC |
//! | `promotion` | how a key becomes hot and ceases to be |
//! | `views` | what changes when nodes come and go |
//! | `mutant` | errors that the checker must find |

mod entry;
mod interface;
mod linearizable;
mod machine;
mod mutant;
mod promotion;
mod sequential;
mod table;
#[cfg(test)]
mod tests;
mod views;

pub use curtail_types::Access;
pub use interface::{
    Config, Input, Mode, Model, NOBODY, Output, Place, Refusal, Ticket, Value, Visibility,
    is_nothing, nothing_since,
};
pub use machine::Symmetric;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
