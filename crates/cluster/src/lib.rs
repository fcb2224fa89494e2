//! Who is a member of a cluster: views, kept in a file or in etcd, and read by every node.
#![forbid(unsafe_code)]
