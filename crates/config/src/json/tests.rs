//! Every oddity that some program writes, and every place where reading stops.

use proptest::prelude::*;

use super::*;

fn root(text: &str) -> Node {
    parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}")).root.node
}

/// Shows a value in strict JSON, to compare trees in one line.
fn show(node: &Node) -> String {
    match node {
        Node::Null => "null".into(),
        Node::Bool(value) => value.to_string(),
        Node::Integer(value) => value.to_string(),
        Node::Float(value) => format!("{value:?}"),
        Node::Text(text) => format!("{:?}", text.as_str()),
        Node::Array(items) => {
            format!("[{}]", items.iter().map(|v| show(&v.node)).collect::<Vec<_>>().join(","))
        }
        Node::Object(members) => {
            let members = members.iter().map(|m| format!("{:?}:{}", m.name, show(&m.value.node)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
    }
}

#[test]
fn reads_every_accepted_form() {
    for (text, tree) in [
        (r#"{"a":1}"#, r#"{"a":1}"#),
        ("\u{feff}{\"a\": 1, }", r#"{"a":1}"#),
        ("[1, 2, ]", "[1,2]"),
        ("// head\n{/* in */ a: 'x', $b_1: \"y\",} // tail", r#"{"a":"x","$b_1":"y"}"#),
        ("{'it''s': 1}".replace("''", "\\'").as_str(), r#"{"it's":1}"#),
        ("[0x1F, -0x10, +5, -5, 0, -0]", "[31,-16,5,-5,0,0]"),
        ("[.5, 5., 1e3, 1E-2, -1.5e+1]", "[0.5,5.0,1000.0,0.01,-15.0]"),
        ("[Infinity, -Infinity, NaN]", "[inf,-inf,NaN]"),
        ("[99999999999999999999]", "[1e20]"),
        ("[true, false, null]", "[true,false,null]"),
        (r#"["\"\\\/\b\f\n\r\t\u0041\x42\v"]"#, r#"["\"\\/\u{8}\u{c}\n\r\tAB\u{b}"]"#),
        (r#"["\ud83d\ude00"]"#, "[\"😀\"]"),
        ("[\"a\\\nb\", 'c\\\r\nd']", r#"["ab","cd"]"#),
        ("{\"a\"\u{a0}:\u{2028}1}", r#"{"a":1}"#),
        ("{ключ: 'значение'}", r#"{"ключ":"значение"}"#),
        ("{}", "{}"),
        ("[\"\ttab\"]", r#"["\ttab"]"#),
    ] {
        assert_eq!(show(&root(text)), tree, "{text}");
    }
}

#[test]
fn last_duplicate_wins_and_is_reported() {
    let document = parse(b"{\"a\": 1, \"b\": 2,\n  \"a\": 3}").unwrap();
    assert_eq!(show(&document.root.node), r#"{"a":3,"b":2}"#);
    assert_eq!(document.duplicates, [(Position { line: 2, column: 3 }, "a".to_owned())]);
}

#[test]
fn knows_where_values_are() {
    let document = parse("{\n  \"é\": [1,\n   {x: null}]\n}".as_bytes()).unwrap();
    let Node::Object(members) = &document.root.node else { panic!("an object") };
    assert_eq!(members[0].position, Position { line: 2, column: 3 });
    assert_eq!(members[0].value.position, Position { line: 2, column: 8 });
    let Node::Array(items) = &members[0].value.node else { panic!("an array") };
    assert_eq!(items[1].position, Position { line: 3, column: 4 });
}

#[test]
fn stops_at_the_first_error() {
    for (text, line, column) in [
        ("{\"a\" 1}", 1, 6),
        ("{\"a\": 1 \"b\": 2}", 1, 9),
        ("{\n\"a\": }", 2, 6),
        ("[1,, 2]", 1, 4),
        ("{,}", 1, 2),
        ("{\"a\": \"open}", 1, 7),
        ("{\"a\": \"open\n\"}", 1, 7),
        ("{\"a\": yes}", 1, 7),
        ("{\"a\": 08388}", 1, 7),
        ("{\"a\": 1x}", 1, 7),
        ("{\"a\": 0x}", 1, 7),
        ("{\"a\": -}", 1, 7),
        ("{\"a\": --1}", 1, 7),
        ("{\"a\": 1.2.3}", 1, 7),
        ("{\"a\": -inf}", 1, 7),
        ("{\"a\": \"\\u12\"}", 1, 12),
        ("{\"a\": \"\\ud800\"}", 1, 9),
        ("{\"a\": \"\\1\"}", 1, 9),
        ("{} x", 1, 4),
        ("{\"a\": 1", 1, 8),
        ("[", 1, 2),
        ("/* open", 1, 1),
        ("{1: 2}", 1, 2),
        ("{\"a\": 0x8000000000000000}", 1, 7),
    ] {
        let error = parse(text.as_bytes()).expect_err(text);
        assert_eq!(error.position(), Some(Position { line, column }), "{text}: {error}");
    }
}

#[test]
fn bounds_size_and_depth() {
    assert_eq!(parse(b"").unwrap_err(), Error::Empty);
    assert_eq!(parse("\u{feff} // nothing".as_bytes()).unwrap_err(), Error::Empty);
    assert_eq!(parse(&vec![b' '; SIZE_MAX + 1]).unwrap_err(), Error::TooLong);
    assert!(parse("[".repeat(DEPTH_MAX).as_bytes()).is_err_and(|e| e != too_deep()));
    assert_eq!(parse("[".repeat(DEPTH_MAX + 1).as_bytes()).unwrap_err(), too_deep());
    let at = Position { line: 2, column: 2 };
    assert_eq!(parse(b"{\n \xff}").unwrap_err(), Error::NotUtf8(at));
}

#[test]
fn bounds_the_names_of_an_object() {
    let object = |count: usize| {
        let names: String = (0..count).map(|i| format!("n{i}: 0,")).collect();
        parse(format!("{{{names}}}").as_bytes())
    };
    assert!(object(MEMBERS_MAX).is_ok());
    assert!(object(MEMBERS_MAX + 1).unwrap_err().to_string().contains("2048 names"));
}

fn too_deep() -> Error {
    Error::TooDeep(Position { line: 1, column: u32::try_from(DEPTH_MAX).unwrap() + 1 })
}

#[test]
fn debug_output_hides_values() {
    let document = parse(b"{\"password\": \"hunter2\"}").unwrap();
    assert!(!format!("{document:?}").contains("hunter2"));
}

proptest! {
    #[test]
    fn junk_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzz::config_file(&bytes);
    }

    #[test]
    fn near_json_never_panics(text in "[\\[\\]{}:,'\"\\\\/*0-9a-fxu.+ \n-]{0,60}") {
        crate::fuzz::config_file(text.as_bytes());
    }

    #[test]
    fn reads_what_a_strict_writer_writes(text in any::<String>(), number in any::<i32>()) {
        let written = serde_json::json!({ "k": [&text, number] }).to_string();
        let node = root(&written);
        let Node::Object(members) = &node else { panic!("an object") };
        let Node::Array(items) = &members[0].value.node else { panic!("an array") };
        prop_assert!(matches!(&items[0].node, Node::Text(t) if **t == text));
        prop_assert!(matches!(items[1].node, Node::Integer(n) if n == i64::from(number)));
    }
}
