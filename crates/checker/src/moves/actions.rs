//! The steps that are possible next for a key that moves, and its holders under a view.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock};

use curtail_consistency::membership;
use curtail_consistency::moves::{Due, InForce, Leaving};
use curtail_consistency::placement::{Placement, SLOTS};
use curtail_consistency::symmetric::Visibility;
use curtail_types::{NodeId, NodeSet, RouteHash, View, ViewNumber};

use crate::cluster_model::{Action, Cluster};
use crate::mutants::{DriverMutant, Mutant};
use crate::outputs::Driver;
use crate::setup::{Change, Setup};
use crate::world::{Content, Node, Parcel, World};

/// A view, who stays in it, and how many hold a key.
type Ring = (View, NodeSet, u8);

/// Placements are large, take long to make, and there are few.
static MADE: Mutex<Vec<(Ring, Arc<InForce>)>> = Mutex::new(Vec::new());

thread_local! {
    /// Those that this thread has needed so far: few enough to look through.
    static KNOWN: RefCell<Vec<(Ring, Arc<InForce>)>> = const { RefCell::new(Vec::new()) };
}

impl Setup {
    /// A key that its holders want in the order of [`Setup::ranks`].
    pub(crate) fn route(&self) -> RouteHash {
        static ROUTES: [OnceLock<RouteHash>; 2] = [OnceLock::new(), OnceLock::new()];
        let [elsewhere, coming] = &ROUTES;
        let route = match self.change {
            Some(Change::Comes) => coming,
            _ => elsewhere,
        };
        *route.get_or_init(|| find_route(self.ranks()))
    }
}

fn find_route([first, second, third]: [NodeId; 3]) -> RouteHash {
    let all: NodeSet = [first, second, third].into_iter().collect();
    let (three, two) = (
        Placement::new(all, 1),
        Placement::new(all.without(first), 1),
    );
    let routes = (0..SLOTS as u64).map(|slot| RouteHash(slot * (u64::MAX / SLOTS as u64 + 1)));
    let mut right = routes.filter(|key| three.home(*key) == first && two.home(*key) == second);
    right.next().unwrap_or_default()
}

impl World {
    pub(crate) fn in_force(&self, setup: &Setup, number: ViewNumber) -> Arc<InForce> {
        let view = self.view(number);
        let ring = (view, view.live.difference(setup.leaving()), setup.replicas);
        KNOWN.with_borrow_mut(|known| find_or(known, ring, || made(ring)))
    }
}

fn find_or(
    known: &mut Vec<(Ring, Arc<InForce>)>,
    ring: Ring,
    make: impl FnOnce() -> Arc<InForce>,
) -> Arc<InForce> {
    if let Some((_, found)) = known.iter().find(|one| one.0 == ring) {
        return Arc::clone(found);
    }
    let made = make();
    known.push((ring, Arc::clone(&made)));
    made
}

fn made(ring: Ring) -> Arc<InForce> {
    let mut all = MADE.lock().unwrap_or_else(|broken| broken.into_inner());
    find_or(&mut all, ring, || {
        let (view, staying, replicas) = ring;
        let made = InForce::new(view, staying, replicas.into());
        // Before the first view nobody is asked anything: any placement will do.
        let anybody = View {
            placed: NodeSet::only(Setup::HOME),
            ..View::default()
        };
        let made = made.or_else(|| InForce::new(anybody, NodeSet::NONE, 1));
        Arc::new(made.unwrap_or_else(|| unreachable!("somebody is placed")))
    })
}

impl Driver<'_> {
    pub(crate) fn in_force(&self, number: ViewNumber) -> Arc<InForce> {
        self.world.in_force(self.setup, number)
    }
}

impl Cluster {
    pub(crate) fn move_actions(&self, world: &World, actions: &mut Vec<Action>) {
        if !self.setup.moves() {
            return;
        }
        let view = world.newest();
        let is_ready = self.setup.is_unannounced || self.hot_set_rests(world);
        if is_ready && world.may_change(&self.setup, membership::Change::Place) {
            actions.push(Action::Place);
        }
        if world.may_settle(&self.setup) {
            actions.push(Action::Settle);
        }
        for (index, moving) in world.moving.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|last| world.moving.get(last));
            let link = (moving.from, moving.to);
            let is_behind = before.is_some_and(|last| (last.from, last.to) == link);
            if !is_behind && self.takes(world, index) {
                actions.push(Action::Arrive(index));
            }
        }
        for (id, node) in self.nodes(world) {
            let departs = self.setup.leaving().contains(id) && !view.moves();
            if departs && view.live.contains(id) && !view.placed.contains(id) {
                actions.push(Action::Depart(id));
            }
            if !node.all_act() {
                actions.push(Action::AllAct(id));
            }
            if node.all_act() || self.has(DriverMutant::GivesWhileServing) {
                self.source_actions(world, (id, node), actions);
            }
            if node.mover.is_unswept && node.state.is_none() {
                actions.push(Action::Sweep(id));
            }
        }
        let resend = |parcel: &Parcel| match parcel.content {
            Content::Request(label, _, view) => {
                let asker = world.node(label.session());
                let is_later = !asker.is_up || asker.view > view;
                is_later && parcel.to != label.session()
            }
            _ => false,
        };
        let parcels = world.parcels.iter().enumerate();
        let again = parcels.filter(|(_, parcel)| resend(parcel));
        actions.extend(again.map(|(index, _)| Action::AskAgain(index)));
    }

    /// A move waits until nothing becomes hot, or ceases to be, which takes less than it waits
    /// (membership: half a lease), unless something is slower than that.
    fn hot_set_rests(&self, world: &World) -> bool {
        use curtail_consistency::symmetric::Mode;
        let mut nodes = self.nodes(world);
        nodes.all(|(_, node)| matches!(node.mode, Mode::Cold | Mode::Hot))
    }

    fn source_actions(&self, world: &World, (id, node): (NodeId, &Node), out: &mut Vec<Action>) {
        if self.keeps_past && self.driver(&mut world.clone()).has_sent_all(id) {
            out.push(Action::End(id));
        }
        let in_force = world.in_force(&self.setup, node.view);
        let route = self.setup.route();
        // What came with the view is done before: every thread has begun a turn since.
        if node.mover.scan.is_none() || !node.late.is_empty() {
            return;
        }
        let leaving = in_force.leaving(route, id, node.visibility());
        if leaving == Leaving::Later && !self.has(DriverMutant::PassesUnsettled) {
            // It is looked at again.
            return;
        }
        out.push(Action::Scan(id));
    }

    pub(crate) fn has(&self, mutant: DriverMutant) -> bool {
        self.mutant == Some(Mutant::Driver(mutant))
    }

    /// Whether those who hold the key have something else each, though nothing is under way.
    pub(crate) fn holders_differ(&self, world: &World) -> bool {
        let view = world.newest();
        if !self.setup.moves() || view.moves() || !self.is_one_view(world) {
            return false;
        }
        let in_force = world.in_force(&self.setup, view.number);
        let holders = in_force.holders(self.setup.route()).into_iter();
        let mut items = holders.map(|node| world.node(node).item);
        let first = items.next().flatten();
        items.any(|item| item != first)
    }

    /// Whether what moves has come to a node that can tell what it is.
    fn takes(&self, world: &World, index: usize) -> bool {
        world.moving.get(index).is_some_and(|moving| {
            let view = world.node(moving.to).view;
            let in_force = world.in_force(&self.setup, view);
            let sent = (moving.from, moving.view);
            in_force.takes(self.setup.route(), moving.to, sent) != Due::Later
        })
    }

    /// Whether a request that was sent on, or for the key itself, finds a node that can tell what
    /// to do with it; else it is asked again, in the end.
    pub(crate) fn finds(&self, world: &World, parcel: &Parcel) -> bool {
        let node = world.node(parcel.to);
        match parcel.content {
            Content::Message(..) => true,
            Content::Request(label, _, _) if parcel.to == label.session() => true,
            Content::Request(_, _, view) => view == node.view || view == node.mover.behind,
            Content::MoveRequest(view) => {
                let in_force = world.in_force(&self.setup, node.view);
                let by = (parcel.from, view);
                let gives_any = self.has(DriverMutant::GivesUnsettled);
                let state = match gives_any {
                    true => Visibility::Ordinary,
                    false => node.visibility(),
                };
                let how = (node.all_act(), state);
                in_force.gives(self.setup.route(), parcel.to, by, how) != Due::Later
            }
        }
    }
}
