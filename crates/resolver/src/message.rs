//! DNS messages (RFC 1035): one question out, one answer in, over borrowed bytes.
//!
//! A query is a header, one question and, unless turned off, an EDNS0 record that offers
//! [`UDP_PAYLOAD_MAX`] bytes. A reply is walked once for its bounds and a few times for its alias
//! chain. Every offset is checked; a compression pointer must point before the name it is part
//! of, so no walk can loop; at most [`RECORDS_MAX`] records are read and [`ALIASES_MAX`] aliases
//! followed, which bounds the work for the longest message to about a million byte steps.
//!
//! [`parse_reply`] decides whether bytes answer the question at all; only then does their content
//! count. What does not answer it, or is malformed, may come from anybody and is [`Ignored`].

use std::net::IpAddr;

use crate::addresses::AddrList;
use crate::lookup::Transport;
use crate::name::Name;
use crate::outcome::Failure;

/// Longest message that is read; over TCP a host with hundreds of addresses fits.
pub const MESSAGE_LEN_MAX: usize = 16 * 1024;
/// UDP payload we offer to receive: fits every path without fragments (DNS flag day 2020).
pub const UDP_PAYLOAD_MAX: u16 = 1232;

/// Longest query: header, name, type and class, EDNS0 record.
pub(crate) const QUERY_LEN_MAX: usize = HEADER_LEN + WIRE_NAME_MAX + 4 + OPT_LEN;
/// Aliases followed in one answer; BIND and Unbound stop between 11 and 16.
const ALIASES_MAX: usize = 16;
/// Records read of one message; later ones do not count.
const RECORDS_MAX: usize = 256;

const HEADER_LEN: usize = 12;
const WIRE_NAME_MAX: usize = 255;
const OPT_LEN: usize = 11;

const CLASS_IN: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_SOA: u16 = 6;
const TYPE_OPT: u16 = 41;

/// Why a message did not count. Anybody may have sent it: count it and wait on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ignored {
    /// The lookup has ended.
    Ended,
    /// Not from the nameserver that was asked.
    Server,
    /// No open question has this id, over this transport.
    Id,
    /// The question with this id has its answer.
    Duplicate,
    /// Not a response to a standard query.
    NotResponse,
    /// The response answers another question.
    Question,
    /// The name came back in other upper and lower case; the question is asked again plainly.
    Case,
    /// Cut short or inconsistent.
    Malformed,
    /// Longer than [`MESSAGE_LEN_MAX`].
    TooLong,
}

impl Ignored {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Ended => "dns_reply_late",
            Self::Server => "dns_reply_server",
            Self::Id => "dns_reply_id",
            Self::Duplicate => "dns_reply_duplicate",
            Self::NotResponse => "dns_reply_not_response",
            Self::Question => "dns_reply_question",
            Self::Case => "dns_reply_case",
            Self::Malformed => "dns_reply_malformed",
            Self::TooLong => "dns_reply_too_long",
        }
    }
}

/// The record types that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum RecordType {
    A = 1,
    Aaaa = 28,
}

/// A name in wire form.
#[derive(Clone, Copy)]
pub(crate) struct WireName {
    len: u8,
    bytes: [u8; WIRE_NAME_MAX],
}

impl WireName {
    /// `name`, or `name.suffix`; `None` when that is too long for a name.
    pub(crate) fn joined(name: &Name, suffix: Option<&Name>) -> Option<Self> {
        let mut bytes = [0; WIRE_NAME_MAX];
        let mut at = 0;
        let parts = std::iter::once(name).chain(suffix);
        for label in parts.flat_map(|part| part.host().split(|&byte| byte == b'.')) {
            // One byte stays free for the root label.
            let place = bytes[..WIRE_NAME_MAX - 1].get_mut(at..at + 1 + label.len())?;
            place[0] = u8::try_from(label.len()).expect("a label has at most 63 bytes");
            place[1..].copy_from_slice(label);
            at += 1 + label.len();
        }
        Some(Self { len: u8::try_from(at + 1).expect("at most 255 bytes"), bytes })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    /// Puts every letter in upper or lower case at random (draft-vixie-dnsext-dns0x20): a forger
    /// has to guess it besides the id and the port.
    pub(crate) fn mix_case(&mut self, random: &mut dyn FnMut() -> u64) {
        for chunk in self.bytes[..self.len.into()].chunks_mut(64) {
            let mut bits = random();
            for byte in chunk {
                // Length bytes are below 64 and never letters.
                if byte.is_ascii_alphabetic() {
                    *byte = (*byte & !0x20) | if bits & 1 == 1 { 0x20 } else { 0 };
                }
                bits >>= 1;
            }
        }
    }

    pub(crate) fn lower_case(&mut self) {
        self.bytes.make_ascii_lowercase();
    }
}

/// Whether a query carries an EDNS0 record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edns {
    Offered,
    Absent,
}

/// Writes a query with recursion desired to the start of `out` and returns its length.
///
/// Panics when `out` is shorter than [`QUERY_LEN_MAX`].
pub(crate) fn write_query(
    out: &mut [u8],
    id: u16,
    name: &WireName,
    rtype: RecordType,
    edns: Edns,
) -> usize {
    let out = &mut out[..QUERY_LEN_MAX];
    let [id_high, id_low] = id.to_be_bytes();
    let additional = u8::from(edns == Edns::Offered);
    out[..HEADER_LEN].copy_from_slice(&[id_high, id_low, 1, 0, 0, 1, 0, 0, 0, 0, 0, additional]);
    let name = name.as_bytes();
    let mut at = HEADER_LEN + name.len();
    out[HEADER_LEN..at].copy_from_slice(name);
    out[at..at + 2].copy_from_slice(&(rtype as u16).to_be_bytes());
    out[at + 2..at + 4].copy_from_slice(&CLASS_IN.to_be_bytes());
    at += 4;
    if edns == Edns::Offered {
        let [size_high, size_low] = UDP_PAYLOAD_MAX.to_be_bytes();
        let [_, opt] = TYPE_OPT.to_be_bytes();
        let record = [0, 0, opt, size_high, size_low, 0, 0, 0, 0, 0, 0];
        out[at..at + OPT_LEN].copy_from_slice(&record);
        at += OPT_LEN;
    }
    at
}

/// What a message must answer.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) name: &'a WireName,
    pub(crate) rtype: RecordType,
    pub(crate) edns: Edns,
    pub(crate) transport: Transport,
    /// Whether the name was sent in mixed case over a transport where that must come back.
    pub(crate) exact_case: bool,
}

/// What a nameserver says.
#[allow(
    clippy::large_enum_variant,
    reason = "addresses are held inline: nothing here may allocate"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Found {
        addrs: AddrList,
        ttl_s: u32,
    },
    NoSuchName {
        ttl_s: u32,
    },
    NoAddress {
        ttl_s: u32,
    },
    /// The answer does not fit: ask over TCP.
    Truncated,
    /// The server does not know EDNS0.
    EdnsUnknown,
    Failed(Failure),
}

/// The id of a message, if it is long enough to have one.
pub(crate) fn id(message: &[u8]) -> Option<u16> {
    u16_at(message, 0)
}

/// Reads `message` as the answer to `question`; the caller has matched its id.
pub(crate) fn parse_reply(message: &[u8], question: Question<'_>) -> Result<Reply, Ignored> {
    let header = Header::parse(message).ok_or(Ignored::Malformed)?;
    if !header.is_response || header.opcode != 0 {
        return Err(Ignored::NotResponse);
    }
    let records_at = match header.questions {
        // Old servers return errors without the question.
        0 if matches!(header.rcode, 1 | 2 | 4 | 5) => HEADER_LEN,
        1 => check_question(message, question)?,
        _ => return Err(Ignored::Question),
    };
    if header.is_truncated && question.transport == Transport::Udp {
        return Ok(Reply::Truncated);
    }
    let body = Body::walk(message, records_at, header).ok_or(Ignored::Malformed)?;
    match (header.rcode, body.rcode_high) {
        (0, 0) => positive(message, header, &body, question.rtype).ok_or(Ignored::Malformed),
        (3, 0) => Ok(Reply::NoSuchName { ttl_s: body.negative_ttl_s }),
        (5, 0) => Ok(Reply::Failed(Failure::Refused)),
        // FORMERR, NOTIMP and BADVERS.
        (1 | 4, 0) | (0, 1) if question.edns == Edns::Offered => Ok(Reply::EdnsUnknown),
        _ => Ok(Reply::Failed(Failure::ServerFailure)),
    }
}

#[derive(Clone, Copy)]
struct Header {
    is_response: bool,
    opcode: u8,
    is_authoritative: bool,
    is_truncated: bool,
    offers_recursion: bool,
    rcode: u8,
    questions: u16,
    answers: u16,
    authorities: u16,
    additionals: u16,
}

impl Header {
    fn parse(message: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LEN] = message.first_chunk()?;
        Some(Self {
            is_response: header[2] & 0x80 != 0,
            opcode: header[2] >> 3 & 0xf,
            is_authoritative: header[2] & 4 != 0,
            is_truncated: header[2] & 2 != 0,
            offers_recursion: header[3] & 0x80 != 0,
            rcode: header[3] & 0xf,
            questions: u16_at(header, 4)?,
            answers: u16_at(header, 6)?,
            authorities: u16_at(header, 8)?,
            additionals: u16_at(header, 10)?,
        })
    }
}

/// Where the answers are, and what the other sections say.
struct Body {
    answers_at: usize,
    answers: usize,
    /// From the SOA record; 0 without one.
    negative_ttl_s: u32,
    /// Upper bits of the response code, from the EDNS0 record.
    rcode_high: u8,
}

impl Body {
    fn walk(message: &[u8], answers_at: usize, header: Header) -> Option<Self> {
        let mut budget = RECORDS_MAX;
        let mut take = |count: u16| {
            let taken = usize::from(count).min(budget);
            budget -= taken;
            taken
        };
        let answers = take(header.answers);
        let authorities = take(header.authorities);
        let additionals = take(header.additionals);
        let mut body = Self { answers_at, answers, negative_ttl_s: 0, rcode_high: 0 };
        let mut at = answers_at;
        for _ in 0..answers {
            at = Record::parse(message, at)?.end;
        }
        for _ in 0..authorities {
            let record = Record::parse(message, at)?;
            if record.rtype == TYPE_SOA && record.class == CLASS_IN {
                body.negative_ttl_s = record.ttl_s.min(soa_minimum(message, &record)?);
            }
            at = record.end;
        }
        for _ in 0..additionals {
            let record = Record::parse(message, at)?;
            if record.rtype == TYPE_OPT {
                body.rcode_high = record.extended_rcode;
            }
            at = record.end;
        }
        Some(body)
    }
}

/// Checks the question section and returns where it ends.
fn check_question(message: &[u8], question: Question<'_>) -> Result<usize, Ignored> {
    let name = question.name.as_bytes();
    let end = HEADER_LEN + name.len();
    // A question name is never compressed: nothing precedes it.
    let sent = message.get(HEADER_LEN..end).ok_or(Ignored::Malformed)?;
    let rtype = u16_at(message, end).ok_or(Ignored::Malformed)?;
    let class = u16_at(message, end + 2).ok_or(Ignored::Malformed)?;
    let is_same = sent.eq_ignore_ascii_case(name);
    if !is_same || rtype != question.rtype as u16 || class != CLASS_IN {
        return Err(Ignored::Question);
    }
    if question.exact_case && sent != name {
        return Err(Ignored::Case);
    }
    Ok(end + 4)
}

fn positive(message: &[u8], header: Header, body: &Body, rtype: RecordType) -> Option<Reply> {
    let mut owner = HEADER_LEN;
    let mut ttl_s = u32::MAX;
    let mut addrs = AddrList::new();
    for _ in 0..=ALIASES_MAX {
        let mut alias = None;
        let mut at = body.answers_at;
        for _ in 0..body.answers {
            let record = Record::parse(message, at)?;
            at = record.end;
            if record.class != CLASS_IN || !names_equal(message, record.name_at, owner)? {
                continue;
            }
            if record.rtype == rtype as u16 {
                addrs.push(address(record.data(message)?, rtype)?);
                ttl_s = ttl_s.min(record.ttl_s);
            } else if record.rtype == TYPE_CNAME && alias.is_none() {
                if skip_name(message, record.data_at)? != record.end {
                    return None;
                }
                alias = Some(record);
            }
        }
        if !addrs.is_empty() {
            return Some(Reply::Found { addrs, ttl_s });
        }
        let Some(record) = alias else {
            // A server that neither owns the name nor resolves it refers us elsewhere.
            let is_referral = !header.is_authoritative && !header.offers_recursion;
            return Some(if is_referral && body.negative_ttl_s == 0 {
                Reply::Failed(Failure::BadAnswer)
            } else {
                Reply::NoAddress { ttl_s: body.negative_ttl_s.min(ttl_s) }
            });
        };
        owner = record.data_at;
        ttl_s = ttl_s.min(record.ttl_s);
    }
    Some(Reply::Failed(Failure::BadAnswer))
}

fn address(data: &[u8], rtype: RecordType) -> Option<IpAddr> {
    match rtype {
        RecordType::A => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        RecordType::Aaaa => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
    }
}

/// The last field of an SOA record: how long "no" may be kept (RFC 2308 §4).
fn soa_minimum(message: &[u8], record: &Record) -> Option<u32> {
    let numbers_at = skip_name(message, skip_name(message, record.data_at)?)?;
    if numbers_at + 20 != record.end {
        return None;
    }
    u32_at(message, numbers_at + 16)
}

struct Record {
    name_at: usize,
    rtype: u16,
    class: u16,
    ttl_s: u32,
    extended_rcode: u8,
    data_at: usize,
    end: usize,
}

impl Record {
    fn parse(message: &[u8], at: usize) -> Option<Self> {
        let fixed_at = skip_name(message, at)?;
        let ttl = u32_at(message, fixed_at + 4)?;
        let data_at = fixed_at + 10;
        let end = data_at + usize::from(u16_at(message, fixed_at + 8)?);
        (end <= message.len()).then_some(Self {
            name_at: at,
            rtype: u16_at(message, fixed_at)?,
            class: u16_at(message, fixed_at + 2)?,
            // RFC 2181 §8: a TTL with the top bit set counts as 0.
            ttl_s: if ttl > i32::MAX as u32 { 0 } else { ttl },
            extended_rcode: ttl.to_be_bytes()[0],
            data_at,
            end,
        })
    }

    fn data<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        message.get(self.data_at..self.end)
    }
}

/// Where the name at `at` ends in the stream; pointers are not followed.
fn skip_name(message: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    loop {
        let len = usize::from(*message.get(end)?);
        match len >> 6 {
            0b11 => return (end + 2 <= message.len()).then_some(end + 2),
            0 if len == 0 => return Some(end + 1),
            0 => end += 1 + len,
            _ => return None,
        }
        if end - at >= WIRE_NAME_MAX {
            return None;
        }
    }
}

/// Compares two names of the message without regard to case; `None` when one is malformed.
fn names_equal(message: &[u8], a: usize, b: usize) -> Option<bool> {
    let mut left = Labels::new(message, a);
    let mut right = Labels::new(message, b);
    loop {
        let (one, other) = (left.next()?, right.next()?);
        if !one.eq_ignore_ascii_case(other) {
            return Some(false);
        }
        if one.is_empty() || left.at == right.at {
            return Some(true);
        }
    }
}

/// The labels of a name, pointers followed.
struct Labels<'a> {
    message: &'a [u8],
    at: usize,
    /// Pointers must go below this: the start of the part of the name they end.
    floor: usize,
    len: usize,
}

impl<'a> Labels<'a> {
    const fn new(message: &'a [u8], at: usize) -> Self {
        Self { message, at, floor: at, len: 0 }
    }

    /// The next label, empty for the root; `None` when the name is malformed.
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let len = *self.message.get(self.at)?;
            match len >> 6 {
                0 => {
                    let label = self.message.get(self.at + 1..)?.get(..len.into())?;
                    self.at += 1 + label.len();
                    self.len += 1 + label.len();
                    return (self.len <= WIRE_NAME_MAX).then_some(label);
                }
                0b11 => {
                    let target = usize::from(u16_at(self.message, self.at)? & 0x3fff);
                    if target >= self.floor || target < HEADER_LEN {
                        return None;
                    }
                    self.floor = target;
                    self.at = target;
                }
                _ => return None,
            }
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|chunk| u16::from_be_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_be_bytes(*chunk))
}

#[cfg(test)]
mod tests;
