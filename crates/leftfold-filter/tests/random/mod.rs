//! Random documents and filters of any shape. They use few names and values, so that filters often
//! match.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "part of a test")]

mod filters;

use leftfold_filter::{Fields, Value};

use self::filters::Filters;

/// A random number generator that is deterministic for a seed (`SplitMix64`).
pub struct Random(u64);

const NAMES: [&str; 7] = ["a", "a", "b", "b", "c", "0", "1"];
const TEXTS: [&str; 12] = ["", "a", "b", "ab", "A", "a\nb", "a\n", "é", "É", "1", "ab 1", "_"];
#[rustfmt::skip]
const PATTERNS: &[&str] = &[
    "^a", "b$", "A", "a.b", "", "[ab]", r"\d", r"\w+$", "^$", "é", "a|b", r"\bab?\b", "(a)(b)", r"\S",
    "[^a]", "\n", "^b", "B?", "(?i)AB", "a x*", r"^\W$", r"[\d_]", r"[^\w]", "^a$", r"\Aa\z",
    r"[[:upper:]]", r"a\s", "a{1,2}$", r"^\x61", "[[:^alpha:]]", r"\p{Lu}", "(?s:a.b)", "a #b", "^.$",
    // Patterns that are unsupported here or everywhere.
    "(?=a)", r"(a)\1", "[", "a{", "a*+", r"\v", r"\<a", "[a&&b]", r"\B", "(?m)^a",
];
/// The parts of random patterns.
#[rustfmt::skip]
const TOKENS: &[&str] = &[
    "a", "a", "b", "A", "é", "\n", "1", " ", "_", ".", "^", "$", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S",
    r"\b", r"\A", r"\z", "*", "+", "?", "*?", "{2}", "{1,}", "|", "(", ")", "(?:", "(?i)", "(?i:", "[ab]",
    "[^a]", "[a-c]", r"[\d_]", r"[^\s]", r"[\W]", "[[:alpha:]]", "[[:^digit:]]", r"\.", r"\t", r"\x61",
    "#", "-",
];
const CHARACTERS: &[char] = &['a', 'a', 'b', 'A', 'é', '\n', '1', ' ', '_', '#'];
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

    fn one_of(&mut self, texts: &[&str]) -> String {
        (*self.pick(texts)).to_owned()
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
        if self.percent(80) {
            return self.one_of(&TEXTS);
        }
        self.characters()
    }

    /// Returns a random text.
    pub fn characters(&mut self) -> String {
        self.some(0, 4, |random| *random.pick(CHARACTERS)).into_iter().collect()
    }

    fn pattern(&mut self) -> String {
        if self.percent(50) {
            return self.one_of(PATTERNS);
        }
        self.some(1, 4, |random| *random.pick(TOKENS)).concat()
    }

    pub fn regex(&mut self) -> Value {
        Value::Regex { pattern: self.pattern(), options: self.one_of(&OPTIONS) }
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
            93 => Value::Regex { pattern: "^a".into(), options: self.one_of(&OPTIONS) },
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

    /// Returns a random document with this id.
    pub fn document(&mut self, id: i32) -> Value {
        let mut fields = vec![("_id".to_owned(), Value::Int32(id))];
        for name in ["b", "a", "c", "0", "1"] {
            if self.percent(60) {
                fields.push((name.to_owned(), self.value(4)));
            }
        }
        Value::Object(fields)
    }

    /// Returns a random value within a document.
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

    /// Returns a random filter that uses values of the documents.
    pub fn filter(&mut self, documents: &[Value]) -> Value {
        Filters { random: self, documents }.query(2)
    }
}
