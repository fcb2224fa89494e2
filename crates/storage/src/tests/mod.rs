//! Tests of the storage as a whole.

mod crash;
mod damage;
mod order;
mod simulated_disk;
