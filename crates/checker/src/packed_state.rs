//! A state that waits to be expanded, packed into few bytes; parts that states share are stored
//! once.

use std::sync::Arc;

use curtail_types::{Cas, HotEpoch, Message, MessageKind, NodeId, View, ViewNumber};

use crate::interned_parts::{Parts, Shared};
use crate::judge::Written;
use crate::moves::Moving;
use crate::search::ByFingerprint;
use crate::setup::Kind;
use crate::world::{
    Content, Counts, Item, Judge, Label, Node, Operation, OperationStage, Parcel, World,
};

/// A state in little memory.
#[derive(Debug)]
pub struct Packed {
    nodes: Box<[Shared<Node>]>,
    judge: Shared<Judge>,
    views: Shared<Vec<View>>,
    counts: Counts,
    rest: Box<[u8]>,
}

/// What packed states share.
#[derive(Debug, Default)]
pub struct Pool {
    nodes: Parts<Node>,
    judges: Parts<Judge>,
    views: Parts<Vec<View>>,
    /// What comes of arrivals.
    replies: ByFingerprint<Reply>,
}

/// What comes of a message's arrival: if the node does not change, what it sends.
pub(crate) type Reply = Option<Arc<[Parcel]>>;

impl Pool {
    pub(crate) fn sweep(&self) {
        self.nodes.sweep();
        self.judges.sweep();
        self.views.sweep();
    }

    pub(crate) fn reply(&self, delivery: u64) -> Option<Reply> {
        self.replies.get(&delivery).map(|reply| reply.clone())
    }

    pub(crate) fn note_reply(&self, delivery: u64, reply: Reply) {
        self.replies.insert(delivery, reply);
    }
}

impl Packed {
    pub(crate) fn new(world: World, pool: &Pool) -> Self {
        let mut bytes = Bytes(Vec::with_capacity(256));
        bytes.put_all(&world.parcels, Bytes::put_parcel);
        bytes.put_all(&world.operations, Bytes::put_operation);
        bytes.put_all(&world.moving, Bytes::put_moving);
        bytes.put_ts(world.last);
        let nodes = world.nodes.iter();
        Self {
            nodes: nodes.map(|node| pool.nodes.shared(node)).collect(),
            judge: pool.judges.shared(&world.judge),
            views: pool.views.shared(&world.views),
            counts: world.counts,
            rest: bytes.0.as_slice().into(),
        }
    }

    pub(crate) fn world(&self) -> World {
        let mut bytes = Words(&self.rest);
        World {
            nodes: self.nodes.to_vec(),
            judge: self.judge.clone(),
            parcels: bytes.take_all(Words::parcel),
            operations: bytes.take_all(Words::operation),
            moving: bytes.take_all(Words::moving),
            last: bytes.ts(),
            counts: self.counts,
            views: self.views.clone(),
            witnesses: 0,
            fault: None,
        }
    }
}

/// Words of seven bits, the low ones first; the eighth bit says that there are more.
struct Bytes(Vec<u8>);

impl Bytes {
    fn put(&mut self, mut word: u64) {
        while word > 127 {
            self.0.push(word as u8 | 128);
            word >>= 7;
        }
        self.0.push(word as u8);
    }

    fn put_all<T>(&mut self, all: &[T], put: impl Fn(&mut Self, &T)) {
        self.put(all.len() as u64);
        all.iter().for_each(|one| put(self, one));
    }

    fn put_ts(&mut self, ts: Cas) {
        self.put(ts.clock());
        self.put(ts.writer().0.into());
    }

    fn put_item(&mut self, item: &Item) {
        self.put_ts(item.ts);
        self.put(item.value.0);
    }

    fn put_parcel(&mut self, parcel: &Parcel) {
        self.put(parcel.from.0.into());
        self.put(parcel.to.0.into());
        match &parcel.content {
            Content::Message(message, item) => {
                self.put(message.kind as u64);
                self.put(message.view.0.into());
                self.put(message.epoch.0);
                self.put_ts(message.ts);
                self.put_item(item);
            }
            Content::Request(label, after, view) => {
                self.put(REQUEST);
                self.put(label.0.into());
                self.put_ts(*after);
                self.put(view.0.into());
            }
            Content::MoveRequest(view) => {
                self.put(MOVE_REQUEST);
                self.put(view.0.into());
            }
        }
    }

    fn put_moving(&mut self, moving: &Moving) {
        self.put(moving.from.0.into());
        self.put(moving.to.0.into());
        self.put(moving.view.0.into());
        self.put(moving.item.is_some().into());
        self.put_item(&moving.item.unwrap_or_default());
    }

    fn put_operation(&mut self, operation: &Operation) {
        self.put(operation.label.0.into());
        self.put(operation.kind as u64);
        self.put_item(&operation.wrote);
        match &operation.stage {
            OperationStage::Asked => self.put(ASKED),
            OperationStage::Unknown => self.put(UNKNOWN),
            OperationStage::Copied(item, has_changed) => {
                self.put(COPIED + u64::from(*has_changed));
                self.put_item(item);
            }
        }
    }
}

/// Reads what [`Bytes`] wrote.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn word(&mut self) -> u64 {
        let mut word = 0;
        for place in 0.. {
            let Some((byte, rest)) = self.0.split_first() else {
                break;
            };
            self.0 = rest;
            word |= u64::from(byte & 127) << (7 * place);
            if byte & 128 == 0 {
                break;
            }
        }
        word
    }

    fn byte(&mut self) -> u8 {
        self.word() as u8
    }

    fn take_all<T>(&mut self, mut take: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.word();
        (0..count).map(|_| take(self)).collect()
    }

    fn ts(&mut self) -> Cas {
        Cas(self.word() << 16 | self.word())
    }

    fn item(&mut self) -> Item {
        let ts = self.ts();
        let value = Written(self.word());
        Item { ts, value }
    }

    fn view(&mut self) -> ViewNumber {
        ViewNumber(self.word() as u32)
    }

    fn moving(&mut self) -> Moving {
        let (from, to) = (NodeId(self.byte()), NodeId(self.byte()));
        let view = self.view();
        let is_there = self.byte() != 0;
        Moving {
            from,
            to,
            view,
            item: Some(self.item()).filter(|_| is_there),
        }
    }

    fn parcel(&mut self) -> Parcel {
        let (from, to) = (NodeId(self.byte()), NodeId(self.byte()));
        let number = self.byte();
        let content = match MessageKind::from_number(number) {
            None if u64::from(number) == REQUEST => {
                Content::Request(Label(self.byte()), self.ts(), self.view())
            }
            None => Content::MoveRequest(self.view()),
            Some(kind) => {
                let message = Message {
                    kind,
                    view: self.view(),
                    epoch: HotEpoch(self.word()),
                    ts: self.ts(),
                };
                Content::Message(message, self.item())
            }
        };
        Parcel::new((from, to), content)
    }

    fn operation(&mut self) -> Operation {
        let label = Label(self.byte());
        let kind = Kind::ALL.get(usize::from(self.byte())).copied();
        Operation {
            label,
            kind: kind.unwrap_or(Kind::Get),
            wrote: self.item(),
            stage: match self.word() {
                ASKED => OperationStage::Asked,
                UNKNOWN => OperationStage::Unknown,
                copied => OperationStage::Copied(self.item(), copied > COPIED),
            },
        }
    }
}

/// No kinds of message have these numbers.
const REQUEST: u64 = 0;
const MOVE_REQUEST: u64 = 127;
const ASKED: u64 = 0;
const UNKNOWN: u64 = 1;
const COPIED: u64 = 2;
