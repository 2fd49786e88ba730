//! The shared known answers (`tests/vectors/shadowsocks.json`), as the tests here read them.

use serde_json::Value;

const FILE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/shadowsocks.json"));

/// The list of cases under `name`.
pub(crate) fn cases(name: &str) -> Vec<Value> {
    let mut file: Value = serde_json::from_str(FILE).unwrap();
    let Value::Array(cases) = file[name].take() else {
        panic!("no list of vectors named {name}");
    };
    cases
}

/// A text field of a case.
pub(crate) fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("no text {field} in {case}"))
}

/// A hex field of a case.
pub(crate) fn bytes(case: &Value, field: &str) -> Vec<u8> {
    hex(text(case, field))
}

/// Decodes hex.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 2, 0, "hex has two digits a byte");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
