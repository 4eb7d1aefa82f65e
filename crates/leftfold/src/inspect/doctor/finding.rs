//! The findings of the doctor.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// The doctor's finding about one subject, with advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The area that it concerns.
    pub area: Area,
    /// The setting, index, projection or other subject.
    pub subject: String,
    /// The observation.
    pub found: String,
    /// The advice; `None` if all is fine.
    pub advice: Option<String>,
}

impl Finding {
    /// Creates a finding that all is fine.
    pub fn fine(area: Area, subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self { severity: Severity::Fine, area, subject: subject.into(), found: found.into(), advice: None }
    }

    /// Creates a finding that is good to know.
    pub fn notice(
        area: Area,
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Notice, ..Self::wrong(area, subject, found, advice) }
    }

    /// Creates a finding that may become a problem.
    pub fn warning(
        area: Area,
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::wrong(area, subject, found, advice) }
    }

    /// Creates a finding that is a problem.
    pub fn wrong(
        area: Area,
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { severity: Severity::Wrong, advice, ..Self::fine(area, subject, found) }
    }

    /// Creates a finding for a failed check. The advice is the part of the error after its last
    /// semicolon.
    pub fn failed(area: Area, subject: impl Into<String>, error: &impl fmt::Display) -> Self {
        let said = error.to_string();
        let (found, advice) = said.rsplit_once("; ").unwrap_or((&said, "fix that, and run the doctor again"));
        Self::wrong(area, subject, found, advice)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, area, subject, found, advice } = self;
        write!(f, "{severity}: {area}, {subject}: {found}")?;
        advice.iter().try_for_each(|advice| write!(f, "; {advice}"))
    }
}

/// The severity of a finding. A worse one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// All is fine.
    Fine,
    /// It is good to know, or could not be examined.
    Notice,
    /// It works, but may become a problem.
    Warning,
    /// Something does not work, or is not safe.
    Wrong,
}

impl Severity {
    /// Returns the machine-readable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Wrong => "wrong",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The area that a finding concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Area {
    /// Versions of programs, servers and formats.
    Versions,
    /// Configuration and state of the store.
    Store,
    /// Tables, indexes, views and triggers.
    Schema,
    /// The time for which the store keeps changes.
    Oplog,
    /// Clock differences.
    Clock,
    /// Permissions of this process.
    Rights,
    /// Events before they are in the log.
    Sequence,
    /// Read models.
    Projections,
    /// Side effects.
    Reactions,
    /// Configuration of the service.
    Service,
}

impl Area {
    /// Returns the machine-readable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Versions => "versions",
            Self::Store => "store",
            Self::Schema => "schema",
            Self::Oplog => "oplog",
            Self::Clock => "clock",
            Self::Rights => "rights",
            Self::Sequence => "sequence",
            Self::Projections => "projections",
            Self::Reactions => "reactions",
            Self::Service => "service",
        }
    }
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Returns the worst severity.
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Fine)
}

/// Formats a duration for people: in the largest unit that fits, rounded down.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (number, unit) = match seconds {
        0 => return format!("{} ms", time.as_millis()),
        1..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worse_is_greater_and_what_is_not_fine_has_advice() {
        let [fine, notice, warning, wrong] = [
            Finding::fine(Area::Clock, "a", "b"),
            Finding::notice(Area::Clock, "a", "b", "c"),
            Finding::warning(Area::Clock, "a", "b", "c"),
            Finding::wrong(Area::Clock, "a", "b", "c"),
        ];
        assert_eq!(worst(&[notice.clone(), wrong.clone(), fine.clone()]), Severity::Wrong);
        assert_eq!(worst(&[fine.clone(), warning]), Severity::Warning);
        assert_eq!(worst(&[]), Severity::Fine);
        assert_eq!((fine.advice, notice.advice.as_deref()), (None, Some("c")));
        assert_eq!(wrong.to_string(), "wrong: clock, a: b; c");
    }

    #[test]
    fn an_error_says_what_to_do_after_its_last_semicolon() {
        let said = Finding::failed(Area::Store, "a", &"could not open a: it is b; c; name another");
        assert_eq!(said.found, "could not open a: it is b; c");
        assert_eq!(said.advice.as_deref(), Some("name another"));
        assert_eq!(Finding::failed(Area::Store, "a", &"no").found, "no");
    }

    #[test]
    fn names_are_what_machines_are_told() {
        for severity in [Severity::Fine, Severity::Notice, Severity::Warning, Severity::Wrong] {
            assert_eq!(serde_json::to_value(severity).unwrap(), severity.name());
        }
        for area in [
            Area::Versions,
            Area::Store,
            Area::Schema,
            Area::Oplog,
            Area::Clock,
            Area::Rights,
            Area::Sequence,
            Area::Projections,
            Area::Reactions,
            Area::Service,
        ] {
            assert_eq!(serde_json::to_value(area).unwrap(), area.name());
        }
    }

    #[test]
    fn spans_are_told_in_one_unit() {
        let told = [1, 90, 150, 3_600, 7_300, 86_400, 172_800].map(|s| span(Duration::from_secs(s)));
        let expected = ["1 second", "90 seconds", "2 minutes", "60 minutes", "2 hours", "24 hours", "2 days"];
        assert_eq!(told, expected);
        assert_eq!(span(Duration::from_millis(7)), "7 ms");
    }
}
