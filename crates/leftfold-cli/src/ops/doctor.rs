//! `leftfold doctor`: examines everything, and prints advice for each problem.

use std::cmp::Reverse;

use leftfold::inspect::doctor::{Area, Finding, Severity, worst};
use leftfold_script::Script;
use serde_json::json;

use crate::args;
use crate::daemon::{self, Config};
use crate::exit::{Exit, Failure};
use crate::models::{self, Models};
use crate::output::{Out, count};
use crate::place::{Named, Place, without_secrets};

pub(crate) async fn doctor(args: &args::Store, out: &mut Out) -> Result<Exit, Failure> {
    let (named, findings, scripts) = match Models::file(args) {
        None => (Models::store(args), Vec::new(), None),
        Some(file) => {
            let config = Config::read(file)?;
            let named = config.place()?;
            let (findings, scripts) = daemon::examine(&config).await;
            (named, findings, Some(scripts))
        }
    };
    match named {
        Named::File(file) => examine(&file, scripts, findings, out).await,
        #[cfg(feature = "mongodb")]
        Named::MongoDb(database) => examine(&database, scripts, findings, out).await,
        Named::Unknown(why) => Err(Failure::new(Exit::Usage, why)),
    }
}

async fn examine<P: Place>(
    place: &P,
    scripts: Option<Vec<Script>>,
    mut findings: Vec<Finding>,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let looked = match place.open_untouched().await {
        Ok(store) => models::doctor(store, scripts).await,
        Err(failure) => Err(failure),
    };
    let failed = match looked {
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
    out.value(&json!({ "store": place.to_string(), "worst": worst(&findings), "findings": findings }))?;
    show(&findings, out)?;
    out.line(format_args!("{place}: {}", summary(&findings)))?;
    let answer = if worst(&findings) == Severity::Wrong { Exit::No } else { Exit::Done };
    Ok(failed.unwrap_or(answer))
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
