//! Random filters with every operator, most of them well-formed.

use leftfold_filter::{Fields, Value};

use super::Random;

#[rustfmt::skip]
const OPERATORS: &[&str] = &[
    "$eq", "$eq", "$ne", "$ne", "$gt", "$gte", "$lt", "$lte", "$gt", "$gte", "$lt", "$lte", "$in", "$in", "$nin",
    "$nin", "$exists", "$exists", "$type", "$type", "$regex", "$regex", "$mod", "$mod", "$size", "$size", "$all",
    "$all", "$elemMatch", "$elemMatch", "$elemMatch", "$not", "$not", "$options",
];
#[rustfmt::skip]
const TYPES: &[&str] = &[
    "double", "string", "object", "array", "binData", "objectId", "bool", "date", "null", "regex", "int", "long",
    "decimal", "number", "timestamp", "minKey", "maxKey", "symbol", "javascript", "undefined", "nothing",
];

/// A generator of filters.
pub(super) struct Filters<'a> {
    pub(super) random: &'a mut Random,
    /// The documents that values are taken from.
    pub(super) documents: &'a [Value],
}

fn object(name: &str, value: Value) -> Value {
    Value::Object(vec![(name.to_owned(), value)])
}

/// Removes repeated names, which BSON does not allow.
fn once(fields: Fields) -> Value {
    let mut once: Fields = Vec::new();
    for (name, value) in fields {
        if !once.iter().any(|(known, _)| *known == name) {
            once.push((name, value));
        }
    }
    Value::Object(once)
}

impl Filters<'_> {
    pub(super) fn query(&mut self, depth: usize) -> Value {
        let count = 1 + self.random.below(10) / 7;
        let mut fields = Vec::new();
        for _ in 0..count {
            if depth > 0 && self.random.percent(20) {
                let name = *self.random.pick(&["$and", "$or", "$nor"]);
                let least = usize::from(!self.random.percent(2));
                let count = least + self.random.below(2);
                let queries = (0..count).map(|_| self.query(depth - 1)).collect();
                fields.push((name.to_owned(), Value::Array(queries)));
            } else {
                fields.push((self.random.path(), self.condition(depth)));
            }
        }
        if self.random.percent(1) {
            fields.push((self.random.one_of(&["$gt", "$x", "$not"]), self.operand()));
        }
        once(fields)
    }

    fn condition(&mut self, depth: usize) -> Value {
        match self.random.below(20) {
            0..5 => self.operand(),
            5 => self.random.regex(),
            _ => self.operators(depth),
        }
    }

    fn operators(&mut self, depth: usize) -> Value {
        let count = 1 + self.random.below(10) / 8;
        once((0..count).flat_map(|_| self.operator(depth)).collect())
    }

    fn operator(&mut self, depth: usize) -> Fields {
        let name = *self.random.pick(OPERATORS);
        let nonsense = self.random.percent(2);
        let value = match name {
            _ if nonsense => self.operand(),
            "$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte" if self.random.percent(10) => {
                object("$now", Value::String(self.random.one_of(&["0s", "-1s", "+1ms", "1s"])))
            }
            "$exists" => match self.random.below(10) {
                0 => self.operand(),
                1 => self.random.number(),
                _ => Value::Bool(self.random.percent(50)),
            },
            "$type" if self.random.percent(30) => {
                let count = self.random.below(4);
                Value::Array((0..count).map(|_| self.type_name()).collect())
            }
            "$type" => self.type_name(),
            "$regex" => return self.regex(),
            "$mod" => {
                let count = if self.random.percent(5) { self.random.below(4) } else { 2 };
                Value::Array((0..count).map(|_| self.random.number()).collect())
            }
            "$size" if self.random.percent(10) => self.random.number(),
            "$size" => Value::Int32(i32::try_from(self.random.below(4)).unwrap()),
            "$all" if self.random.percent(30) => {
                let count = 1 + self.random.below(2);
                Value::Array((0..count).map(|_| object("$elemMatch", self.element(depth))).collect())
            }
            "$in" | "$nin" | "$all" => self.operands(),
            "$elemMatch" => self.element(depth),
            "$not" if self.random.percent(10) => self.random.regex(),
            "$not" if depth > 0 => self.operators(depth - 1),
            "$not" => object("$gt", self.operand()),
            _ => self.operand(),
        };
        vec![(name.to_owned(), value)]
    }

    fn operand(&mut self) -> Value {
        match self.random.below(20) {
            0..8 => self.random.scalar(),
            8..10 => self.random.value(2),
            10 => self.random.number(),
            _ => {
                let document = self.random.pick(self.documents);
                self.random.part(document)
            }
        }
    }

    fn operands(&mut self) -> Value {
        let (count, patterns) = (self.random.below(4), if self.random.percent(15) { 60 } else { 0 });
        let mut item = || match (self.random.percent(patterns), self.random.percent(30)) {
            (true, true) => object("$regex", Value::String(self.random.pattern())),
            (true, false) => self.random.regex(),
            (false, _) => self.operand(),
        };
        Value::Array((0..count).map(|_| item()).collect())
    }

    fn regex(&mut self) -> Fields {
        let text = Value::String(self.random.pattern());
        let value = if self.random.percent(20) { self.random.regex() } else { text };
        let mut fields = vec![("$regex".to_owned(), value)];
        if self.random.percent(50) {
            let options = self.random.one_of(&["", "i", "m", "s", "x", "mi", "g", "ims"]);
            fields.insert(self.random.below(2), ("$options".to_owned(), Value::String(options)));
        }
        fields
    }

    fn element(&mut self, depth: usize) -> Value {
        match (self.random.percent(50), depth) {
            (true, 0) => object("$lte", self.operand()),
            (false, 0) => object(&self.random.path(), self.operand()),
            (true, _) => self.operators(depth - 1),
            (false, _) => self.query(depth - 1),
        }
    }

    fn type_name(&mut self) -> Value {
        match self.random.below(10) {
            0 => self.random.number(),
            1..4 => Value::Int32(i32::try_from(self.random.below(21)).unwrap() - 1),
            _ => Value::String(self.random.one_of(TYPES)),
        }
    }
}
