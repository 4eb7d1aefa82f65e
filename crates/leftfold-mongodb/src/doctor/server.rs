//! Checks of the servers: their version, the replica set and its members, their settings, and the
//! clock.

use std::time::Duration;

use bson::{Bson, Document, doc};
use jiff::Timestamp;
use leftfold::inspect::doctor::{Area, Finding, clock, span};
use leftfold::{Env as _, System};

use super::commands::{Answer, ask, denied, hello, number};
use crate::connection::{Base, Network};
use crate::error::Failure;
use crate::schema::FORMAT;

const MONITOR: &str = "`clusterMonitor` on `admin`";

/// Checks the servers.
pub(super) async fn look(base: &Base) -> Result<Vec<Finding>, Failure> {
    let admin = base.client.database("admin");
    let before = System.now();
    let hello = hello(base).await?;
    // The server read its clock between the two readings.
    let ours = before + System.now().duration_since(before) / 2;
    let info = admin.run_command(doc! { "buildInfo": 1 }).await?;
    let mut findings = vec![
        Finding::fine(Area::Versions, "MongoDB", info.get_str("version").unwrap_or("unknown")),
        Finding::fine(Area::Versions, "format", FORMAT.to_string()),
    ];
    findings.push(kind(&hello));
    findings.extend(encryption(base.network));
    if let Some(theirs) = hello.get_datetime("localTime").ok().and_then(|time| timestamp(*time)) {
        findings.push(clock(ours, theirs));
    }
    if hello.contains_key("setName") {
        match ask(&admin, doc! { "replSetGetStatus": 1 }).await? {
            Answer::Reply(status) => findings.push(members(&status)),
            Answer::Denied => {
                findings.push(denied(Area::Store, "members", "the state of the members", MONITOR));
            }
            Answer::Unknown => {}
        }
    }
    let parameters =
        doc! { "getParameter": 1, "featureCompatibilityVersion": 1, "transactionLifetimeLimitSeconds": 1 };
    match ask(&admin, parameters).await? {
        Answer::Reply(parameters) => {
            findings.extend(compatibility(&parameters, &info));
            findings.extend(lifetime(&parameters));
        }
        Answer::Denied => {
            findings.push(denied(Area::Store, "parameters", "the server's parameters", MONITOR));
        }
        Answer::Unknown => {}
    }
    match ask(&admin, doc! { "serverStatus": 1 }).await? {
        Answer::Reply(status) => findings.extend(engine(&status)),
        Answer::Denied => findings.push(denied(Area::Store, "storage engine", "the storage engine", MONITOR)),
        Answer::Unknown => {}
    }
    Ok(findings)
}

fn timestamp(time: bson::DateTime) -> Option<Timestamp> {
    Timestamp::from_millisecond(time.timestamp_millis()).ok()
}

/// Judges the kind of the server.
fn kind(hello: &Document) -> Finding {
    if hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Finding::fine(
            Area::Store,
            "durability",
            "a majority of servers has each write on disk before it is acknowledged",
        );
    }
    let found = "it is not a replica set: it can store documents, but no log, and no reaction runs";
    let advice =
        "start it with --replSet and run rs.initiate(), one member is enough; or store the log elsewhere";
    Finding::warning(Area::Store, "replica set", found, advice)
}

fn encryption(network: Network) -> Option<Finding> {
    (!network.is_local && !network.is_encrypted).then(|| {
        let found = "events and documents cross the network unencrypted";
        Finding::warning(
            Area::Store,
            "encryption",
            found,
            "add tls=true to the URL, and require TLS on the servers",
        )
    })
}

/// Judges the members of a replica set.
fn members(status: &Document) -> Finding {
    /// The largest replication lag that counts as fine.
    const LAG: Duration = Duration::from_mins(1);
    let subject = "members";
    let members: Vec<&Document> =
        status.get_array("members").into_iter().flatten().filter_map(Bson::as_document).collect();
    let name = |member: &Document| member.get_str("name").unwrap_or("a member without a name").to_owned();
    let state = |member: &Document| member.get_str("stateStr").unwrap_or("in an unknown state").to_owned();
    let is_up = |member: &Document| number(member, "health").is_some_and(|health| health > 0.0);
    let holds = |member: &&&Document| is_up(member) && ["PRIMARY", "SECONDARY"].contains(&&*state(member));
    let serves = |member: &&&Document| holds(member) || is_up(member) && state(member) == "ARBITER";
    let down: Vec<_> = members
        .iter()
        .filter(|member| !serves(member))
        .map(|member| format!("{} ({})", name(member), state(member)))
        .collect();
    let holding: Vec<_> = members.iter().filter(holds).collect();
    let needed = number(status, "writeMajorityCount").unwrap_or(1.0);
    let advice = "check that member's log, and start it again";
    #[expect(clippy::cast_precision_loss, reason = "a replica set has fifty members at most")]
    if (holding.len() as f64) < needed {
        let found = format!(
            "only {} of {} members have data now; writes need a majority",
            holding.len(),
            members.len()
        );
        return Finding::wrong(Area::Store, subject, format!("{found}: {}", down.join(", ")), advice);
    }
    if !down.is_empty() {
        let found = format!("not all {} members are up: {}", members.len(), down.join(", "));
        return Finding::warning(Area::Store, subject, found, advice);
    }
    let times = holding
        .iter()
        .filter_map(|member| Some((name(member), timestamp(*member.get_datetime("optimeDate").ok()?)?)));
    let times: Vec<_> = times.collect();
    let newest = times.iter().map(|(_, time)| *time).max();
    for (name, time) in &times {
        let behind = newest.map(|newest| newest.duration_since(*time).unsigned_abs()).unwrap_or_default();
        if behind > LAG {
            let found = format!("{name} is {} behind", span(behind));
            let advice = "find out why it is slow: writes wait for a majority, and the member may fall behind the oplog";
            return Finding::warning(Area::Store, subject, found, advice);
        }
    }
    if members.len() == 1 {
        let advice = "add two members if the data must survive the loss of this machine's disk";
        return Finding::notice(Area::Store, subject, "there is only one", advice);
    }
    Finding::fine(Area::Store, subject, format!("all {} are up", members.len()))
}

/// Judges the feature compatibility version of a server.
fn compatibility(parameters: &Document, info: &Document) -> Option<Finding> {
    let set = parameters.get_document("featureCompatibilityVersion").ok()?.get_str("version").ok()?;
    let version = info.get_str("version").ok()?;
    let subject = "feature compatibility";
    if version.strip_prefix(set).is_some_and(|rest| rest.starts_with('.')) {
        return Some(Finding::fine(Area::Versions, subject, set));
    }
    let found = format!("the server is {version}, and behaves as {set}");
    let advice = format!(
        "once the update has proven itself, run db.adminCommand({{ setFeatureCompatibilityVersion: \"{}\" }})",
        version.split('.').take(2).collect::<Vec<_>>().join(".")
    );
    let is_old =
        set.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major < 6);
    let say = if is_old { Finding::warning } else { Finding::notice };
    Some(say(Area::Versions, subject, found, advice))
}

/// Judges the time limit of transactions.
fn lifetime(parameters: &Document) -> Option<Finding> {
    /// The seconds that a batch and its commit may take.
    const NEEDED: f64 = 20.0;
    let seconds = number(parameters, "transactionLifetimeLimitSeconds")?;
    let (subject, found) = ("transactions", format!("they may take up to {seconds} seconds"));
    if seconds >= NEEDED {
        return Some(Finding::fine(Area::Store, subject, found));
    }
    let advice =
        "set transactionLifetimeLimitSeconds to 60, its default: the server aborts large batches otherwise";
    Some(Finding::warning(Area::Store, subject, found, advice))
}

/// Judges the storage engine.
fn engine(status: &Document) -> Option<Finding> {
    let engine = status.get_document("storageEngine").ok()?;
    let (subject, name) = ("storage engine", engine.get_str("name").unwrap_or("unknown"));
    if engine.get_bool("persistent").is_ok_and(|persistent| !persistent) {
        let found = format!("{name} stores nothing on disk");
        return Some(Finding::wrong(Area::Store, subject, found, "use wiredTiger for durable data"));
    }
    Some(Finding::fine(Area::Store, subject, name))
}

#[cfg(test)]
mod tests {
    use leftfold::inspect::doctor::Severity;

    use super::*;

    fn member(name: &str, state: &str, seconds: i64) -> Document {
        let health = if state.starts_with('(') { 0.0 } else { 1.0 };
        let time = bson::DateTime::from_millis(seconds * 1_000);
        doc! { "name": name, "stateStr": state, "health": health, "optimeDate": time }
    }

    #[test]
    fn a_majority_of_members_is_needed_and_all_are_wanted() {
        let of = |members: &[Document]| members_of(members, i32::try_from(members.len() / 2 + 1).unwrap());
        let [one, two, three] = [("a", "PRIMARY"), ("b", "SECONDARY"), ("c", "SECONDARY")]
            .map(|(name, state)| member(name, state, 9));
        let down = |name: &str| member(name, "(not reachable/healthy)", 0);
        assert_eq!(of(&[one.clone(), two.clone(), three.clone()]).severity, Severity::Fine);
        assert_eq!(of(std::slice::from_ref(&one)).severity, Severity::Notice);
        let finding = of(&[one.clone(), two.clone(), down("c")]);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.found.contains("c ((not reachable/healthy))"), "{finding}");
        assert_eq!(of(&[one.clone(), down("b"), down("c")]).severity, Severity::Wrong);
        assert_eq!(of(&[one.clone(), two.clone(), member("c", "ARBITER", 0)]).severity, Severity::Fine);
        let late = of(&[member("a", "PRIMARY", 1_000), two, three]);
        assert!(
            late.severity == Severity::Warning && late.found.contains("b is 16 minutes behind"),
            "{late}"
        );
    }

    fn members_of(all: &[Document], majority: i32) -> Finding {
        members(&doc! { "members": all.to_vec(), "writeMajorityCount": majority })
    }

    #[test]
    fn a_standalone_server_is_reported_with_advice() {
        assert_eq!(kind(&doc! { "setName": "rs0" }).severity, Severity::Fine);
        assert_eq!(kind(&doc! { "msg": "isdbgrid" }).severity, Severity::Fine);
        let alone = kind(&doc! {});
        assert!(alone.severity == Severity::Warning && alone.advice.unwrap().contains("--replSet"));
    }

    #[test]
    fn only_what_leaves_the_machine_must_be_encrypted() {
        for (is_local, is_encrypted, is_reported) in
            [(true, false, false), (true, true, false), (false, true, false), (false, false, true)]
        {
            assert_eq!(encryption(Network { is_local, is_encrypted }).is_some(), is_reported);
        }
    }

    #[test]
    fn a_server_may_behave_as_an_older_one() {
        let of = |set: &str, version: &str| {
            let parameters = doc! { "featureCompatibilityVersion": { "version": set } };
            compatibility(&parameters, &doc! { "version": version }).unwrap().severity
        };
        assert_eq!(of("6.0", "6.0.5"), Severity::Fine);
        assert_eq!(of("8.0", "8.0.12"), Severity::Fine);
        assert_eq!(of("6.0", "7.0.2"), Severity::Notice);
        assert_eq!(of("5.0", "6.0.5"), Severity::Warning);
    }

    #[test]
    fn transactions_need_time_and_data_a_disk() {
        let of =
            |seconds: i32| lifetime(&doc! { "transactionLifetimeLimitSeconds": seconds }).unwrap().severity;
        assert_eq!((of(60), of(5)), (Severity::Fine, Severity::Warning));
        let of = |persistent: bool| {
            engine(&doc! { "storageEngine": { "name": "x", "persistent": persistent } }).unwrap().severity
        };
        assert_eq!((of(true), of(false)), (Severity::Fine, Severity::Wrong));
    }
}
