//! Flows: what they match, what they do, and what the switch tells of them.

use curtail_types::numbered_enum;

use super::bytes::{BigReader, BigWriter};

/// What a flow matches. All that is given has to fit; a mask says which bits count.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct FlowMatch {
    /// MAC destination and mask.
    pub eth_dst: Option<([u8; 6], [u8; 6])>,
    /// Ethertype.
    pub eth_type: Option<u16>,
    /// IPv4 destination and mask.
    pub ipv4_dst: Option<([u8; 4], [u8; 4])>,
    /// IPv6 destination and mask.
    pub ipv6_dst: Option<([u8; 16], [u8; 16])>,
    /// Protocol above IP.
    pub ip_proto: Option<u8>,
    /// UDP source and mask. The standard has no mask here; Open vSwitch takes one.
    pub udp_src: Option<([u8; 2], [u8; 2])>,
}

/// What a flow does with a frame.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum FlowAction {
    /// Nothing.
    #[default]
    Drop,
    /// Sends it to a port, with this MAC destination if one is given.
    Output {
        /// The port.
        port: u32,
        /// What the destination becomes.
        eth_dst: Option<[u8; 6]>,
    },
    /// Looks on in a later table.
    Table(u8),
}

numbered_enum! {
    /// What is done with flows.
    pub enum FlowCommand: u8 {
        /// Adds one, in the place of one with the same match and priority.
        Add = 0,
        /// Deletes all that match, whatever else they match.
        Delete = 3,
        /// Deletes the one with exactly this match and priority.
        DeleteStrict = 4,
    }
}

/// A change of the flows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FlowMod {
    /// What is done.
    pub command: FlowCommand,
    /// In which table.
    pub table: u8,
    /// The greatest that matches wins.
    pub priority: u16,
    /// The controller's mark.
    pub cookie: u64,
    /// Which bits of the cookie have to agree; of deletions.
    pub cookie_mask: u64,
    /// Which frames.
    pub matching: FlowMatch,
    /// What becomes of them; of additions.
    pub action: FlowAction,
}

/// Which flows the switch is asked about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FlowSelection {
    /// In which table.
    pub table: u8,
    /// With this cookie.
    pub cookie: u64,
    /// As far as these bits.
    pub cookie_mask: u64,
}

/// A flow as the switch tells of it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FlowStat {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Frames that it has matched.
    pub packets: u64,
    /// What it matches; `None` if it matches what is not read here: another's flow.
    pub matching: Option<FlowMatch>,
}

/// The flows of a message, one after another; all of them have been looked through.
#[derive(Clone, Copy, Debug)]
pub struct FlowStats<'a> {
    rest: BigReader<'a>,
}

impl FlowMatch {
    /// Exactly this MAC destination.
    pub const fn mac(mac: [u8; 6]) -> Self {
        Self {
            eth_dst: Some((mac, [0xff; 6])),
            ..Self::ALL
        }
    }

    /// Everything.
    pub const ALL: Self = Self {
        eth_dst: None,
        eth_type: None,
        ipv4_dst: None,
        ipv6_dst: None,
        ip_proto: None,
        udp_src: None,
    };

    pub(super) fn encode(&self, out: &mut BigWriter<'_>) -> Option<()> {
        let start = out.used();
        out.u16(MATCH_OXM)?;
        out.u16(0)?;
        if let Some((value, mask)) = self.eth_dst {
            field(out, ETH_DST, &value, &mask)?;
        }
        if let Some(kind) = self.eth_type {
            field(out, ETH_TYPE, &kind.to_be_bytes(), &[0xff; 2])?;
        }
        if let Some(protocol) = self.ip_proto {
            field(out, IP_PROTO, &[protocol], &[0xff])?;
        }
        if let Some((value, mask)) = self.ipv4_dst {
            field(out, IPV4_DST, &value, &mask)?;
        }
        if let Some((value, mask)) = self.ipv6_dst {
            field(out, IPV6_DST, &value, &mask)?;
        }
        if let Some((value, mask)) = self.udp_src {
            field(out, UDP_SRC, &value, &mask)?;
        }
        out.length_at(start + 2, out.used() - start)?;
        out.pad_to_eight(start)
    }

    /// `Some(None)` if there is a field that is not read here.
    pub(super) fn decode(from: &mut BigReader<'_>) -> Option<Option<Self>> {
        let kind = from.u16()?;
        let bytes = usize::from(from.u16()?);
        let mut fields = BigReader::new(from.bytes(bytes.checked_sub(4)?)?);
        from.skip(bytes.next_multiple_of(8) - bytes)?;
        let mut matching = Self::ALL;
        let mut is_known = kind == MATCH_OXM;
        while !fields.rest().is_empty() {
            let (class, name, bytes) = (fields.u16()?, fields.byte()?, fields.byte()?);
            let content = fields.bytes(usize::from(bytes))?;
            let is_masked = name & 1 == 1;
            let read = class == OXM_BASIC && matching.take(name >> 1, content, is_masked).is_some();
            is_known &= read;
        }
        Some(is_known.then_some(matching))
    }

    /// Takes in one field, which must not be there yet.
    fn take(&mut self, name: u8, content: &[u8], is_masked: bool) -> Option<()> {
        let is_new = match name {
            ETH_DST => put(&mut self.eth_dst, masked(content, is_masked)?),
            IPV4_DST => put(&mut self.ipv4_dst, masked(content, is_masked)?),
            IPV6_DST => put(&mut self.ipv6_dst, masked(content, is_masked)?),
            UDP_SRC => put(&mut self.udp_src, masked(content, is_masked)?),
            IP_PROTO if !is_masked => {
                let [protocol] = content.try_into().ok()?;
                put(&mut self.ip_proto, protocol)
            }
            ETH_TYPE if !is_masked => {
                let kind = u16::from_be_bytes(content.try_into().ok()?);
                put(&mut self.eth_type, kind)
            }
            _ => false,
        };
        is_new.then_some(())
    }
}

fn put<T>(place: &mut Option<T>, value: T) -> bool {
    place.replace(value).is_none()
}

/// A field of `N` bytes and its mask, all ones if there is none.
fn masked<const N: usize>(content: &[u8], is_masked: bool) -> Option<([u8; N], [u8; N])> {
    let (value, rest) = content.split_first_chunk::<N>()?;
    let mask = match is_masked {
        true => rest.try_into().ok()?,
        false if rest.is_empty() => [0xff; N],
        false => return None,
    };
    Some((*value, mask))
}

/// Writes a field; its mask only where it is not all ones.
fn field(out: &mut BigWriter<'_>, name: u8, value: &[u8], mask: &[u8]) -> Option<()> {
    let is_masked = mask.iter().any(|byte| *byte != 0xff);
    let bytes = value.len() * (1 + usize::from(is_masked));
    out.u16(OXM_BASIC)?;
    out.byte(name << 1 | u8::from(is_masked))?;
    out.byte(u8::try_from(bytes).ok()?)?;
    out.bytes(value)?;
    match is_masked {
        true => out.bytes(mask),
        false => Some(()),
    }
}

impl FlowAction {
    fn encode(self, out: &mut BigWriter<'_>) -> Option<()> {
        match self {
            Self::Drop => Some(()),
            Self::Table(table) => {
                out.u16(GOTO_TABLE)?;
                out.u16(8)?;
                out.byte(table)?;
                out.zeros(3)
            }
            Self::Output { port, eth_dst } => {
                let bytes = 8 + 16 + if eth_dst.is_some() { 16 } else { 0 };
                out.u16(APPLY_ACTIONS)?;
                out.u16(bytes)?;
                out.zeros(4)?;
                if let Some(mac) = eth_dst {
                    out.u16(SET_FIELD)?;
                    out.u16(16)?;
                    field(out, ETH_DST, &mac, &[0xff; 6])?;
                    out.zeros(2)?;
                }
                out.u16(OUTPUT)?;
                out.u16(16)?;
                out.u32(port)?;
                out.u16(0)?;
                out.zeros(6)
            }
        }
    }

    /// `None` for what is not one of the three.
    fn decode(mut from: BigReader<'_>) -> Option<Self> {
        if from.rest().is_empty() {
            return Some(Self::Drop);
        }
        let (kind, bytes) = (from.u16()?, from.u16()?);
        let mut body = BigReader::new(from.bytes(usize::from(bytes).checked_sub(4)?)?);
        if !from.rest().is_empty() {
            return None;
        }
        match kind {
            GOTO_TABLE => Some(Self::Table(body.byte()?)),
            APPLY_ACTIONS => {
                body.skip(4)?;
                Self::decode_output(body)
            }
            _ => None,
        }
    }

    fn decode_output(mut from: BigReader<'_>) -> Option<Self> {
        let mut eth_dst = None;
        let (mut kind, mut bytes) = (from.u16()?, from.u16()?);
        if kind == SET_FIELD && bytes == 16 {
            if from.array()? != [0x80, 0, ETH_DST << 1, 6] {
                return None;
            }
            eth_dst = Some(from.array()?);
            from.skip(2)?;
            (kind, bytes) = (from.u16()?, from.u16()?);
        }
        if kind != OUTPUT || bytes != 16 {
            return None;
        }
        let port = from.u32()?;
        from.skip(8)?;
        from.rest()
            .is_empty()
            .then_some(Self::Output { port, eth_dst })
    }
}

impl FlowMod {
    pub(super) fn encode(&self, out: &mut BigWriter<'_>) -> Option<()> {
        out.u64(self.cookie)?;
        out.u64(self.cookie_mask)?;
        out.byte(self.table)?;
        out.byte(self.command as u8)?;
        out.u16(0)?; // idle timeout
        out.u16(0)?; // hard timeout
        out.u16(self.priority)?;
        out.u32(NO_BUFFER)?;
        out.u32(ANY)?;
        out.u32(ANY)?;
        out.zeros(4)?; // flags, padding
        self.matching.encode(out)?;
        match self.command {
            FlowCommand::Add => self.action.encode(out),
            _ => Some(()),
        }
    }

    /// `None` for what is malformed, or says what is not said here.
    pub(super) fn decode(mut from: BigReader<'_>) -> Option<Self> {
        let (cookie, cookie_mask) = (from.u64()?, from.u64()?);
        let (table, command) = (from.byte()?, FlowCommand::from_number(from.byte()?)?);
        from.skip(4)?;
        let priority = from.u16()?;
        from.skip(16)?;
        let matching = FlowMatch::decode(&mut from)??;
        let action = FlowAction::decode(from)?;
        if command != FlowCommand::Add && action != FlowAction::Drop {
            return None;
        }
        Some(Self {
            command,
            table,
            priority,
            cookie,
            cookie_mask,
            matching,
            action,
        })
    }
}

impl FlowSelection {
    pub(super) fn encode(&self, out: &mut BigWriter<'_>) -> Option<()> {
        out.byte(self.table)?;
        out.zeros(3)?;
        out.u32(ANY)?;
        out.u32(ANY)?;
        out.zeros(4)?;
        out.u64(self.cookie)?;
        out.u64(self.cookie_mask)?;
        FlowMatch::ALL.encode(out)
    }

    pub(super) fn decode(mut from: BigReader<'_>) -> Option<Self> {
        let table = from.byte()?;
        from.skip(15)?;
        let (cookie, cookie_mask) = (from.u64()?, from.u64()?);
        let matching = FlowMatch::decode(&mut from)??;
        let selection = Self {
            table,
            cookie,
            cookie_mask,
        };
        (matching == FlowMatch::ALL && from.rest().is_empty()).then_some(selection)
    }
}

impl FlowStat {
    /// Writes it as a switch would, without saying what it does.
    pub(super) fn encode(&self, out: &mut BigWriter<'_>) -> Option<()> {
        let start = out.used();
        out.u16(0)?;
        out.byte(self.table)?;
        out.zeros(9)?; // padding, durations
        out.u16(self.priority)?;
        out.zeros(10)?; // timeouts, flags, padding
        out.u64(self.cookie)?;
        out.u64(self.packets)?;
        out.u64(0)?; // bytes
        self.matching.unwrap_or_default().encode(out)?;
        out.length_at(start, out.used() - start)
    }

    fn decode(from: &mut BigReader<'_>) -> Option<Self> {
        let bytes = usize::from(from.u16()?);
        let mut entry = BigReader::new(from.bytes(bytes.checked_sub(2)?)?);
        let table = entry.byte()?;
        entry.skip(9)?;
        let priority = entry.u16()?;
        entry.skip(10)?;
        let (cookie, packets) = (entry.u64()?, entry.u64()?);
        entry.skip(8)?;
        let matching = FlowMatch::decode(&mut entry)?;
        Some(Self {
            table,
            priority,
            cookie,
            packets,
            matching,
        })
    }
}

impl<'a> FlowStats<'a> {
    /// `None` if one of them is malformed.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let rest = BigReader::new(bytes);
        let mut walk = rest;
        while !walk.rest().is_empty() {
            FlowStat::decode(&mut walk)?;
        }
        Some(Self { rest })
    }
}

impl Iterator for FlowStats<'_> {
    type Item = FlowStat;

    fn next(&mut self) -> Option<FlowStat> {
        match self.rest.rest().is_empty() {
            true => None,
            false => FlowStat::decode(&mut self.rest),
        }
    }
}

const MATCH_OXM: u16 = 1;
const OXM_BASIC: u16 = 0x8000;
const ETH_DST: u8 = 3;
const ETH_TYPE: u8 = 5;
const IP_PROTO: u8 = 10;
const IPV4_DST: u8 = 12;
const UDP_SRC: u8 = 15;
const IPV6_DST: u8 = 27;
const GOTO_TABLE: u16 = 1;
const APPLY_ACTIONS: u16 = 4;
const OUTPUT: u16 = 0;
const SET_FIELD: u16 = 25;
const NO_BUFFER: u32 = u32::MAX;
const ANY: u32 = u32::MAX;
