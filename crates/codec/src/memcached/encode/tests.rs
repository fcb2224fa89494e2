//! Every reply, word for word.
