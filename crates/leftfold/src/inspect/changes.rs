//! The difference between two documents, bounded in size however large they are.

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde_json::Value;

/// The largest value to show whole, in bytes of JSON.
const VALUE: usize = 2_000;
/// The length of the excerpt of a larger value.
const SHOWN: usize = 500;
/// The length of the text to show before the place where two long texts begin to differ.
const CONTEXT: usize = 40;
/// The maximum number of changes to show.
const MOST: usize = 100;
/// The maximum size of all shown changes, in bytes.
const BYTES: usize = 32 << 10;
/// The longest path, in bytes.
const PATH: usize = 300;

/// A field that changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldChange {
    /// The place in the document, such as `items[0].quantity`; empty for the document itself.
    pub path: String,
    /// The value before, if there was one.
    pub before: Option<Value>,
    /// The value after, if there is one.
    pub after: Option<Value>,
    /// `true` if a value is too large to show. It is then a string with the part where the two
    /// differ.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// The changes from one document to another: the first ones, and the number of the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) shown: Vec<FieldChange>,
    pub(crate) left_out: u64,
}

impl Changes {
    /// Compares two documents field by field.
    pub(crate) fn between(before: Option<&Value>, after: Option<&Value>) -> Self {
        let mut comparison = Comparison { found: Self::default(), path: Vec::new(), bytes: 0 };
        comparison.compare(before, after);
        comparison.found
    }
}

struct Comparison<'v> {
    found: Changes,
    path: Vec<Step<'v>>,
    bytes: usize,
}

/// A step of a path in a document.
#[derive(Clone, Copy)]
enum Step<'v> {
    Key(&'v str),
    Index(usize),
}

impl<'v> Comparison<'v> {
    fn compare(&mut self, before: Option<&'v Value>, after: Option<&'v Value>) {
        match (before, after) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => {
                let mut keys: Vec<_> = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))).collect();
                keys.sort();
                for key in keys {
                    self.within(Step::Key(key), a.get(key), b.get(key));
                }
            }
            (Some(Value::Array(a)), Some(Value::Array(b))) => self.compare_lists(a, b),
            (before, after) if before == after => {}
            // Show a large value that was added or removed by its parts.
            (None, Some(Value::Object(fields))) if !fields.is_empty() && !after.is_none_or(fits) => {
                fields.iter().for_each(|(key, value)| self.within(Step::Key(key), None, Some(value)));
            }
            (Some(Value::Object(fields)), None) if !fields.is_empty() && !before.is_none_or(fits) => {
                fields.iter().for_each(|(key, value)| self.within(Step::Key(key), Some(value), None));
            }
            (None, Some(Value::Array(items))) if !items.is_empty() && !after.is_none_or(fits) => {
                (0..).zip(items).for_each(|(at, item)| self.within(Step::Index(at), None, Some(item)));
            }
            (Some(Value::Array(items)), None) if !items.is_empty() && !before.is_none_or(fits) => {
                (0..).zip(items).for_each(|(at, item)| self.within(Step::Index(at), Some(item), None));
            }
            (before, after) => self.add(before, after),
        }
    }

    fn within(&mut self, step: Step<'v>, before: Option<&'v Value>, after: Option<&'v Value>) {
        self.path.push(step);
        self.compare(before, after);
        self.path.pop();
    }

    /// Compares two lists. Items that were only inserted or only removed are shown as such.
    /// Otherwise it compares items at the same index.
    fn compare_lists(&mut self, a: &'v [Value], b: &'v [Value]) {
        let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let (rest_a, rest_b) = (&a[same..], &b[same..]);
        let end = rest_a.iter().rev().zip(rest_b.iter().rev()).take_while(|(a, b)| a == b).count();
        let (gone, new) = (&rest_a[..rest_a.len() - end], &rest_b[..rest_b.len() - end]);
        if gone.is_empty() || new.is_empty() {
            (same..).zip(gone).for_each(|(at, item)| self.within(Step::Index(at), Some(item), None));
            (same..).zip(new).for_each(|(at, item)| self.within(Step::Index(at), None, Some(item)));
        } else {
            for at in same..a.len().max(b.len()) {
                self.within(Step::Index(at), a.get(at), b.get(at));
            }
        }
    }

    fn add(&mut self, before: Option<&Value>, after: Option<&Value>) {
        if self.found.shown.len() >= MOST || self.bytes >= BYTES {
            self.found.left_out += 1;
            return;
        }
        let cut = !before.is_none_or(fits) || !after.is_none_or(fits);
        let (before, after) = if cut { excerpts(before, after) } else { (before.cloned(), after.cloned()) };
        let path = self.path();
        self.bytes += path.len() + [&before, &after].into_iter().flatten().map(size).sum::<usize>();
        self.found.shown.push(FieldChange { path, before, after, cut });
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            // Writing to a string does not fail.
            let _ = match step {
                Step::Key(key) if path.is_empty() => path.write_str(key),
                Step::Key(key) => write!(path, ".{key}"),
                Step::Index(at) => write!(path, "[{at}]"),
            };
            if path.len() > PATH {
                path.truncate(path.floor_char_boundary(PATH));
                path.push('…');
                break;
            }
        }
        path
    }
}

/// Returns excerpts of two values, from shortly before the place where they begin to differ.
fn excerpts(before: Option<&Value>, after: Option<&Value>) -> (Option<Value>, Option<Value>) {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let (before, after) = (before.map(text), after.map(text));
    let from = match (&before, &after) {
        (Some(a), Some(b)) => a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    let excerpt = |text: String| Value::String(excerpt(&text, from));
    (before.map(excerpt), after.map(excerpt))
}

fn excerpt(text: &str, from: usize) -> String {
    let start = text.floor_char_boundary(from.saturating_sub(CONTEXT));
    let end = text.floor_char_boundary(text.len().min(start + SHOWN));
    let (head, tail) = (if start > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" });
    format!("{head}{}{tail} ({} bytes)", &text[start..end], text.len())
}

/// Counts bytes, up to a bound.
struct Counter {
    bytes: usize,
    most: usize,
}

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len();
        if self.bytes > self.most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether a value is small enough to show whole. It stops reading at the limit.
fn fits(value: &Value) -> bool {
    serde_json::to_writer(Counter { bytes: 0, most: VALUE }, value).is_ok()
}

fn size(value: &Value) -> usize {
    let mut counter = Counter { bytes: 0, most: usize::MAX };
    // This counter has no limit to exceed.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn between(before: &Value, after: &Value) -> Vec<(String, Option<Value>, Option<Value>)> {
        let Changes { shown, left_out } = Changes::between(Some(before), Some(after));
        assert_eq!(left_out, 0);
        shown.into_iter().map(|change| (change.path, change.before, change.after)).collect()
    }

    #[test]
    fn changes_name_the_innermost_fields() {
        let before = json!({"a": 1, "list": [{"n": 1}, {"n": 2}], "gone": true, "same": {"x": []}});
        let after = json!({"a": 2, "list": [{"n": 1}], "new": null, "same": {"x": []}});
        let found = between(&before, &after);
        let seen: Vec<_> = found.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(seen, ["a", "gone", "list[1]", "new"]);
        assert_eq!(found[2], ("list[1]".into(), Some(json!({"n": 2})), None));
        assert_eq!(Changes::between(None, Some(&after)).shown[0].path, "");
        assert_eq!(between(&after, &after), []);
    }

    #[test]
    fn what_is_inserted_or_removed_moves_nothing_else() {
        let found = between(&json!(["a", "b", "c"]), &json!(["b", "c"]));
        assert_eq!(found, [("[0]".into(), Some(json!("a")), None)]);
        let found = between(&json!(["a", "c"]), &json!(["a", "x", "y", "c"]));
        let expected = [("[1]".into(), None, Some(json!("x"))), ("[2]".into(), None, Some(json!("y")))];
        assert_eq!(found, expected);
        let found = between(&json!([{"n": 1}, 2, 3]), &json!([{"n": 2}, 2]));
        assert_eq!(found.iter().map(|(path, ..)| path.as_str()).collect::<Vec<_>>(), ["[0].n", "[2]"]);
    }

    #[test]
    fn the_part_that_differs_is_shown() {
        let text =
            |end: &str| json!({ "text": format!("{}{end}{}", "x".repeat(100_000), "y".repeat(9_000)) });
        let Changes { shown, .. } = Changes::between(Some(&text("before")), Some(&text("after")));
        let [FieldChange { path, before, after, cut: true }] = &shown[..] else { panic!("{shown:?}") };
        assert_eq!(path, "text");
        let (before, after) = (before.as_ref().unwrap().to_string(), after.as_ref().unwrap().to_string());
        assert!(before.contains("xxxbeforey") && before.contains("(109006 bytes)"), "{before}");
        assert!(after.contains("xxxaftery") && after.len() < 700, "{after}");
        assert!(between(&json!("é".repeat(3_000)), &json!(1))[0].1.as_ref().unwrap().is_string());
    }

    #[test]
    fn however_large_the_documents_are_the_difference_is_small() {
        let large = |number: i32| -> Value {
            let items: Vec<_> = (0..20_000).map(|at| json!({ "at": at, "number": number })).collect();
            json!({ "items": items, "key".repeat(10_000): number, "text": number.to_string().repeat(50_000) })
        };
        let (one, two) = (large(1), large(2));
        for (before, after) in
            [(Some(&one), Some(&two)), (None, Some(&one)), (Some(&one), None), (Some(&json!(1)), Some(&one))]
        {
            let Changes { shown, left_out } = Changes::between(before, after);
            let bytes: usize = shown.iter().map(|change| serde_json::to_string(change).unwrap().len()).sum();
            assert!(!shown.is_empty() && shown.len() <= MOST && bytes < 2 * BYTES, "{bytes} bytes");
            assert_eq!(left_out > 0, shown.len() == MOST);
        }
    }
}
