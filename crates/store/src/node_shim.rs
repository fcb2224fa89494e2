//! TEMPORARY: what nodes need, done simply, until the store proper has it.
use std::collections::HashMap;
use std::sync::Mutex;

use curtail_types::*;

use crate::{Image, ItemView, Store, Writer, route_of};

/// What a run did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change { /// .
    Unchanged, /// .
    Stored(u32), /// .
    Removed, /// .
    NoRoom, /// .
    Outgrown }

/// Where a scan is.
#[derive(Debug, Default)]
pub struct ScanCursor { at: usize, end: bool }
impl ScanCursor { /// .
    pub fn is_end(&self) -> bool { self.end } }

static PROMISED: Mutex<Option<HashMap<(usize, u16), u64>>> = Mutex::new(None);
static SLICES: Mutex<u16> = Mutex::new(256);

impl Writer { /// .
    pub fn evict_freely(&mut self, _: bool) {} }

#[allow(missing_docs, clippy::too_many_arguments, clippy::unwrap_used)]
impl Store {
    pub fn set_slices(&self, count: u16, _: u16) { *SLICES.lock().unwrap() = count; }
    pub fn set_free(&self, _: u16, _: bool) {}
    pub fn evicts(&self) -> bool { self.config().evict }
    pub fn wants_eviction(&self, _: u16) -> bool { false }
    pub fn eviction_bytes(&self) -> u64 { 0 }
    pub fn item_bytes(key: usize, value: usize) -> u32 { (key + value + 64) as u32 }
    pub fn item_bytes_of(&self, w: &mut Writer, now: Now, key: Key<'_>, hash: KeyHash) -> Option<(Cas, u32)> {
        let get = Get { quiet_access: true, keep_token: true, ..Get::default() };
        self.get(w, now, key, hash, &get, |view| {
            let status = view.status();
            (status.cas, Self::item_bytes(key.bytes().len(), status.value_bytes as usize))
        })
    }
    pub fn request_bytes(&self, w: &mut Writer, now: Now, key: Key<'_>, hash: KeyHash, _: &Operation, value: usize) -> u32 {
        let here = self.item_bytes_of(w, now, key, hash).map_or(0, |(_, bytes)| bytes);
        here + Self::item_bytes(key.bytes().len(), value) + 64
    }
    pub fn promise(&self, account: u16, held: u64, wanted: u64) -> u64 {
        let mut all = PROMISED.lock().unwrap();
        let of = std::ptr::from_ref(self) as usize;
        all.get_or_insert_default().insert((of, account), held + wanted);
        wanted
    }
    pub fn take_promised(&self, account: u16, room: u32) -> bool {
        let mut all = PROMISED.lock().unwrap();
        let of = std::ptr::from_ref(self) as usize;
        let left = all.get_or_insert_default().entry((of, account)).or_default();
        if *left < u64::from(room) { return false; }
        *left -= u64::from(room);
        true
    }
    pub fn put_promised(&self, w: &mut Writer, now: Now, key: Key<'_>, hash: KeyHash, image: &Image, value: &[u8], account: u16, room: u32) -> bool {
        self.take_promised(account, room) && { self.put_image(w, now, key, hash, image, value); true }
    }
    pub fn run(&self, w: &mut Writer, now: Now, key: Key<'_>, hash: KeyHash, operation: &Operation, value: &[u8], version: Cas, _: u32, mut view: impl FnMut(&ItemView<'_>)) -> (Outcome, Change) {
        let before = self.item_bytes_of(w, now, key, hash);
        let outcome = match operation {
            Operation::Get(get) => {
                let get = Get { new_cas: Some(version), ..*get };
                self.get(w, now, key, hash, &get, |item| { view(item); item.status() }).map_or(Outcome::Missing, Outcome::Found)
            }
            Operation::Set(set) => Outcome::Set(self.set(w, now, key, hash, &Set { new_cas: Some(version), ..*set }, value)),
            Operation::Delete(delete) => Outcome::Delete(self.delete(w, now, key, hash, &Delete { new_cas: Some(version), ..*delete })),
            Operation::Arithmetic(one) => Outcome::Arithmetic(self.arithmetic(w, now, key, hash, &Arithmetic { new_cas: Some(version), ..*one })),
        };
        let after = self.item_bytes_of(w, now, key, hash);
        let quiet = match operation {
            Operation::Get(get) => get.touch.is_some() || get.recache.is_some(),
            Operation::Delete(delete) => delete.invalidate || delete.drop_value,
            _ => false,
        };
        let change = match (before, after) {
            (Some(_), None) => Change::Removed,
            (_, Some((cas, bytes))) if cas == version || quiet => Change::Stored(bytes),
            _ => Change::Unchanged,
        };
        let full = matches!(outcome, Outcome::Set(SetOutcome::OutOfMemory) | Outcome::Arithmetic(ArithmeticOutcome::OutOfMemory) | Outcome::Delete(DeleteOutcome::OutOfMemory));
        (outcome, if full { Change::NoRoom } else { change })
    }
    pub fn evict_slices(&self, _: &mut Writer, _: Now, _: u16, _: u64, _: &mut dyn FnMut(u16) -> bool, _: &mut dyn FnMut(u16, RouteHash)) -> u64 { 0 }
    pub fn scan_slices(&self, from: ScanCursor, buckets: usize, found: &mut dyn FnMut(u16, RouteHash, u32)) -> ScanCursor {
        let slices = *SLICES.lock().unwrap();
        let next = self.keys(from.at, buckets, |key| {
            let route = route_of(key.bytes());
            let slice = (((route.0 >> 32) * u64::from(slices)) >> 32) as u16;
            found(slice, route, 2048);
        });
        ScanCursor { at: next.unwrap_or(0), end: next.is_none() }
    }
    pub fn clear_slice(&self, slice: u16, before: Option<Cas>) {
        let mut w = self.writer(WriterId(1000));
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let slices = *SLICES.lock().unwrap();
        let mut at = Some(0);
        while let Some(from) = at {
            at = self.keys(from, 1000, |key| {
                let route = route_of(key.bytes());
                if (((route.0 >> 32) * u64::from(slices)) >> 32) as u16 == slice { keys.push(key.bytes().to_vec()); }
            });
        }
        let now = Now::default();
        for key in keys {
            let key = Key::new(&key).unwrap();
            let hash = self.hash(key.bytes());
            let version = self.version_of(&mut w, now, key, hash);
            if before.is_none_or(|before| version.is_none_or(|version| version < before)) {
                self.delete(&mut w, now, key, hash, &Delete::default());
            }
        }
    }
}
