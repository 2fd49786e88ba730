use super::Pattern;
use crate::domains::Cover;
use crate::mistake::MistakeKind;

/// The domains that `text` is rewritten to, as rules.
fn rewritten(text: &str) -> Option<Vec<String>> {
    let domains =
        Pattern::parse(text).unwrap_or_else(|kind| panic!("{text}: {kind:?}")).domains()?;
    let rule = |(cover, domain): (Cover, String)| match cover {
        Cover::Host => format!("|{domain}"),
        Cover::Tree => format!("||{domain}"),
        Cover::Below => format!("*.{domain}"),
    };
    Some(domains.into_iter().map(rule).collect())
}

#[test]
fn rewrites_domains_in_other_words() {
    for (text, expected) in [
        (r"(^|\.)a\.com$", "||a.com"),
        (r"(?:^|\.)a\.com$", "||a.com"),
        (r"(\.|^)a\.com$", "||a.com"),
        (r"(?i)(^|\.)A\.Com$", "||a.com"),
        (r"(^|\.)(a|b)\.com$", "||a.com ||b.com"),
        (r"(^|\.)a\.com(\.cn)?$", "||a.com.cn ||a.com"),
        (r"(^|\.)a\.co(?:m|\.uk)$", "||a.com ||a.co.uk"),
        (r"(^|\.)a\.com\.?$", "||a.com"),
        (r"(^|\.)cn$", "||cn"),
        (r"^a\.com$", "|a.com"),
        (r"\Aa\.com\z", "|a.com"),
        (r"^(www\.)?a\.com$", "|www.a.com |a.com"),
        (r"^(a|b)\.com$", "|a.com |b.com"),
        (r"\.a\.com$", "*.a.com"),
        (r".*\.a\.com$", "*.a.com"),
        (r"^.*\.a\.com$", "*.a.com"),
        (r"^.+\.a\.com$", "*.a.com"),
        (r"^[^/]+\.a\.com$", "*.a.com"),
        (r"^(.*\.)?a\.com$", "||a.com"),
        (r"^(?:.+\.)?a\.com$", "||a.com"),
        (r"^([^/]+\.)*a\.(ac|ad)$", "||a.ac ||a.ad"),
        (r"^([^.]+\.)*a\.com$", "||a.com"),
        (r"(^|\.)a\.com$|(^|\.)b\.com$", "||a.com ||b.com"),
        (r"^a\-b\.com$", "|a-b.com"),
        (r"^x{1}\.com$", "|x.com"),
    ] {
        let rules = rewritten(text).map(|rules| rules.join(" "));
        assert_eq!(rules.as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn leaves_what_says_more_than_domains() {
    for text in [
        r"a\.com$",
        r"(^|\.)a\.com",
        r"(^|\.)a.com$",
        r"(^|\.)a[0-9]\.com$",
        r"^[^.]+\.a\.com$",
        r"^([^.]+\.)?a\.com$",
        r"(.*\.)?a\.com$",
        r"(^|-)a\.com$",
        r"(^|\.)a\.com$|b",
        r"\b(a|b)\.com$",
        r"^a+\.com$",
        r"^(a{2,3})\.com$",
        r"^1\.2\.3\.4$",
        r"^\.$",
        r"^$",
        r"$",
        r"(^|\.)a\.\.com$",
        r"(^|\.)(a|b|c|d|e|f|g|h|i|j)(a|b|c|d|e|f|g|h|i|j)(a|b|c|d|e|f|g|h|i|j)\.com$",
    ] {
        assert_eq!(rewritten(text), None, "{text}");
    }
}

#[test]
fn finds_text_that_every_match_has() {
    for (text, expected) in [
        ("google", "google"),
        (r"(^|\.)google\..*$", "google."),
        (r"goo+gle", "gle"),
        (r"^ad[0-9]+\.example\.", ".example."),
        (r"(foo|barbaz)", "foo barbaz"),
        (r"a(foo|barbaz)?longer", "longer"),
        (r"(foobar)+x", "foobar"),
        (r"FOO\.Bar", "foo.bar"),
        (r"a\bbc", "abc"),
    ] {
        let found = Pattern::parse(text).unwrap().literals().unwrap();
        let found: Vec<_> = found.iter().map(|text| String::from_utf8_lossy(text)).collect();
        assert_eq!(found.join(" "), expected, "{text}");
    }
    for text in ["[0-9]+", ".*", "(google)?", "(google|.)", "(google){0,3}", "", r"\d{3}"] {
        assert_eq!(Pattern::parse(text).unwrap().literals(), None, "{text}");
    }
}

#[test]
fn reads_what_the_engine_reads() {
    for text in [
        r"[]a]x",
        r"[^]a]x",
        r"[-a]",
        r"[a\]b]",
        r"[[:alpha:]_]+",
        r"[^[:digit:]]",
        r"\x41\x{41}",
        r"\u0041",
        r"\b{start}a",
        r"(?P<name>a)(?<other>b)",
        r"(?i-s:a)b(?i)c",
        r"a{2}b{2,}c{2,3}",
        r"a*?b+?c??d{2}?",
        r"\<a\>",
        r"\.\-\/\:\|\(\)",
        r"()",
        r"(|a)",
        r"a||b",
        r"\d\D\s\S\w\W\B",
    ] {
        assert!(Pattern::parse(text).is_ok(), "{text}");
        #[cfg(feature = "regex")]
        assert!(regex_lite::Regex::new(text).is_ok(), "{text}");
    }
}

#[test]
fn names_what_is_wrong() {
    use MistakeKind::{BadExpression, BlankInExpression, ExpressionTooLarge, LookAround};

    for (text, expected) in [
        ("(a", BadExpression),
        ("a)", BadExpression),
        ("[a", BadExpression),
        ("[", BadExpression),
        ("[[a]]", BadExpression),
        ("a\\", BadExpression),
        ("\\1", BadExpression),
        ("\\p", BadExpression),
        ("+a", BadExpression),
        ("(?x)a", BadExpression),
        ("(?)a", BadExpression),
        ("(?i)*", BadExpression),
        ("a{3,2}", BadExpression),
        ("a{", BadExpression),
        ("a{-1}", BadExpression),
        ("a{,3}", BadExpression),
        ("a{999}", ExpressionTooLarge),
        ("(?!a)b", LookAround),
        ("(?<=a)b", LookAround),
        ("a#b", BlankInExpression),
        ("a b", BlankInExpression),
        ("a\\ b", BlankInExpression),
    ] {
        assert_eq!(Pattern::parse(text).unwrap_err(), expected, "{text}");
    }
    assert_eq!(Pattern::parse(&"(".repeat(500)).unwrap_err(), ExpressionTooLarge);
    assert_eq!(Pattern::parse(&format!("a{}", "*".repeat(500))).unwrap_err(), ExpressionTooLarge);
}
