//! Body of the fuzz target, and the oracle of the property tests.

use std::net::IpAddr;

use crate::{AddressError, Host, TARGET_LEN_MAX, Target, TargetBuf};

/// Parses `data` as a target, as a host, and cut short at every length.
///
/// # Panics
/// When an accepted target does not stand for itself, or a prefix of it is taken for one.
pub fn address(data: &[u8]) {
    // What a caller hands over as text obeys the same rules as a name on the wire.
    if let Ok(host) = Host::parse(data) {
        check_host(host);
    }
    match Target::parse(data) {
        Ok((target, used)) => {
            assert!((5..=TARGET_LEN_MAX).contains(&used));
            assert!(used <= data.len(), "took more than there was");
            check_host(target.host);
            check_target(target);
            for len in 0..used {
                let cut = data.get(..len).unwrap_or_default();
                assert_eq!(Target::parse(cut), Err(AddressError::Incomplete), "a prefix");
            }
            let exact = data.get(..used).unwrap_or_default();
            assert_eq!(Target::parse(exact), Ok((target, used)), "depends on what follows");
        }
        Err(AddressError::Incomplete) => assert!(data.len() < TARGET_LEN_MAX, "always incomplete"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_host(host: Host<'_>) {
    match host {
        Host::Ip(IpAddr::V6(ip)) => assert_eq!(ip.to_ipv4_mapped(), None, "IPv4-mapped"),
        Host::Ip(IpAddr::V4(_)) => {}
        Host::Name(name) => {
            assert!((1..=255).contains(&name.len()));
            assert!(name.parse::<IpAddr>().is_err(), "an IP literal as a name");
            assert!(!name.contains(|c: char| c.is_control() || c.is_whitespace()));
        }
    }
}

/// A target in its wire form is read as the same target.
fn check_target(target: Target<'_>) {
    let mut wire = [0xee; TARGET_LEN_MAX + 1];
    let len = target.encode(&mut wire);
    assert_eq!(len, target.encoded_len());
    assert!(wire.iter().skip(len).all(|&b| b == 0xee), "wrote behind the target");
    assert_eq!(Target::parse(&wire), Ok((target, len)), "does not stand for itself");
    let owned = TargetBuf::from(target);
    assert_eq!(owned.target(), target);
    assert_eq!(Some(owned.as_bytes()), wire.get(..len));
}
