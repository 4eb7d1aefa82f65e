//! What the doctor says of one thing.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// What was found of one thing, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub area: Area,
    /// Of which setting, index, projection or other thing it is said.
    pub subject: String,
    /// What was found.
    pub found: String,
    /// What to do; none if it is fine.
    pub advice: Option<String>,
}

impl Finding {
    /// It is as it should be.
    pub fn fine(area: Area, subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self { severity: Severity::Fine, area, subject: subject.into(), found: found.into(), advice: None }
    }

    /// It is good to know.
    pub fn notice(
        area: Area,
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Notice, ..Self::wrong(area, subject, found, advice) }
    }

    /// It may become trouble.
    pub fn warning(
        area: Area,
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::wrong(area, subject, found, advice) }
    }

    /// It is trouble.
    pub fn wrong(
        area: Area,
        subject: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { severity: Severity::Wrong, advice, ..Self::fine(area, subject, found) }
    }

    /// It could not be done or looked at. What to do is what an error says after its last semicolon.
    pub fn failed(area: Area, subject: impl Into<String>, error: &impl fmt::Display) -> Self {
        let said = error.to_string();
        let (found, advice) = said.rsplit_once("; ").unwrap_or((&said, "mend that, and look again"));
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

/// How bad something is. What is worse is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Good to know; also of what could not be looked at.
    Notice,
    /// It works, and may become trouble.
    Warning,
    /// Something does not work, or is not safe.
    Wrong,
}

impl Severity {
    /// Its name, as machines are told.
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

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Area {
    /// Versions of programs, servers and formats.
    Versions,
    /// How the store is set up, and what state it is in.
    Store,
    /// Tables, indexes, views and triggers.
    Schema,
    /// How long the store remembers changes.
    Oplog,
    /// Whether clocks agree.
    Clock,
    /// What this program may do.
    Rights,
    /// Events before they are in the log.
    Sequence,
    /// Read models.
    Projections,
    /// Side effects.
    Reactions,
    /// How a service is set up.
    Service,
}

impl Area {
    /// Its name, as machines are told.
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

/// How bad the worst of them is.
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Fine)
}

/// A span of time for people: the largest unit that fits, without a rest.
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
