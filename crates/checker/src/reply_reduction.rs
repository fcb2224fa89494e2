//! A reduction for models whose messages repeat: a node's reply that changes no state is sent as
//! soon as it is possible.
//!
//! A state with more messages on their way can do whatever one with fewer can, if the rest is the
//! same, since every message may also never arrive. So of two states that differ only by a reply
//! that costs its sender nothing, the one without needs no look. This holds whatever the machine
//! does with its messages: whether a node stays the same is tried, once for each node's state and
//! message.

use std::sync::Arc;

use curtail_types::{MessageKind, NodeId, NodeSet};

use crate::cluster_model::Cluster;
use crate::frontier_state::{Pool, Reply};
use crate::search::fingerprint_of;
use crate::setup::Witness;
use crate::world::{Content, Parcel, World};

impl Cluster {
    /// Adds every reply to what is on its way since `before`, which has all of them, and the
    /// replies to those.
    pub(crate) fn add_replies(&self, before: &World, world: &mut World, pool: &Pool) {
        let is_as_before = self.is_as_before(before, world);
        let mut index = 0;
        while index < world.parcels.len() {
            let is_known = world.parcels.get(index).is_some_and(|parcel| {
                is_as_before.contains(parcel.to) && before.parcels.binary_search(parcel).is_ok()
            });
            let replies = match !is_known && self.may_arrive_at(world, index) {
                true => self.reply(world, index, pool),
                false => None,
            };
            index += 1;
            for reply in replies.iter().flat_map(|replies| replies.iter()) {
                let place = world.parcels.partition_point(|other| other < reply);
                if world.parcels.get(place) != Some(reply) {
                    world.parcels.insert(place, *reply);
                    // What was inserted before it moved it on.
                    index = index.min(place);
                }
            }
        }
    }

    /// Drops messages of a view before the one that their receiver has come to, if their arrival
    /// changes nothing and nothing is replied. What refuses them is the number of the view, and
    /// that only grows; so if nothing comes of one now, nothing ever will. An update under SC
    /// counts whenever it was sent. It is tried on each message first: of a machine that does not
    /// refuse it something comes, and it stays.
    pub(crate) fn drop_late(&self, world: &mut World, pool: &Pool) {
        let mut index = 0;
        while let Some(parcel) = world.parcels.get(index) {
            let is_late = match parcel.content {
                Content::Message(message, _) => {
                    let view = world.node(parcel.to).view;
                    message.view < view && message.kind != MessageKind::Update
                }
                Content::Request(..) | Content::MoveRequest(_) => false,
            };
            let is_nothing = || {
                self.reply(world, index, pool)
                    .is_some_and(|sent| sent.is_empty())
            };
            if is_late && is_nothing() {
                world.see(Witness::LateMessage);
                world.parcels.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// The nodes that reply to everything as they did before.
    fn is_as_before(&self, before: &World, world: &World) -> NodeSet {
        let is_up = |world: &World| self.nodes(world).map(|(id, _)| id).collect::<NodeSet>();
        let is_same = before.views.is(&world.views)
            && is_up(before) == is_up(world)
            && !self.setup.readers_take_time;
        let nodes = before.nodes.iter().zip(&world.nodes).zip(0..);
        let same = nodes.filter(|((before, now), _)| is_same && before.is(now));
        same.map(|(_, id)| NodeId(id)).collect()
    }

    /// What comes of the arrival of message `index`: nothing but these messages, or a change.
    pub(crate) fn reply(&self, world: &World, index: usize, pool: &Pool) -> Reply {
        let parcel = world.parcels.get(index)?;
        let Content::Message(..) = parcel.content else {
            return None;
        };
        let node = world.nodes.get(usize::from(parcel.to.0))?;
        let up: NodeSet = self.nodes(world).map(|(id, _)| id).collect();
        // A reader that has copied the item sees that the node was at work.
        let readers = self.setup.readers_take_time.then_some(&world.operations);
        let delivery = fingerprint_of(&(node, parcel, &world.views, up, readers));
        if let Some(reply) = pool.reply(delivery) {
            return reply;
        }
        let reply = self.try_reply(world, *parcel);
        pool.note_reply(delivery, reply.clone());
        reply
    }

    fn try_reply(&self, world: &World, parcel: Parcel) -> Reply {
        let mut before = world.clone();
        before.parcels = vec![parcel];
        let mut after = before.clone();
        self.driver(&mut after).deliver(0, true);
        after.seal(self.keeps_past);
        let sent = core::mem::replace(&mut after.parcels, vec![parcel]);
        let is_same = fingerprint_of(&before) == fingerprint_of(&after);
        let is_message = |sent: &Parcel| matches!(sent.content, Content::Message(..));
        let sent: Vec<Parcel> = sent.into_iter().filter(|one| *one != parcel).collect();
        (is_same && sent.iter().all(is_message)).then(|| Arc::from(sent))
    }
}
