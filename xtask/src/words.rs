//! `cargo xtask words`: counts prose that is hard to read. It only reports and never fails a build.

use std::fmt::Write as _;
use std::fs;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Words at the start of a comment that stand for an unnamed noun.
const OPENERS: [&str; 6] = ["What", "Whether", "How", "Who", "Whoever", "Those"];
/// The limit for a sentence; longer ones are hard to follow.
const MAX_WORDS: usize = 25;
/// The limit for a comment line; wider ones do not fit beside another file.
const MAX_COLUMNS: usize = 100;

/// The prose of one file.
#[derive(Default)]
struct Report {
    lines: usize,
    openers: Vec<Finding>,
    long: Vec<Finding>,
    wide: Vec<Finding>,
}

/// A place to improve.
struct Finding {
    line: usize,
    text: String,
}

/// A line of prose without its comment or list marks. A block is a vector of lines.
struct Line {
    number: usize,
    text: String,
    columns: usize,
}

/// Reports on the files below these paths, or on all files of the repository if there are none.
pub(crate) fn report(arguments: &[&str]) -> ExitCode {
    let (flags, paths): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.starts_with("--"));
    let files = match files(&paths) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut reports = Vec::new();
    for path in files {
        match fs::read_to_string(&path) {
            Ok(text) => reports.push((path.clone(), Report::of(&path, &text))),
            Err(error) => eprintln!("could not read {path}: {error}"),
        }
    }
    let text = if flags.contains(&&"--lines") { places(&reports) } else { table(&reports) };
    match stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has closed it.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Returns the tracked files with prose.
fn files(paths: &[&&str]) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--"]).args(paths);
    let listed = git.output().map_err(|error| format!("could not run git: {error}"))?;
    if !listed.status.success() {
        return Err("git ls-files failed; run this in the repository".to_owned());
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let has_prose = |path: &&str| ["rs", "md", "js", "mjs"].contains(&extension(path));
    Ok(listed.lines().filter(has_prose).map(str::to_owned).collect())
}

fn extension(path: &str) -> &str {
    Path::new(path).extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

impl Report {
    fn of(path: &str, text: &str) -> Self {
        let is_page = extension(path) == "md";
        let blocks = if is_page { page(text) } else { comments(text) };
        let mut report = Self::default();
        for block in &blocks {
            for line in block {
                report.lines += 1;
                if OPENERS.contains(&first_word(&line.text)) {
                    report.openers.push(Finding { line: line.number, text: line.text.clone() });
                }
                if !is_page && line.columns > MAX_COLUMNS {
                    report.wide.push(Finding { line: line.number, text: line.text.clone() });
                }
            }
            report.long.extend(long_sentences(block));
        }
        report
    }
}

/// Returns the first word without punctuation or an apostrophe: "What" of "What's left".
fn first_word(text: &str) -> &str {
    text.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default()
}

/// Returns the comments of a source file, in blocks of adjacent lines.
fn comments(text: &str) -> Vec<Vec<Line>> {
    let mut blocks = vec![Vec::new()];
    let mut is_code = false;
    for (line, number) in text.lines().zip(1..) {
        let trimmed = line.trim_start();
        let comment = ["///", "//!", "//"].iter().find_map(|mark| trimmed.strip_prefix(mark));
        let Some(comment) = comment.map(str::trim) else {
            is_code = false;
            blocks.push(Vec::new());
            continue;
        };
        if comment.starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            add(&mut blocks, comment, number, line.chars().count());
        }
    }
    blocks
}

/// Returns the paragraphs of a page.
fn page(text: &str) -> Vec<Vec<Line>> {
    let mut blocks = vec![Vec::new()];
    let mut is_code = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            add(&mut blocks, line.trim(), number, line.chars().count());
        }
    }
    blocks
}

/// Adds a line to the last block, or starts a new block for a paragraph or a list item.
fn add(blocks: &mut Vec<Vec<Line>>, text: &str, number: usize, columns: usize) {
    let is_table = text.starts_with('|');
    if text.is_empty() || is_table || text.starts_with(['#', '-', '*', '<', '[']) {
        blocks.push(Vec::new());
    }
    if text.is_empty() || is_table {
        return;
    }
    let text = text.trim_start_matches(['#', '-', '*', ' ']).to_owned();
    if let Some(block) = blocks.last_mut() {
        block.push(Line { number, text, columns });
    }
}

/// Returns the long sentences of a block, each with the line it begins in.
fn long_sentences(block: &[Line]) -> Vec<Finding> {
    let mut found = Vec::new();
    let (mut sentence, mut begin) = (Vec::new(), 0);
    let words = block.iter().flat_map(|line| line.text.split_whitespace().map(|word| (line.number, word)));
    for (number, word) in words {
        if sentence.is_empty() {
            begin = number;
        }
        sentence.push(word);
        let end = word.trim_end_matches([')', '*', '"', '\'', '`', '_']);
        if end.ends_with(['.', '?', '!', ':']) {
            found.extend(too_long(&sentence, begin));
            sentence.clear();
        }
    }
    found.extend(too_long(&sentence, begin));
    found
}

fn too_long(sentence: &[&str], line: usize) -> Option<Finding> {
    (sentence.len() > MAX_WORDS).then(|| Finding { line, text: sentence.join(" ") })
}

/// Formats each finding as `file:line: kind: text`, which editors understand.
fn places(reports: &[(String, Report)]) -> String {
    let mut text = String::new();
    for (path, report) in reports {
        let kinds = [("opener", &report.openers), ("long", &report.long), ("wide", &report.wide)];
        for (kind, findings) in kinds {
            for Finding { line, text: prose } in findings {
                let _ = writeln!(text, "{path}:{line}: {kind}: {prose}");
            }
        }
    }
    text
}

/// Formats a table of the files with findings, the worst first, and a sum.
fn table(reports: &[(String, Report)]) -> String {
    let counts = |report: &Report| [report.openers.len(), report.long.len(), report.wide.len()];
    let mut rows: Vec<_> = reports.iter().filter(|(_, one)| counts(one) != [0; 3]).collect();
    rows.sort_by_key(|(_, one)| std::cmp::Reverse(counts(one).iter().sum::<usize>()));
    let mut text = format!("{:<48}{:>8}{:>8}{:>8}{:>8}\n", "file", "lines", "openers", "long", "wide");
    let mut all = (0, [0; 3]);
    for (_, report) in reports {
        all.0 += report.lines;
        all.1.iter_mut().zip(counts(report)).for_each(|(sum, count)| *sum += count);
    }
    for (path, report) in rows {
        let [openers, long, wide] = counts(report);
        let path = path.strip_prefix("crates/").unwrap_or(path);
        let _ = writeln!(text, "{path:<48}{:>8}{openers:>8}{long:>8}{wide:>8}", report.lines);
    }
    let (lines, [openers, long, wide]) = all;
    let _ = writeln!(text, "{:<48}{lines:>8}{openers:>8}{long:>8}{wide:>8}", "all");
    let share = |count: usize| format!("{:.1} %", 100.0 * ratio(count, lines));
    let _ = writeln!(text, "{:<56}{:>8}{:>8}{:>8}", "", share(openers), share(long), share(wide));
    text
}

#[expect(clippy::cast_precision_loss, reason = "lines are counted in thousands")]
fn ratio(count: usize, of: usize) -> f64 {
    count as f64 / of.max(1) as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn comments_are_told_from_code_and_counted() {
        let wide = "x".repeat(MAX_COLUMNS);
        let long = "word ".repeat(MAX_WORDS + 1);
        let source = format!(
            "//! Whether it is so.\n//! Who's there\n//! ```\n//! How(code)\n//! ```\nfn what() {{}} // What\n/// {wide}\n\
             /// {long}\n    // However it is. {long}\n"
        );
        let report = Report::of("a.rs", &source);
        let lines = |findings: &[Finding]| findings.iter().map(|one| one.line).collect::<Vec<_>>();
        assert_eq!(report.lines, 5);
        assert_eq!(lines(&report.openers), [1, 2]);
        assert_eq!(lines(&report.wide), [7, 8, 9]);
        assert_eq!(lines(&report.long), [7, 9], "a sentence without a full stop goes on in the next line");
        let places = places(&[("a.rs".to_owned(), report)]);
        assert!(
            places.starts_with("a.rs:1: opener: Whether it is so.\na.rs:2: opener: Who's there\n"),
            "{places}"
        );
    }

    #[test]
    fn pages_have_sentences_lists_and_tables() {
        let half = "word ".repeat(MAX_WORDS - 1);
        let page = format!(
            "# How\n\n{half}.\n{half}.\n- {half}\n- {half}\n\n| What | {half}{half} |\n\n```sh\nWhat\n```\n"
        );
        let report = Report::of("a.md", &page);
        assert_eq!((report.lines, report.openers.len(), report.long.len()), (5, 1, 0));
    }
}
