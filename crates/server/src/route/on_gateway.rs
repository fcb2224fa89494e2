//! Requests at a gateway to a cache tier: each is sent to the tier, and its reply finds the place
//! that is left for it.
//!
//! Requests of one connection that are received together are under way together, but for those of
//! one key, which go one after the other. Nothing more is read from the connection before all are
//! answered, so its replies keep their order.

use std::time::Duration;

use curtail_codec::{
    memcached::{Admin, Form, KeyScratch, Request, Return, encode::Refusal},
    node::{ItemRequest, Shows},
    tiered::{BODY_BYTES_MAX, TieredFlags, TieredOpcode, is_tier_change},
};
use curtail_types::{Access, Delete, Exptime, Key, Operation, Outcome};

use crate::{
    completion::{Answer, Awaited},
    gateway::{self, Ended, GatewayWorker, NotBegun},
    limits::OUTPUT_BYTES_MAX,
    metrics::counters::Count,
    owned_reply_form::OwnedForm,
    request::batch::{Entry, Work},
    route::{
        execute_here,
        on_node::{self, await_answer},
    },
    turn::{execute, log_events, send},
    worker::Worker,
};

/// Batches of replies that are received in a turn.
const BATCHES_MAX: usize = 16;

// ---- the turn of a worker ----

/// The longest sleep that requests under way allow.
pub(crate) fn time_to_tier(worker: &Worker) -> Duration {
    let Some(gateway) = &worker.gateway else {
        return Duration::MAX;
    };
    let now_ns = worker.cx.shared.clock.now().instant.ns;
    Duration::from_nanos(gateway.due_ns().saturating_sub(now_ns))
}

/// Takes in replies, sends again what has none, and sends what this turn has gathered.
pub(crate) fn work_in_tier(worker: &mut Worker) {
    let Some(mut gateway) = worker.gateway.take() else {
        return;
    };
    let now_ns = worker.cx.store_cx.now.instant.ns;
    for _ in 0..BATCHES_MAX {
        if !gateway.is_readable {
            break;
        }
        let received = gateway.receive();
        for number in 0..received {
            if let Some((ended, key, value)) = gateway.reply(number, now_ns) {
                fill(worker, &ended, key, value);
            }
        }
    }
    while let Some(ended) = gateway.next_late(now_ns) {
        fill(worker, &ended, &[], &[]);
    }
    gateway.flush();
    gateway.begin_turn();
    let repeated = std::mem::take(&mut gateway.repeated);
    worker.cx.counts.add(Count::TierRepeated, repeated);
    worker.gateway = Some(gateway);
}

/// Puts an answer where a connection waits for it.
fn fill(worker: &mut Worker, ended: &Ended, key: &[u8], value: &[u8]) {
    let now = worker.cx.store_cx.now;
    let outcome = ended
        .told
        .and_then(|told| gateway::outcome_of(ended.operation.as_ref(), &told, value, now));
    count(worker, ended, outcome.ok().flatten());
    let serial = worker.slots.get(ended.token.slot).map(|one| one.serial);
    if serial != Some(ended.token.serial) {
        return;
    }
    let shown = |outcome| match outcome {
        Outcome::Found(_) => (outcome, value),
        _ => (outcome, &[][..]),
    };
    let told = outcome.map(|outcome| outcome.map(shown));
    let answer = Answer::of(told, Some(key), worker.cx.shared.config.cas);
    send::publish_counts(worker);
    let Some(connection) = worker.slots.get_mut(ended.token.slot) else {
        return;
    };
    let output = &mut connection.output;
    output.complete(&mut worker.cx.pool, ended.token.place, answer);
    on_node::send_filled(worker, ended.token.slot);
}

/// Counts as a server does that has the items itself.
fn count(worker: &mut Worker, ended: &Ended, outcome: Option<Outcome>) {
    let counts = &mut worker.cx.counts;
    if let (Some(operation), Some(outcome)) = (&ended.operation, &outcome) {
        let shows = matches!(operation, Operation::Get(get) if !get.changes());
        counts.add_outcome(operation, shows, outcome);
    }
    counts.add(Count::TierFailed, u64::from(ended.told.is_err()));
    let from_cache = ended
        .told
        .is_ok_and(|told| told.flags.has(TieredFlags::FROM_CACHE));
    counts.add(Count::TierFromCache, u64::from(from_cache));
}

// ---- requests ----

/// Has a run of requests carried out by the tier.
#[inline(never)]
pub(crate) fn run_on_gateway(worker: &mut Worker, run: &[Entry<'_>]) {
    let Some(mut gateway) = worker.gateway.take() else {
        return;
    };
    for entry in run {
        run_entry(worker, &mut gateway, entry);
    }
    worker.gateway = Some(gateway);
}

fn run_entry(worker: &mut Worker, gateway: &mut GatewayWorker, entry: &Entry<'_>) {
    let slot = entry.slot;
    if worker.replies.bytes_for(slot) > OUTPUT_BYTES_MAX {
        return execute::put_off(worker, entry);
    }
    match &entry.work {
        Work::Request(Request::Item {
            operation,
            value,
            form,
            ..
        }) => run_item(worker, gateway, entry, (operation, value, form)),
        Work::Request(Request::SetTooLarge(header)) if header.set.removes_if_too_large() => {
            let mut scratch = KeyScratch::default();
            let key = header.key.resolve(&mut scratch);
            let hash = entry.hash.0;
            if gateway.is_under_way(slot, hash) || !gateway.has_room(1) {
                return execute::put_off(worker, entry);
            }
            let remove = Operation::Delete(Delete::default());
            let silent = (Awaited::Silent, None);
            // There is room, and nothing is too large.
            let _ = ask(worker, gateway, slot, (key, hash), (&remove, &[]), silent);
            execute_here::carry_out_apart(worker, entry);
        }
        Work::Request(Request::Admin(Admin::FlushAll { delay, noreply }))
            if worker.cx.shared.config.flush_allowed =>
        {
            flush(worker, gateway, entry, (*delay, *noreply));
        }
        _ => execute_here::carry_out_apart(worker, entry),
    }
}

fn run_item(
    worker: &mut Worker,
    gateway: &mut GatewayWorker,
    entry: &Entry<'_>,
    (operation, value, form): (&Operation, &[u8], &Form<'_>),
) {
    let Work::Request(Request::Item { key, .. }) = &entry.work else {
        return;
    };
    let (slot, hash) = (entry.slot, entry.hash.0);
    if gateway.is_under_way(slot, hash) {
        return execute::put_off(worker, entry);
    }
    if worker.cx.event_log.on {
        log_events::event_log(worker, entry);
    }
    let is_meta = matches!(form, Form::Meta(_) | Form::Debug);
    worker.cx.counts.add(Count::CmdMeta, u64::from(is_meta));
    if !is_offered(operation, form) {
        return worker.replies.refuse(slot, form, Refusal::NotAtTier);
    }
    if !gateway.has_room(1) {
        return worker.replies.refuse(slot, form, Refusal::Busy);
    }
    let mut scratch = KeyScratch::default();
    let name = key.resolve(&mut scratch);
    let form_kept = (Awaited::of(form), Some(OwnedForm::new(key, form)));
    let asked = ask(
        worker,
        gateway,
        slot,
        (name, hash),
        (operation, value),
        form_kept,
    );
    if asked == Err(NotBegun::TooLarge) {
        worker.cx.counts.add(Count::StoreTooLarge, 1);
        worker.replies.refuse(slot, form, Refusal::TooLarge);
    }
}

/// Whether the tier can do that, and tell what is asked of it.
fn is_offered(operation: &Operation, form: &Form<'_>) -> bool {
    let is_told = match form {
        Form::Debug => false,
        Form::Meta(meta) => {
            let mut returns = meta.returns;
            let touches = matches!(operation, Operation::Get(get) if get.changes());
            returns.all(|what| match what {
                Return::Opaque | Return::Key => true,
                Return::Idle | Return::Fetched => false,
                _ => !touches,
            }) && !(touches && meta.value)
        }
        // A read that touches shows no value.
        Form::Value { .. } => operation.is_read(),
        Form::Line { .. } => true,
    };
    is_told && (is_plain(operation) || is_tier_change(operation))
}

/// What is a request of its own, and no change that depends on what is there.
fn is_plain(operation: &Operation) -> bool {
    if operation.new_cas().is_some() {
        return false;
    }
    match operation {
        Operation::Get(get) => !get.changes(),
        Operation::Set(set) => {
            operation.access() == Access::Replace && !set.invalidate && set.vivify.is_none()
        }
        Operation::Delete(delete) => *delete == Delete::default(),
        Operation::Arithmetic(_) => false,
    }
}

/// Sends a request to the tier; its answer finds the place that it gets now.
fn ask(
    worker: &mut Worker,
    gateway: &mut GatewayWorker,
    slot: usize,
    (key, hash): (Key<'_>, u64),
    (operation, value): (&Operation, &[u8]),
    (what, form): (Awaited, Option<OwnedForm>),
) -> Result<(), NotBegun> {
    let now = worker.cx.store_cx.now;
    let opcode = match operation {
        _ if !is_plain(operation) => TieredOpcode::Change,
        Operation::Get(_) => TieredOpcode::Get,
        Operation::Set(_) => TieredOpcode::Put,
        _ => TieredOpcode::Delete,
    };
    let mut head = gateway.requests().head(opcode, key);
    let mut room = [0; BODY_BYTES_MAX];
    let body = match (opcode, operation) {
        (TieredOpcode::Put, Operation::Set(set)) => {
            head.item_flags = set.flags;
            let expiry = set.exptime.expiry(now);
            if !expiry.is_never() {
                head.flags = TieredFlags::EXPIRES;
                head.exptime = expiry.to_bits();
            }
            value
        }
        (TieredOpcode::Change, _) => {
            let request = ItemRequest {
                key,
                operation: *operation,
                shows: Shows::Nothing,
                value,
            };
            let bytes = request.encode_without_key(&mut room);
            room.get(..bytes.ok_or(NotBegun::TooLarge)?)
                .unwrap_or_default()
        }
        _ => &[],
    };
    if key.bytes().len() + body.len() > BODY_BYTES_MAX {
        return Err(NotBegun::TooLarge);
    }
    let token = await_answer(worker, slot, what, form);
    let Some(token) = token else {
        return Ok(());
    };
    gateway.begin(
        (token, Some(*operation)),
        head,
        (key, body, Some(hash)),
        now.instant.ns,
    )
}

/// Has every back end remove its items.
fn flush(
    worker: &mut Worker,
    gateway: &mut GatewayWorker,
    entry: &Entry<'_>,
    (delay, noreply): (Exptime, bool),
) {
    let slot = entry.slot;
    if gateway.has_any(slot) {
        return execute::put_off(worker, entry);
    }
    let refusal = match (delay, gateway.has_room(gateway.back_ends().count())) {
        (Exptime(0), true) => None,
        (Exptime(0), false) => Some(Refusal::Busy),
        _ => Some(Refusal::NotAtTier),
    };
    if let Some(refusal) = refusal {
        if !noreply {
            worker
                .replies
                .write(slot, |sink| sink.push(refusal.reply()));
        }
        return;
    }
    let what = match noreply {
        true => Awaited::Silent,
        false => Awaited::Part,
    };
    let now_ns = worker.cx.store_cx.now.instant.ns;
    for back_end in gateway.back_ends() {
        let (head, key) = gateway.requests().flush(back_end);
        if let Some(token) = await_answer(worker, slot, what, None) {
            // There is room, and a byte is no long key.
            let _ = gateway.begin((token, None), head, (key, &[], None), now_ns);
        }
    }
    execute_here::carry_out_apart(worker, entry);
}
