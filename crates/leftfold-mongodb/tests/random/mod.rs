//! Documents and filters of any shape, from few names and values, so that they often have to do with each other.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "part of a test")]

use leftfold::react::{Fields, Value};

/// Chance, the same for the same seed (`SplitMix64`).
pub struct Random(u64);

const NAMES: [&str; 7] = ["a", "a", "b", "b", "c", "0", "1"];
const TEXTS: [&str; 12] = ["", "a", "b", "ab", "A", "a\nb", "a\n", "é", "É", "1", "ab 1", "_"];
const PATTERNS: [&str; 44] = [
    "^a",
    "b$",
    "A",
    "a.b",
    "",
    "[ab]",
    r"\d",
    r"\w+$",
    "^$",
    "é",
    "a|b",
    r"\bab?\b",
    "(a)(b)",
    r"\S",
    "[^a]",
    "\n",
    "^b",
    "B?",
    "(?i)AB",
    "a x*",
    r"^\W$",
    r"[\d_]",
    r"[^\w]",
    "^a$",
    r"\Aa\z",
    r"[[:upper:]]",
    r"a\s",
    "a{1,2}$",
    r"^\x61",
    "[[:^alpha:]]",
    r"\p{Lu}",
    "(?s:a.b)",
    "a #b",
    "^.$",
    // Not to be had here, or nowhere.
    "(?=a)",
    r"(a)\1",
    "[",
    "a{",
    "a*+",
    r"\v",
    r"\<a",
    "[a&&b]",
    r"\B",
    "(?m)^a",
];
const OPTIONS: [&str; 8] = ["", "", "", "i", "m", "s", "x", "im"];

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn some<T>(&mut self, least: usize, most: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = least + self.below(most - least + 1);
        (0..count).map(|_| one(self)).collect()
    }

    fn number(&mut self) -> Value {
        let small = i32::try_from(self.below(5)).unwrap() - 2;
        match self.below(20) {
            0..8 => Value::Int32(small),
            8..12 => Value::Int64(small.into()),
            12..15 => Value::Double(small.into()),
            15 => Value::Double(f64::from(small) + 0.5),
            16 => Value::Decimal(format!("{small}.{}", self.below(2) * 5).parse().unwrap()),
            17 => Value::Int64((1 << 53) + i64::from(small)),
            18 => Value::Double(9_007_199_254_740_992.0),
            _ => self
                .pick(&[
                    Value::Double(f64::NAN),
                    Value::Double(f64::INFINITY),
                    Value::Double(f64::NEG_INFINITY),
                    Value::Double(-0.0),
                    Value::Double(0.1),
                    Value::Double(1e300),
                    Value::Int64(i64::MAX),
                    Value::Int64(i64::MIN),
                    Value::Double(9_223_372_036_854_775_808.0),
                    Value::Decimal("NaN".parse().unwrap()),
                    Value::Decimal("-Infinity".parse().unwrap()),
                    Value::Decimal("0.1".parse().unwrap()),
                    Value::Decimal("1E+300".parse().unwrap()),
                    Value::Decimal("9223372036854775807".parse().unwrap()),
                    Value::Decimal("0.1000000000000000055511151231257827".parse().unwrap()),
                ])
                .clone(),
        }
    }

    fn text(&mut self) -> String {
        (*self.pick(&TEXTS)).to_owned()
    }

    fn regex(&mut self) -> Value {
        Value::Regex {
            pattern: (*self.pick(&PATTERNS)).to_owned(),
            options: (*self.pick(&OPTIONS)).to_owned(),
        }
    }

    fn scalar(&mut self) -> Value {
        let low = u32::try_from(self.below(2)).unwrap();
        let byte = u8::try_from(self.below(2)).unwrap();
        match self.below(100) {
            0..40 => self.number(),
            40..62 => Value::String(self.text()),
            62..72 => Value::Null,
            72..78 => Value::Bool(self.percent(50)),
            78..86 => Value::Date(*self.pick(&[-1, 0, 1_000, 2_000, 2_001])),
            86..90 => Value::Id([byte; 12]),
            90..92 => Value::Binary { subtype: byte, bytes: vec![byte; self.below(3)] },
            92 => Value::Timestamp { time: low, increment: 1 },
            93 => Value::Regex { pattern: "^a".into(), options: self.pick(&OPTIONS).to_string() },
            94 => Value::Symbol(self.text()),
            95 => Value::MinKey,
            96 => Value::MaxKey,
            97 => Value::Code(self.text()),
            98 => Value::CodeWithScope(self.text(), self.fields(0)),
            _ if self.percent(50) => Value::Undefined,
            _ => Value::DbPointer { namespace: self.text(), id: [byte; 12] },
        }
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(10) {
            0..3 if depth > 0 => Value::Object(self.fields(depth - 1)),
            3..6 if depth > 0 => Value::Array(self.some(0, 3, |random| random.value(depth - 1))),
            6 if depth > 0 => Value::Array(self.some(1, 3, |random| Value::Object(random.fields(depth - 1)))),
            _ => self.scalar(),
        }
    }

    fn fields(&mut self, depth: usize) -> Fields {
        let mut fields: Fields = Vec::new();
        for (name, value) in self.some(0, 3, |random| (*random.pick(&NAMES), random.value(depth))) {
            if !fields.iter().any(|(known, _)| known == name) {
                fields.push((name.to_owned(), value));
            }
        }
        fields
    }

    /// A document with an id.
    pub fn document(&mut self, id: i32) -> Value {
        let mut fields = vec![("_id".to_owned(), Value::Int32(id))];
        fields.extend(self.fields(4));
        Value::Object(fields)
    }

    /// Some value within a document.
    fn part(&mut self, of: &Value) -> Value {
        let inner = match of {
            Value::Object(fields) if !fields.is_empty() => &self.pick(fields).1,
            Value::Array(items) if !items.is_empty() => self.pick(items),
            _ => return of.clone(),
        };
        if self.percent(40) { inner.clone() } else { self.part(inner) }
    }

    pub fn path(&mut self) -> String {
        let parts = self.some(1, 3, |random| *random.pick(&NAMES));
        parts.join(".")
    }

    /// A filter, with values out of the documents.
    pub fn filter(&mut self, documents: &[Value]) -> Value {
        Filters { random: self, documents }.query(2)
    }
}

struct Filters<'a> {
    random: &'a mut Random,
    documents: &'a [Value],
}

fn object(name: &str, value: Value) -> Value {
    Value::Object(vec![(name.to_owned(), value)])
}

impl Filters<'_> {
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
        let regex = self.random.percent(15);
        let count = self.random.below(4);
        let item = |filters: &mut Self| match regex && filters.random.percent(60) {
            true if filters.random.percent(30) => object("$regex", Value::String(filters.pattern())),
            true => filters.random.regex(),
            false => filters.operand(),
        };
        Value::Array((0..count).map(|_| item(self)).collect())
    }

    fn pattern(&mut self) -> String {
        (*self.random.pick(&PATTERNS)).to_owned()
    }

    fn query(&mut self, depth: usize) -> Value {
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
                let path = self.random.path();
                fields.push((path, self.condition(depth)));
            }
        }
        if self.random.percent(1) {
            fields.push((self.random.pick(&["$gt", "$x", "$not"]).to_string(), self.operand()));
        }
        // BSON documents have each name once, here as there.
        let mut once: Fields = Vec::new();
        for (name, value) in fields {
            if !once.iter().any(|(known, _)| *known == name) {
                once.push((name, value));
            }
        }
        Value::Object(once)
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
        let mut fields: Fields = Vec::new();
        for _ in 0..count {
            for (name, value) in self.operator(depth) {
                if !fields.iter().any(|(known, _)| *known == name) {
                    fields.push((name, value));
                }
            }
        }
        Value::Object(fields)
    }

    fn operator(&mut self, depth: usize) -> Fields {
        let name = *self.random.pick(&[
            "$eq",
            "$eq",
            "$ne",
            "$ne",
            "$gt",
            "$gte",
            "$lt",
            "$lte",
            "$gt",
            "$gte",
            "$lt",
            "$lte",
            "$in",
            "$in",
            "$nin",
            "$nin",
            "$exists",
            "$exists",
            "$type",
            "$type",
            "$regex",
            "$regex",
            "$mod",
            "$mod",
            "$size",
            "$size",
            "$all",
            "$all",
            "$elemMatch",
            "$elemMatch",
            "$elemMatch",
            "$not",
            "$not",
            "$options",
        ]);
        let nonsense = self.random.percent(2);
        let value = match name {
            _ if nonsense => self.operand(),
            "$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte" if self.random.percent(10) => {
                object("$now", Value::String((*self.random.pick(&["0s", "-1s", "+1ms", "1s"])).to_owned()))
            }
            "$in" | "$nin" => self.operands(),
            "$exists" => match self.random.below(10) {
                0 => self.operand(),
                1 => self.random.number(),
                _ => Value::Bool(self.random.percent(50)),
            },
            "$type" => self.types(),
            "$regex" => {
                let value = match self.random.percent(20) {
                    true => self.random.regex(),
                    false => Value::String(self.pattern()),
                };
                let mut fields = vec![(name.to_owned(), value)];
                if self.random.percent(50) {
                    let options = self.random.pick(&["", "i", "m", "s", "x", "mi", "g", "ims"]).to_string();
                    let place = self.random.below(2);
                    fields.insert(place, ("$options".to_owned(), Value::String(options)));
                }
                return fields;
            }
            "$mod" => {
                let numbers = self.random.below(20);
                let count = if numbers == 0 { self.random.below(4) } else { 2 };
                Value::Array((0..count).map(|_| self.random.number()).collect())
            }
            "$size" => match self.random.below(10) {
                0 => self.random.number(),
                size => Value::Int32(i32::try_from(size % 4).unwrap()),
            },
            "$all" if self.random.percent(30) => {
                let count = 1 + self.random.below(2);
                let element = |filters: &mut Self| object("$elemMatch", filters.element(depth));
                Value::Array((0..count).map(|_| element(self)).collect())
            }
            "$all" => self.operands(),
            "$elemMatch" => self.element(depth),
            "$not" => match self.random.below(10) {
                0 => self.random.regex(),
                _ if depth > 0 => self.operators(depth - 1),
                _ => object("$gt", self.operand()),
            },
            _ => self.operand(),
        };
        vec![(name.to_owned(), value)]
    }

    fn element(&mut self, depth: usize) -> Value {
        match self.random.percent(50) {
            true if depth > 0 => self.operators(depth - 1),
            true => object("$lte", self.operand()),
            false if depth > 0 => self.query(depth - 1),
            false => object(&self.random.path(), self.operand()),
        }
    }

    fn types(&mut self) -> Value {
        let one = |filters: &mut Self| match filters.random.below(10) {
            0 => filters.random.number(),
            1..4 => Value::Int32(i32::try_from(filters.random.below(21)).unwrap() - 1),
            _ => {
                let names = [
                    "double",
                    "string",
                    "object",
                    "array",
                    "binData",
                    "objectId",
                    "bool",
                    "date",
                    "null",
                    "regex",
                    "int",
                    "long",
                    "decimal",
                    "number",
                    "timestamp",
                    "minKey",
                    "maxKey",
                    "symbol",
                    "javascript",
                    "nothing",
                ];
                Value::String((*filters.random.pick(&names)).to_owned())
            }
        };
        match self.random.percent(30) {
            true => {
                let count = self.random.below(4);
                Value::Array((0..count).map(|_| one(self)).collect())
            }
            false => one(self),
        }
    }
}
