//! The fast path to the canonical text, straight from JSON text without special cases: most
//! documents are like that.
//!
//! It leaves all other documents to [the slow path](super::canonical): fields that begin with `$`
//! or are duplicate, names that are not ASCII, escapes in strings, numbers other than short
//! integers, and deep nesting.

/// Returns the canonical text, or `None` if it needs the slow path.
pub(super) fn text(json: &str) -> Option<String> {
    let mut reader = Reader { from: json.as_bytes(), at: 0, out: Vec::with_capacity(json.len()), depth: 0 };
    reader.value()?;
    reader.spaces();
    if reader.at < reader.from.len() {
        return None;
    }
    String::from_utf8(reader.out).ok()
}

/// The maximum depth of the fast path.
const DEPTH: usize = 32;
/// The number of digits that always fit in 64 bits.
const DIGITS: usize = 18;

struct Reader<'j> {
    from: &'j [u8],
    at: usize,
    out: Vec<u8>,
    depth: usize,
}

/// A field: its name, and the range of its text in the output.
struct Field<'j> {
    name: &'j [u8],
    begin: usize,
    end: usize,
}

impl<'j> Reader<'j> {
    fn value(&mut self) -> Option<()> {
        self.spaces();
        match self.from.get(self.at)? {
            b'{' => self.object(),
            b'[' => self.array(),
            b'"' => {
                self.string()?;
                Some(())
            }
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn object(&mut self) -> Option<()> {
        self.enter(b'{')?;
        let begin = self.out.len();
        let mut fields: Vec<Field<'j>> = Vec::with_capacity(8);
        if self.ends(b'}')? {
            return Some(());
        }
        loop {
            self.spaces();
            let field = self.out.len();
            let name = self.string()?;
            if name.starts_with(b"$") || !name.is_ascii() {
                return None;
            }
            self.spaces();
            self.take(b':')?;
            self.value()?;
            fields.push(Field { name, begin: field, end: self.out.len() });
            if self.ends(b'}')? {
                break;
            }
            self.take(b',')?;
        }
        if !fields.is_sorted_by(|one, other| one.name < other.name) {
            self.sort(begin, fields)?;
        }
        Some(())
    }

    /// Sorts fields that were written in their original order. Returns `None` if one is a
    /// duplicate.
    fn sort(&mut self, begin: usize, mut fields: Vec<Field<'j>>) -> Option<()> {
        fields.sort_unstable_by_key(|field| field.name);
        if fields.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return None;
        }
        // This includes everything but the opening bracket of the object.
        let written = self.out.split_off(begin);
        for (number, Field { begin: first, end, .. }) in fields.into_iter().enumerate() {
            if number > 0 {
                self.out.push(b',');
            }
            self.out.extend_from_slice(written.get(first - begin..end - begin)?);
        }
        self.out.push(b'}');
        Some(())
    }

    fn array(&mut self) -> Option<()> {
        self.enter(b'[')?;
        if self.ends(b']')? {
            return Some(());
        }
        loop {
            self.value()?;
            if self.ends(b']')? {
                return Some(());
            }
            self.take(b',')?;
        }
    }

    /// Copies a string without escapes. Returns it without its quotes.
    fn string(&mut self) -> Option<&'j [u8]> {
        if *self.from.get(self.at)? != b'"' {
            return None;
        }
        let rest = self.from.get(self.at + 1..)?;
        let length = memchr::memchr2(b'"', b'\\', rest)?;
        if rest[length] != b'"' || rest[..length].iter().any(|byte| *byte < b' ') {
            return None;
        }
        self.out.extend_from_slice(&self.from[self.at..self.at + length + 2]);
        self.at += length + 2;
        Some(&rest[..length])
    }

    fn number(&mut self) -> Option<()> {
        let rest = &self.from[self.at..];
        let sign = usize::from(rest.first() == Some(&b'-'));
        let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let is_zero = rest.get(sign) == Some(&b'0');
        let is_short = (1..=DIGITS).contains(&digits) && !(is_zero && (digits > 1 || sign > 0));
        let length = sign + digits;
        // The number has a fraction or an exponent.
        let goes_on = rest.get(length).is_some_and(|byte| matches!(byte, b'.' | b'e' | b'E'));
        if !is_short || goes_on {
            return None;
        }
        self.out.extend_from_slice(&rest[..length]);
        self.at += length;
        Some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        if !self.from[self.at..].starts_with(word) {
            return None;
        }
        self.out.extend_from_slice(word);
        self.at += word.len();
        Some(())
    }

    fn enter(&mut self, bracket: u8) -> Option<()> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        self.take(bracket)
    }

    /// Returns whether the object or array ends here.
    fn ends(&mut self, bracket: u8) -> Option<bool> {
        self.spaces();
        if *self.from.get(self.at)? != bracket {
            return Some(false);
        }
        self.depth -= 1;
        self.take(bracket)?;
        Some(true)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.spaces();
        if *self.from.get(self.at)? != byte {
            return None;
        }
        self.out.push(byte);
        self.at += 1;
        Some(())
    }

    fn spaces(&mut self) {
        while self.from.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
}
