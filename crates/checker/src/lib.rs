//! Every path through a tiny cluster, walked on the machines that the server runs.
#![forbid(unsafe_code)]
