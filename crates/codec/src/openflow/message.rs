//! Messages: from bytes and to bytes.

use curtail_types::numbered_enum;

use super::bytes::{BigReader, BigWriter};
use super::flow::{FlowMod, FlowSelection, FlowStat, FlowStats};
use super::{HEADER_BYTES, VERSION};

/// A message of either side.
#[derive(Clone, Copy, Debug)]
pub enum OpenFlowMessage<'a> {
    /// The first message of both.
    Hello {
        /// Whether its sender speaks [`VERSION`].
        is_compatible: bool,
    },
    /// A request was refused; its transaction is the message's.
    Error(OpenFlowError),
    /// Asks for an echo of these bytes.
    EchoRequest(&'a [u8]),
    /// The echo.
    EchoReply(&'a [u8]),
    /// Asks what the switch is.
    FeaturesRequest,
    /// The switch names itself.
    FeaturesReply {
        /// Its name, unique in the network.
        datapath: u64,
        /// How many tables it has.
        tables: u8,
    },
    /// How many bytes of a frame the switch sends when it asks what to do. Open vSwitch tells a
    /// controller that connects to it of ports only if that is not 0.
    SetConfig {
        /// So many.
        miss_bytes: u16,
    },
    /// A port came, went or changed.
    PortStatus(PortChange, PortDescription),
    /// Changes flows.
    FlowMod(FlowMod),
    /// Asks for flows and their counts.
    FlowStatsRequest(FlowSelection),
    /// Some of them.
    FlowStatsReply {
        /// The flows.
        flows: FlowStats<'a>,
        /// Whether another message has more of them.
        more: bool,
    },
    /// One flow, encoded by a test that plays the switch; decoded as a `FlowStatsReply`.
    OneFlow {
        /// The flow.
        flow: FlowStat,
        /// Whether another message has more of them.
        more: bool,
    },
    /// Asks for the ports.
    PortsRequest,
    /// Some of them.
    PortsReply {
        /// The ports.
        ports: PortDescriptions<'a>,
        /// Whether another message has more of them.
        more: bool,
    },
    /// Asks for an answer when all before is done.
    BarrierRequest,
    /// The answer.
    BarrierReply,
    /// Something that is not used here, by its number.
    Other(u8),
}

/// Why a request was refused: class and code of the specification's section 7.4.4.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct OpenFlowError {
    /// The class.
    pub kind: u16,
    /// The code within it.
    pub code: u16,
}

numbered_enum! {
    /// What happened to a port.
    pub enum PortChange: u8 {
        /// It came.
        Added = 0,
        /// It went.
        Removed = 1,
        /// It changed.
        Modified = 2,
    }
}

/// A port of a switch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PortDescription {
    /// Its number.
    pub port: u32,
    /// Whether it is switched off or its link is down.
    pub is_down: bool,
}

/// The ports of a message, one after another.
#[derive(Clone, Copy, Debug)]
pub struct PortDescriptions<'a> {
    rest: BigReader<'a>,
}

/// What the front of some bytes is.
#[derive(Clone, Copy, Debug)]
pub enum DecodedOpenFlow<'a> {
    /// A message.
    Complete {
        /// What it says.
        message: OpenFlowMessage<'a>,
        /// Which request it belongs to.
        transaction: u32,
        /// Its length.
        bytes: usize,
    },
    /// More bytes are needed: so many in all.
    Incomplete(usize),
    /// Not OpenFlow 1.3, or lengths that do not add up. The connection is of no more use.
    Malformed,
}

impl OpenFlowError {
    /// A table has no room for a flow.
    pub const TABLE_FULL: Self = Self { kind: 5, code: 1 };
}

impl PortDescription {
    const BYTES: usize = 64;

    fn decode(from: &mut BigReader<'_>) -> Option<Self> {
        let port = from.u32()?;
        from.skip(4 + 8 + 16)?;
        let (config, state) = (from.u32()?, from.u32()?);
        from.skip(24)?;
        let is_down = (config | state) & 1 == 1;
        Some(Self { port, is_down })
    }

    fn encode(self, out: &mut BigWriter<'_>) -> Option<()> {
        out.u32(self.port)?;
        out.zeros(4 + 8 + 16)?;
        out.u32(0)?;
        out.u32(u32::from(self.is_down))?;
        out.zeros(24)
    }
}

impl Iterator for PortDescriptions<'_> {
    type Item = PortDescription;

    fn next(&mut self) -> Option<PortDescription> {
        PortDescription::decode(&mut self.rest)
    }
}

impl<'a> DecodedOpenFlow<'a> {
    /// The message at the front of a stream.
    pub fn of(stream: &'a [u8]) -> Self {
        let Some((header, _)) = stream.split_first_chunk::<HEADER_BYTES>() else {
            return Self::Incomplete(HEADER_BYTES);
        };
        let [version, kind, high, low, a, b, c, d] = *header;
        let bytes = usize::from(u16::from_be_bytes([high, low]));
        // A hello has the highest version that its sender speaks, which need not be ours.
        let is_ours = version == VERSION || kind == HELLO;
        if !is_ours || bytes < HEADER_BYTES {
            return Self::Malformed;
        }
        let Some(whole) = stream.get(..bytes) else {
            return Self::Incomplete(bytes);
        };
        let body = BigReader::new(whole.get(HEADER_BYTES..).unwrap_or_default());
        match message(version, kind, body) {
            Some(message) => Self::Complete {
                message,
                transaction: u32::from_be_bytes([a, b, c, d]),
                bytes,
            },
            None => Self::Malformed,
        }
    }
}

fn message(version: u8, kind: u8, mut body: BigReader<'_>) -> Option<OpenFlowMessage<'_>> {
    use OpenFlowMessage as M;
    Some(match kind {
        HELLO => M::Hello {
            is_compatible: speaks(version, body),
        },
        ERROR => M::Error(OpenFlowError {
            kind: body.u16()?,
            code: body.u16()?,
        }),
        ECHO_REQUEST => M::EchoRequest(body.rest()),
        ECHO_REPLY => M::EchoReply(body.rest()),
        FEATURES_REQUEST => M::FeaturesRequest,
        FEATURES_REPLY => {
            let datapath = body.u64()?;
            body.skip(4)?;
            let tables = body.byte()?;
            body.skip(11)?;
            M::FeaturesReply { datapath, tables }
        }
        SET_CONFIG => {
            body.skip(2)?;
            let miss_bytes = body.u16()?;
            M::SetConfig { miss_bytes }
        }
        PORT_STATUS => {
            let change = PortChange::from_number(body.byte()?)?;
            body.skip(7)?;
            M::PortStatus(change, PortDescription::decode(&mut body)?)
        }
        FLOW_MOD => match FlowMod::decode(body) {
            Some(change) => M::FlowMod(change),
            None => M::Other(kind),
        },
        MULTIPART_REQUEST => {
            let what = body.u16()?;
            body.skip(6)?;
            match (what, FlowSelection::decode(body)) {
                (FLOWS, Some(selection)) => M::FlowStatsRequest(selection),
                (PORTS, _) => M::PortsRequest,
                _ => M::Other(kind),
            }
        }
        MULTIPART_REPLY => multipart(body)?,
        BARRIER_REQUEST => M::BarrierRequest,
        BARRIER_REPLY => M::BarrierReply,
        other => M::Other(other),
    })
}

fn multipart(mut body: BigReader<'_>) -> Option<OpenFlowMessage<'_>> {
    let (what, flags) = (body.u16()?, body.u16()?);
    body.skip(4)?;
    let more = flags & MORE != 0;
    let is_whole = body.rest().len().is_multiple_of(PortDescription::BYTES);
    Some(match what {
        FLOWS => {
            let flows = FlowStats::new(body.rest())?;
            OpenFlowMessage::FlowStatsReply { flows, more }
        }
        PORTS if is_whole => {
            let ports = PortDescriptions { rest: body };
            OpenFlowMessage::PortsReply { ports, more }
        }
        PORTS => return None,
        _ => OpenFlowMessage::Other(MULTIPART_REPLY),
    })
}

/// Whether a hello's list of versions, or its own version if it has none, includes ours.
fn speaks(version: u8, mut elements: BigReader<'_>) -> bool {
    while let (Some(kind), Some(bytes)) = (elements.u16(), elements.u16()) {
        let bytes = usize::from(bytes);
        let Some(content) = bytes.checked_sub(4).and_then(|rest| elements.bytes(rest)) else {
            return false;
        };
        if kind == VERSIONS {
            let first = BigReader::new(content).u32().unwrap_or(0);
            return first >> VERSION & 1 == 1;
        }
        let _ = elements.skip(bytes.next_multiple_of(8) - bytes);
    }
    version >= VERSION
}

/// Writes a message; how many bytes it took, `None` if there is no room or it cannot be written.
pub fn encode(message: &OpenFlowMessage<'_>, transaction: u32, out: &mut [u8]) -> Option<usize> {
    use OpenFlowMessage as M;
    let mut out = BigWriter::new(out);
    let kind = match message {
        M::Hello { .. } => HELLO,
        M::Error(_) => ERROR,
        M::EchoRequest(_) => ECHO_REQUEST,
        M::EchoReply(_) => ECHO_REPLY,
        M::FeaturesRequest => FEATURES_REQUEST,
        M::FeaturesReply { .. } => FEATURES_REPLY,
        M::SetConfig { .. } => SET_CONFIG,
        M::PortStatus(..) => PORT_STATUS,
        M::FlowMod(_) => FLOW_MOD,
        M::FlowStatsRequest(_) | M::PortsRequest => MULTIPART_REQUEST,
        M::FlowStatsReply { .. } | M::OneFlow { .. } | M::PortsReply { .. } => MULTIPART_REPLY,
        M::BarrierRequest => BARRIER_REQUEST,
        M::BarrierReply => BARRIER_REPLY,
        M::Other(kind) => *kind,
    };
    out.byte(VERSION)?;
    out.byte(kind)?;
    out.u16(0)?;
    out.u32(transaction)?;
    encode_body(message, &mut out)?;
    let bytes = out.used();
    out.length_at(2, bytes)?;
    Some(bytes)
}

fn encode_body(message: &OpenFlowMessage<'_>, out: &mut BigWriter<'_>) -> Option<()> {
    use OpenFlowMessage as M;
    let multipart = |out: &mut BigWriter<'_>, what, more| {
        out.u16(what)?;
        out.u16(if more { MORE } else { 0 })?;
        out.zeros(4)
    };
    match message {
        M::Hello { is_compatible } => {
            let versions = if *is_compatible { 1 << VERSION } else { 1 << 1 };
            out.u16(VERSIONS)?;
            out.u16(8)?;
            out.u32(versions)
        }
        M::Error(error) => {
            out.u16(error.kind)?;
            out.u16(error.code)
        }
        M::EchoRequest(bytes) | M::EchoReply(bytes) => out.bytes(bytes),
        M::FeaturesReply { datapath, tables } => {
            out.u64(*datapath)?;
            out.zeros(4)?;
            out.byte(*tables)?;
            out.zeros(11)
        }
        M::SetConfig { miss_bytes } => {
            out.u16(0)?;
            out.u16(*miss_bytes)
        }
        M::PortStatus(change, port) => {
            out.byte(*change as u8)?;
            out.zeros(7)?;
            port.encode(out)
        }
        M::FlowMod(change) => change.encode(out),
        M::FlowStatsRequest(selection) => {
            multipart(out, FLOWS, false)?;
            selection.encode(out)
        }
        M::FlowStatsReply { flows, more } => {
            multipart(out, FLOWS, *more)?;
            let mut flows = *flows;
            flows.try_for_each(|flow| flow.encode(out))
        }
        M::OneFlow { flow, more } => {
            multipart(out, FLOWS, *more)?;
            flow.encode(out)
        }
        M::PortsRequest => multipart(out, PORTS, false),
        M::PortsReply { ports, more } => {
            multipart(out, PORTS, *more)?;
            let mut ports = *ports;
            ports.try_for_each(|port| port.encode(out))
        }
        M::FeaturesRequest | M::BarrierRequest | M::BarrierReply | M::Other(_) => Some(()),
    }
}

const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const FEATURES_REQUEST: u8 = 5;
const FEATURES_REPLY: u8 = 6;
const SET_CONFIG: u8 = 9;
const PORT_STATUS: u8 = 12;
const FLOW_MOD: u8 = 14;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;
const BARRIER_REQUEST: u8 = 20;
const BARRIER_REPLY: u8 = 21;
/// Kinds of multipart messages.
const FLOWS: u16 = 1;
const PORTS: u16 = 13;
/// More of a multipart reply follows.
const MORE: u16 = 1;
/// A hello's element that lists versions.
const VERSIONS: u16 = 1;
