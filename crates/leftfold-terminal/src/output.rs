//! Standard output: text for people, or exactly one JSON value for machines.

use std::fmt::Display;
use std::io::{self, BufWriter, Stdout, Write as _};

use comfy_table::{CellAlignment, ContentArrangement, Table};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};

/// The output of a command.
#[derive(Debug)]
pub struct Out {
    json: bool,
    /// The number of list elements written.
    listed: Option<usize>,
    /// `true` once a value was written, so that an error must not follow as a second value.
    used: bool,
    to: BufWriter<Stdout>,
}

impl Out {
    /// Creates the output: JSON for machines, or text for people.
    pub fn new(json: bool) -> Self {
        Self { json, listed: None, used: false, to: BufWriter::new(io::stdout()) }
    }

    /// Returns whether the output is for machines.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a line for people, not for machines.
    pub fn line(&mut self, line: impl Display) -> io::Result<()> {
        if self.json { Ok(()) } else { writeln!(self.to, "{line}") }
    }

    /// Writes the one value for machines, not for people.
    pub fn value(&mut self, value: &impl Serialize) -> io::Result<()> {
        if !self.json || std::mem::replace(&mut self.used, true) {
            return Ok(());
        }
        serde_json::to_writer_pretty(&mut self.to, value)?;
        writeln!(self.to)
    }

    /// Writes an element of a list, which is the one value.
    pub fn element(&mut self, element: &impl Serialize) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        self.used = true;
        let listed = self.listed.get_or_insert(0);
        self.to.write_all(if *listed == 0 { b"[\n" } else { b",\n" })?;
        *listed += 1;
        Ok(serde_json::to_writer(&mut self.to, element)?)
    }

    /// Ends a list, which may be empty.
    pub fn end_of_list(&mut self) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        self.used = true;
        let end: &[u8] = if self.listed.take().is_some() { b"\n]\n" } else { b"[]\n" };
        self.to.write_all(end)
    }

    /// Ends an open list and writes everything out.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.listed.is_some() {
            self.end_of_list()?;
        }
        self.to.flush()
    }
}

/// Reports a failure to people and, if there is no other output, to machines. Returns the exit
/// status.
pub fn finish(answer: Result<Exit, Failure>, out: &mut Out) -> Exit {
    let exit = match answer {
        Ok(exit) => exit,
        Err(failure) if failure.quiet => return Exit::Done,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "error: {failure}");
            match out.value(&json!({ "error": failure.to_string() })) {
                Ok(()) => failure.exit,
                Err(error) => Failure::from(error).exit,
            }
        }
    };
    match out.flush().map_err(Failure::from) {
        Ok(()) => exit,
        Err(failure) if failure.quiet => exit,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "error: {failure}");
            failure.exit
        }
    }
}

/// The maximum width of a table.
const WIDTH: u16 = 80;

/// Creates a table that is at most 80 characters wide. Columns of numbers are aligned to the right,
/// others to the left.
pub fn table<const N: usize>(header: [&str; N], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED).set_header(header);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    for &at in numbers {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Formats `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun: `1 event`, `2,000 events`.
pub fn count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", thousands(number), if number == 1 { "" } else { "s" })
}

/// Formats a time to the second.
pub fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Shortens a text to at most `most` characters, on one line.
pub fn shorten(text: &str, most: usize) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = chars.by_ref().take(most).collect();
    if chars.next().is_some() {
        short.pop();
        short.push('…');
    }
    short
}

/// Shortens a value to a few words.
pub fn brief(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => shorten(&value.to_string(), 60),
    }
}

/// Shortens two values to a few words each, from a little before their first difference.
pub fn brief_difference(one: Option<&Value>, other: Option<&Value>) -> (String, String) {
    const CONTEXT: usize = 20;
    let (Some(one), Some(other)) = (one, other) else { return (brief(one), brief(other)) };
    let (one, other) = (one.to_string(), other.to_string());
    let same = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let from = if same > 2 * CONTEXT { same - CONTEXT } else { 0 };
    let part = |text: &str| {
        let start = text.floor_char_boundary(from);
        let head = if start > 0 { "…" } else { "" };
        format!("{head}{}", shorten(&text[start..], 60))
    };
    (part(&one), part(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_values_are_shown_where_they_differ() {
        let text = |end: &str| Value::String(format!("{}{end}", "é".repeat(100)));
        let (one, other) = brief_difference(Some(&text("one")), Some(&text("other")));
        assert!(
            one.starts_with('…') && one.ends_with("ééone\"") && other.ends_with("ééother\""),
            "{one} {other}"
        );
        let short = brief_difference(Some(&Value::from(1)), None);
        assert_eq!(short, ("1".to_owned(), "nothing".to_owned()));
    }

    #[test]
    fn numbers_have_separators() {
        let texts = [0, 12, 999, 1_000, 100_000, 1_234_567].map(thousands);
        assert_eq!(texts, ["0", "12", "999", "1,000", "100,000", "1,234,567"]);
        assert_eq!(count(1, "event"), "1 event");
        assert_eq!(count(2_000, "event"), "2,000 events");
    }

    #[test]
    fn long_values_are_shortened_to_one_line() {
        assert_eq!(shorten("a\nb", 3), "a b");
        assert_eq!(shorten("äöüß", 4), "äöüß");
        assert_eq!(shorten("äöüßä", 4), "äöü…");
    }
}
