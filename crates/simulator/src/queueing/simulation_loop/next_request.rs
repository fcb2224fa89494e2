//! The queue from which a core takes its next request, and whether it serves it, hands it on, or
//! sets it aside.

use curtail_dispatch::{
    Decision, Effect, RequestId, Situation, Worker,
    pull_baselines::{Pull, Source, Take},
};

use super::{Phase, Run};
use crate::{
    c4::dispatcher::Input,
    queueing::{
        dispatchers::Deciders,
        outstanding_requests::{Request, Way},
        server_dispatch::Place,
        times::Times,
    },
};

impl<T: Times> Run<'_, T> {
    /// Puts a request into a queue and wakes who may take it.
    pub(super) fn put(&mut self, now: u64, to: Source, id: u32) {
        self.queues.push(to, id);
        if self.idle == 0 {
            return;
        }
        let first = match to {
            Source::Rx(core) | Source::Ring(core) | Source::Software(core) => core.index(),
            Source::Shared => (now % self.cores.len() as u64) as usize,
        };
        if self.cores[first].phase == Phase::Idle {
            self.begin(now, first);
        }
        if self.point.deciders.others_take(to, &self.queues) {
            self.wake_others(now, first);
        }
    }

    /// Idle cores take what they may, until nobody takes anything.
    pub(super) fn wake_others(&mut self, now: u64, first: usize) {
        let cores = self.cores.len();
        // All of them poll; whose poll comes first is chance. Strides differ too, lest the first
        // core behind a row of busy ones is favoured.
        self.turn += 1;
        let start = first + self.turn / self.strides.len();
        let stride = self.strides[self.turn % self.strides.len()];
        let mut again = true;
        while again && self.idle > 0 && self.queues.waiting() > 0 {
            again = false;
            for step in 0..cores {
                let core = (start + step * stride) % cores;
                if self.cores[core].phase == Phase::Idle && self.queues.waiting() > 0 {
                    again |= self.begin(now, core);
                }
            }
        }
    }

    /// After a request: windows whose time has come are closed, then the next request.
    #[inline]
    pub(super) fn go_on(&mut self, now: u64, core: usize, situation: Situation) {
        self.look_at_windows(now, core, situation);
        self.follow_script(now, core);
    }

    /// Closes windows whose time has come.
    #[inline]
    pub(super) fn look_at_windows(&mut self, now: u64, core: usize, situation: Situation) {
        if let Some(windows) = &mut self.point.windows {
            let script = &mut self.cores[core].script;
            let queued = (&self.queues, &self.requests);
            windows.step((now, core), situation, queued, script);
        }
    }

    /// What closing windows have to do; then the next request, or nothing.
    pub(super) fn follow_script(&mut self, now: u64, core: usize) {
        while let Some(effect) = self.cores[core].script.pop_front() {
            match effect {
                Effect::Apply(RequestId(id)) => {
                    self.point.times.come(self.requests.get(id));
                    return self.begin_apply(now, core, id);
                }
                Effect::Answer(RequestId(id)) => {
                    let is_shipped = self.point.windows.is_none();
                    if self.requests.get(id).way == Way::Delegated {
                        self.finish(now, core, id);
                        continue;
                    }
                    let ns = match is_shipped {
                        true => self.around.fixed_ns,
                        false => self.around.answer_ns,
                    };
                    return self.set(now, core, Phase::Answers { id }, now + ns);
                }
            }
        }
        if !self.begin(now, core) {
            self.rest(now, core);
        }
    }

    /// A core takes its next request, if there is one; whether it took any.
    pub(super) fn begin(&mut self, now: u64, core: usize) -> bool {
        loop {
            if let Some(id) = self.cores[core].taken.pop_front() {
                self.start(now, core, id);
                return true;
            }
            self.end_turn(now, core);
            match self.point.deciders.next(core, &self.queues) {
                None => return false,
                Some(Pull::Run(take)) => {
                    if !self.take(now, core, take) {
                        return false;
                    }
                }
                Some(Pull::Move(take, Source::Shared)) => {
                    // One at a time, so that workers get each as soon as it is there.
                    let Some(id) = self.queues.pop(take.from) else {
                        return false;
                    };
                    let to = Source::Shared;
                    self.give(now, core, (id, to), self.around.steps.give_ns);
                    return true;
                }
                Some(Pull::Move(take, to)) => {
                    for _ in 0..take.max {
                        let Some(id) = self.queues.pop(take.from) else {
                            break;
                        };
                        self.cores[core].owed_ns += self.around.steps.move_ns;
                        self.queues.push(to, id);
                    }
                }
            }
        }
    }

    /// What a core has gathered for others leaves.
    #[inline]
    fn end_turn(&mut self, now: u64, core: usize) {
        let Deciders::Shipped(shipped) = &mut self.point.deciders else {
            return;
        };
        for (to, id) in shipped.end_turn(Worker(core as u16)) {
            self.put(now, Source::Ring(to), id);
        }
    }

    /// Takes from a queue; `false` if it was empty after all.
    fn take(&mut self, now: u64, core: usize, take: Take) -> bool {
        let is_delegated = match &self.point.deciders {
            Deciders::Shipped(shipped) => shipped.has_connections(Worker(core as u16)),
            _ => false,
        };
        let early = self.point.deciders.is_early();
        let own = &mut self.cores[core];
        own.owed_ns += match take.from {
            Source::Rx(owner) | Source::Software(owner) if owner.index() != core => {
                self.around.steps.steal_ns
            }
            Source::Ring(_) if is_delegated => 0.0,
            Source::Ring(_) | Source::Shared => self.around.steps.take_ns,
            _ => 0.0,
        };
        own.from_ring = matches!(take.from, Source::Ring(_));
        for _ in 0..take.max {
            let Some(id) = self.queues.pop(take.from) else {
                break;
            };
            if !early {
                self.requests.get_mut(id).bound = now;
            }
            own.taken.push_back(id);
        }
        if own.from_ring && matches!(self.point.deciders, Deciders::SizeAware { .. }) {
            self.queues.in_service[core] += own.taken.len();
        }
        if own.taken.is_empty() {
            own.owed_ns = 0.0;
            return false;
        }
        true
    }

    /// Begins with a taken request.
    #[inline]
    fn start(&mut self, now: u64, core: usize, id: u32) {
        let request = *self.requests.get(id);
        if request.bytes_left > 0 {
            return self.start_part(now, core, id);
        }
        let mut more_ns = 0.0;
        if !self.cores[core].from_ring
            && let Some(looked) = self.point.deciders.look(core, &request)
        {
            if let Some(owner) = looked.owner {
                let lookup = if request.write {
                    0.0
                } else {
                    self.around.steps.lookup_ns
                };
                let ns = lookup + self.around.steps.give_ns + looked.profile_ns;
                return self.give(now, core, (id, Source::Ring(owner)), ns);
            }
            more_ns = looked.profile_ns;
        }
        self.cores[core].owed_ns += more_ns;
        if matches!(self.point.deciders, Deciders::Shipped(_)) {
            return self.start_shipped(now, core, id);
        }
        self.serve(now, core, id);
    }

    /// Serves a request here.
    #[inline]
    fn serve(&mut self, now: u64, core: usize, id: u32) {
        let request = *self.requests.get(id);
        self.note_order(core, &request);
        if !request.write {
            self.point.times.come(&request);
            return self.begin_read(now, core, id, false);
        }
        let decision = match &mut self.point.windows {
            None => Decision::Apply,
            Some(windows) => windows.decide((now, core), id, &self.queues, &self.requests),
        };
        match decision {
            Decision::Apply => {
                self.point.times.come(&request);
                self.begin_write(now, core, id);
            }
            Decision::PutAside => {
                let until = now + self.around.put_aside_ns;
                self.set(now, core, Phase::PutsAside { id }, until);
            }
        }
    }

    fn give(&mut self, now: u64, core: usize, (id, to): (u32, Source), ns: f64) {
        let owed_ns = std::mem::take(&mut self.cores[core].owed_ns);
        let until = now + (ns + owed_ns) as u64;
        self.set(now, core, Phase::Gives { id, to }, until);
    }

    fn start_part(&mut self, now: u64, core: usize, id: u32) {
        let request = self.requests.get(id);
        let bytes = request.bytes_left.min(PART_BYTES);
        let until = now + self.point.times.part_ns(request, bytes).max(1);
        self.cores[core].owed_ns = 0.0;
        self.set(now, core, Phase::Moves { id, bytes }, until);
    }

    /// As the server does it: carried out here, or gathered for the core that holds its partition.
    fn start_shipped(&mut self, now: u64, core: usize, id: u32) {
        let request = *self.requests.get(id);
        let me = Worker(core as u16);
        let Deciders::Shipped(shipped) = &mut self.point.deciders else {
            return;
        };
        // A large core's own.
        if !shipped.has_connections(me) {
            return self.serve(now, core, id);
        }
        match request.way {
            Way::Returned => {
                let until = now + self.around.fixed_ns;
                return self.set(now, core, Phase::Answers { id }, until);
            }
            Way::Delegated => self.cores[core].owed_ns += self.around.steps.delegate_ns / 2.0,
            Way::Direct => match shipped.place(me, &request) {
                Place::Here(ticket) => self.requests.get_mut(id).ticket = ticket,
                Place::At(owner, ticket) => {
                    shipped.hand_on(me, owner, (id, request.key));
                    self.outcome.delegated += 1;
                    let request = self.requests.get_mut(id);
                    (request.ticket, request.way) = (ticket, Way::Delegated);
                    let owed_ns = std::mem::take(&mut self.cores[core].owed_ns);
                    let until = now + (self.around.steps.delegate_ns / 2.0 + owed_ns) as u64;
                    return self.set(now, core, Phase::Gathers, until);
                }
            },
        }
        if !request.write {
            return self.serve(now, core, id);
        }
        self.note_order(core, &request);
        self.fold_neighbours(core, id);
        self.follow_script(now, core);
    }

    /// The writes of one key that follow in the turn are carried out with this one.
    fn fold_neighbours(&mut self, core: usize, id: u32) {
        let (key, way) = (self.requests.get(id).key, self.requests.get(id).way);
        let own = &mut self.cores[core];
        let mut run = vec![id];
        while let Some(next) = own.taken.front() {
            let request = self.requests.get(*next);
            if !request.write || request.key != key || request.way != way {
                break;
            }
            run.push(*next);
            own.taken.pop_front();
        }
        let last = run.last().copied().unwrap_or(id);
        own.script.push_back(Effect::Apply(RequestId(last)));
        let answers = run.iter().map(|id| Effect::Answer(RequestId(*id)));
        own.script.extend(answers);
        if run.len() > 1 {
            self.outcome.windows += 1;
            self.outcome.window_writes += run.len() as u64;
            let most = &mut self.outcome.window_writes_max;
            *most = (*most).max(run.len() as u64);
        }
    }

    /// Whether a small request waited for a large one that this core served.
    #[inline]
    fn note_order(&mut self, core: usize, request: &Request) {
        if request.large || !request.measured {
            return;
        }
        self.outcome.small_served += 1;
        let large = self.cores[core].large_until;
        self.outcome.behind_large += u64::from(large > request.bound);
        let own = request.to == Source::Rx(Worker(core as u16));
        self.outcome.beside_large += u64::from(own && large > request.delivered);
    }

    pub(super) fn end_put_aside(&mut self, now: u64, core: usize, id: u32) {
        let key = self.requests.get(id).key;
        if self.point.windows.as_ref().is_some_and(|all| all.defers) {
            // The core takes other work meanwhile; the partition stays its own.
            self.requests.get_mut(id).deferred = true;
            self.tell(now, Input::Defer(Worker(core as u16)));
        }
        self.go_on(now, core, Situation::PutAside(key));
    }
}

/// Bytes that one call moves, as in the server.
const PART_BYTES: u32 = 64 << 10;
