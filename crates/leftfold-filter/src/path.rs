//! Dotted paths, and the values that they reach in a document.
//!
//! A path passes an array in two ways: to the element at an index, and to all objects among the
//! elements. So it may reach several values, or none.

use crate::value::Value;

/// The maximum number of parts, which is more than documents have levels.
const MAX_PARTS: usize = 100;

/// Splits a dotted path into its parts. The error is the expected form.
pub(crate) fn parts(path: &str) -> Result<Vec<&str>, String> {
    let parts: Vec<_> = path.split('.').collect();
    if parts.iter().any(|part| part.is_empty() || part.starts_with('$') || part.contains('\0')) {
        return Err("a path of names with dots between them, none of them empty or beginning with $".into());
    }
    if parts.len() > MAX_PARTS {
        return Err(format!("a path of at most {MAX_PARTS} names"));
    }
    Ok(parts)
}

/// A dotted path.
#[derive(Clone, Debug)]
pub(crate) struct Path(Vec<Part>);

#[derive(Clone, Debug)]
struct Part {
    name: String,
    /// The part as an index of an array, if it is a number.
    index: Option<usize>,
}

/// The treatment of an array at which a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The elements are tested, and then the array itself.
    Within,
    /// Only the array itself is tested.
    AtArray,
}

impl Path {
    pub(crate) fn parse(path: &str) -> Result<Self, String> {
        let part = |name: &str| {
            let index = name.parse().ok().filter(|index: &usize| index.to_string() == name);
            Part { name: name.to_owned(), index }
        };
        Ok(Self(parts(path)?.into_iter().map(part).collect()))
    }

    /// Returns how many parts may be an index. Each of them may also be a name, and so doubles the
    /// number of ways to follow.
    pub(crate) fn indexes(&self) -> usize {
        self.0.iter().filter(|part| part.index.is_some()).count()
    }

    /// Returns whether `wanted` accepts a value that the path reaches. `None` stands for a missing
    /// value.
    pub(crate) fn any(
        &self,
        root: &Value,
        ends: Ends,
        wanted: &mut dyn FnMut(Option<&Value>) -> bool,
    ) -> bool {
        Walk { ends, wanted }.down(root, &self.0)
    }
}

struct Walk<'a> {
    ends: Ends,
    wanted: &'a mut dyn FnMut(Option<&Value>) -> bool,
}

impl Walk<'_> {
    /// Descends from an object, or an array that counts as one, to the first array on the way or to
    /// the end.
    fn down(&mut self, root: &Value, path: &[Part]) -> bool {
        let mut at = root;
        for (depth, part) in path.iter().enumerate() {
            let rest = &path[depth + 1..];
            at = match (field(at, part), rest) {
                (Some(array @ Value::Array(items)), []) if self.ends == Ends::Within => {
                    return items.iter().any(|item| (self.wanted)(Some(item))) || (self.wanted)(Some(array));
                }
                (Some(Value::Array(items)), [next, ..]) => return self.each(items, next, rest),
                (Some(next @ Value::Object(_)), _) | (Some(next), []) => next,
                _ => return (self.wanted)(None),
            };
        }
        (self.wanted)(Some(at))
    }

    /// Descends into the elements of an array, where the path continues.
    fn each(&mut self, items: &[Value], next: &Part, path: &[Part]) -> bool {
        let rest = &path[1..];
        items.iter().enumerate().any(|(index, item)| {
            let here = next.index == Some(index);
            match (item, rest) {
                (Value::Object(_), _) if self.down(item, path) => true,
                (_, []) => here && (self.wanted)(Some(item)),
                (Value::Object(_), _) => here && self.down(item, rest),
                (Value::Array(items), [next, ..]) => here && self.each(items, next, rest),
                _ => false,
            }
        })
    }
}

fn field<'a>(of: &'a Value, part: &Part) -> Option<&'a Value> {
    match of {
        Value::Array(items) => items.get(part.index?),
        _ => of.get(&part.name),
    }
}
