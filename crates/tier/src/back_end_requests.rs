//! Requests that a back end has taken and not answered: their bytes, in slots that are used again.

use curtail_codec::tiered::{
    TierEnd, TieredDatagram, TieredFlags, TieredHead, TieredOpcode, TieredStatus,
};
use curtail_consistency::{replica::Ticket, tiered::TierRequest};
use curtail_types::{Access, Cas, Key, RouteHash};

use crate::{answered_writes::WriteId, outbox::reply_address};

/// A request, and its answer once it has run.
#[derive(Clone, Debug)]
pub(crate) struct OpenRequest {
    pub(crate) head: TieredHead,
    pub(crate) client: TierEnd,
    pub(crate) route: RouteHash,
    pub(crate) key: Vec<u8>,
    /// What a put stores; what a get found.
    pub(crate) value: Vec<u8>,
    pub(crate) answer: RequestAnswer,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct RequestAnswer {
    pub(crate) status: TieredStatus,
    pub(crate) version: Cas,
    pub(crate) flags: u32,
    pub(crate) expiry: u32,
    /// What arithmetic came to.
    pub(crate) number: Option<u64>,
    /// The answer leaves when the log is durable up to there.
    pub(crate) place: u64,
}

impl RequestAnswer {
    /// One that has nothing but its status.
    pub(crate) fn of(status: TieredStatus) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }
}

/// The slots.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests {
    slots: Vec<OpenRequest>,
    free: Vec<u32>,
}

impl OpenRequests {
    /// Requests at most; beyond, they are refused.
    pub(crate) const REQUESTS_MAX: usize = 8192;

    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a request in; `None` if too many are open.
    pub(crate) fn open(
        &mut self,
        datagram: &TieredDatagram<'_>,
        (key, route): (Key<'_>, RouteHash),
        client: TierEnd,
    ) -> Option<Ticket> {
        let head = datagram.head;
        let answer = RequestAnswer::default();
        let index = match self.free.pop() {
            Some(index) => {
                let slot = self.slots.get_mut(index as usize)?;
                slot.key.clear();
                slot.value.clear();
                (slot.head, slot.client, slot.route) = (head, client, route);
                slot.answer = answer;
                index
            }
            None if self.slots.len() >= Self::REQUESTS_MAX => return None,
            None => {
                self.slots.push(OpenRequest {
                    head,
                    client,
                    route,
                    key: Vec::new(),
                    value: Vec::new(),
                    answer,
                });
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        let slot = self.slots.get_mut(index as usize)?;
        slot.key.extend_from_slice(key.bytes());
        slot.value.extend_from_slice(datagram.value);
        Some(Ticket(u64::from(index)))
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&OpenRequest> {
        self.slots.get(usize::try_from(ticket.0).ok()?)
    }

    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut OpenRequest> {
        self.slots.get_mut(usize::try_from(ticket.0).ok()?)
    }

    /// The slot is free from now on.
    pub(crate) fn close(&mut self, ticket: Ticket) {
        self.free.extend(u32::try_from(ticket.0));
    }
}

impl OpenRequest {
    /// As the machine sees it.
    pub(crate) const fn as_request(&self, ticket: Ticket) -> TierRequest {
        TierRequest {
            ticket,
            key: self.route,
            access: match self.head.opcode {
                TieredOpcode::Get => Access::Read,
                TieredOpcode::Put => Access::Replace,
                _ => Access::Update,
            },
        }
    }

    /// Which write it is, if it is one.
    pub(crate) fn write_id(&self) -> Option<WriteId> {
        let is_write = self.head.opcode != TieredOpcode::Get;
        is_write.then_some(WriteId {
            sender: self.head.sender,
            sequence: self.head.sequence,
        })
    }

    /// It was answered so.
    pub(crate) fn set_answer(&mut self, answer: RequestAnswer) {
        self.answer = answer;
        if let Some(number) = answer.number {
            self.value.clear();
            self.value.extend_from_slice(number.to_string().as_bytes());
        }
    }

    /// The reply.
    pub(crate) fn reply(&self, load: u8) -> TieredDatagram<'_> {
        let answer = &self.answer;
        let mut head = self.head.reply(reply_address(&self.head), answer.status);
        head.version = answer.version;
        head.load = load;
        let is_read = self.head.opcode == TieredOpcode::Get;
        let is_found = answer.number.is_some() || (is_read && answer.status == TieredStatus::Done);
        if is_found {
            head.item_flags = answer.flags;
            if answer.expiry != 0 {
                head.flags = head.flags.with(TieredFlags::EXPIRES);
                head.exptime = answer.expiry;
            }
        }
        TieredDatagram {
            head,
            key: Key::new(&self.key).ok(),
            value: if is_found { &self.value } else { &[] },
        }
    }
}
