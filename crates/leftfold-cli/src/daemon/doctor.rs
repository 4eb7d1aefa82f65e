//! The doctor's findings about leftfold.toml: the parts that can't run, access to the server, and
//! access to its secrets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::inspect::doctor::{Area, Finding, span};
use leftfold::{Env as _, Memory, Sequencer, System};
use leftfold_script::Script;
use leftfold_server::expires;
use leftfold_terminal::Failure;
use tokio::time::timeout;

use super::Config;
use super::config::{Secret, TlsConfig};
use super::prepared::listen;
use super::source::{Resupply, SourceConfig};
use super::webhook::WebhookConfig;

/// The timeout of a broker.
const PATIENCE: Duration = Duration::from_secs(10);
/// The remaining validity below which a certificate should be renewed.
const RENEW: Duration = Duration::from_hours(14 * 24);

/// Examines the configuration. Also returns the scripts that compile.
pub(crate) async fn examine(config: &Config) -> (Vec<Finding>, Vec<Script>) {
    let (mut findings, mut scripts) = (Vec::new(), Vec::new());
    for projection in &config.projections {
        match config.script(projection) {
            Ok(script) => scripts.push(script),
            Err(failure) => findings.push(Finding::failed(Area::Service, "script", &failure)),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine(Area::Service, "scripts", format!("{} compiled", scripts.len())));
        // The reactions can't be checked without all scripts.
        findings.extend(judged("reactions", config.webhooks(&scripts).map(|all| all.len())));
    }
    findings.extend(judged(
        "resupply",
        config.healer(Sequencer::new(Memory::default())).map(|one| one.into_iter().count()),
    ));
    findings.extend(sources(config).await);
    findings.push(match listen(config, false) {
        Ok(_) => entrance(config),
        Err(failure) => Finding::failed(Area::Service, "server", &failure),
    });
    if let Some(TlsConfig { certificate, .. }) = &config.server.tls
        && let Ok(end) = expires(&config.resolve(certificate))
    {
        findings.push(validity(end, System.now()));
    }
    findings.extend(secret_files(config).into_iter().filter_map(|file| readable(&file)));
    (findings, scripts)
}

/// Returns the finding about a part of the file, if it has any entries.
fn judged(subject: &str, looked: Result<usize, Failure>) -> Option<Finding> {
    match looked {
        Ok(0) => None,
        Ok(_) => Some(Finding::fine(Area::Service, subject, "can run")),
        Err(failure) => Some(Finding::failed(Area::Service, subject, &failure)),
    }
}

/// Checks that each broker can be read.
async fn sources(config: &Config) -> Vec<Finding> {
    let sources = match config.sources() {
        Ok(sources) => sources,
        Err(failure) => return vec![Finding::failed(Area::Service, "sources", &failure)],
    };
    let mut findings = Vec::new();
    for source in sources {
        let subject = format!("source {}", source.name());
        findings.push(match timeout(PATIENCE, source.check::<Memory>()).await {
            Ok(Ok(())) => Finding::fine(Area::Service, subject, "it can be read"),
            Ok(Err(failure)) => Finding::failed(Area::Service, subject, &failure),
            Err(_) => {
                let found = format!("the broker has not responded for {}", span(PATIENCE));
                Finding::wrong(Area::Service, subject, found, "check its address, and that it runs")
            }
        });
    }
    findings
}

/// Returns the finding about access to the server, if its listener options are valid.
fn entrance(config: &Config) -> Finding {
    if config.tokens.is_empty() {
        let advice =
            "create a token with `leftfold token new`, unless you trust every process on this machine";
        return Finding::notice(
            Area::Service,
            "server",
            "every process on this machine may do everything",
            advice,
        );
    }
    Finding::fine(Area::Service, "server", "every client needs a token")
}

/// Returns the finding about a certificate that is valid until `end`.
fn validity(end: Timestamp, now: Timestamp) -> Finding {
    let (subject, advice) = ("certificate", "renew it, and send SIGHUP to `leftfold serve`");
    match Duration::try_from(end.duration_since(now)) {
        Err(_) => Finding::wrong(Area::Service, subject, format!("it expired at {end}"), advice),
        Ok(left) if left < RENEW => {
            Finding::warning(Area::Service, subject, format!("it expires in {}", span(left)), advice)
        }
        Ok(left) => Finding::fine(Area::Service, subject, format!("valid for {}", span(left))),
    }
}

/// Returns the files that contain a secret.
fn secret_files(config: &Config) -> Vec<PathBuf> {
    let reactions = config.reactions.iter().flat_map(WebhookConfig::secrets);
    let sources = config.sources.iter().flat_map(SourceConfig::secrets);
    let resupply = config.resupply.iter().flat_map(Resupply::secrets);
    let all = reactions.chain(sources).chain(resupply).chain([&config.store.url]);
    let files = all.filter_map(|secret| match secret {
        Secret::Text(_) => None,
        Secret::File(file) => Some(file),
    });
    let key = config.server.tls.iter().map(|tls| &tls.key);
    let mut files: Vec<_> = files.chain(key).map(|file| config.resolve(file)).collect();
    files.sort();
    files.dedup();
    files
}

/// Returns a finding if all users of this machine may read a file.
#[cfg(unix)]
fn readable(file: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt as _;

    const OTHERS: u32 = 0o007;
    let mode = file.metadata().ok()?.permissions().mode();
    (mode & OTHERS != 0).then(|| {
        let shown = file.display();
        let found = format!("{shown} contains a secret, and every user of this machine can access it");
        Finding::warning(Area::Service, "secrets", found, format!("chmod 600 {shown}"))
    })
}

#[cfg(not(unix))]
fn readable(_: &Path) -> Option<Finding> {
    None
}

#[cfg(test)]
mod tests {
    use leftfold::inspect::doctor::Severity;

    use super::*;

    #[test]
    fn a_certificate_is_to_be_renewed_in_time() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let of = |days: i64| validity(now + jiff::SignedDuration::from_hours(24 * days), now);
        assert_eq!(of(60).severity, Severity::Fine);
        let soon = of(5);
        assert_eq!((soon.severity, soon.found.as_str()), (Severity::Warning, "it expires in 5 days"));
        assert_eq!(of(-1).severity, Severity::Wrong);
    }
}
