use std::str::FromStr;

use domain::base::iana::Rtype;
use domain::base::{Message, Name as DomainName};
use proptest::prelude::*;

use super::*;
use crate::reply_builder::{Answer, answer, error, negative, referral, truncated};

fn wire(text: &str) -> WireName {
    WireName::joined(&Name::parse(text).unwrap(), None).unwrap()
}

fn query(name: &WireName, rtype: RecordType, edns: Edns) -> Vec<u8> {
    let mut out = [0; QUERY_LEN_MAX];
    let len = write_query(&mut out, 0x1234, name, rtype, edns);
    out[..len].to_vec()
}

const fn question(name: &WireName, rtype: RecordType) -> Question<'_> {
    Question { name, rtype, edns: Edns::Offered, transport: Transport::Udp, exact_case: true }
}

/// Asks for `www.example` and reads what `reply` makes of the query.
fn ask(rtype: RecordType, reply: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<Reply, Ignored> {
    let name = wire("www.example");
    let message = reply(&query(&name, rtype, Edns::Offered));
    parse_reply(&message, question(&name, rtype))
}

fn found(text: &str, ttl_s: u32) -> Result<Reply, Ignored> {
    Ok(Reply::Found { addrs: text.split(' ').map(|t| t.parse().unwrap()).collect(), ttl_s })
}

#[test]
fn queries_are_what_an_independent_reader_expects() {
    let name = wire("www.Example");
    for (rtype, wanted) in [(RecordType::A, Rtype::A), (RecordType::Aaaa, Rtype::AAAA)] {
        for edns in [Edns::Offered, Edns::Absent] {
            let query = query(&name, rtype, edns);
            let message = Message::from_octets(&query[..]).unwrap();
            let header = message.header();
            assert_eq!((header.id(), header.rd(), header.qr()), (0x1234, true, false));
            let question = message.sole_question().unwrap();
            assert_eq!(question.qtype(), wanted);
            assert_eq!(question.qname(), &DomainName::<Vec<u8>>::from_str("www.example").unwrap());
            let size = message.opt().map(|opt| opt.udp_payload_size());
            assert_eq!(size, (edns == Edns::Offered).then_some(1232));
        }
    }
}

#[test]
fn longest_name_fits_the_query_and_one_more_byte_does_not() {
    let long = Name::parse(&format!("{}b", "a.".repeat(126))).unwrap();
    let name = WireName::joined(&long, None).unwrap();
    assert_eq!(query(&name, RecordType::A, Edns::Offered).len(), QUERY_LEN_MAX);
    let base = Name::parse(&"a".repeat(63)).unwrap();
    for (suffix_len, fits) in [(189, true), (190, false)] {
        let labels =
            format!("{}.{}.{}", "b".repeat(63), "c".repeat(63), "d".repeat(suffix_len - 128));
        let suffix = Name::parse(&labels).unwrap();
        assert_eq!(WireName::joined(&base, Some(&suffix)).is_some(), fits);
    }
}

#[test]
fn reads_addresses_along_alias_chains() {
    use RecordType::{A, Aaaa};
    let cases: &[(RecordType, &[Answer<'_>], Result<Reply, Ignored>)] = &[
        (A, &[("www.example", 60, "192.0.2.1")], found("192.0.2.1", 60)),
        (A, &[("WWW.EXAMPLE", 60, "192.0.2.1")], found("192.0.2.1", 60)),
        (
            A,
            &[("www.example", 60, "192.0.2.1"), ("www.example", 30, "192.0.2.2")],
            found("192.0.2.1 192.0.2.2", 30),
        ),
        (
            A,
            &[("www.example", 5, "a.example"), ("a.example", 60, "192.0.2.1")],
            found("192.0.2.1", 5),
        ),
        // Out of order, and with records that are not ours.
        (
            A,
            &[
                ("b.example", 70, "192.0.2.1"),
                ("evil.example", 1, "192.0.2.66"),
                ("a.example", 60, "b.example"),
                ("www.example", 80, "a.example"),
            ],
            found("192.0.2.1", 60),
        ),
        (Aaaa, &[("www.example", 60, "2001:db8::1")], found("2001:db8::1", 60)),
        (Aaaa, &[("www.example", 60, "::ffff:192.0.2.1")], found("192.0.2.1", 60)),
        (A, &[("www.example", 60, "2001:db8::1")], Ok(Reply::NoAddress { ttl_s: 0 })),
        (A, &[("other.example", 60, "192.0.2.1")], Ok(Reply::NoAddress { ttl_s: 0 })),
        (A, &[("www.example", 60, "a.example")], Ok(Reply::NoAddress { ttl_s: 0 })),
        (
            A,
            &[("www.example", 60, "a.example"), ("a.example", 60, "www.example")],
            Ok(Reply::Failed(Failure::BadAnswer)),
        ),
        (A, &[("www.example", 0x8000_0001, "192.0.2.1")], found("192.0.2.1", 0)),
    ];
    for (rtype, answers, wanted) in cases {
        assert_eq!(ask(*rtype, |query| answer(query, answers)), *wanted, "{answers:?}");
    }
}

#[test]
fn alias_chains_are_bounded() {
    for (aliases, is_found) in [(1, true), (16, true), (17, false), (40, false)] {
        let names: Vec<_> = (0..=aliases)
            .map(|i| if i == 0 { "www.example".to_owned() } else { format!("n{i}.example") })
            .collect();
        let mut answers: Vec<Answer<'_>> =
            names.windows(2).map(|pair| (pair[0].as_str(), 60, pair[1].as_str())).collect();
        answers.push((&names[aliases], 60, "192.0.2.1"));
        answers.reverse();
        let got = ask(RecordType::A, |query| answer(query, &answers));
        let wanted =
            if is_found { found("192.0.2.1", 60) } else { Ok(Reply::Failed(Failure::BadAnswer)) };
        assert_eq!(got, wanted, "{aliases}");
    }
}

#[test]
fn many_addresses_fill_the_list() {
    let addrs: Vec<_> = (0..200).map(|i| format!("10.0.0.{i}")).collect();
    let answers: Vec<Answer<'_>> = addrs.iter().map(|addr| ("www.example", 60, &**addr)).collect();
    let Ok(Reply::Found { addrs, .. }) = ask(RecordType::A, |query| answer(query, &answers)) else {
        panic!("addresses are found");
    };
    assert_eq!(addrs.len(), 16);
    let many: Vec<_> = answers.iter().cycle().take(400).copied().collect();
    assert!(matches!(ask(RecordType::A, |query| answer(query, &many)), Ok(Reply::Found { .. })));
}

#[test]
fn reads_negative_answers_and_errors() {
    let ask = |reply: &dyn Fn(&[u8]) -> Vec<u8>| ask(RecordType::A, reply);
    assert_eq!(ask(&|q| negative(q, 3, &[], (900, 60))), Ok(Reply::NoSuchName { ttl_s: 60 }));
    assert_eq!(ask(&|q| negative(q, 3, &[], (30, 60))), Ok(Reply::NoSuchName { ttl_s: 30 }));
    assert_eq!(ask(&|q| negative(q, 0, &[], (900, 60))), Ok(Reply::NoAddress { ttl_s: 60 }));
    let alias = [("www.example", 20, "a.example")];
    assert_eq!(ask(&|q| negative(q, 0, &alias, (900, 60))), Ok(Reply::NoAddress { ttl_s: 20 }));
    assert_eq!(ask(&|q| error(q, 3)), Ok(Reply::NoSuchName { ttl_s: 0 }));
    assert_eq!(ask(&|q| error(q, 0)), Ok(Reply::NoAddress { ttl_s: 0 }));
    assert_eq!(ask(&|q| error(q, 2)), Ok(Reply::Failed(Failure::ServerFailure)));
    assert_eq!(ask(&|q| error(q, 5)), Ok(Reply::Failed(Failure::Refused)));
    assert_eq!(ask(&|q| error(q, 9)), Ok(Reply::Failed(Failure::ServerFailure)));
    assert_eq!(ask(&|q| error(q, 1)), Ok(Reply::EdnsUnknown));
    assert_eq!(ask(&|q| error(q, 4)), Ok(Reply::EdnsUnknown));
    assert_eq!(ask(&referral), Ok(Reply::Failed(Failure::BadAnswer)));
    assert_eq!(ask(&truncated), Ok(Reply::Truncated));
}

#[test]
fn format_errors_without_edns_or_question_are_failures_or_hints() {
    let name = wire("www.example");
    let plain = Question { edns: Edns::Absent, ..question(&name, RecordType::A) };
    let reply = error(&query(&name, RecordType::A, Edns::Absent), 1);
    assert_eq!(parse_reply(&reply, plain), Ok(Reply::Failed(Failure::ServerFailure)));
    let bare = [0x12, 0x34, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(parse_reply(&bare, question(&name, RecordType::A)), Ok(Reply::EdnsUnknown));
    let mut bare_no = bare;
    bare_no[3] = 3;
    let got = parse_reply(&bare_no, question(&name, RecordType::A));
    assert_eq!(got, Err(Ignored::Question));
}

#[test]
fn bad_version_in_the_edns_record_turns_edns_off() {
    let reply = |query: &[u8]| {
        let mut reply = error(query, 0);
        let at = reply.len() - 6;
        reply[at] = 1;
        reply
    };
    assert_eq!(ask(RecordType::A, reply), Ok(Reply::EdnsUnknown));
}

#[test]
fn messages_that_answer_something_else_are_ignored() {
    let records = [("www.example", 60, "192.0.2.1")];
    let change = |at: usize, bits: u8| {
        ask(RecordType::A, |query| {
            let mut reply = answer(query, &records);
            reply[at] ^= bits;
            reply
        })
    };
    assert_eq!(change(2, 0x80), Err(Ignored::NotResponse));
    assert_eq!(change(2, 0x08), Err(Ignored::NotResponse));
    assert_eq!(change(5, 0x01), Err(Ignored::Question));
    assert_eq!(change(5, 0x03), Err(Ignored::Question));
    assert_eq!(change(14, 0x01), Err(Ignored::Question));
    assert_eq!(change(14, 0x20), Err(Ignored::Case));
    // Type and class of the question.
    assert_eq!(change(26, 0x1d), Err(Ignored::Question));
    assert_eq!(change(28, 0x02), Err(Ignored::Question));
    assert_eq!(change(0, 0), found("192.0.2.1", 60));
}

#[test]
fn case_of_the_name_matters_only_where_it_was_sent_mixed() {
    let mut name = wire("www.example");
    name.mix_case(&mut || 0x5555_5555);
    assert_ne!(name.as_bytes(), wire("www.example").as_bytes());
    let mut reply =
        answer(&query(&name, RecordType::A, Edns::Offered), &[("www.example", 9, "192.0.2.1")]);
    let exact = question(&name, RecordType::A);
    assert_eq!(parse_reply(&reply, exact), found("192.0.2.1", 9));
    reply[12..25].make_ascii_lowercase();
    assert_eq!(parse_reply(&reply, exact), Err(Ignored::Case));
    let lenient = Question { exact_case: false, ..exact };
    assert_eq!(parse_reply(&reply, lenient), found("192.0.2.1", 9));
    name.lower_case();
    assert_eq!(name.as_bytes(), wire("www.example").as_bytes());
}

#[test]
fn pointers_that_loop_or_leave_the_message_are_malformed() {
    // After header and question (29 bytes), one record whose owner name is `owner`.
    let ask = |owner: &[u8]| {
        ask(RecordType::A, |query| {
            let mut reply = query[..29].to_vec();
            reply[2] |= 0x80;
            reply[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
            reply.extend_from_slice(owner);
            reply.extend_from_slice(&[0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
            reply
        })
    };
    assert_eq!(ask(&[0xc0, 12]), found("192.0.2.1", 60));
    assert_eq!(ask(b"\x03www\xc0\x10"), found("192.0.2.1", 60));
    assert_eq!(ask(&[0xc0, 29]), Err(Ignored::Malformed), "to itself");
    assert_eq!(ask(&[0xc0, 31]), Err(Ignored::Malformed), "forward");
    assert_eq!(ask(&[0xff, 0xff]), Err(Ignored::Malformed), "out of the message");
    assert_eq!(ask(&[0xc0, 0]), Err(Ignored::Malformed), "into the header");
    assert_eq!(ask(b"\x03www\xc0\x1d"), Err(Ignored::Malformed), "to its own start");
    assert_eq!(ask(&[0x80, 12]), Err(Ignored::Malformed), "reserved label type");
    assert_eq!(ask(&[0x40, 12]), Err(Ignored::Malformed), "reserved label type");
    let endless: Vec<u8> = b"\x01a".repeat(128);
    assert_eq!(ask(&endless), Err(Ignored::Malformed), "longer than a name");
}

#[test]
fn addresses_of_the_wrong_length_are_malformed() {
    let shorten = |query: &[u8]| {
        let mut reply = query[..29].to_vec();
        reply[2] |= 0x80;
        reply[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
        reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 3, 192, 0, 2]);
        reply
    };
    assert_eq!(ask(RecordType::A, shorten), Err(Ignored::Malformed));
}

#[test]
fn every_prefix_of_a_reply_is_ignored() {
    let records = [("www.example", 60, "a.example"), ("a.example", 60, "192.0.2.1")];
    type Maker<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
    let makers: [Maker<'_>; 2] =
        [&|q| answer(q, &records), &|q| negative(q, 3, &records[..1], (900, 60))];
    for maker in makers {
        let name = wire("www.example");
        let reply = maker(&query(&name, RecordType::A, Edns::Offered));
        for len in 0..reply.len() {
            let got = parse_reply(&reply[..len], question(&name, RecordType::A));
            assert_eq!(got, Err(Ignored::Malformed), "{len} of {}", reply.len());
        }
        assert!(parse_reply(&reply, question(&name, RecordType::A)).is_ok());
    }
}

#[test]
fn worst_message_takes_bounded_work() {
    // Every owner is a long chain of pointers to equal labels; more records than are read.
    let name = wire(&"a.".repeat(126));
    let mut reply = query(&name, RecordType::A, Edns::Absent);
    reply[2] |= 0x80;
    reply[6..8].copy_from_slice(&u16::MAX.to_be_bytes());
    while reply.len() + 18 <= MESSAGE_LEN_MAX {
        reply.extend_from_slice(&[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 12]);
    }
    let got = parse_reply(&reply, question(&name, RecordType::A));
    assert_eq!(got, Ok(Reply::Failed(Failure::BadAnswer)));
}

proptest! {
    #[test]
    fn junk_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let name = wire("www.example");
        let _ = parse_reply(&bytes, question(&name, RecordType::A));
    }

    #[test]
    fn junk_after_a_good_question_never_panics(
        counts in any::<[u8; 6]>(),
        flags in any::<[u8; 2]>(),
        body in proptest::collection::vec(prop_oneof![Just(0u8), Just(0xc0), 0..64u8, any::<u8>()], 0..300),
        tcp in any::<bool>(),
    ) {
        let name = wire("www.example");
        let mut reply = query(&name, RecordType::Aaaa, Edns::Absent);
        reply[2..4].copy_from_slice(&[flags[0] | 0x80, flags[1]]);
        for (at, byte) in (6..12).zip(counts) {
            reply[at] = byte % 4 * u8::from(at % 2 == 1);
        }
        reply.extend_from_slice(&body);
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        let _ = parse_reply(&reply, Question { transport, ..question(&name, RecordType::Aaaa) });
    }

    #[test]
    fn flipped_bits_never_panic(at in 0usize..100, bit in 0u8..8) {
        let records = [("www.example", 60, "a.example"), ("a.example", 60, "192.0.2.1")];
        let _ = ask(RecordType::A, |query| {
            let mut reply = negative(query, 0, &records, (900, 60));
            let len = reply.len();
            reply[at % len] ^= 1 << bit;
            reply
        });
    }
}
