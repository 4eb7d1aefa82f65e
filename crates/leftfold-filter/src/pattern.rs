//! Regular expressions with the meaning that they have in MongoDB, which uses Perl's syntax (PCRE).
//!
//! This crate uses another engine, which needs only linear time. Most of the syntax is common to
//! both. The rewriter translates the parts that the engines read differently, and rejects parts
//! that it can't translate.

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    self, AssertionKind, Ast, ClassPerl, ClassPerlKind, ClassSetBinaryOp, ClassSetItem, ClassUnicode, Flags,
    FlagsItemKind, HexLiteralKind, LiteralKind, Span, SpecialLiteralKind, Visitor,
};

use crate::value::Value;

/// The maximum nesting depth of groups.
const MAX_NESTED: u32 = 50;

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    source: String,
    options: String,
}

impl Pattern {
    /// Compiles a regular expression. The error is the expected form.
    pub(crate) fn new(source: &str, options: &str) -> Result<Self, String> {
        if let Some(unknown) = options.chars().find(|c| !"imsx".contains(*c)) {
            return Err(format!("the options i, m, s and x, not {unknown}"));
        }
        if source.contains('\0') {
            return Err("a regular expression without the character zero".into());
        }
        let (multi_line, verbose) = (options.contains('m'), options.contains('x'));
        let mut parser = ParserBuilder::new().nest_limit(MAX_NESTED).ignore_whitespace(verbose).build();
        let parsed = parser
            .parse_with_comments(source)
            .map_err(|error| format!("a regular expression: {}", error.kind()))?;
        let last = parsed.comments.last().map(|comment| comment.span.end.offset);
        if last == Some(source.len()) && !source.ends_with('\n') {
            return Err("a line break after the comment in a regular expression".into());
        }
        let folds = options.contains('i');
        let rewriter = Rewriter { source, folds, multi_line, verbose, edits: Vec::new() };
        rewriter.places(&parsed.ast, true, true)?;
        let edits = ast::visit(&parsed.ast, rewriter)?;
        let regex = RegexBuilder::new(&rewritten(source, edits))
            .case_insensitive(folds)
            .multi_line(multi_line)
            .dot_matches_new_line(options.contains('s'))
            .ignore_whitespace(verbose)
            .build()
            .map_err(|error| format!("a regular expression: {error}"))?;
        // In MongoDB, no line begins after a line break that ends the text.
        if multi_line && source.contains('^') && regex.is_match_at("a\n", 2) {
            return Err("a regular expression: with the option m, text must follow ^".into());
        }
        Ok(Self { regex, source: source.to_owned(), options: options.to_owned() })
    }

    /// Returns whether a string matches, or a regular expression is the same.
    pub(crate) fn matches(&self, value: &Value) -> bool {
        match value {
            Value::String(text) | Value::Symbol(text) => self.regex.is_match(text),
            Value::Regex { pattern, options } => (pattern, options) == (&self.source, &self.options),
            _ => false,
        }
    }
}

/// Replaces parts of the source. The edits are in order.
fn rewritten(source: &str, edits: Vec<(Span, &'static str)>) -> String {
    let (mut out, mut at) = (String::with_capacity(source.len()), 0);
    for (span, text) in edits {
        out.push_str(&source[at..span.start.offset]);
        out.push_str(text);
        at = span.end.offset;
    }
    out.push_str(&source[at..]);
    out
}

/// Finds and rewrites the parts that mean something else in MongoDB.
struct Rewriter<'a> {
    source: &'a str,
    /// `true` if the expression ignores case.
    folds: bool,
    multi_line: bool,
    verbose: bool,
    edits: Vec<(Span, &'static str)>,
}

impl Rewriter<'_> {
    fn refuse(&self, span: &Span) -> Result<(), String> {
        let part = &self.source[span.start.offset..span.end.offset];
        Err(format!("a regular expression without {part}, which matches differently in MongoDB"))
    }

    /// Rejects `^` and `$` where the engines differ: at a line break that ends the text. The
    /// difference can be compensated only if nothing precedes `^` or follows `$`.
    fn places(&self, ast: &Ast, first: bool, last: bool) -> Result<(), String> {
        match ast {
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::StartLine if self.multi_line && !first => self.refuse(&assertion.span),
                AssertionKind::EndLine if !self.multi_line && !last => self.refuse(&assertion.span),
                _ => Ok(()),
            },
            Ast::Concat(concat) => {
                let parts: Vec<_> =
                    concat.asts.iter().filter(|part| !matches!(part, Ast::Flags(_))).collect();
                parts.iter().enumerate().try_for_each(|(index, part)| {
                    self.places(part, first && index == 0, last && index + 1 == parts.len())
                })
            }
            Ast::Alternation(either) => {
                either.asts.iter().try_for_each(|part| self.places(part, first, last))
            }
            Ast::Group(group) => self.places(&group.ast, first, last),
            Ast::Repetition(repetition) => self.places(&repetition.ast, false, false),
            _ => Ok(()),
        }
    }

    fn literal(&self, literal: &ast::Literal) -> Result<(), String> {
        match literal.kind {
            LiteralKind::HexFixed(HexLiteralKind::UnicodeShort | HexLiteralKind::UnicodeLong)
            | LiteralKind::HexBrace(HexLiteralKind::UnicodeShort | HexLiteralKind::UnicodeLong)
            | LiteralKind::Special(SpecialLiteralKind::VerticalTab) => self.refuse(&literal.span),
            _ => Ok(()),
        }
    }

    /// Rewrites a Perl class to its ASCII characters.
    fn perl(&mut self, class: &ClassPerl, in_class: bool) {
        let text = match (&class.kind, class.negated, in_class) {
            (ClassPerlKind::Digit, false, _) => "[0-9]",
            (ClassPerlKind::Digit, true, _) => "[^0-9]",
            (ClassPerlKind::Space, false, _) => r"[\t\n\x0B\f\r\x20]",
            (ClassPerlKind::Space, true, _) => r"[^\t\n\x0B\f\r\x20]",
            (ClassPerlKind::Word, false, true) => "[0-9A-Za-z_]",
            (ClassPerlKind::Word, true, true) => "[^0-9A-Za-z_]",
            (ClassPerlKind::Word, false, false) => "(?-i:[0-9A-Za-z_])",
            (ClassPerlKind::Word, true, false) => "(?-i:[^0-9A-Za-z_])",
        };
        self.edits.push((class.span, text));
    }

    /// Rejects Unicode classes if case is ignored: MongoDB's versions differ in that.
    fn unicode(&self, class: &ClassUnicode) -> Result<(), String> {
        if self.folds { self.refuse(&class.span) } else { Ok(()) }
    }

    fn flags(&mut self, flags: &Flags) -> Result<(), String> {
        let fits = |kind: &FlagsItemKind| {
            matches!(
                kind,
                FlagsItemKind::Negation
                    | FlagsItemKind::Flag(ast::Flag::CaseInsensitive | ast::Flag::DotMatchesNewLine)
            )
        };
        self.folds |= flags.flag_state(ast::Flag::CaseInsensitive).is_some();
        if flags.items.iter().all(|item| fits(&item.kind)) { Ok(()) } else { self.refuse(&flags.span) }
    }
}

impl Visitor for Rewriter<'_> {
    type Output = Vec<(Span, &'static str)>;
    type Err = String;

    fn finish(self) -> Result<Self::Output, String> {
        Ok(self.edits)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), String> {
        match ast {
            Ast::Literal(literal) => self.literal(literal),
            Ast::ClassPerl(class) => {
                self.perl(class, false);
                Ok(())
            }
            Ast::ClassUnicode(class) => self.unicode(class),
            Ast::Flags(set) => self.flags(&set.flags),
            Ast::Group(group) => group.flags().map_or(Ok(()), |flags| self.flags(flags)),
            // In MongoDB, the second repetition modifies the first, and assertions can't be
            // repeated.
            Ast::Repetition(outer) if matches!(*outer.ast, Ast::Repetition(_) | Ast::Assertion(_)) => {
                self.refuse(&outer.span)
            }
            Ast::Assertion(assertion) => {
                match assertion.kind {
                    AssertionKind::StartLine | AssertionKind::StartText | AssertionKind::EndText => {}
                    AssertionKind::EndLine if self.multi_line => {}
                    // `$` also matches before a line break that ends the text.
                    AssertionKind::EndLine => self.edits.push((assertion.span, r"(?:\n?\z)")),
                    AssertionKind::WordBoundary => self.edits.push((assertion.span, r"(?-u:\b)")),
                    _ => return self.refuse(&assertion.span),
                }
                Ok(())
            }
            Ast::ClassBracketed(class) => {
                let text = &self.source[class.span.start.offset..class.span.end.offset];
                // MongoDB counts spaces in a class, this engine does not.
                if self.verbose && text.contains(|c: char| c.is_whitespace() || c == '#') {
                    return self.refuse(&class.span);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), String> {
        match item {
            ClassSetItem::Literal(literal) => self.literal(literal),
            ClassSetItem::Range(range) => self.literal(&range.start).and_then(|()| self.literal(&range.end)),
            ClassSetItem::Perl(class) => {
                self.perl(class, true);
                Ok(())
            }
            ClassSetItem::Unicode(class) => self.unicode(class),
            ClassSetItem::Bracketed(class) => self.refuse(&class.span),
            _ => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, op: &ClassSetBinaryOp) -> Result<(), String> {
        self.refuse(&op.span)
    }
}
