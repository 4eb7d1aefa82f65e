//! `leftfold doctor`: examines everything, and prints advice for each problem.

use std::cmp::Reverse;

use leftfold::inspect::Inspector;
use leftfold::inspect::doctor::{Area, Examine, Finding, Severity, worst};
use leftfold::{Leftfold, Sequences, Store};
use leftfold_script::Script;
use leftfold_terminal::{Exit, Failure, Location, Out, count, without_secrets};
use serde_json::json;

use crate::daemon;
use crate::projections::Projections;

pub(crate) async fn doctor<L: Location>(
    location: &L,
    projections: &Projections,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let (mut findings, scripts) = match projections {
        Projections::Configured(config) => {
            let (findings, scripts) = daemon::examine(config).await;
            (findings, Some(scripts))
        }
        Projections::Stored => (Vec::new(), None),
    };
    let examined = match location.open_untouched().await {
        Ok(store) => examine(store, scripts).await,
        Err(failure) => Err(failure),
    };
    let failed = match examined {
        Ok(found) => {
            findings.extend(found);
            None
        }
        // Print the other findings all the same.
        Err(failure) => {
            findings.push(Finding::failed(Area::Store, "access", &failure));
            Some(failure.exit)
        }
    };
    for finding in &mut findings {
        finding.found = without_secrets(&finding.found);
        finding.advice = finding.advice.as_deref().map(without_secrets);
    }
    // The most severe first.
    findings.sort_by_key(|finding| (Reverse(finding.severity), finding.area));
    out.value(&json!({ "store": location.to_string(), "worst": worst(&findings), "findings": findings }))?;
    show(&findings, out)?;
    out.line(format_args!("{location}: {}", summary(&findings)))?;
    let answer = if worst(&findings) == Severity::Wrong { Exit::No } else { Exit::Done };
    Ok(failed.unwrap_or(answer))
}

/// Examines a store without changing it, with the projections of the scripts. Without scripts it
/// examines every collection.
async fn examine<S>(store: S, scripts: Option<Vec<Script>>) -> Result<Vec<Finding>, Failure>
where
    S: Store + Sequences + Examine,
{
    Ok(match scripts {
        Some(scripts) => scripts.into_iter().fold(Leftfold::on(store), Leftfold::projection).doctor().await?,
        None => Inspector::on(store).doctor().await?,
    })
}

fn show(findings: &[Finding], out: &mut Out) -> Result<(), Failure> {
    for Finding { severity, area, subject, found, advice } in findings {
        out.line(format_args!("{severity:<8} {area:<12} {subject}: {}", on_one_line(found)))?;
        if let Some(advice) = advice {
            out.line(format_args!("{:<8} {:<12} → {}", "", "", on_one_line(advice)))?;
        }
    }
    Ok(())
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Counts the findings of each severity.
fn summary(findings: &[Finding]) -> String {
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count() as u64;
    let (wrong, fine) = (of(Severity::Wrong), of(Severity::Fine));
    let mut parts = vec![format!("{wrong} wrong")];
    for (severity, noun) in [(Severity::Warning, "warning"), (Severity::Notice, "notice")] {
        if of(severity) > 0 {
            parts.push(count(of(severity), noun));
        }
    }
    parts.push(format!("{fine} fine"));
    parts.join(", ")
}
