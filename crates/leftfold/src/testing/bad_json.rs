//! JSON that every entry point must reject, as one table for all their tests.

/// A text that [`Json::strict`](crate::Json::strict) rejects, although many parsers accept it.
#[derive(Clone, Debug)]
pub struct BadJson {
    /// The rule it breaks.
    pub name: &'static str,
    /// The text: an object.
    pub text: String,
    /// The end of the path to the place; empty if the path says little.
    pub path: &'static str,
    /// A part of the reason.
    pub reason: &'static str,
}

impl BadJson {
    /// Returns whether an error names the place and the reason.
    pub fn is_described_by(&self, error: &str) -> bool {
        let place = if self.path.is_empty() { String::new() } else { format!("{}`: ", self.path) };
        error.contains(&place) && error.contains(self.reason)
    }
}

/// Returns texts that break the rules, at least one for each rule.
pub fn bad_json() -> Vec<BadJson> {
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
    let digits = format!(r#"{{"a":{}}}"#, "9".repeat(400));
    let rows = [
        ("the first half of a surrogate pair", r#"{"a":{"b":["\ud83d"]}}"#, "a.b[0]", "surrogate"),
        ("the second half of a surrogate pair", r#"{"a":"\ude00 x"}"#, "a", "surrogate"),
        ("half a surrogate pair in a key", r#"{"\ud83d":1}"#, "", "surrogate"),
        ("depth", &deep, "", "recursion limit"),
        ("a key twice", r#"{"a":{"b":1,"b":2}}"#, "a", "duplicate key"),
        ("a key twice, once escaped", r#"{"a":1,"\u0061":2}"#, "", "duplicate key"),
        ("a number beyond all bounds", r#"{"a":[1,1e999]}"#, "a[1]", "out of range"),
        ("a negative number beyond all bounds", r#"{"a":-1e999}"#, "a", "out of range"),
        ("many digits", &digits, "a", "out of range"),
    ];
    rows.map(|(name, text, path, reason)| BadJson { name, text: text.to_owned(), path, reason }).into()
}
