//! `leftfold audit`: the actions of operators, and the function with which commands record theirs.

use leftfold::audit::{Action, Trail};
use leftfold::{Documents, System};
use leftfold_terminal::{Exit, Failure, Location, Out, shorten, table, time};

use crate::args::AuditArgs;

const PAGE: usize = 500;

/// Records the action of this command.
pub(super) async fn record<S: Documents + Clone>(
    store: &S,
    action: &str,
    target: &str,
    reason: Option<&str>,
    outcome: &str,
) -> Result<(), Failure> {
    let action = Action::new(format!("cli:{}", user()), action, target).because(reason).ended(outcome);
    Trail::on(store.clone()).record(&System, action).await.map_err(|error| {
        let failure = Failure::from(error);
        let message =
            format!("recording it in the audit trail: {failure}; the action itself is done: {outcome}");
        Failure::new(failure.exit, message)
    })
}

pub(crate) async fn list_audit<L: Location>(
    location: &L,
    args: &AuditArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let trail = Trail::on(location.open_existing().await?);
    let mut rows = table(["time", "actor", "action", "target", "outcome, reason"], &[]);
    let (mut after, mut left) = (None, args.limit);
    while left > 0 {
        let (page, end) = trail.list(after.as_deref(), PAGE.min(left)).await?;
        left -= page.len();
        for entry in &page {
            out.element(entry)?;
            let mut outcome = shorten(&entry.outcome, 100);
            if let Some(reason) = &entry.reason {
                outcome = format!("{outcome}; {}", shorten(reason, 200));
            }
            rows.add_row([
                time(entry.at),
                shorten(&entry.actor, 40),
                entry.action.clone(),
                shorten(&entry.target, 100),
                outcome,
            ]);
        }
        after = end;
        if after.is_none() {
            break;
        }
    }
    out.end_of_list()?;
    if rows.is_empty() {
        out.line("no operator has acted yet")?;
    } else {
        out.line(rows)?;
    }
    Ok(Exit::Done)
}

/// Returns the name of the user who runs this process, from the system: environment variables can
/// be set to anything.
fn user() -> String {
    let Some(id) = user_id() else { return std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned()) };
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(id, &known).map_or_else(|| format!("uid-{id}"), str::to_owned)
}

#[cfg(unix)]
fn user_id() -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;

    Some(std::fs::metadata("/proc/self").ok()?.uid())
}

#[cfg(not(unix))]
fn user_id() -> Option<u32> {
    None
}

/// Returns the name of a user in a file such as `/etc/passwd`.
fn name_of(id: u32, known: &str) -> Option<&str> {
    known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_name_that_the_system_knows() {
        let known = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!([0, 1000, 7].map(|id| name_of(id, known)), [Some("root"), Some("ann"), None]);
    }
}
