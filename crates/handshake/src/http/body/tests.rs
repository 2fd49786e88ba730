use proptest::prelude::*;

use super::*;

/// Takes `bytes` whole, and checks that single bytes give the same.
#[track_caller]
fn take(mut body: Body, bytes: &[u8]) -> Result<(usize, bool), BodyError> {
    let mut single = body;
    let singles =
        bytes.iter().try_fold(0, |taken, byte| single.take(&[*byte]).map(|count| taken + count));
    let whole = body.take(bytes);
    assert_eq!(whole, singles);
    whole.map(|taken| {
        assert_eq!(body, single);
        (taken, body.is_complete())
    })
}

#[test]
fn counts_fixed_lengths() {
    assert_eq!(take(Body::None, b"next"), Ok((0, true)));
    assert_eq!(take(Body::Length(0), b"next"), Ok((0, true)));
    assert_eq!(take(Body::Length(3), b"ab"), Ok((2, false)));
    assert_eq!(take(Body::Length(3), b"abcGET"), Ok((3, true)));
    assert_eq!(take(Body::Length(u64::MAX), b"abc"), Ok((3, false)));
}

#[test]
fn finds_the_end_of_chunks() {
    let extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(255));
    let cases = [
        "0\r\n\r\n",
        "000\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
        "00000000000000001\r\nx\r\n0\r\n\r\n".strip_prefix('0').unwrap(),
        "4\r\n\r\n\r\n\r\n0\r\n\r\n",
        "3;name=\"v v\";b\t\r\nabc\r\n0;last\r\n\r\n",
        "0\r\nX-T: a\r\nY:\r\n\r\n",
        "0\r\nX-T: \u{e9}\t:\r\n\r\n",
        &extension,
    ];
    for text in cases {
        for len in 0..text.len() {
            assert_eq!(take(Body::chunked(), &text.as_bytes()[..len]), Ok((len, false)), "{text}");
        }
        assert_eq!(take(Body::chunked(), text.as_bytes()), Ok((text.len(), true)), "{text}");
        let more = format!("{text}GET /smuggled HTTP/1.1\r\n\r\n");
        assert_eq!(take(Body::chunked(), more.as_bytes()), Ok((text.len(), true)), "{text}");
    }
}

#[test]
fn refuses_ambiguous_chunks() {
    let long_extension = format!("1;{}\r\n", "e".repeat(257));
    let long_trailer = format!("0\r\nX: {}", "t".repeat(8190));
    let many_trailers = format!("0\r\n{}", "X: yz\r\n".repeat(8192 / 5 + 1));
    let cases = [
        ("\r\n", BodyError::Size),
        (";x\r\n", BodyError::Size),
        (" 5\r\n", BodyError::Size),
        ("5 \r\n", BodyError::Size),
        ("0x5\r\n", BodyError::Size),
        ("-1\r\n", BodyError::Size),
        ("g\r\n", BodyError::Size),
        ("5\nhello", BodyError::Size),
        ("10000000000000000\r\n", BodyError::Size),
        ("00000000000000001\r\n", BodyError::Size),
        ("5;a\nhello", BodyError::Extension),
        ("5;a\0\r\n", BodyError::Extension),
        (&long_extension, BodyError::Extension),
        ("5\rhello", BodyError::LineEnd),
        ("5;a\rb\r\n", BodyError::LineEnd),
        ("5\r\nhello!\r\n", BodyError::LineEnd),
        ("5\r\nhello\n0\r\n\r\n", BodyError::LineEnd),
        ("5\r\nhello\r0\r\n\r\n", BodyError::LineEnd),
        ("0\r\n\rX", BodyError::LineEnd),
        ("0\r\nX: a\rb", BodyError::LineEnd),
        ("0\r\n\n", BodyError::Trailer),
        ("0\r\nX: a\n", BodyError::Trailer),
        ("0\r\nX: a\0\r\n", BodyError::Trailer),
        ("0\r\n: a\r\n", BodyError::Trailer),
        ("0\r\n X: a\r\n", BodyError::Trailer),
        ("0\r\nX: a\r\n folded\r\n", BodyError::Trailer),
        ("0\r\nX : a\r\n", BodyError::Trailer),
        ("0\r\nX\r\n", BodyError::Trailer),
        (&long_trailer, BodyError::Trailer),
        (&many_trailers, BodyError::Trailer),
    ];
    for (text, error) in cases {
        assert_eq!(take(Body::chunked(), text.as_bytes()), Err(error), "{text:?}");
    }
}

#[test]
fn takes_chunks_of_any_size() {
    let mut body = Body::chunked();
    assert_eq!(body.take(b"ffffffffffffffff\r\n"), Ok(18));
    assert_eq!(body.take(&vec![7; 100_000]), Ok(100_000));
    assert!(!body.is_complete());
}

proptest! {
    #[test]
    fn split_does_not_matter(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..80), 0..8),
        behind in proptest::collection::vec(any::<u8>(), 0..20),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        let body_len = bytes.len();
        bytes.extend_from_slice(&behind);

        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut body = Body::chunked();
        let mut taken = 0;
        for pair in cuts.windows(2) {
            taken += body.take(&bytes[pair[0]..pair[1]]).unwrap();
        }
        prop_assert_eq!(taken, body_len);
        prop_assert!(body.is_complete());
    }

    #[test]
    fn damage_does_not_panic(
        chunks in proptest::collection::vec((0..20_usize, "(;[a-z=]{1,5})?"), 1..6),
        trailer in "(X-[A-Z]{1,3}: ?[a-z]{0,5}\r\n){0,3}",
        seed in any::<u8>(), at in any::<prop::sample::Index>(), with in any::<u8>(),
    ) {
        let mut bytes = vec![2, seed];
        for (len, extension) in &chunks {
            let data = "d".repeat(*len);
            bytes.extend_from_slice(format!("{len:x}{extension}\r\n{data}\r\n").as_bytes());
        }
        bytes.extend_from_slice(format!("0\r\n{trailer}\r\nbehind").as_bytes());
        crate::fuzz::forward(&bytes);
        let at = 2 + at.index(bytes.len() - 2);
        bytes[at] = with;
        crate::fuzz::forward(&bytes);
    }
}
