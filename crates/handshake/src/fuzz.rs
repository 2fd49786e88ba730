//! Bodies of the fuzz targets, and the oracle of the property tests.
//!
//! Each runs an input whole and again in pieces whose lengths come from the input itself, and
//! panics when the two differ or a count leaves its range.

use crate::{
    Body, Command, HEAD_LEN_MAX, Handshake, HttpFault, INPUT_LEN_MAX, Policy, REPLY_LEN_MAX,
    REWRITE_GROWTH_MAX, Reason, Request, Step, UDP_HEADER_LEN_MAX, UdpReject, encode_udp_header,
    parse_udp_header, rewrite_head,
};

/// All that a client can tell from a handshake, free of how its bytes were split.
struct Outcome {
    consumed: usize,
    reply: [u8; 2 * REPLY_LEN_MAX],
    reply_len: usize,
    /// The last step, without its counts.
    end: Step,
}

/// Drives a [`Handshake`]: one byte of policy, one of seed for the pieces, then the client's bytes.
pub fn handshake(data: &[u8]) {
    let Some((&[flags, seed], input)) = data.split_first_chunk() else {
        return;
    };
    let policy = Policy {
        socks4: flags & 1 == 0,
        socks5: flags & 2 == 0,
        http: flags & 4 == 0,
        udp: flags & 8 == 0,
    };
    let whole = drive(policy, input, core::iter::once(input.len()));
    let pieces = drive(policy, input, piece_lens(seed, input));
    assert_eq!(whole.consumed, pieces.consumed, "consumed depends on the split");
    assert_eq!(whole.end, pieces.end, "outcome depends on the split");
    assert_eq!(
        whole.reply.get(..whole.reply_len),
        pieces.reply.get(..pieces.reply_len),
        "reply depends on the split"
    );
    match whole.end {
        Step::Request(Request { command: Command::Forward(forward), .. }) => {
            let head = input
                .get(whole.consumed - forward.head_len..whole.consumed)
                .expect("the head is within the consumed bytes");
            assert!(rewrite(head).is_ok(), "an accepted head cannot be rewritten");
        }
        Step::Request(Request { command: Command::UdpAssociate, .. }) => {
            assert!(policy.udp, "an association against the policy");
        }
        Step::Refuse { reason: Reason::UdpDisabled, .. } => {
            assert!(!policy.udp, "no association against the policy");
        }
        _ => {}
    }
}

/// Drives [`parse_udp_header`] with the bytes as a datagram.
pub fn udp(data: &[u8]) {
    let Ok((target, header_len)) = parse_udp_header(data) else {
        return;
    };
    let header = data.get(..header_len).expect("the header is within the datagram");
    // The target in its one form gives a header that says the same, and a whole one at that.
    let mut out = [0; UDP_HEADER_LEN_MAX];
    let len = encode_udp_header(target.target(), &mut out);
    let encoded = out.get(..len).expect("a header has a greatest length");
    assert_eq!(parse_udp_header(encoded), Ok((target, len)), "the target changes");
    for short in [header, encoded] {
        let cut = short.split_last().map(|(_, rest)| parse_udp_header(rest));
        assert_eq!(cut, Some(Err(UdpReject::TooShort)), "a part of a header is taken for one");
    }
}

/// Drives [`rewrite_head`] with the bytes as a head, and [`Body`] with them as a body.
pub fn forward(data: &[u8]) {
    let Some((&[kind, seed], input)) = data.split_first_chunk() else {
        return;
    };
    if let Some(head) = input.get(..input.len().min(HEAD_LEN_MAX)) {
        // Whatever the bytes are, the answer is a length or a fault.
        let _: Result<usize, HttpFault> = rewrite(head);
    }
    let start = match kind % 3 {
        0 => Body::None,
        1 => Body::Length(seed.into()),
        _ => Body::chunked(),
    };
    let mut whole = start;
    let whole_taken = whole.take(input);
    let mut pieces = start;
    let mut taken = 0;
    let mut rest = input;
    for len in piece_lens(seed, input) {
        let (piece, behind) = rest.split_at(len);
        rest = behind;
        match pieces.take(piece) {
            Ok(count) => {
                assert!(count <= piece.len(), "took more than there was");
                taken += count;
                if count < piece.len() {
                    assert!(pieces.is_complete(), "left bytes of an unfinished body");
                }
            }
            Err(error) => {
                assert_eq!(whole_taken, Err(error), "error depends on the split");
                return;
            }
        }
    }
    assert_eq!(whole_taken, Ok(taken), "body length depends on the split");
    assert_eq!(whole, pieces, "body state depends on the split");
}

/// Runs a handshake over `input`, which becomes visible piece by piece.
fn drive(policy: Policy, input: &[u8], lens: impl Iterator<Item = usize>) -> Outcome {
    let mut machine = Handshake::new(policy);
    let mut outcome = Outcome {
        consumed: 0,
        reply: [0; 2 * REPLY_LEN_MAX],
        reply_len: 0,
        end: Step::More { consumed: 0, reply: 0 },
    };
    let mut visible = 0;
    for len in lens {
        visible += len;
        let unread = input.get(outcome.consumed..visible).expect("consumed is within the input");
        let out = outcome.reply.get_mut(outcome.reply_len..).expect("replies are short");
        let (consumed, reply, end) = match machine.advance(unread, out) {
            Step::More { consumed, reply } => {
                (consumed, reply, Step::More { consumed: 0, reply: 0 })
            }
            Step::Request(request) => {
                let end = Step::Request(Request { consumed: 0, reply: 0, ..request });
                (request.consumed, request.reply, end)
            }
            Step::Refuse { consumed, reply, reason } => {
                (consumed, reply, Step::Refuse { consumed: 0, reply: 0, reason })
            }
        };
        assert!(consumed <= unread.len(), "consumed more than there was");
        assert!(reply <= REPLY_LEN_MAX, "answered more than promised");
        outcome.consumed += consumed;
        outcome.reply_len += reply;
        outcome.end = end;
        if !matches!(outcome.end, Step::More { .. }) {
            break;
        }
        assert!(visible - outcome.consumed < INPUT_LEN_MAX, "stuck on a full buffer");
    }
    outcome
}

/// Rewrites a head, and checks that the result is a head that is rewritten to itself.
fn rewrite(head: &[u8]) -> Result<usize, HttpFault> {
    let mut out = [0; HEAD_LEN_MAX + REWRITE_GROWTH_MAX];
    let room = out.get_mut(..head.len() + REWRITE_GROWTH_MAX).unwrap_or_default();
    let len = rewrite_head(head, room)?;
    let rewritten = out.get(..len).unwrap_or_default();
    if len <= HEAD_LEN_MAX {
        let mut again = [0; HEAD_LEN_MAX + REWRITE_GROWTH_MAX];
        let again_len = rewrite_head(rewritten, &mut again)?;
        assert_eq!(again.get(..again_len), Some(rewritten), "rewriting twice changes the head");
    }
    Ok(len)
}

/// Lengths of pieces that add up to `input`, taken from its own bytes; some are empty.
fn piece_lens(seed: u8, input: &[u8]) -> impl Iterator<Item = usize> {
    let mut mix = u32::from(seed);
    let mut left = input.len();
    let mut bytes = input.iter().copied().chain(core::iter::repeat(0));
    core::iter::from_fn(move || {
        let byte = bytes.next().filter(|_| left > 0)?;
        mix = mix.wrapping_mul(0x0019_660d).wrapping_add(u32::from(byte) | 0x3c6e_f35f);
        let len = match mix >> 28 {
            0..8 => 1,
            8..14 => (mix >> 20) as usize & 7,
            _ => (mix >> 20) as usize & 255,
        }
        .min(left);
        left -= len;
        Some(len)
    })
}
