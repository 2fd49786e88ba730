//! Replies for tests, written by the `domain` crate: it shares no code with ours.

use std::net::IpAddr;

use domain::base::iana::{Class, Rcode};
use domain::base::message_builder::{AuthorityBuilder, MessageBuilder};
use domain::base::{Message, Name, Serial, StaticCompressor, Ttl};
use domain::rdata::{A, Aaaa, Cname, Ns, Soa};

/// An answer record: owner, TTL, and an address or the target of an alias.
pub(crate) type Answer<'a> = (&'a str, u32, &'a str);

type Target = StaticCompressor<Vec<u8>>;

/// Answers `query` with these records, from a server that offers recursion.
pub(crate) fn answer(query: &[u8], answers: &[Answer<'_>]) -> Vec<u8> {
    finish(build(query, Rcode::NOERROR, answers))
}

/// Answers `query` with a response code and nothing else.
pub(crate) fn error(query: &[u8], rcode: u8) -> Vec<u8> {
    finish(build(query, Rcode::masked_from_int(rcode), &[]))
}

/// Answers `query` with a response code, these records and an SOA record of these times.
pub(crate) fn negative(
    query: &[u8],
    rcode: u8,
    answers: &[Answer<'_>],
    soa: (u32, u32),
) -> Vec<u8> {
    let mut builder = build(query, Rcode::masked_from_int(rcode), answers);
    let (ttl, minimum) = (Ttl::from_secs(soa.0), Ttl::from_secs(soa.1));
    let hour = Ttl::from_secs(3600);
    let data =
        Soa::new(name("ns.example"), name("admin.example"), Serial(1), hour, hour, hour, minimum);
    builder.push((name("example"), Class::IN, ttl, data)).unwrap();
    finish(builder)
}

/// Answers `query` with a referral: no answer, a nameserver in the authority section, no
/// recursion.
pub(crate) fn referral(query: &[u8]) -> Vec<u8> {
    let mut builder = build(query, Rcode::NOERROR, &[]);
    builder.header_mut().set_ra(false);
    let data = Ns::new(name("ns.example"));
    builder.push((name("example"), Class::IN, Ttl::HOUR, data)).unwrap();
    finish(builder)
}

/// Answers `query` with the truncation bit set.
pub(crate) fn truncated(query: &[u8]) -> Vec<u8> {
    let mut builder = build(query, Rcode::NOERROR, &[]);
    builder.header_mut().set_tc(true);
    finish(builder)
}

fn build(query: &[u8], rcode: Rcode, answers: &[Answer<'_>]) -> AuthorityBuilder<Target> {
    let query = Message::from_octets(query).expect("a query is a message");
    let builder = MessageBuilder::from_target(StaticCompressor::new(Vec::new())).unwrap();
    let mut builder = builder.start_answer(&query, rcode).unwrap();
    builder.header_mut().set_ra(true);
    for &(owner, ttl, data) in answers {
        let (owner, ttl) = (name(owner), Ttl::from_secs(ttl));
        match data.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => builder.push((owner, Class::IN, ttl, A::new(ip))),
            Ok(IpAddr::V6(ip)) => builder.push((owner, Class::IN, ttl, Aaaa::new(ip))),
            Err(_) => builder.push((owner, Class::IN, ttl, Cname::new(name(data)))),
        }
        .unwrap();
    }
    builder.authority()
}

fn finish(builder: AuthorityBuilder<Target>) -> Vec<u8> {
    let mut builder = builder.additional();
    builder
        .opt(|opt| {
            opt.set_udp_payload_size(1232);
            Ok(())
        })
        .unwrap();
    builder.finish().into_target()
}

fn name(text: &str) -> Name<Vec<u8>> {
    Name::vec_from_str(text).expect("a name in a test")
}
