//! Reads and writes of the store: optimistic readers, writers, and the versions between them.

use curtail_dispatch::{Effect, RequestId};

use super::{Phase, Run};
use crate::queueing::{
    dispatchers::Deciders,
    outstanding_requests::{Request, Way},
    times::Times,
};

impl<T: Times> Run<'_, T> {
    /// Whether a request looks at its bucket's version. A large item is not copied but sent as it
    /// is, so nobody waits for its version; where cores are set aside, they write it alone.
    #[inline]
    fn conflicts(&self, core: usize, request: &Request) -> bool {
        let is_ring = self.cores[core].from_ring && request.way == Way::Direct;
        let is_large_read = request.large && !request.write;
        self.point.versions.is_some() && !is_ring && !is_large_read
    }

    /// When the write ends that has the version of a request's bucket odd now.
    #[inline]
    fn odd_until(&self, now: u64, core: usize, request: &Request) -> Option<u64> {
        let versions = self.point.versions.as_ref();
        let versions = versions.filter(|_| self.conflicts(core, request))?;
        versions.odd_until(now, request.partition)
    }

    /// What is done around the store for a request that is answered here.
    #[inline]
    fn around_ns(&self, request: &Request) -> u64 {
        match request.way {
            Way::Delegated => 0,
            Way::Direct | Way::Returned => self.around.fixed_ns,
        }
    }

    #[inline]
    pub(super) fn begin_read(&mut self, now: u64, core: usize, id: u32, disturbed: bool) {
        let even = self.odd_until(now, core, self.requests.get(id));
        if let Some(even) = even {
            let phase = Phase::ReadWaits {
                id,
                disturbed: true,
            };
            return self.set(now, core, phase, even);
        }
        self.read((now, now), core, id, disturbed, false);
    }

    fn read(&mut self, (now, from): (u64, u64), core: usize, id: u32, disturbed: bool, last: bool) {
        let owed_ns = std::mem::take(&mut self.cores[core].owed_ns);
        let request = self.requests.get(id);
        let to = from + self.point.times.read_ns(core, request, owed_ns);
        let until = to + self.around_ns(request);
        let phase = Phase::Reads {
            id,
            from,
            to,
            disturbed,
            last,
        };
        self.set(now, core, phase, until);
    }

    /// The version is looked at again when the service ends; the time around the store after it is
    /// counted already, so a retry goes back by it.
    pub(super) fn end_read(&mut self, now: u64, core: usize) {
        let Phase::Reads {
            id,
            from,
            to,
            disturbed,
            last,
        } = self.cores[core].phase
        else {
            return;
        };
        let request = *self.requests.get(id);
        if self.conflicts(core, &request)
            && let Some(versions) = &self.point.versions
            && !last
            && versions.changed(request.partition, from, to)
        {
            let once = self.point.as_authors;
            let even = versions.odd_until(to, request.partition);
            let again = even.filter(|_| !once).unwrap_or(to);
            return self.read((now, again), core, id, true, once);
        }
        self.outcome.reads += 1;
        self.outcome.disturbed_reads += u64::from(disturbed);
        self.serve_end(now, core, id);
    }

    #[inline]
    pub(super) fn begin_write(&mut self, now: u64, core: usize, id: u32) {
        match self.write::<false>(now, core, id) {
            Err(even) => self.set(now, core, Phase::WriteWaits { id }, even),
            Ok(ends) => {
                let until = ends + self.around_ns(self.requests.get(id));
                self.set(now, core, Phase::Writes { id }, until);
            }
        }
    }

    pub(super) fn begin_apply(&mut self, now: u64, core: usize, id: u32) {
        match self.write::<true>(now, core, id) {
            Err(even) => self.set(now, core, Phase::ApplyWaits { id }, even),
            Ok(ends) => self.set(now, core, Phase::Applies { id }, ends),
        }
    }

    /// Begins a write and says when the store has it; `Err`: another has the version odd until
    /// then.
    #[inline]
    fn write<const APPLIES: bool>(&mut self, now: u64, core: usize, id: u32) -> Result<u64, u64> {
        if let Some(even) = self.odd_until(now, core, self.requests.get(id)) {
            self.outcome.write_waits += 1;
            return Err(even);
        }
        let owed_ns = std::mem::take(&mut self.cores[core].owed_ns);
        let request = self.requests.get(id);
        let times = &mut self.point.times;
        let ns = match APPLIES && self.point.windows.is_some() {
            true => times.apply_ns(core, request, owed_ns),
            false => times.write_ns(core, request, owed_ns),
        };
        let ends = now + ns;
        if self.conflicts(core, request)
            && let Some(versions) = &mut self.point.versions
        {
            let (odd, even) = self.around.odd(now, ends);
            versions.write(now, request.partition, odd, even);
        }
        Ok(ends)
    }

    /// The last write of a run is in the store: as shipped, the claims of all its writes end.
    pub(super) fn end_apply(&mut self, now: u64, core: usize, id: u32) {
        self.point.times.leave(self.requests.get(id));
        if let Deciders::Shipped(shipped) = &self.point.deciders {
            for effect in &self.cores[core].script {
                let Effect::Answer(RequestId(id)) = effect else {
                    continue;
                };
                if let Some(ticket) = self.requests.get_mut(*id).ticket.take() {
                    shipped.release(ticket);
                }
            }
        }
        self.follow_script(now, core);
    }
}
