//! A node's membership in the real world: a thread that drives the machine, and two that talk to
//! the store for it, so that a store that is slow to answer delays neither heartbeats nor the end
//! of the lease, and one that is slow to take a change does not delay the readings that renew it.

mod lease;
mod operator_event;
mod store_latency;

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use curtail_consistency::{
    members::{
        Heartbeat, Incarnation, MemberInput, MemberMachine, MemberNotice, MemberOutput,
        RecordChange,
    },
    slice_view::RowChange,
};
use curtail_types::{Instant, NodeId, ViewNumber};
use rustix::process::{getpriority_process, setpriority_process};

pub use lease::ServingLease;
pub use operator_event::MemberEvent;
pub use store_latency::{StoreAsked, StorePace};

use crate::{
    Addresses, ClusterError, Node, NodeConfig, Roster, RosterStore, Settings, StoredRoster,
    ViewStoreError, secret,
};

/// Receives what the membership decides. Called by its thread: heartbeats wait until it returns.
pub trait Observer: Send + 'static {
    /// This is in the store now, but not yet in force: reach its members, and let them reach you,
    /// who are this life of a node. If the roster has another one, that is another process.
    fn seen(&mut self, roster: &Arc<Roster>, life: Incarnation);

    /// This is in force now: a node that is not in it serves nobody any more.
    fn adopt(&mut self, roster: &Arc<Roster>);

    /// Send each of these nodes its heartbeat; see [`MemberHandle::heard`].
    fn heartbeat(&mut self, heartbeats: &[(NodeId, Heartbeat)]);

    /// Send these changes of rows to this node, which writes the view; see
    /// [`MemberHandle::proposed`]. They may be lost: they are sent again while they are wanted.
    fn proposals(&mut self, to: NodeId, changes: &[RowChange]);

    /// The node may serve until later than it might before.
    fn lease_extended(&mut self);

    /// For the log and reports; some of them ask for something, see [`MemberEvent`].
    fn event(&mut self, event: &MemberEvent);
}

/// The thread that is a member.
#[derive(Debug)]
pub struct Member {
    handle: MemberHandle,
    threads: Vec<JoinHandle<()>>,
}

/// How the other threads of the process reach the member.
#[derive(Clone, Debug)]
pub struct MemberHandle {
    inbox: Sender<Told>,
    lease: ServingLease,
    pace: StorePace,
}

impl Member {
    /// Joins the cluster of `config` as a node that listens on `addresses`. `clock` is the
    /// process's monotonic one; all instants here and in [`ServingLease`] are its.
    ///
    /// # Errors
    /// When there is no randomness or no thread to be had.
    pub fn start(
        config: &NodeConfig,
        addresses: Addresses,
        clock: impl Fn() -> Instant + Send + Sync + 'static,
        observer: impl Observer,
    ) -> Result<Self, ClusterError> {
        let (inbox, told) = mpsc::channel();
        let (reads, read_asked) = mpsc::channel();
        let (changes, change_asked) = mpsc::channel();
        let clock: Clock = Arc::new(clock);
        let handle = MemberHandle {
            inbox: inbox.clone(),
            lease: ServingLease::default(),
            pace: StorePace::new(config.cluster.lease),
        };
        let own = Node {
            name: config
                .entry()
                .map(|entry| entry.name.clone())
                .unwrap_or_default(),
            addresses,
            incarnation: draw_incarnation()?,
        };
        let driver = Driver {
            me: config.me,
            own,
            cluster: config.cluster.name.clone(),
            settings: config.cluster.settings(),
            machine: MemberMachine::new(config.members()),
            roster: None,
            reads,
            changes,
            fails: Vec::new(),
            mismatch: None,
            is_empty: false,
            disbelieved: None,
            handle: handle.clone(),
            clock: Arc::clone(&clock),
            observer,
        };
        let mut threads = Vec::new();
        for (name, asked) in [
            ("member-reads", read_asked),
            ("member-changes", change_asked),
        ] {
            let (store, clock) = (config.cluster.open_store(), Arc::clone(&clock));
            let inbox = inbox.clone();
            let serve = move || serve_store(store, &clock, &asked, &inbox);
            threads.push(spawn(name, serve)?);
        }
        threads.push(spawn("member", move || driver.run(&told))?);
        Ok(Self { handle, threads })
    }

    /// For everybody else in the process.
    pub fn handle(&self) -> &MemberHandle {
        &self.handle
    }

    /// Ends its threads without leaving the cluster: to the others it is as if the process had
    /// died. Nobody is served from here on.
    pub fn stop(self) {
        let _ = self.handle.inbox.send(Told::Stop);
        for thread in self.threads {
            let _ = thread.join();
        }
        self.handle.lease.end();
    }
}

impl MemberHandle {
    /// A heartbeat of `from` arrived.
    ///
    /// The thread that receives them may also tell of this node itself, whenever it carries out
    /// [`Observer::heartbeat`]: from then on the others' silence counts only while it does, so that
    /// a node whose receiving thread is starved suspects nobody.
    pub fn heard(&self, from: NodeId, heartbeat: Heartbeat) {
        self.tell(Told::Heard(from, heartbeat));
    }

    /// A machine of this node wants a row changed. That is kept, and goes into the view with what
    /// others want, until another view than [`RowChange::view`] is known.
    pub fn propose(&self, change: RowChange) {
        self.tell(Told::Propose(change));
    }

    /// Machines of node `from` want rows changed; see [`Observer::proposals`].
    pub fn proposed(&self, from: NodeId, changes: Vec<RowChange>) {
        self.tell(Told::Proposed(from, changes));
    }

    /// Leave without loss; ends with [`MemberNotice::Departed`].
    pub fn leave(&self) {
        self.tell(Told::Leave);
    }

    /// Rejoin after [`MemberNotice::Removed`], once everything that this node held is thrown away.
    pub fn rejoin(&self) {
        self.tell(Told::Rejoin);
    }

    /// Until when this node may serve.
    pub fn lease(&self) -> &ServingLease {
        &self.lease
    }

    /// How fast the view store is.
    pub fn store_pace(&self) -> &StorePace {
        &self.pace
    }

    fn tell(&self, told: Told) {
        // After the end of the thread nobody is interested any more.
        let _ = self.inbox.send(told);
    }
}

type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// A message to the member's thread.
enum Told {
    Heard(NodeId, Heartbeat),
    Propose(RowChange),
    Proposed(NodeId, Vec<RowChange>),
    Leave,
    Rejoin,
    Read {
        started: Instant,
        took: Duration,
        result: Result<Option<Box<StoredRoster>>, ViewStoreError>,
    },
    Replaced {
        roster: Arc<Roster>,
        took: Duration,
        result: Result<Option<u64>, ViewStoreError>,
    },
    Stop,
}

/// What a store's thread is asked.
enum StoreRequest {
    Read,
    Replace { expected: u64, roster: Arc<Roster> },
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ClusterError> {
    let builder = thread::Builder::new().name(name.to_owned());
    let run = move || {
        go_first();
        run();
    };
    builder.spawn(run).map_err(ClusterError::Thread)
}

/// Where it may, has this thread run before those that serve: it has little to do, and a lease that
/// ends while it waits for a processor is everybody's.
fn go_first() {
    if let Ok(nice) = getpriority_process(None) {
        // A member that may not goes on as it is.
        let _ = setpriority_process(None, nice - NICER);
    }
}

/// By how much; the lowest there is is -20.
const NICER: i32 = 10;

fn draw_incarnation() -> Result<Incarnation, ClusterError> {
    let mut bytes = [0; 8];
    secret::fill_random(&mut bytes)?;
    Ok(Incarnation(u64::from_le_bytes(bytes).max(1)))
}

fn serve_store(
    mut store: RosterStore,
    clock: &Clock,
    asked: &Receiver<StoreRequest>,
    inbox: &Sender<Told>,
) {
    while let Ok(ask) = asked.recv() {
        let started = clock();
        let since = || Duration::from_nanos(clock().ns.saturating_sub(started.ns));
        let told = match ask {
            StoreRequest::Read => {
                let result = store.read_roster().map(|stored| stored.map(Box::new));
                let took = since();
                Told::Read {
                    started,
                    took,
                    result,
                }
            }
            StoreRequest::Replace { expected, roster } => {
                let result = store.replace_roster(expected, &roster);
                let took = since();
                Told::Replaced {
                    roster,
                    took,
                    result,
                }
            }
        };
        if inbox.send(told).is_err() {
            return;
        }
    }
}

/// The member's thread.
struct Driver<O> {
    me: NodeId,
    own: Node,
    cluster: String,
    settings: Settings,
    machine: MemberMachine,
    /// The newest that was seen.
    roster: Option<Arc<Roster>>,
    reads: Sender<StoreRequest>,
    changes: Sender<StoreRequest>,
    /// What the store was asked last in vain, and has not done since.
    fails: Vec<StoreAsked>,
    mismatch: Option<String>,
    /// Whether the last reading found nothing, and what was told of views that are not believed
    /// since one was.
    is_empty: bool,
    disbelieved: Option<MemberEvent>,
    handle: MemberHandle,
    clock: Clock,
    observer: O,
}

impl<O: Observer> Driver<O> {
    fn run(mut self, told: &Receiver<Told>) {
        self.step(MemberInput::Join(self.own.incarnation));
        loop {
            let wait = self.machine.deadline().ns.saturating_sub((self.clock)().ns);
            match told.recv_timeout(Duration::from_nanos(wait)) {
                Ok(Told::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(told) => self.take(told),
                Err(RecvTimeoutError::Timeout) => self.step(MemberInput::Tick),
            }
        }
        self.handle.lease.end();
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Heard(from, heartbeat) => self.step(MemberInput::Heartbeat { from, heartbeat }),
            Told::Propose(change) => self.step(MemberInput::Propose(change)),
            Told::Proposed(from, changes) => {
                let changes = &changes;
                self.step(MemberInput::Proposed { from, changes });
            }
            Told::Leave => self.step(MemberInput::Leave),
            Told::Rejoin => self.rejoin(),
            Told::Read {
                started,
                took,
                result,
            } => {
                self.note_pace(StoreAsked::Reading, took);
                self.read(started, result);
            }
            Told::Replaced {
                roster,
                took,
                result,
            } => {
                self.note_pace(StoreAsked::Change, took);
                self.replaced(roster, result);
            }
            Told::Stop => {}
        }
    }

    fn rejoin(&mut self) {
        match draw_incarnation() {
            Ok(incarnation) => {
                self.own.incarnation = incarnation;
                self.step(MemberInput::Join(incarnation));
            }
            Err(error) => self
                .observer
                .event(&MemberEvent::StoreFailed(error.to_string())),
        }
    }

    fn read(
        &mut self,
        started: Instant,
        result: Result<Option<Box<StoredRoster>>, ViewStoreError>,
    ) {
        let stored = match result {
            Ok(stored) => stored,
            Err(error) => {
                self.report_failure(StoreAsked::Reading, &error);
                return self.step(MemberInput::ReadFailed);
            }
        };
        self.store_answered(StoreAsked::Reading);
        self.is_empty = stored.is_none();
        let nothing = || Roster::empty(&self.cluster, self.settings);
        let revision = stored.as_ref().map_or(0, |stored| stored.revision);
        let roster = stored.map_or_else(nothing, |stored| stored.roster);
        if self.differs(&roster) {
            return self.step(MemberInput::ReadFailed);
        }
        let newer = self.machine.known().number <= roster.record.number;
        let record = &roster.record.clone();
        if newer {
            self.disbelieved = None;
            self.see(Arc::new(roster));
        }
        self.step(MemberInput::Read {
            started,
            revision,
            record,
        });
    }

    /// A node that thinks otherwise of what all must agree on takes no part.
    fn differs(&mut self, roster: &Roster) -> bool {
        let reason = if roster.cluster != self.cluster {
            let (there, here) = (&roster.cluster, &self.cluster);
            format!(
                "this node takes no part: the view store holds the cluster {there}, and \
                 this node's file names the cluster {here}"
            )
        } else if roster.settings != self.settings {
            let (there, here) = (&roster.settings, &self.settings);
            format!(
                "this node takes no part: the cluster has {there}, and this node's file has {here}"
            )
        } else {
            self.mismatch = None;
            return false;
        };
        if self.mismatch.as_ref() != Some(&reason) {
            self.observer.event(&MemberEvent::Mismatch(reason.clone()));
            self.mismatch = Some(reason);
        }
        true
    }

    fn replaced(&mut self, roster: Arc<Roster>, result: Result<Option<u64>, ViewStoreError>) {
        match result {
            Ok(Some(revision)) => {
                self.store_answered(StoreAsked::Change);
                self.see(roster);
                self.step(MemberInput::Won { revision });
            }
            Ok(None) => {
                self.store_answered(StoreAsked::Change);
                self.step(MemberInput::Lost);
            }
            Err(error) => {
                self.report_failure(StoreAsked::Change, &error);
                self.step(MemberInput::Lost);
            }
        }
    }

    /// A store that is slow has dead nodes missed for longer than a lease: worth a line.
    fn note_pace(&mut self, asked: StoreAsked, took: Duration) {
        if self.handle.pace.note(asked, took) {
            self.observer.event(&MemberEvent::StoreSlow { asked, took });
        }
    }

    /// A store may well be read and take no change: a full disk.
    fn report_failure(&mut self, asked: StoreAsked, error: &ViewStoreError) {
        if !self.fails.contains(&asked) {
            self.fails.push(asked);
            let in_vain = match asked {
                StoreAsked::Reading => {
                    "; while the view cannot be read, this node cannot join, and a member loses \
                     its lease"
                }
                StoreAsked::Change => "; until the view can be changed, no dead node is removed",
            };
            let text = format!("{error}{in_vain}");
            self.observer.event(&MemberEvent::StoreFailed(text));
        }
    }

    fn store_answered(&mut self, asked: StoreAsked) {
        if let Some(at) = self.fails.iter().position(|failed| *failed == asked) {
            self.fails.remove(at);
            self.observer.event(&MemberEvent::StoreAnswers);
        }
    }

    fn see(&mut self, roster: Arc<Roster>) {
        let known = self.roster.as_ref().map(|roster| roster.record.number);
        if known.is_none_or(|known| known < roster.record.number) {
            if roster.record.number > ViewNumber(0) {
                self.observer.seen(&roster, self.own.incarnation);
            }
            self.roster = Some(roster);
        }
    }

    fn step(&mut self, input: MemberInput) {
        let now = (self.clock)();
        let mut outputs = Vec::new();
        self.machine.step(now, input, |output| outputs.push(output));
        for output in outputs {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: MemberOutput) {
        match output {
            // The store's threads end only after this one.
            MemberOutput::Read => drop(self.reads.send(StoreRequest::Read)),
            MemberOutput::Propose { expected, change } => self.propose(expected, &change),
            MemberOutput::Heartbeat { to } => {
                let told = |node| (node, self.machine.heartbeat_to(node));
                let heartbeats: Vec<_> = to.into_iter().map(told).collect();
                self.observer.heartbeat(&heartbeats);
            }
            MemberOutput::Forward { to, changes } => self.observer.proposals(to, &changes),
            MemberOutput::Adopt => {
                if let Some(roster) = &self.roster {
                    self.observer.adopt(roster);
                }
            }
            MemberOutput::Serve { until } => {
                self.handle.lease.extend(until);
                self.observer.lease_extended();
            }
            MemberOutput::StopServing => self.handle.lease.end(),
            MemberOutput::Event(MemberNotice::StoreWentBack) => self.disbelieve(),
            MemberOutput::Event(event) => self.observer.event(&MemberEvent::Notice(event)),
        }
    }

    /// Tells once that the store holds an older view, or none: to the machine that is one of number
    /// 0.
    fn disbelieve(&mut self) {
        let event = match self.is_empty {
            true => MemberEvent::StoreEmpty,
            false => MemberEvent::Notice(MemberNotice::StoreWentBack),
        };
        if self.disbelieved.as_ref() != Some(&event) {
            self.observer.event(&event);
            self.disbelieved = Some(event);
        }
    }

    fn propose(&mut self, expected: u64, change: &RecordChange) {
        let next = match &self.roster {
            Some(roster) => roster.after(change, self.me, &self.own),
            None => None,
        };
        match next.map(Arc::new) {
            Some(roster) => drop(
                self.changes
                    .send(StoreRequest::Replace { expected, roster }),
            ),
            None => self.handle.tell(Told::Replaced {
                roster: Arc::new(Roster::empty(&self.cluster, self.settings)),
                took: Duration::ZERO,
                result: Ok(None),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
