//! Room for a large value that is received straight into item memory.

/// Room for one value; dropping it gives the room back.
#[derive(Debug)]
pub struct Reservation {
    length: usize,
}

impl Reservation {
    /// The next contiguous bytes to receive into; empty when the value is complete.
    pub fn spare(&mut self) -> &mut [u8] {
        todo!()
    }

    /// Notes that the first `bytes` of [`Reservation::spare`] were received.
    pub fn advance(&mut self, _bytes: usize) {
        todo!()
    }

    /// Copies as much of `bytes` as still fits, and returns how much that was.
    pub fn write(&mut self, _bytes: &[u8]) -> usize {
        todo!()
    }

    /// The length of the value in bytes.
    pub fn value_bytes(&self) -> usize {
        self.length
    }

    /// Whether every byte was received.
    pub fn is_full(&self) -> bool {
        todo!()
    }
}
