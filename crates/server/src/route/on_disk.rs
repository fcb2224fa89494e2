//! Requests of a server with a disk tier: what is not in memory is loaded first, and what changes
//! is queued for the log.
//!
//! Every change happens under the lock of its key's stripe, together with its write to the log, so
//! memory and disk see the changes of a key in one order. An item is kept from eviction from the
//! look at it until its image is taken.

use std::sync::Arc;

use curtail_codec::memcached::{
    Admin, Form, KeyScratch, Request, SetHeader, WireKey, encode::Refusal,
};
use curtail_storage::{
    ItemImage, KeyLock, Latest, LoadedItem, ReadAnswer, WriteKind, WriteRefused,
};
use curtail_store::Image;
use curtail_types::{Cas, Exptime, Key, KeyHash, Now, Operation, Set, SetMode, SetOutcome};

use crate::{
    completion::{Answer, Awaited, Token},
    connection::close_reason::CloseReason,
    disk::{DiskTier, DiskWorker, LoadEnded, LoadState, WriteAdmission},
    limits::OUTPUT_BYTES_MAX,
    metrics::counters::Count,
    request::{
        batch::{Entry, Work},
        reply_buffer::{ROOM_BYTES, Replies},
    },
    route::execute_here,
    store_context::StoreContext,
    turn::{
        execute::{self, *},
        large_write, lifecycle, log_events, send,
    },
    worker::{Worker, context::WorkerContext},
};

/// What is known of an item before an operation runs.
enum Known {
    /// It is in memory, under this version.
    Here(Cas),
    /// It is nowhere.
    Nowhere,
    /// The operation does not ask.
    Unasked,
}

/// Why an operation does not run now.
enum Blocked {
    /// It runs again when the item has been loaded.
    Loading,
    /// It runs again when there is room for it.
    NoRoom,
    Refused(Refusal),
}

/// What one operation works with.
struct TierContext<'w> {
    disk: &'w DiskTier,
    tier: &'w mut DiskWorker,
    cx: &'w mut WorkerContext,
}

// ---- the turn of a worker ----

/// Looks at what may differ from turn to turn.
pub(crate) fn begin_turn(worker: &mut Worker) {
    let Some(tier) = &worker.tier else {
        return;
    };
    let StoreContext { store, now, .. } = &worker.cx.store_cx;
    let flush = || store.flush_all(*now, Exptime(0));
    tier.disk.storage.flush_due(now.unix_seconds(), flush);
    if let Some(tier) = &mut worker.tier {
        tier.loads.forget_oldest();
    }
    if !awaits_disk(worker) {
        return;
    }
    while let Some(token) = next(worker, DiskWorker::next_durable) {
        release(worker, token);
    }
    while let Some(token) = next(worker, DiskWorker::next_lost) {
        lose(worker, token);
    }
    let tier = worker.tier.as_deref_mut();
    for token in tier.map(DiskWorker::take_retries).unwrap_or_default() {
        release(worker, token);
    }
}

fn next(worker: &mut Worker, next: fn(&mut DiskWorker) -> Option<Token>) -> Option<Token> {
    next(worker.tier.as_deref_mut()?)
}

/// Whether the worker has to look for progress of the storage.
pub(crate) fn awaits_disk(worker: &Worker) -> bool {
    worker.tier.as_ref().is_some_and(|tier| tier.awaits())
}

/// Takes in what the disk found, and has those requests run again that waited for it.
pub(crate) fn take_answer(worker: &mut Worker, answer: ReadAnswer) {
    let Some(tier) = worker.tier.as_deref_mut() else {
        return;
    };
    for token in tier.loads.end(answer) {
        release(worker, token);
    }
}

/// Fills a place that held a connection back.
fn release(worker: &mut Worker, token: Token) {
    let Some(connection) = worker.slots.get_mut(token.slot) else {
        return;
    };
    if connection.serial != token.serial {
        return;
    }
    let output = &mut connection.output;
    output.complete(&mut worker.cx.pool, token.place, Answer::Nothing);
    // A large write that is received needs a turn, too.
    connection.readable |= connection.body.is_some();
    worker.slots.queue(token.slot);
}

/// Closes a connection without the replies that it waits for: nobody can say what became of its
/// writes.
#[cold]
fn lose(worker: &mut Worker, token: Token) {
    let connection = worker.slots.get_mut(token.slot);
    if let Some(connection) = connection.filter(|connection| connection.serial == token.serial) {
        connection.close_reason = CloseReason::Error;
        lifecycle::close(worker, token.slot);
    }
}

// ---- requests ----

/// Executes the requests of a run.
#[inline(never)]
pub(crate) fn run_on_disk(worker: &mut Worker, run: &[Entry<'_>]) {
    // Once for a run: all workers share this count.
    let Some(disk) = worker.tier.as_ref().map(|tier| Arc::clone(&tier.disk)) else {
        return;
    };
    for entry in run {
        if worker.replies.bytes_for(entry.slot) > OUTPUT_BYTES_MAX {
            if worker.replies.is_closed_off(entry.slot) {
                load_ahead(worker, entry);
            }
            execute::put_off(worker, entry);
            continue;
        }
        if worker.replies.remaining() < ROOM_BYTES {
            send::reply_early(worker);
        }
        match &entry.work {
            Work::Request(Request::Item {
                key,
                operation,
                value,
                form,
            }) => run_item_on_disk(worker, &disk, entry, (key, form), (operation, value)),
            Work::Request(Request::SetTooLarge(header)) if header.set.removes_if_too_large() => {
                remove_too_large(worker, &disk, entry, header);
            }
            Work::LargeSet { header, rest } => begin_large(worker, &disk, entry, (header, rest)),
            Work::LargeSetEnd { right: true } => end_large(worker, &disk, entry.slot),
            Work::Request(Request::Admin(Admin::FlushAll { .. })) => {
                flush_on_disk(worker, entry);
            }
            _ => execute_here::carry_out_apart(worker, entry),
        }
    }
}

fn run_item_on_disk(
    worker: &mut Worker,
    disk: &DiskTier,
    entry: &Entry<'_>,
    (key, form): (&WireKey<'_>, &Form<'_>),
    (operation, value): (&Operation, &[u8]),
) {
    let slot = entry.slot;
    if worker.cx.event_log.on {
        log_events::show(worker, entry);
    }
    let Some(connection) = worker.slots.get(slot) else {
        return;
    };
    let (serial, number) = (connection.serial, connection.visible.number);
    let (Some(tier), cx) = (worker.tier.as_deref_mut(), &mut worker.cx) else {
        return;
    };
    let item = Item {
        slot,
        key,
        hash: entry.hash,
        form,
        hint: entry.hint,
    };
    let replies = &mut worker.replies;
    if operation.is_read() {
        match execute::run_item::<OverTier>(cx, replies, &item, operation, value) {
            Executed::Missing => {}
            executed => return end(worker, entry, form, executed),
        }
    }
    let mut context = TierContext { disk, tier, cx };
    let ran = context.run(replies, (&item, serial, number), operation, value);
    match ran {
        Ok(executed) => end(worker, entry, form, executed),
        Err(blocked) => wait(worker, entry, (key, form), blocked),
    }
}

fn end(worker: &mut Worker, entry: &Entry<'_>, form: &Form<'_>, executed: Executed) {
    match executed {
        Executed::Done | Executed::Missing => {}
        Executed::NeedsLargeWorker(bytes) => execute::hand_on(worker, entry, bytes),
        Executed::Refused(refusal) => worker.replies.refuse(entry.slot, form, refusal),
    }
}

/// Leaves a request, and with it all that follow on its connection, until what it waits for is
/// there.
#[cold]
fn wait(
    worker: &mut Worker,
    entry: &Entry<'_>,
    (key, form): (&WireKey<'_>, &Form<'_>),
    blocked: Blocked,
) {
    if let Blocked::Refused(refusal) = blocked {
        return worker.replies.refuse(entry.slot, form, refusal);
    }
    let mut scratch = KeyScratch::default();
    let key = key.resolve(&mut scratch);
    leave_place(worker, entry.slot, key.bytes(), &blocked);
    execute::put_off(worker, entry);
}

/// Leaves a place in the replies of a connection, which holds it back until it is filled.
fn leave_place(worker: &mut Worker, slot: usize, key: &[u8], blocked: &Blocked) {
    let (Some(connection), Some(tier)) = (worker.slots.get(slot), worker.tier.as_deref_mut())
    else {
        return;
    };
    let token = Token {
        slot,
        serial: connection.serial,
        place: worker.replies.await_answer(slot, Awaited::Silent, None),
    };
    match blocked {
        Blocked::Loading => tier.loads.wait(key, token),
        _ => tier.retry(token),
    }
    worker.cx.counts.add(Count::DiskWaits, 1);
}

/// Has the disk asked for the item of a request that is put off, so that it need not wait when its
/// turn comes.
#[cold]
fn load_ahead(worker: &mut Worker, entry: &Entry<'_>) {
    let Work::Request(Request::Item { key, operation, .. }) = &entry.work else {
        return;
    };
    let (Some(tier), cx) = (worker.tier.as_deref_mut(), &mut worker.cx) else {
        return;
    };
    let mut scratch = KeyScratch::default();
    let key = key.resolve(&mut scratch);
    let wants = needs_old(operation) && tier.loads.has_room_ahead();
    if !wants || cx.store_cx.version_of(key, entry.hash).is_some() {
        return;
    }
    let storage = &tier.disk.storage;
    let mut locked = storage.lock(entry.hash);
    let is_on_disk = matches!(locked.latest(key.bytes()), Latest::OnDisk);
    if is_on_disk && !tier.loads.has(key.bytes(), &mut locked) {
        let to = (storage, tier.worker());
        if tier.loads.begin(key.bytes(), entry.hash, &mut locked, to) {
            cx.counts.add(Count::DiskReads, 1);
        }
    }
}

impl TierContext<'_> {
    /// Runs an operation under the lock of its key.
    fn run(
        &mut self,
        replies: &mut Replies,
        (item, serial, number): (&Item<'_, '_>, u64, i32),
        operation: &Operation,
        value: &[u8],
    ) -> Result<Executed, Blocked> {
        let changes = !operation.is_read();
        if changes {
            admit(self.tier, self.cx, kind_of(operation))?;
        }
        let mut scratch = KeyScratch::default();
        let (key, hash) = (item.key.resolve(&mut scratch), item.hash);
        let mut locked = self.disk.storage.lock(hash);
        self.cx.store_cx.store.keep(hash);
        let known = match needs_old(operation) {
            true => find(self.tier, self.cx, &mut locked, key, hash),
            false => Ok(Known::Unasked),
        };
        let ran = known.map(|known| {
            if self.cx.event_log.on {
                log_events::log_request(self.cx, number, item.key, operation, value.len());
                log_events::log_fetch(self.cx, item.key, hash);
            }
            let is_acknowledged = !matches!(item.form, Form::Line { noreply: true });
            if changes && is_acknowledged {
                self.tier.hold(replies, item.slot, serial);
            }
            let executed = execute::run_item::<Apart>(self.cx, replies, item, operation, value);
            if changes && executed == Executed::Done {
                let place = self.record(&mut locked, (key, hash), operation, &known);
                place
                    .into_iter()
                    .for_each(|place| self.tier.note_write(item.slot, place));
            }
            executed
        });
        self.cx.store_cx.store.let_go(hash);
        ran
    }

    /// Queues what an operation has changed for the log; its place there.
    fn record(
        &mut self,
        locked: &mut KeyLock<'_>,
        (key, hash): (Key<'_>, KeyHash),
        operation: &Operation,
        known: &Known,
    ) -> Option<u64> {
        let store_cx = &mut self.cx.store_cx;
        let now = store_cx.now;
        let after = store_cx.take_image(key, hash, &mut self.tier.value);
        match (known, after) {
            (Known::Here(before), Some(image))
                if *before == image.cas && !changes_quietly(operation) =>
            {
                None
            }
            (_, Some(image)) => {
                let image = to_disk(&image);
                Some(locked.put(key.bytes(), hash, &image, &self.tier.value))
            }
            (Known::Here(_), None) => Some(locked.delete(key.bytes(), hash)),
            // A value that ends at once replaces what was there; one that found no room does not.
            (Known::Unasked, None) => {
                ends_at_once(operation, now).then(|| locked.delete(key.bytes(), hash))
            }
            (Known::Nowhere, None) => None,
        }
    }
}

const fn kind_of(operation: &Operation) -> WriteKind {
    match operation {
        // What is marked as stale is stored again.
        Operation::Delete(delete) if !delete.invalidate || delete.drop_value => WriteKind::Delete,
        _ => WriteKind::Store,
    }
}

/// Whether a write may run now.
fn admit(tier: &mut DiskWorker, cx: &mut WorkerContext, kind: WriteKind) -> Result<(), Blocked> {
    match tier.admit(kind) {
        WriteAdmission::Admitted => Ok(()),
        WriteAdmission::Waits => Err(Blocked::NoRoom),
        WriteAdmission::Refused(refused) => {
            cx.counts.add(Count::DiskRefused, 1);
            Err(Blocked::Refused(refusal_of(refused)))
        }
    }
}

/// Looks for an item in memory, among what is on its way to the disk, and among what came from
/// there; what is found is in memory then. Its key is locked, and kept from eviction.
fn find(
    tier: &mut DiskWorker,
    cx: &mut WorkerContext,
    locked: &mut KeyLock<'_>,
    key: Key<'_>,
    hash: KeyHash,
) -> Result<Known, Blocked> {
    let StoreContext { store, writer, now } = &mut cx.store_cx;
    if let Some(cas) = store.find_kept(writer, *now, key, hash) {
        return Ok(Known::Here(cas));
    }
    let loaded = match locked.latest(key.bytes()) {
        Latest::Absent => return Ok(Known::Nowhere),
        Latest::Item(item) => item,
        Latest::OnDisk => match tier.loads.look(key.bytes(), locked) {
            LoadState::Ended(LoadEnded::Item(item)) => item,
            LoadState::Ended(LoadEnded::Absent) => return Ok(Known::Nowhere),
            LoadState::Ended(LoadEnded::Failed) => {
                return Err(Blocked::Refused(Refusal::DiskUnreadable));
            }
            LoadState::UnderWay => return Err(Blocked::Loading),
            LoadState::Unknown => {
                let to = (&tier.disk.storage, tier.worker());
                if !tier.loads.begin(key.bytes(), hash, locked, to) {
                    return Err(Blocked::NoRoom);
                }
                cx.counts.add(Count::DiskReads, 1);
                return Err(Blocked::Loading);
            }
        },
    };
    install(cx, key, hash, &loaded)
}

/// Puts an item into memory that came from the disk.
fn install(
    cx: &mut WorkerContext,
    key: Key<'_>,
    hash: KeyHash,
    item: &LoadedItem,
) -> Result<Known, Blocked> {
    let StoreContext { store, writer, now } = &mut cx.store_cx;
    let image = to_memory(&item.image());
    let ends = Exptime(i64::from(image.expiry)).expiry(*now);
    if image.expiry != 0 && ends.is_past(*now) {
        return Ok(Known::Nowhere);
    }
    cx.counts.add(Count::DiskLoaded, 1);
    match store.put_image(writer, *now, key, hash, &image, item.value()) {
        SetOutcome::Stored(_) => Ok(Known::Here(image.cas)),
        _ => {
            cx.counts.add(Count::ReplyNoMemory, 1);
            Err(Blocked::Refused(Refusal::OutOfMemory))
        }
    }
}

/// A value above the limit removes what is there, in memory and on disk.
fn remove_too_large(
    worker: &mut Worker,
    disk: &DiskTier,
    entry: &Entry<'_>,
    header: &SetHeader<'_>,
) {
    if !is_admitted(worker, entry) {
        return;
    }
    let mut scratch = KeyScratch::default();
    let key = header.key.resolve(&mut scratch);
    let mut locked = disk.storage.lock(entry.hash);
    hold(worker, entry.slot);
    let place = locked.delete(key.bytes(), entry.hash);
    note_write(worker, entry.slot, place);
    execute_here::carry_out_apart(worker, entry);
}

fn flush_on_disk(worker: &mut Worker, entry: &Entry<'_>) {
    if worker.cx.shared.config.flush_allowed {
        if !is_admitted(worker, entry) {
            return;
        }
        hold(worker, entry.slot);
    }
    // The command itself flushes memory and disk together.
    execute_here::carry_out_apart(worker, entry);
}

/// Whether what deletes without an operation on an item may do so now; if not, it is answered or
/// put off.
fn is_admitted(worker: &mut Worker, entry: &Entry<'_>) -> bool {
    let admitted = match worker.tier.as_deref_mut() {
        Some(tier) => admit(tier, &mut worker.cx, WriteKind::Delete),
        None => Ok(()),
    };
    match admitted {
        Ok(()) => return true,
        Err(Blocked::Refused(refusal)) => {
            worker
                .replies
                .write(entry.slot, |sink| sink.push(refusal.reply()));
        }
        Err(blocked) => {
            leave_place(worker, entry.slot, b"", &blocked);
            execute::put_off(worker, entry);
        }
    }
    false
}

// ---- large writes ----

fn begin_large(
    worker: &mut Worker,
    disk: &DiskTier,
    entry: &Entry<'_>,
    (header, rest): (&SetHeader<'_>, &[u8]),
) {
    let store = Arc::clone(&worker.cx.store_cx.store);
    let mut scratch = KeyScratch::default();
    let (key, hash) = (header.key.resolve(&mut scratch), entry.hash);
    let mut locked = disk.storage.lock(hash);
    store.keep(hash);
    let blocked = match needs_old(&Operation::Set(header.set)) {
        true => find_for_large(worker, &mut locked, key, hash).err(),
        false => None,
    };
    let ended = match blocked {
        // What is refused is refused when the value is here.
        None | Some(Blocked::Refused(_)) => {
            large_write::begin_large_set(worker, entry, header, rest)
        }
        Some(blocked) => {
            leave_place(worker, entry.slot, key.bytes(), &blocked);
            execute::put_off(worker, entry);
            None
        }
    };
    store.let_go(hash);
    drop(locked);
    match ended {
        None => {}
        Some(true) => end_large(worker, disk, entry.slot),
        Some(false) => large_write::end_large_set(worker, entry.slot, false),
    }
}

fn find_for_large(
    worker: &mut Worker,
    locked: &mut KeyLock<'_>,
    key: Key<'_>,
    hash: KeyHash,
) -> Result<Known, Blocked> {
    match worker.tier.as_deref_mut() {
        Some(tier) => find(tier, &mut worker.cx, locked, key, hash),
        None => Ok(Known::Unasked),
    }
}

/// Stores a large value that is complete.
fn end_large(worker: &mut Worker, disk: &DiskTier, slot: usize) {
    let body = worker
        .slots
        .get(slot)
        .and_then(|found| found.body.as_deref());
    let Some((key, set, _)) = body.and_then(|body| body.write()) else {
        return;
    };
    let mut scratch = KeyScratch::default();
    let name = key.resolve(&mut scratch).bytes().to_vec();
    let Ok(key) = Key::new(&name) else {
        return;
    };
    let store = Arc::clone(&worker.cx.store_cx.store);
    let (hash, operation) = (store.hash(&name), Operation::Set(set));
    let mut locked = disk.storage.lock(hash);
    store.keep(hash);
    match known_for_large(worker, &mut locked, key, &operation) {
        Ok(known) => {
            hold(worker, slot);
            large_write::end_large_set(worker, slot, true);
            if let (Some(tier), cx) = (worker.tier.as_deref_mut(), &mut worker.cx) {
                let mut context = TierContext { disk, tier, cx };
                let place = context.record(&mut locked, (key, hash), &operation, &known);
                place
                    .into_iter()
                    .for_each(|place| note_write(worker, slot, place));
            }
        }
        Err(Blocked::Refused(refusal)) => refuse_large(worker, slot, refusal),
        Err(blocked) => {
            leave_place(worker, slot, &name, &blocked);
            worker.replies.close_off(slot);
            let connection = worker.slots.get_mut(slot);
            if let Some(body) = connection.and_then(|found| found.body.as_deref_mut()) {
                body.is_whole = true;
            }
        }
    }
    store.let_go(hash);
}

fn known_for_large(
    worker: &mut Worker,
    locked: &mut KeyLock<'_>,
    key: Key<'_>,
    operation: &Operation,
) -> Result<Known, Blocked> {
    let hash = worker.cx.store_cx.store.hash(key.bytes());
    if let Some(tier) = worker.tier.as_deref_mut() {
        admit(tier, &mut worker.cx, WriteKind::Store)?;
    }
    match needs_old(operation) {
        true => find_for_large(worker, locked, key, hash),
        false => Ok(Known::Unasked),
    }
}

fn refuse_large(worker: &mut Worker, slot: usize, refusal: Refusal) {
    let body = worker
        .slots
        .get_mut(slot)
        .and_then(|found| found.body.take());
    if let Some(body) = body {
        let replies = &mut worker.replies;
        body.finish(&mut worker.cx.pool, |_, _, form, _| {
            replies.refuse(slot, &form, refusal);
        });
    }
}

// ---- small things ----

fn hold(worker: &mut Worker, slot: usize) {
    let serial = worker.slots.get(slot).map(|connection| connection.serial);
    if let (Some(tier), Some(serial)) = (worker.tier.as_deref_mut(), serial) {
        tier.hold(&mut worker.replies, slot, serial);
    }
}

fn note_write(worker: &mut Worker, slot: usize, place: u64) {
    if let Some(tier) = worker.tier.as_deref_mut() {
        tier.note_write(slot, place);
    }
}

/// Whether the outcome of an operation depends on what is there.
fn needs_old(operation: &Operation) -> bool {
    match operation {
        Operation::Set(Set {
            mode: SetMode::Set,
            compare: None,
            invalidate: false,
            ..
        }) => false,
        Operation::Get(_) | Operation::Set(_) | Operation::Delete(_) | Operation::Arithmetic(_) => {
            true
        }
    }
}

/// Whether an operation may change an item without a new version: a client may name the version
/// that is there.
fn changes_quietly(operation: &Operation) -> bool {
    if operation.new_cas().is_some() {
        return true;
    }
    match operation {
        Operation::Get(get) => get.touch.is_some() || get.recache.is_some(),
        Operation::Delete(delete) => delete.invalidate || delete.drop_value,
        Operation::Set(_) => false,
        Operation::Arithmetic(arithmetic) => arithmetic.touch.is_some(),
    }
}

fn ends_at_once(operation: &Operation, now: Now) -> bool {
    match operation {
        Operation::Set(set) => set.exptime.expiry(now).is_past(now),
        _ => false,
    }
}

const fn refusal_of(refused: WriteRefused) -> Refusal {
    match refused {
        WriteRefused::Behind => Refusal::DiskBehind,
        WriteRefused::Full => Refusal::DiskFull,
        WriteRefused::Failed => Refusal::DiskFailed,
    }
}

const fn to_disk(image: &Image) -> ItemImage {
    ItemImage {
        cas: image.cas.0,
        flags: image.flags,
        expiry: image.expiry,
        stale: image.stale,
        won: image.won,
    }
}

const fn to_memory(image: &ItemImage) -> Image {
    Image {
        cas: Cas(image.cas),
        flags: image.flags,
        expiry: image.expiry,
        stale: image.stale,
        won: image.won,
    }
}
