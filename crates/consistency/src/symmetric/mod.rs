//! Symmetric caching: every node may answer for every hot key (ccKVS, EuroSys 2018).

mod interface;

pub use interface::{
    Access, Config, Input, Mode, Model, Output, Refusal, Ticket, Value, Visibility,
};
