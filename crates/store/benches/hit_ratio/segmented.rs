//! exploratory
use std::collections::VecDeque;

use crate::policy::Policy;
use crate::trace::{ObjectId, Trace};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Decay {
    Decrement,
    Halve,
    Reset,
}
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Adapt {
    Fixed,
    Ghosts { rate: f64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    pub(crate) segments: u64,
    pub(crate) small: f64,
    pub(crate) small_min: f64,
    pub(crate) small_max: f64,
    pub(crate) promote_at: u8,
    /// promote at this when ghost...
    pub(crate) mark_max: u8,
    pub(crate) decay: Decay,
    pub(crate) promote_mark: i8, // -1: keep mark decayed; else set
    pub(crate) ghost_mark: u8,
    pub(crate) keep: f64,
    pub(crate) ghost: f64,
    pub(crate) ghost_main: f64,
    pub(crate) adapt: Adapt,
    pub(crate) in_place: bool,
    pub(crate) demote: bool,
    pub(crate) reserve: u64,
    pub(crate) lap: bool,
    pub(crate) small_ghost_at: u8,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            segments: 256,
            small: 0.1,
            small_min: 0.01,
            small_max: 0.99,
            promote_at: 2,
            mark_max: 3,
            decay: Decay::Decrement,
            promote_mark: 0,
            ghost_mark: 0,
            keep: 1.0,
            ghost: 1.0,
            ghost_main: 0.0,
            adapt: Adapt::Fixed,
            in_place: false,
            demote: false,
            reserve: 1,
            lap: false,
            small_ghost_at: 255,
        }
    }
}

pub(crate) struct Ghost {
    buckets: Vec<[u16; 16]>,
}
fn mix(object: ObjectId) -> u64 {
    let mut z = (u64::from(object) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
impl Ghost {
    fn new(entries: u64) -> Self {
        Self {
            buckets: vec![
                [0; 16];
                if entries == 0 {
                    0
                } else {
                    entries.div_ceil(16) as usize
                }
            ],
        }
    }
    fn at(&self, object: ObjectId) -> (usize, u16) {
        let h = mix(object);
        (
            (((h >> 32) * self.buckets.len() as u64) >> 32) as usize,
            (h as u16).max(1),
        )
    }
    fn insert(&mut self, object: ObjectId) {
        if self.buckets.is_empty() {
            return;
        }
        let (b, f) = self.at(object);
        let bucket = &mut self.buckets[b];
        bucket.copy_within(0..15, 1);
        bucket[0] = f;
    }
    fn remove(&mut self, object: ObjectId) -> bool {
        if self.buckets.is_empty() {
            return false;
        }
        let (b, f) = self.at(object);
        let bucket = &mut self.buckets[b];
        match bucket.iter().position(|&e| e == f) {
            Some(p) => {
                bucket.copy_within(p + 1..16, p);
                bucket[15] = 0;
                true
            }
            None => false,
        }
    }
}

struct Segment {
    items: Vec<ObjectId>,
    bytes: u64,
}
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Small = 0,
    Main = 1,
}
const NOWHERE: u8 = 255;

struct Queue {
    closed: VecDeque<Segment>,
    open: Segment,
    bytes: u64,
}
impl Queue {
    fn new() -> Self {
        Self {
            closed: VecDeque::new(),
            open: Segment {
                items: vec![],
                bytes: 0,
            },
            bytes: 0,
        }
    }
}

pub(crate) struct Segmented<'t> {
    sizes: &'t [u32],
    recipe: Recipe,
    capacity: u64,
    segment_bytes: u64,
    queues: [Queue; 2],
    role: Vec<u8>,
    marks: Vec<u8>,
    ghost: Ghost,
    ghost_main: Ghost,
    small_target: f64,
    copied: u64,
    hand: usize,
    pub(crate) trace_target: (f64, u64),
}

impl<'t> Segmented<'t> {
    pub(crate) fn new(trace: &'t Trace, capacity: u64, recipe: Recipe) -> Self {
        let n = trace.sizes.len();
        let fit = (capacity as f64 * n as f64 / trace.footprint() as f64).max(1.0);
        let segment_bytes = (capacity / recipe.segments).max(1);
        Self {
            sizes: &trace.sizes,
            recipe,
            capacity: capacity - segment_bytes * recipe.reserve,
            segment_bytes,
            queues: [Queue::new(), Queue::new()],
            role: vec![NOWHERE; n],
            marks: vec![0; n],
            ghost: Ghost::new((fit * recipe.ghost) as u64),
            ghost_main: Ghost::new((fit * recipe.ghost_main) as u64),
            small_target: recipe.small * capacity as f64,
            copied: 0,
            hand: 0,
            trace_target: (0.0, 0),
        }
    }
    fn used(&self) -> u64 {
        self.queues
            .iter()
            .map(|q| {
                q.bytes - q.open.bytes
                    + if q.open.bytes == 0 {
                        0
                    } else {
                        q.open.bytes.max(self.segment_bytes)
                    }
            })
            .sum()
    }
    fn append(&mut self, role: Role, object: ObjectId) {
        let size = u64::from(self.sizes[object as usize]);
        let q = &mut self.queues[role as usize];
        q.open.items.push(object);
        q.open.bytes += size;
        q.bytes += size;
        self.role[object as usize] = role as u8;
        if q.open.bytes >= self.segment_bytes {
            let s = std::mem::replace(
                &mut q.open,
                Segment {
                    items: vec![],
                    bytes: 0,
                },
            );
            q.closed.push_back(s);
        }
    }
    fn decayed(&self, m: u8) -> u8 {
        match self.recipe.decay {
            Decay::Decrement => m.saturating_sub(1),
            Decay::Halve => m / 2,
            Decay::Reset => 0,
        }
    }
    fn pop(&mut self, role: Role) -> Option<Segment> {
        let q = &mut self.queues[role as usize];
        let s = match q.closed.pop_front() {
            Some(s) => s,
            None if q.open.bytes > 0 => std::mem::replace(
                &mut q.open,
                Segment {
                    items: vec![],
                    bytes: 0,
                },
            ),
            None => return None,
        };
        q.bytes -= s.bytes;
        Some(s)
    }
    fn evict(&mut self) {
        let small = self.queues[0].bytes as f64;
        let from_small =
            self.queues[1].bytes == 0 || (self.queues[0].bytes > 0 && small > self.small_target);
        if from_small {
            self.evict_small()
        } else if self.recipe.in_place {
            self.evict_in_place()
        } else {
            self.evict_main()
        }
    }
    fn evict_small(&mut self) {
        let Some(s) = self.pop(Role::Small) else {
            return;
        };
        for o in s.items {
            let m = self.marks[o as usize];
            if m < 64 && m >= self.recipe.promote_at {
                self.marks[o as usize] = if self.recipe.promote_mark < 0 {
                    self.decayed(m)
                } else {
                    self.recipe.promote_mark as u8
                };
                self.copied += u64::from(self.sizes[o as usize]);
                self.append(Role::Main, o);
            } else if m > 0 && m < 64 && self.recipe.lap {
                self.copied += u64::from(self.sizes[o as usize]);
                self.append(Role::Small, o);
                self.marks[o as usize] |= 64;
            } else {
                self.role[o as usize] = NOWHERE;
                self.ghost.insert(o);
            }
        }
    }
    fn cutoff(&self, s: &Segment) -> (u8, u64) {
        // keep marks > cutoff fully, at == cutoff up to the allowance
        let budget = (self.recipe.keep * self.segment_bytes as f64) as u64;
        let mut by = [0u64; 256];
        for &o in &s.items {
            by[self.marks[o as usize] as usize] += u64::from(self.sizes[o as usize]);
        }
        let mut left = budget;
        for m in (1..=self.recipe.mark_max).rev() {
            if by[m as usize] > left {
                return (m, left);
            }
            left -= by[m as usize];
        }
        (0, 0)
    }
    fn evict_main(&mut self) {
        let Some(s) = self.pop(Role::Main) else {
            return;
        };
        let (cut, mut allowance) = self.cutoff(&s);
        for o in s.items {
            let m = self.marks[o as usize];
            let size = u64::from(self.sizes[o as usize]);
            let keep = m > cut
                || (m == cut && cut > 0 && allowance >= size && {
                    allowance -= size;
                    true
                });
            if keep {
                self.marks[o as usize] = self.decayed(m);
                self.copied += size;
                self.append(Role::Main, o);
            } else {
                self.role[o as usize] = NOWHERE;
                self.ghost_main.insert(o);
            }
        }
    }
    // SIEVE: hand moves over the closed main segments; survivors merge in place.
    fn evict_in_place(&mut self) {
        let q = &mut self.queues[1];
        if q.closed.is_empty() {
            return self.evict_main();
        }
        if self.hand >= q.closed.len() {
            self.hand = 0;
        }
        let Some(s) = q.closed.remove(self.hand) else {
            return;
        };
        q.bytes -= s.bytes;
        let mut out = Segment {
            items: vec![],
            bytes: 0,
        };
        let (cut, mut allowance) = self.cutoff(&s);
        for o in s.items {
            let m = self.marks[o as usize];
            let size = u64::from(self.sizes[o as usize]);
            let keep = m > cut
                || (m == cut && cut > 0 && allowance >= size && {
                    allowance -= size;
                    true
                });
            if keep {
                self.marks[o as usize] = self.decayed(m);
                self.copied += size;
                out.bytes += size;
                out.items.push(o);
            } else {
                self.role[o as usize] = NOWHERE;
                self.ghost_main.insert(o);
            }
        }
        // merge with previous (older neighbour) if both fit
        let h = self.hand;
        let q = &mut self.queues[1];
        q.bytes += out.bytes;
        if h > 0 && q.closed[h - 1].bytes + out.bytes <= self.segment_bytes {
            q.closed[h - 1].bytes += out.bytes;
            q.closed[h - 1].items.extend(out.items);
        } else if out.bytes > 0 {
            q.closed.insert(h, out);
            self.hand = h + 1;
        }
    }
    fn adapt(&mut self, object: ObjectId, small: bool) {
        if let Adapt::Ghosts { rate } = self.recipe.adapt {
            let size = f64::from(self.sizes[object as usize]) * rate;
            let cap = self.capacity as f64;
            self.small_target = if small {
                self.small_target + size
            } else {
                self.small_target - size
            }
            .clamp(self.recipe.small_min * cap, self.recipe.small_max * cap);
        }
    }
    pub(crate) fn small_share(&self) -> f64 {
        self.trace_target.0 / self.trace_target.1.max(1) as f64 / self.capacity as f64
    }
}

impl Policy for Segmented<'_> {
    fn request(&mut self, o: ObjectId) -> bool {
        if self.role[o as usize] != NOWHERE {
            let m = &mut self.marks[o as usize];
            *m = ((*m & 63) + 1).min(self.recipe.mark_max);
            return true;
        }
        self.trace_target.0 += self.small_target;
        self.trace_target.1 += 1;
        let size = u64::from(self.sizes[o as usize]);
        if size > self.capacity {
            return false;
        }
        let from_small = self.ghost.remove(o);
        let from_main = !from_small && self.ghost_main.remove(o);
        if from_small {
            self.adapt(o, true)
        } else if from_main {
            self.adapt(o, false)
        }
        let mut rounds = 0;
        while self.used() + size > self.capacity && rounds < 100000 {
            self.evict();
            rounds += 1;
        }
        assert!(rounds < 100000);
        let to_main = from_small || from_main || self.recipe.small == 0.0;
        self.marks[o as usize] = if from_small || from_main {
            self.recipe.ghost_mark
        } else {
            0
        };
        self.append(if to_main { Role::Main } else { Role::Small }, o);
        false
    }
    fn copied(&self) -> u64 {
        self.copied
    }
}
