//! Reads and writes big-endian numbers in sequence.

/// Takes numbers off the front of some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BigReader<'a> {
    bytes: &'a [u8],
}

/// Writes numbers into some room.
#[derive(Debug)]
pub(super) struct BigWriter<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl<'a> BigReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) const fn rest(self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    /// Skips padding, whatever is in it.
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.bytes(count).map(|_| ())
    }
}

impl<'a> BigWriter<'a> {
    pub(super) const fn new(room: &'a mut [u8]) -> Self {
        Self { room, used: 0 }
    }

    pub(super) const fn used(&self) -> usize {
        self.used
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.used.checked_add(bytes.len())?;
        self.room.get_mut(self.used..end)?.copy_from_slice(bytes);
        self.used = end;
        Some(())
    }

    pub(super) fn byte(&mut self, number: u8) -> Option<()> {
        self.bytes(&[number])
    }

    pub(super) fn u16(&mut self, number: u16) -> Option<()> {
        self.bytes(&number.to_be_bytes())
    }

    pub(super) fn u32(&mut self, number: u32) -> Option<()> {
        self.bytes(&number.to_be_bytes())
    }

    pub(super) fn u64(&mut self, number: u64) -> Option<()> {
        self.bytes(&number.to_be_bytes())
    }

    pub(super) fn zeros(&mut self, count: usize) -> Option<()> {
        let end = self.used.checked_add(count)?;
        self.room.get_mut(self.used..end)?.fill(0);
        self.used = end;
        Some(())
    }

    /// Zeros up to a multiple of eight bytes from `start`.
    pub(super) fn pad_to_eight(&mut self, start: usize) -> Option<()> {
        self.zeros((self.used - start).next_multiple_of(8) - (self.used - start))
    }

    /// Writes a length that is known now where room was left for it.
    pub(super) fn length_at(&mut self, at: usize, bytes: usize) -> Option<()> {
        let bytes = u16::try_from(bytes).ok()?;
        let place = self.room.get_mut(at..)?.first_chunk_mut::<2>()?;
        *place = bytes.to_be_bytes();
        Some(())
    }
}
