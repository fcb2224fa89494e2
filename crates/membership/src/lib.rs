//! Who is a member of a cluster: views, kept in a file or in etcd, and read by every node.
//!
//! `consistency::members` decides; this crate gives it what it needs of the world. A
//! [`ClusterFile`] says what cluster it is and who the nodes are, a [`ViewStore`] holds the
//! [`Roster`] that all nodes agree on, and a [`Member`] is a thread that drives the machine and
//! tells the server what it says.
//!
//! ```text
//!   ClusterFile ──> Member (thread) <── MemberHandle: heartbeats heard, changes of rows, leave
//!                   │     │      └────> Observer: adopt this roster, send heartbeats
//!                   │     └───────────> ServingLease: serve until
//!                   └──> store (thread) ──> ViewStore: FileStore or EtcdStore
//! ```
#![forbid(unsafe_code)]

mod cluster_file;
mod drain;
mod error;
mod member;
mod secret;
mod store;
mod stored_view;

pub use cluster_file::{ClusterFile, NodeConfig, NodeEntry, Rollout, TlsFiles, ViewStoreConfig};
pub use curtail_consistency::members::Incarnation;
pub use drain::drain;
pub use error::ClusterError;
pub use member::{
    Member, MemberEvent, MemberHandle, Observer, ServingLease, StoreAsked, StorePace,
};
pub use secret::Secret;
pub use store::{
    EtcdStore, FileStore, RosterStore, StoredRoster, StoredText, ViewStore, ViewStoreError,
};
pub use stored_view::{Addresses, Node, Roster, RosterError, Settings, SliceShare};
