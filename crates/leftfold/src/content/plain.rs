//! The canonical text of JSON that has nothing special in it, straight from its text: most documents are like that.
//!
//! Whatever is not quite plain is left to [the thorough way](super::canonical): fields that begin with `$` or are there twice, names that are not ASCII,
//! escapes in texts, numbers that are not short whole ones, and depths that are not usual.

/// The canonical text, or `None` if it must be made the thorough way.
pub(super) fn text(json: &str) -> Option<String> {
    let mut reader = Reader { from: json.as_bytes(), at: 0, out: Vec::with_capacity(json.len()), depth: 0 };
    reader.value()?;
    reader.spaces();
    if reader.at < reader.from.len() {
        return None;
    }
    String::from_utf8(reader.out).ok()
}

/// Deeper than that is not usual.
const DEPTH: usize = 32;
/// Numbers of so many digits fit in 64 bits.
const DIGITS: usize = 18;

struct Reader<'j> {
    from: &'j [u8],
    at: usize,
    out: Vec<u8>,
    depth: usize,
}

/// A field: its name, and where its text begins and ends in what was written.
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

    /// Puts fields in order that were written as they came. `None` if one is there twice.
    fn sort(&mut self, begin: usize, mut fields: Vec<Field<'j>>) -> Option<()> {
        fields.sort_unstable_by_key(|field| field.name);
        if fields.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return None;
        }
        // All but the bracket that ends the object.
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

    /// A text without escapes, which is answered without its quotes.
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
        // Fractions and exponents.
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

    /// Whether the object or array ends here.
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
