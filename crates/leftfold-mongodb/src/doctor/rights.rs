//! The user's rights, compared with the rights that Leftfold needs.

use bson::{Bson, Document, doc};
use leftfold::inspect::doctor::{Area, Finding};

use crate::connection::{Base, Network};
use crate::error::Failure;

/// A right that Leftfold needs: its purpose, its actions, the consequence without it, and the role
/// that grants it. If `always` is set, nothing works without it.
struct Need {
    subject: &'static str,
    actions: &'static [&'static str],
    without: &'static str,
    role: &'static str,
    always: bool,
}

const NEEDS: [Need; 5] = [
    Need {
        subject: "reading and writing",
        actions: &["find", "insert", "update", "remove"],
        without: "nothing can be appended or folded",
        role: "readWrite",
        always: true,
    },
    Need {
        subject: "creating collections",
        actions: &["createCollection", "createIndex", "listCollections", "listIndexes"],
        without: "no new projection can be started",
        role: "readWrite",
        always: true,
    },
    Need {
        subject: "following changes",
        actions: &["changeStream"],
        without: "no reaction runs, and waits for events have to poll",
        role: "readWrite",
        always: false,
    },
    Need {
        subject: "deleting generations",
        actions: &["dropCollection"],
        without: "documents from before a rebuild stay forever",
        role: "readWrite",
        always: false,
    },
    Need {
        subject: "switching views",
        actions: &["collMod"],
        without: "no rebuild can be switched to, or undone",
        role: "dbAdmin",
        always: false,
    },
];

/// Checks the user's rights.
pub(super) async fn look(base: &Base) -> Result<Vec<Finding>, Failure> {
    let command = doc! { "connectionStatus": 1, "showPrivileges": true };
    let status = base.client.database("admin").run_command(command).await?;
    Ok(judge(&status, base.db.name(), base.network))
}

/// Judges the server's connection status.
fn judge(status: &Document, database: &str, network: Network) -> Vec<Finding> {
    let info = status.get_document("authInfo").ok();
    let list = |key: &str| info.and_then(|info| info.get_array(key).ok()).map_or(&[][..], Vec::as_slice);
    if list("authenticatedUsers").is_empty() {
        let found = "the server does not require authentication";
        return vec![if network.is_local {
            Finding::fine(Area::Rights, "user", format!("{found}, but is on this machine"))
        } else {
            let advice = "start it with --auth, create a user with the roles `readWrite` and `dbAdmin`, and put the user into the URL";
            Finding::warning(
                Area::Rights,
                "user",
                format!("{found}: every client that can connect may change everything"),
                advice,
            )
        }];
    }
    let allowed: Vec<&str> = list("authenticatedUserPrivileges")
        .iter()
        .filter_map(Bson::as_document)
        .filter(|privilege| {
            privilege.get_document("resource").is_ok_and(|resource| covers(resource, database))
        })
        .flat_map(|privilege| privilege.get_array("actions").into_iter().flatten().filter_map(Bson::as_str))
        .collect();
    let lacks = |need: &Need| {
        let lacking: Vec<_> =
            need.actions.iter().filter(|action| !allowed.contains(*action)).copied().collect();
        if lacking.is_empty() {
            return None;
        }
        let say = if need.always { Finding::wrong } else { Finding::warning };
        let found = format!("the user may not {}: {}", lacking.join(", "), need.without);
        let advice = format!("give it the role `{}` on the database {database}", need.role);
        Some(say(Area::Rights, need.subject.to_owned(), found, advice))
    };
    let mut findings: Vec<_> = NEEDS.iter().filter_map(lacks).collect();
    if findings.is_empty() {
        findings.push(Finding::fine(Area::Rights, "user", "it has all rights that Leftfold needs"));
    }
    findings
}

/// Returns whether a privilege covers all collections of a database.
fn covers(resource: &Document, database: &str) -> bool {
    let is_any = resource.get_bool("anyResource").unwrap_or(false);
    let names = |key: &str| resource.get_str(key).ok();
    is_any
        || names("db").is_some_and(|db| db.is_empty() || db == database)
            && names("collection").is_some_and(str::is_empty)
}

#[cfg(test)]
mod tests {
    use leftfold::inspect::doctor::{Severity, worst};

    use super::*;

    const LOCAL: Network = Network { is_local: true, is_encrypted: false };

    fn status(db: &str, actions: &[&str]) -> Document {
        let privileges = [doc! { "resource": { "db": db, "collection": "" }, "actions": actions }];
        doc! { "authInfo": {
            "authenticatedUsers": [{ "user": "ann", "db": "admin" }],
            "authenticatedUserPrivileges": privileges.to_vec(),
        } }
    }

    #[test]
    fn each_missing_right_is_reported_with_its_consequence_and_the_role() {
        let all: Vec<_> = NEEDS.iter().flat_map(|need| need.actions).copied().collect();
        for db in ["shop", ""] {
            assert_eq!(worst(&judge(&status(db, &all), "shop", LOCAL)), Severity::Fine);
        }
        assert_eq!(judge(&status("other", &all), "shop", LOCAL).len(), NEEDS.len());
        for need in &NEEDS {
            let others: Vec<_> =
                all.iter().filter(|action| !need.actions.contains(action)).copied().collect();
            let findings = judge(&status("shop", &others), "shop", LOCAL);
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert_eq!(findings[0].severity, if need.always { Severity::Wrong } else { Severity::Warning });
            assert!(findings[0].found.contains(need.without), "{}", findings[0]);
            assert!(
                findings[0]
                    .advice
                    .as_ref()
                    .unwrap()
                    .contains(&format!("`{}` on the database shop", need.role))
            );
        }
    }

    #[test]
    fn a_server_without_authentication_is_fine_only_on_this_machine() {
        let open = doc! { "authInfo": { "authenticatedUsers": [], "authenticatedUserPrivileges": [] } };
        assert_eq!(worst(&judge(&open, "shop", LOCAL)), Severity::Fine);
        let far = Network { is_local: false, ..LOCAL };
        assert_eq!(worst(&judge(&open, "shop", far)), Severity::Warning);
    }
}
