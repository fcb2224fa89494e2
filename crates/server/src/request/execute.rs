//! Execute: carry out one request and write its reply into the turn's memory.

use std::borrow::Cow;

use curtail_codec::memcached::{
    Form, Request, WireKey,
    encode::{self, REPLY_BYTES_MAX, Refusal},
};
use curtail_dispatch::Access;
use curtail_store::{COPY_BYTES_MAX, Hint, ItemView};
use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, DeleteOutcome, Direction, Get, KeyHash, Operation,
    Set, SetMode, SetOutcome,
};

use tracing::{info, warn};

use crate::limits::OUTPUT_BYTES_MAX;
use crate::{
    connection::Departure,
    log::component,
    memcached::prefix_stats::KeyEvent,
    metrics::counters::Count,
    request::{
        batch::{Entry, Work},
        delegate::access_of,
        reply_buffer::Replies,
    },
    size_aware::control_loop::{SAMPLED_EVERY, serve_ns},
    worker::{context::WorkerContext, event_loop::Worker},
};

/// Room that the reply to one request may need in the turn's memory.
pub(crate) const ROOM_BYTES: usize = REPLY_BYTES_MAX + COPY_BYTES_MAX;

/// Whose item an operation is about and how to answer it: borrowed from the batch, because copying
/// requests about would cost more than carrying them out.
#[derive(Clone, Copy)]
pub(crate) struct Item<'b, 'a> {
    pub(crate) slot: usize,
    pub(crate) key: &'b WireKey<'a>,
    pub(crate) hash: KeyHash,
    pub(crate) form: &'b Form<'a>,
    pub(crate) hint: Hint,
}

/// How a read ended.
#[derive(Clone, Copy)]
enum Found {
    /// All of the reply is written.
    Whole,
    /// The value is to be sent from where it lies.
    Leased,
    /// The value is too long to copy, and nothing more may be leased.
    Refused,
    /// The value is large, and no large worker takes another connection.
    Busy,
}

impl Worker {
    /// Carries out one entry of the batch. With `claims`, a write claims its partition first.
    #[inline(always)] // once into the loop over the batch, where most requests pass
    pub(crate) fn carry_out(&mut self, entry: &Entry<'_>, claims: bool) {
        let Entry {
            slot,
            hash,
            work,
            hint,
            ..
        } = entry;
        let (slot, hash, hint) = (*slot, *hash, *hint);
        if self.replies.bytes_for(slot) > OUTPUT_BYTES_MAX {
            self.put_off(entry);
            return;
        }
        if self.replies.remaining() < ROOM_BYTES {
            self.reply();
        }
        match work {
            Work::Request(Request::Item {
                key,
                operation,
                value,
                form,
            }) => {
                let item = Item {
                    slot,
                    key,
                    hash,
                    form,
                    hint,
                };
                let mut held = None;
                if claims && access_of(operation) == Access::Write {
                    held = self.claim_free(hash);
                    if held.is_none() {
                        return self.run_contended(entry);
                    }
                }
                if self.cx.event_log.on {
                    self.log_here(entry);
                }
                self.cx.run_item(&mut self.replies, &item, operation, value);
                if self.cx.joins_large > 0 {
                    self.hand_on(entry);
                }
                if let Some(ticket) = held {
                    self.cx.release(ticket);
                }
            }
            _ if self.cx.event_log.on => {
                self.log_here(entry);
                self.carry_out_other(entry);
            }
            _ => self.carry_out_other(entry),
        }
    }

    /// Carries out what is not a complete request about one item.
    fn carry_out_other(&mut self, entry: &Entry<'_>) {
        let slot = entry.slot;
        match &entry.work {
            Work::Request(request) => self.run_other(slot, entry.hash, request),
            Work::LargeSet { request, rest } => {
                if let Some(right) = self.begin_large_set(entry, request, rest, false) {
                    self.end_large_set(slot, right);
                }
            }
            Work::LargeSetEnd { right } => self.end_large_set(slot, *right),
            Work::Login { accepted } => self.answer_login(slot, *accepted),
            Work::Malformed { reply, close } => {
                self.replies.write(slot, |sink| sink.push(reply));
                if *close {
                    self.close_in_error(slot);
                }
            }
        }
    }

    /// The same, for the rare ways to it.
    #[inline(never)]
    pub(crate) fn carry_out_apart(&mut self, entry: &Entry<'_>) {
        self.carry_out(entry, false);
    }

    /// Leaves a request, and with it all that follow on its connection, to a later turn: this turn
    /// has answered enough there. Its input is kept as if it had not been decoded.
    #[cold]
    pub(crate) fn put_off(&mut self, entry: &Entry<'_>) {
        self.replies.close_off(entry.slot);
        let Some(connection) = self.slots.get_mut(entry.slot) else {
            return;
        };
        if connection.put_off {
            return;
        }
        connection.put_off = true;
        connection.decoder = entry.origin.decoder;
        if let Some(held) = connection.held.take() {
            self.cx.pool.release(held);
        }
        connection.hold(&mut self.cx.pool, entry.origin.input, true);
        self.cx.counts.add(Count::ConnYields, 1);
    }

    fn run_other(&mut self, slot: usize, hash: KeyHash, request: &Request<'_>) {
        match request {
            Request::SetTooLarge {
                key,
                set,
                value_bytes,
                form,
            } => {
                let item = Item {
                    slot,
                    key,
                    hash,
                    form,
                    hint: Hint::default(),
                };
                self.cx.refuse_too_large(&mut self.replies, &item, set);
                self.swallow_apart(slot, hash, *value_bytes);
            }
            Request::EndOfKeys { refusal } => {
                self.note_failed();
                if let (Some(refusal), Some(connection)) = (refusal, self.slots.get_mut(slot)) {
                    connection.output.fail_ahead(refusal.reply());
                }
                self.end_parts(slot, b"END\r\n");
            }
            Request::Noop => {
                self.cx.counts.add(Count::CmdMeta, 1);
                self.replies.write(slot, encode::noop);
            }
            Request::Admin(admin) => self.administrate(slot, admin),
            Request::Item { .. } | Request::SetHeader { .. } | Request::Authenticate { .. } => {}
        }
    }

    /// Ends a request that is answered in parts: with `line`, or with what the first part that
    /// failed says.
    pub(crate) fn end_parts(&mut self, slot: usize, line: &'static [u8]) {
        self.note_failed();
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let failure = connection.output.take_failure();
        let failed = failure.is_some();
        let line = failure.unwrap_or(Cow::Borrowed(line));
        if connection.output.is_awaiting() || self.replies.awaits(slot) {
            return self.replies.end_parts(slot, line, failed);
        }
        match line {
            Cow::Borrowed(line) => self.replies.write(slot, |sink| sink.push(line)),
            Cow::Owned(line) => self.replies.owned(slot, line),
        }
    }

    /// Keeps what failed for the lines that end their requests, which may come in later turns.
    pub(crate) fn note_failed(&mut self) {
        if !self.replies.has_failed() {
            return;
        }
        for (slot, refusal) in self.replies.take_failed() {
            if let Some(connection) = self.slots.get_mut(slot) {
                connection.output.fail_ahead(refusal.reply());
            }
        }
    }

    /// Leaves a request that joins bytes to a large value to a large worker, which decodes it anew.
    #[cold]
    fn hand_on(&mut self, entry: &Entry<'_>) {
        let bytes = std::mem::take(&mut self.cx.joins_large);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.depart_to_receive(entry.slot, entry.hash, bytes);
        self.put_off(entry);
    }

    /// Has the connection in `slot` handed to the large worker for values of so many bytes, which
    /// goes on receiving.
    pub(crate) fn depart_to_receive(&mut self, slot: usize, hash: KeyHash, bytes: u32) {
        let number = self.snapshot.plan.large_number(bytes, hash.0).unwrap_or(0);
        if let Some(connection) = self.slots.get_mut(slot) {
            connection.departs = Some(Departure {
                number,
                receives: true,
            });
        }
    }

    /// Has what the client still sends of a refused value dropped where nothing small waits for it,
    /// however much there is to do already: somebody has to receive it.
    #[cold]
    pub(crate) fn swallow_apart(&mut self, slot: usize, hash: KeyHash, bytes: u32) {
        if self.cx.is_large(bytes as usize) {
            self.depart_to_receive(slot, hash, bytes);
        }
    }

    fn answer_login(&mut self, slot: usize, accepted: bool) {
        self.cx.counts.add(Count::AuthCmds, 1);
        self.log_login(slot, accepted);
        if accepted {
            self.replies.write(slot, encode::authenticated);
        } else {
            self.cx.counts.add(Count::AuthErrors, 1);
            self.replies
                .write(slot, |sink| encode::error(sink, Refusal::LoginFailed));
        }
    }

    /// Neither the name nor the password is logged: who mistypes one may have typed the other.
    #[cold]
    fn log_login(&mut self, slot: usize, accepted: bool) {
        let shared = &self.cx.shared;
        let limit = match accepted {
            true => &shared.limits.accepted_logins,
            false => &shared.limits.refused_logins,
        };
        let Some(suppressed) = limit.pass(self.cx.now.unix_seconds().into()) else {
            return;
        };
        let connection = self.slots.get_mut(slot);
        let peer = connection.map_or("", |connection| &connection.visible.address);
        if accepted {
            info!(target: component::AUTH, peer, suppressed, "a client logged in");
        } else {
            warn!(
                target: component::AUTH,
                peer,
                suppressed,
                "a login was refused: its name and password are not in the authentication file"
            );
        }
    }
}

impl WorkerContext {
    /// Carries out a request about one item that another worker received.
    #[inline(never)]
    pub(crate) fn run_item_apart(
        &mut self,
        replies: &mut Replies,
        item: &Item<'_, '_>,
        operation: &Operation,
        value: &[u8],
    ) {
        self.run_item(replies, item, operation, value);
    }

    #[inline(always)] // as `carry_out`
    fn run_item(
        &mut self,
        replies: &mut Replies,
        item: &Item<'_, '_>,
        operation: &Operation,
        value: &[u8],
    ) {
        self.count_meta(item);
        match operation {
            Operation::Get(get) => self.get(replies, item, get),
            Operation::Set(set) => self.set(replies, item, set, value),
            Operation::Delete(delete) => self.delete(replies, item, delete),
            Operation::Arithmetic(arithmetic) => self.arithmetic(replies, item, arithmetic),
        }
    }

    #[inline(always)]
    pub(crate) fn count_meta(&mut self, item: &Item<'_, '_>) {
        if matches!(item.form, Form::Meta(_) | Form::Debug) {
            self.counts.add(Count::CmdMeta, 1);
        }
    }

    #[inline(always)] // as `carry_out`
    fn get(&mut self, replies: &mut Replies, item: &Item<'_, '_>, get: &Get) {
        if !self.get_plain(replies, item, get) {
            self.get_any(replies, item, get);
        }
    }

    /// The read that most requests are, if this is one; whether it was, and is answered.
    #[inline(always)]
    fn get_plain(&mut self, replies: &mut Replies, item: &Item<'_, '_>, get: &Get) -> bool {
        if get.changes() || get.quiet_access {
            return false;
        }
        let key = item.key.resolve(&mut self.scratch);
        let bytes = replies.fill(item.slot, |room| {
            let head = |room: &mut [u8], value_bytes: usize| {
                encode::plain_head(room, item.key, item.form, value_bytes)
            };
            let (store, now) = (&self.store, self.now);
            let (written, value_bytes) =
                store.get_plain(now, key, item.hash, item.hint, room, head)?;
            let end = encode::plain_end(room.get_mut(written..)?, item.form)?;
            Some((written + end, value_bytes))
        });
        let Some(bytes) = bytes else {
            return false;
        };
        self.count_get(item, get, true);
        if self.samples {
            self.note_size(bytes);
        }
        true
    }

    /// A read of any kind.
    #[inline(never)]
    fn get_any(&mut self, replies: &mut Replies, item: &Item<'_, '_>, get: &Get) {
        let key = item.key.resolve(&mut self.scratch);
        // Beside the result: a lease is large, and few reads take one.
        let mut lease = None;
        let (mut bytes, mut shown) = (0, 0);
        let found = replies.write(item.slot, |sink| {
            let view = |view: &ItemView<'_>| {
                sink.truncate(0);
                let mut status = view.status();
                if !self.shared.config.cas {
                    status.cas = Cas(0);
                }
                bytes = view.value_bytes();
                if !encode::hit(sink, item.key, item.form, &status) {
                    return Found::Whole;
                }
                shown = bytes;
                if bytes > COPY_BYTES_MAX {
                    if self.large_full && bytes >= self.large_from {
                        return Found::Busy;
                    }
                    if bytes >= self.large_counts_from {
                        self.larges += 1;
                        self.larges_left += u64::from(bytes >= self.large_from);
                    }
                    lease = view.lease_value();
                    return lease.as_ref().map_or(Found::Refused, |_| Found::Leased);
                }
                let room = sink.spare().get_mut(..bytes).unwrap_or_default();
                let copied = view.copy_value(0, room);
                sink.advance(copied);
                encode::value_end(sink, item.form);
                Found::Whole
            };
            let found = self.store.get_hinted(
                &mut self.writer,
                self.now,
                key,
                item.hash,
                item.hint,
                get,
                view,
            );
            if !matches!(found, Some(Found::Whole | Found::Leased)) {
                sink.truncate(0);
            }
            if found.is_none() {
                encode::miss(sink, item.key, item.form);
            }
            found
        });
        self.count_get(item, get, found.is_some());
        if self.samples || bytes > COPY_BYTES_MAX {
            if shown > COPY_BYTES_MAX {
                self.note_answered_bytes(item.slot, shown);
            }
            self.note_size(bytes);
        }
        match (found, lease) {
            (Some(Found::Leased), Some(lease)) => {
                replies.lease(item.slot, lease);
                replies.write(item.slot, |sink| encode::value_end(sink, item.form));
            }
            (Some(Found::Refused), _) => {
                self.lease_refused = true;
                self.end_refused(replies, item, Count::ReplyNoMemory, Refusal::OutOfMemoryGet);
            }
            (Some(Found::Busy), _) => {
                self.end_refused(replies, item, Count::LargeRefused, Refusal::Busy);
            }
            _ => {}
        }
    }

    /// Answers a read of a value that cannot be sent now.
    #[cold]
    fn end_refused(
        &mut self,
        replies: &mut Replies,
        item: &Item<'_, '_>,
        count: Count,
        refusal: Refusal,
    ) {
        self.counts.add(count, 1);
        self.refuse_read(replies, item, refusal);
    }

    /// A read that found its item and cannot show it. What came in a delegated batch is told to
    /// whoever sent that, who knows what it is a part of.
    #[cold]
    fn refuse_read(&self, replies: &mut Replies, item: &Item<'_, '_>, refusal: Refusal) {
        match self.is_delegated {
            true => replies.write(item.slot, |sink| encode::refuse(sink, item.form, refusal)),
            false => replies.refuse(item.slot, item.form, refusal),
        }
    }

    #[inline]
    pub(crate) fn count_get(&mut self, item: &Item<'_, '_>, get: &Get, hit: bool) {
        // `touch` is a read that shows nothing; the other reads that touch count as both.
        let touches = get.touch.is_some();
        if !matches!(item.form, Form::Line { .. }) {
            self.counts.add(Count::CmdGet, 1);
        }
        let count = match (touches, hit) {
            (false, true) => Count::GetHits,
            (false, false) => Count::GetMisses,
            (true, true) => Count::TouchHits,
            (true, false) => Count::TouchMisses,
        };
        self.counts.add(count, 1);
        self.counts.add(Count::CmdTouch, u64::from(touches));
        self.note_key(item, KeyEvent::Get { hit });
    }

    fn set(&mut self, replies: &mut Replies, item: &Item<'_, '_>, set: &Set, value: &[u8]) {
        if matches!(set.mode, SetMode::Append | SetMode::Prepend)
            && !self.may_join_here(replies, item, set)
        {
            return;
        }
        self.note_key(item, KeyEvent::Set);
        let key = item.key.resolve(&mut self.scratch);
        let outcome = self
            .store
            .set(&mut self.writer, self.now, key, item.hash, set, value);
        if self.samples {
            self.note_size(value.len());
        }
        self.answer_set(replies, item, set.compare.is_some(), outcome);
    }

    /// Whether bytes are joined to a value here. If that is large it is copied, so it is a large
    /// worker's to do.
    #[cold]
    fn may_join_here(&mut self, replies: &mut Replies, item: &Item<'_, '_>, set: &Set) -> bool {
        let joined = self.joined_bytes(item, set) as usize;
        if !self.is_large(joined) || self.is_delegated {
            self.note_large_here(item.slot, joined);
            return true;
        }
        if self.large_full {
            self.counts.add(Count::LargeRefused, 1);
            replies.refuse(item.slot, item.form, Refusal::Busy);
            return false;
        }
        if matches!(item.form, Form::Meta(_)) {
            self.counts.take_back(Count::CmdMeta);
        }
        self.joins_large = joined;
        false
    }

    /// Whether a request joins bytes to a large value: then its connection is handed on, which only
    /// the worker that has it can do.
    pub(crate) fn joins_something_large(&mut self, entry: &Entry<'_>) -> bool {
        let Work::Request(Request::Item {
            key,
            operation: Operation::Set(set),
            form,
            ..
        }) = &entry.work
        else {
            return false;
        };
        let item = Item {
            slot: entry.slot,
            key,
            hash: entry.hash,
            form,
            hint: entry.hint,
        };
        let joined = self.joined_bytes(&item, set) as usize;
        joined > 0 && self.is_large(joined)
    }

    /// Bytes of the value that a write is joined to.
    pub(crate) fn joined_bytes(&mut self, item: &Item<'_, '_>, set: &Set) -> u32 {
        if !matches!(set.mode, SetMode::Append | SetMode::Prepend) {
            return 0;
        }
        self.value_bytes_of(item.key, item.hash).unwrap_or(0)
    }

    /// Bytes of the value of `key`, if there is one. It counts as no read, and takes nobody's right
    /// to recache.
    pub(crate) fn value_bytes_of(&mut self, key: &WireKey<'_>, hash: KeyHash) -> Option<u32> {
        let key = key.resolve(&mut self.scratch);
        let look = Get {
            quiet_access: true,
            keep_token: true,
            ..Get::default()
        };
        let (writer, now) = (&mut self.writer, self.now);
        let bytes = |view: &ItemView<'_>| view.value_bytes();
        let bytes = self.store.get(writer, now, key, hash, &look, bytes)?;
        Some(u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// Counts and answers a write that was carried out together with others.
    pub(crate) fn answer_write(
        &mut self,
        replies: &mut Replies,
        item: &Item<'_, '_>,
        bytes: usize,
        outcome: SetOutcome,
    ) {
        self.count_meta(item);
        self.note_key(item, KeyEvent::Set);
        if self.samples {
            self.note_size(bytes);
        }
        self.answer_set(replies, item, false, outcome);
    }

    /// Counts a request for the control by the size of its item: a long one always, of short ones
    /// some that stand for the others. The cost is in time, by its price.
    #[cold]
    fn note_size(&mut self, bytes: usize) {
        if !self.learns {
            return;
        }
        let stands_for = match bytes > COPY_BYTES_MAX {
            true => 1,
            false => SAMPLED_EVERY,
        };
        let cost_ns = serve_ns(bytes) * stands_for;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.sizes.record_many(bytes, cost_ns, stands_for);
    }

    pub(crate) fn reserve(
        &mut self,
        item: &Item<'_, '_>,
        set: &Set,
        value_bytes: u32,
    ) -> Result<curtail_store::Reservation, SetOutcome> {
        if matches!(item.form, Form::Meta(_)) {
            self.counts.add(Count::CmdMeta, 1);
        }
        self.note_key(item, KeyEvent::Set);
        self.note_size(value_bytes as usize);
        let key = item.key.resolve(&mut self.scratch);
        let (writer, bytes) = (&mut self.writer, value_bytes as usize);
        self.store
            .reserve(writer, self.now, key, item.hash, set, bytes)
    }

    pub(crate) fn answer_set(
        &mut self,
        replies: &mut Replies,
        item: &Item<'_, '_>,
        compares: bool,
        outcome: SetOutcome,
    ) {
        count_set(&mut self.counts, compares, outcome);
        if self.event_log.on {
            self.log_outcome(outcome);
        }
        replies.write(item.slot, |sink| {
            encode::set(sink, item.key, item.form, outcome)
        });
    }

    /// A write above the limit also removes what is there: the client wanted it gone.
    fn refuse_too_large(&mut self, replies: &mut Replies, item: &Item<'_, '_>, set: &Set) {
        // A node has it removed where it is.
        if set.removes_if_too_large() && self.shared.cluster.is_none() {
            let key = item.key.resolve(&mut self.scratch);
            let delete = Delete::default();
            self.store
                .delete(&mut self.writer, self.now, key, item.hash, &delete);
        }
        self.counts.add(Count::StoreTooLarge, 1);
        let outcome = SetOutcome::TooLarge;
        if self.event_log.on {
            self.log_outcome(outcome);
        }
        replies.write(item.slot, |sink| {
            encode::set(sink, item.key, item.form, outcome)
        });
    }

    fn delete(&mut self, replies: &mut Replies, item: &Item<'_, '_>, delete: &Delete) {
        let key = item.key.resolve(&mut self.scratch);
        let outcome = self
            .store
            .delete(&mut self.writer, self.now, key, item.hash, delete);
        self.answer_delete(replies, item, outcome);
    }

    pub(crate) fn answer_delete(
        &mut self,
        replies: &mut Replies,
        item: &Item<'_, '_>,
        outcome: DeleteOutcome,
    ) {
        match outcome {
            DeleteOutcome::Deleted => self.counts.add(Count::DeleteHits, 1),
            DeleteOutcome::NotFound => self.counts.add(Count::DeleteMisses, 1),
            DeleteOutcome::Exists | DeleteOutcome::OutOfMemory => {}
        }
        self.note_key(item, KeyEvent::Delete);
        replies.write(item.slot, |sink| {
            encode::delete(sink, item.key, item.form, outcome)
        });
    }

    fn arithmetic(&mut self, replies: &mut Replies, item: &Item<'_, '_>, arithmetic: &Arithmetic) {
        let key = item.key.resolve(&mut self.scratch);
        let mut outcome =
            self.store
                .arithmetic(&mut self.writer, self.now, key, item.hash, arithmetic);
        if let ArithmeticOutcome::Counted { status, .. } = &mut outcome
            && !self.shared.config.cas
        {
            status.cas = Cas(0);
        }
        self.answer_arithmetic(replies, item, arithmetic.direction, &outcome);
    }

    #[inline]
    pub(crate) fn answer_arithmetic(
        &mut self,
        replies: &mut Replies,
        item: &Item<'_, '_>,
        direction: Direction,
        outcome: &ArithmeticOutcome,
    ) {
        let (hits, misses) = match direction {
            Direction::Increment => (Count::IncrHits, Count::IncrMisses),
            Direction::Decrement => (Count::DecrHits, Count::DecrMisses),
        };
        match outcome {
            ArithmeticOutcome::Counted { .. } => self.counts.add(hits, 1),
            ArithmeticOutcome::NotFound => self.counts.add(misses, 1),
            _ => {}
        }
        replies.write(item.slot, |sink| {
            encode::arithmetic(sink, item.key, item.form, outcome);
        });
    }

    #[inline(always)]
    fn note_key(&mut self, item: &Item<'_, '_>, event: KeyEvent) {
        if self.detail {
            self.note_key_in_detail(item, event);
        }
    }

    #[cold]
    fn note_key_in_detail(&mut self, item: &Item<'_, '_>, event: KeyEvent) {
        let key = item.key.resolve(&mut self.scratch);
        self.shared.prefixes.count(key.bytes(), event);
    }
}

pub(crate) fn count_set(
    counts: &mut crate::metrics::counters::Counts,
    compares: bool,
    outcome: SetOutcome,
) {
    counts.add(Count::CmdSet, 1);
    let count = match (outcome, compares) {
        (SetOutcome::TooLarge, _) => Count::StoreTooLarge,
        (SetOutcome::OutOfMemory, _) => Count::StoreNoMemory,
        (SetOutcome::Stored(_), true) => Count::CasHits,
        (SetOutcome::Exists, true) => Count::CasBadval,
        (SetOutcome::NotFound, true) => Count::CasMisses,
        _ => return,
    };
    counts.add(count, 1);
}
