//! `[[reaction]]` in the file: a webhook that is called for documents of a projection.

use std::time::Duration;

use leftfold::react::{Evolution, Filter, Paths, Reaction, Retry};
use leftfold_script::Script;
use leftfold_terminal::{Exit, Failure};
use leftfold_webhook::{AddressGuard, Signer, Webhook, usual_retry};
use serde::{Deserialize, Deserializer};

use super::Config;
use super::config::{Secret, Time};

/// The default number of concurrent calls.
const CONCURRENCY: usize = 16;
/// The default number of attempts of a custom policy.
const ATTEMPTS: u32 = 10;

/// A reaction that calls a webhook.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookConfig {
    name: String,
    /// The projection.
    on: String,
    when: Option<Filter>,
    watch: Option<Paths>,
    url: Secret,
    /// One secret, or several separated by white space.
    secret: Secret,
    timeout: Option<Time>,
    #[serde(default)]
    retry: RetryPolicy,
    concurrency: Option<usize>,
    /// Private networks that may be called, also without encryption.
    #[serde(default, deserialize_with = "guard")]
    allow: AddressGuard,
    version: Option<u32>,
    #[serde(default)]
    on_new_version: Evolution,
}

impl WebhookConfig {
    /// Returns the values that are secret.
    pub(super) fn secrets(&self) -> [&Secret; 2] {
        [&self.url, &self.secret]
    }

    /// Returns the reaction, if it can run.
    fn reaction(&self, config: &Config, scripts: &[Script]) -> Result<Reaction, Failure> {
        let name = &self.name;
        let wrong =
            |key: &str, fault: String| Failure::new(Exit::Usage, format!("reaction {name}: {key}{fault}"));
        let on = config.projections.iter().zip(scripts).find(|(projection, _)| projection.name == self.on);
        let Some((_, script)) = on else {
            let known: Vec<_> = config.projections.iter().map(|projection| &projection.name[..]).collect();
            let fault = format!("no projection is named {:?}; there are: {}", self.on, known.join(", "));
            return Err(wrong("on: ", fault));
        };
        let secret = config.reveal(&format!("the secret of the reaction {name}"), &self.secret)?;
        let signer = Signer::new(&secret).map_err(|invalid| wrong("secret: ", invalid.to_string()))?;
        let url = config.reveal(&format!("the URL of the reaction {name}"), &self.url)?;
        let webhook = Webhook::new(&url, signer, self.allow.clone());
        let mut webhook = webhook.map_err(|error| wrong("url: ", error.to_string()))?;
        if let Some(Time(timeout)) = self.timeout {
            webhook = webhook.patience(timeout);
        }
        let mut draft = Reaction::on(script.clone(), name)
            .concurrency(self.concurrency.unwrap_or(CONCURRENCY))
            .version(self.version.unwrap_or(1), self.on_new_version)
            .retry(self.retry.0.clone());
        if let Some(when) = &self.when {
            draft = draft.filter(when.clone());
        }
        if let Some(watch) = &self.watch {
            draft = draft.watch_paths(watch.clone());
        }
        let reaction = webhook.run(draft);
        reaction.check().map_err(|invalid| wrong("", invalid.to_string()))?;
        Ok(reaction)
    }
}

impl Config {
    /// Returns the reactions that call webhooks.
    pub(crate) fn webhooks(&self, scripts: &[Script]) -> Result<Vec<Reaction>, Failure> {
        let names: Vec<_> = self.reactions.iter().map(|called| &called.name).collect();
        if let Some(twice) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            let fault = format!("reaction {}: two reactions have this name; give each its own", names[twice]);
            return Err(Failure::new(Exit::Usage, fault));
        }
        self.reactions.iter().map(|called| called.reaction(self, scripts)).collect()
    }
}

fn guard<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AddressGuard, D::Error> {
    AddressGuard::allowing(Vec::<String>::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// The retry policy of failed calls.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RetryConfig")]
struct RetryPolicy(Retry);

impl Default for RetryPolicy {
    fn default() -> Self {
        Self(usual_retry())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryConfig {
    every: Option<Time>,
    first: Option<Time>,
    most: Option<Time>,
    waits: Option<Vec<Time>>,
    attempts: Option<u32>,
    within: Option<Time>,
}

impl TryFrom<RetryConfig> for RetryPolicy {
    type Error = &'static str;

    fn try_from(config: RetryConfig) -> Result<Self, Self::Error> {
        let RetryConfig { every, first, most, waits, attempts, within } = config;
        let retry = match (every, first, most, waits) {
            (None, None, None, None) => usual_retry(),
            (Some(Time(every)), None, None, None) => Retry::fixed(every),
            (None, Some(Time(first)), most, None) => {
                Retry::exponential(first, most.map_or(first.max(Duration::from_hours(24)), |most| most.0))
            }
            (None, None, None, Some(waits)) => Retry::series(waits.into_iter().map(|wait| wait.0)),
            _ => return Err("expected either `every`, or `first` and `most`, or `waits`"),
        };
        let retry = match (attempts, &within) {
            (None, Some(_)) => retry,
            (attempts, _) => retry.attempts(attempts.unwrap_or(ATTEMPTS)),
        };
        Ok(Self(within.into_iter().fold(retry, |retry, within| retry.within(within.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// Parses a reaction with these lines.
    fn read(said: &str) -> Result<WebhookConfig, String> {
        let text = format!("name = \"paid\"\non = \"carts\"\nsecret = \"{SECRET}\"\n{said}");
        toml::from_str(&text).map_err(|error: toml::de::Error| error.to_string())
    }

    fn policy(said: &str) -> String {
        let text = format!("url = \"https://shop.example/\"\nretry = {said}");
        read(&text).map_or_else(|said| said, |called| format!("{:?}", called.retry.0))
    }

    #[test]
    fn filters_keep_their_order_and_say_what_is_wrong() {
        let said = r#"url = "https://shop.example/"
            when = { status = "paid", total = { "$gte" = 1.5 }, first = { z = 1, a = "x" }, at = { "$lt" = { "$now" = "-1h" } } }
            watch = ["status", "items.count"]"#;
        let called = read(said).unwrap();
        let expected =
            r#"{"status":"paid","total":{"$gte":1.5},"first":{"z":1,"a":"x"},"at":{"$lt":{"$now":"-1h"}}}"#;
        assert_eq!(called.when.unwrap().to_string(), expected);
        let wrong = read("url = \"\"\nwhen = { status = { \"$near\" = 1 } }").unwrap_err();
        assert!(wrong.contains("line 5") && wrong.contains("$near"), "{wrong}");
        let wrong = read("url = \"\"\nwatch = [\"a\", \"a.b\"]").unwrap_err();
        assert!(wrong.contains("line 5") && wrong.contains("watched path"), "{wrong}");
        let wrong = read("url = \"\"\nwhen = { at = { \"$lt\" = 2026-01-01T00:00:00Z } }").unwrap_err();
        assert!(wrong.contains("line 5"), "{wrong}");
    }

    #[test]
    fn a_policy_is_one_of_several() {
        assert!(policy("{ every = \"10s\" }").contains("Fixed(10s)"));
        assert!(policy("{ every = \"10s\" }").contains("attempts: Some(10)"));
        assert!(
            policy("{ first = \"1s\", most = \"1h\", within = \"72h\" }").contains("first: 1s, most: 3600s")
        );
        assert!(
            policy("{ first = \"1s\", within = \"72h\" }").contains("attempts: None, within: Some(259200s)")
        );
        assert!(policy("{ waits = [\"1s\", \"2s\"], attempts = 3 }").contains("Series([1s, 2s])"));
        assert!(policy("{ attempts = 3 }").contains("attempts: Some(3)"));
        for wrong in
            ["{ every = \"1s\", first = \"1s\" }", "{ most = \"1s\" }", "{ waits = [\"1s\"], most = \"1s\" }"]
        {
            let said = policy(wrong);
            assert!(said.contains("line 5") && said.contains("either `every`"), "{said}");
        }
        let said = policy("{ evry = \"1s\" }");
        assert!(said.contains("line 5") && said.contains("evry"), "{said}");
        let said = policy("{ every = \"soon\" }");
        assert!(said.contains("line 5") && said.contains("such as 1s"), "{said}");
    }

    #[test]
    fn what_is_allowed_must_be_a_network() {
        let said = read("url = \"\"\nallow = [\"127.0.0.0/8\", \"here\"]").unwrap_err();
        assert!(said.contains("line 5") && said.contains("here"), "{said}");
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let called = read("url = \"https://shop.example/hidden\"").unwrap();
        let shown = format!("{called:?}");
        assert!(!shown.contains("MfKQ") && !shown.contains("hidden"), "{shown}");
    }
}
