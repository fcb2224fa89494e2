//! Reads and writes little-endian numbers in sequence.

/// Takes numbers off the front of some bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

/// Writes numbers to the front of some room.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    room: &'a mut [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// What was not taken.
    pub(super) const fn rest(self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*taken)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    /// A length of 32 bits.
    #[inline]
    pub(super) fn length(&mut self) -> Option<usize> {
        usize::try_from(self.u32()?).ok()
    }

    /// Bytes that a later version may give a meaning; they must be zero.
    #[inline]
    pub(super) fn zero<const N: usize>(&mut self) -> Option<()> {
        (self.array::<N>()? == [0; N]).then_some(())
    }
}

impl<'a> Writer<'a> {
    pub(super) const fn new(room: &'a mut [u8]) -> Self {
        Self { room }
    }

    /// The room that is left.
    pub(super) fn rest(self) -> &'a mut [u8] {
        self.room
    }

    /// Writes `bytes`; `None`, and nothing written, if they do not fit.
    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.room.get(..bytes.len())?;
        let (front, rest) = core::mem::take(&mut self.room).split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        self.room = rest;
        Some(())
    }

    #[inline]
    pub(super) fn byte(&mut self, number: u8) -> Option<()> {
        self.bytes(&[number])
    }

    #[inline]
    pub(super) fn u16(&mut self, number: u16) -> Option<()> {
        self.bytes(&number.to_le_bytes())
    }

    #[inline]
    pub(super) fn u32(&mut self, number: u32) -> Option<()> {
        self.bytes(&number.to_le_bytes())
    }

    #[inline]
    pub(super) fn u64(&mut self, number: u64) -> Option<()> {
        self.bytes(&number.to_le_bytes())
    }

    /// Writes a length of 32 bits; `None` if it has more.
    #[inline]
    pub(super) fn length(&mut self, bytes: usize) -> Option<()> {
        self.u32(u32::try_from(bytes).ok()?)
    }
}
