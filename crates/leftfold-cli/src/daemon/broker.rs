//! The kinds of brokers: the configuration keys of each, and its connection. Kinds that this build
//! lacks are known by name.

use leftfold::{Error, Invalid, Sequences};
use serde::Deserialize;

use super::source::{AnySource, ConfiguredSource, SourceConfig};

/// The default name of groups and consumers.
#[cfg(any(feature = "kafka", feature = "nats", feature = "redis"))]
const OURS: &str = "leftfold";

/// The kind of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Kafka,
    Nats,
    RabbitMq,
    Redis,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Nats => "nats",
            Self::RabbitMq => "rabbitmq",
            Self::Redis => "redis",
        }
    }

    /// Returns the required key, and the optional ones.
    fn keys(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Kafka => ("topics", &["group", "options"]),
            Self::Nats => ("stream", &["durable", "filter", "ack_wait", "window"]),
            Self::RabbitMq => ("queue", &["prefetch"]),
            Self::Redis => ("stream", &["group", "consumer", "content", "from_now", "take_over_after"]),
        }
    }
}

impl SourceConfig {
    /// Checks that the required keys of its kind are present, and no unknown ones.
    pub(super) fn check_keys(&self) -> Result<(), String> {
        let keys = [
            ("stream", self.stream.is_some()),
            ("group", self.group.is_some()),
            ("consumer", self.consumer.is_some()),
            ("content", self.content.is_some()),
            ("from_now", self.from_now.is_some()),
            ("take_over_after", self.take_over_after.is_some()),
            ("durable", self.durable.is_some()),
            ("filter", self.filter.is_some()),
            ("ack_wait", self.ack_wait.is_some()),
            ("window", self.window.is_some()),
            ("queue", self.queue.is_some()),
            ("prefetch", self.prefetch.is_some()),
            ("topics", self.topics.is_some()),
            ("options", self.options.is_some()),
        ];
        let (kind, (required, optional)) = (self.kind.name(), self.kind.keys());
        for (key, is_given) in keys {
            if key == required && !is_given {
                return Err(format!("a source of type {kind} needs `{required}`"));
            }
            if is_given && key != required && !optional.contains(&key) {
                return Err(format!(
                    "a source of type {kind} has no key `{key}`; it needs `{required}`, and may have `{}`",
                    optional.join("`, `")
                ));
            }
        }
        Ok(())
    }
}

impl ConfiguredSource {
    /// Creates the source, which connects on first use.
    pub(super) fn open<T: Sequences + Clone>(&self) -> Result<Box<dyn AnySource<T>>, Error> {
        match self.config.kind {
            #[cfg(feature = "kafka")]
            Kind::Kafka => Ok(Box::new(self.kafka()?)),
            #[cfg(feature = "nats")]
            Kind::Nats => Ok(Box::new(self.nats()?)),
            #[cfg(feature = "rabbitmq")]
            Kind::RabbitMq => Ok(Box::new(self.rabbitmq()?)),
            #[cfg(feature = "redis")]
            Kind::Redis => Ok(Box::new(self.redis()?)),
            #[allow(unreachable_patterns, reason = "a program may be built with all of them")]
            kind => {
                let expected = format!(
                    "a type that this program was built with; build it again with --features {}",
                    kind.name()
                );
                Err(Invalid::new("type", kind.name(), expected).into())
            }
        }
    }

    #[cfg(feature = "kafka")]
    fn kafka(&self) -> Result<leftfold_sources::kafka::Kafka, Error> {
        let SourceConfig { name, topics, group, .. } = &self.config;
        let topics: Vec<_> = topics.iter().flatten().map(String::as_str).collect();
        let group = group.as_deref().unwrap_or(OURS);
        let kafka = leftfold_sources::kafka::Kafka::new(&self.url, &topics, group)?.named(name);
        self.options.iter().try_fold(kafka, |kafka, (option, value)| kafka.set(option, value))
    }

    #[cfg(feature = "nats")]
    fn nats(&self) -> Result<leftfold_sources::nats::Nats, Error> {
        let SourceConfig { name, stream, durable, filter, ack_wait, window, .. } = &self.config;
        let (stream, durable) = (stream.as_deref().unwrap_or_default(), durable.as_deref().unwrap_or(OURS));
        let mut nats = leftfold_sources::nats::Nats::new(&self.url, stream, durable)?.named(name);
        if let Some(filter) = filter {
            nats = nats.filter(filter);
        }
        if let Some(ack_wait) = ack_wait {
            nats = nats.ack_wait(ack_wait.0);
        }
        if let Some(window) = window {
            nats = nats.window(*window);
        }
        Ok(nats)
    }

    #[cfg(feature = "rabbitmq")]
    fn rabbitmq(&self) -> Result<leftfold_sources::rabbitmq::RabbitMq, Error> {
        let SourceConfig { name, queue, prefetch, .. } = &self.config;
        let queue = queue.as_deref().unwrap_or_default();
        let rabbitmq = leftfold_sources::rabbitmq::RabbitMq::new(&self.url, queue)?.named(name);
        Ok(prefetch.iter().fold(rabbitmq, |rabbitmq, prefetch| rabbitmq.prefetch(*prefetch)))
    }

    #[cfg(feature = "redis")]
    fn redis(&self) -> Result<leftfold_sources::redis::Redis, Error> {
        let SourceConfig { name, stream, group, consumer, content, from_now, take_over_after, .. } =
            &self.config;
        let stream = stream.as_deref().unwrap_or_default();
        let (group, consumer) = (group.as_deref().unwrap_or(OURS), consumer.as_deref().unwrap_or(OURS));
        let mut redis = leftfold_sources::redis::Redis::new(&self.url, stream, group, consumer)?.named(name);
        if let Some(content) = content {
            redis = redis.content(content);
        }
        if *from_now == Some(true) {
            redis = redis.from_now();
        }
        if let Some(idle) = take_over_after {
            redis = redis.take_over_after(idle.0);
        }
        Ok(redis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(said: &str) -> Result<(), String> {
        let text = format!("name = \"orders\"\nurl = \"hidden\"\n{said}");
        let config: SourceConfig = toml::from_str(&text).map_err(|error| error.to_string())?;
        assert!(!format!("{config:?}").contains("hidden"));
        config.check_keys()
    }

    fn opened(kind: &str, url: &str, said: &str) -> Result<(), String> {
        let text = format!("name = \"orders\"\nurl = \"\"\ntype = \"{kind}\"\n{said}");
        let config = toml::from_str(&text).unwrap();
        let known = ConfiguredSource { config, url: url.to_owned(), options: Vec::new() };
        known.open::<leftfold::Memory>().map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn each_kind_can_be_opened_if_it_was_built_in() {
        for (kind, is_built_in, url, wrong, said) in [
            ("kafka", cfg!(feature = "kafka"), "localhost", "", "topics = [\"orders\"]\ngroup = \"g\""),
            (
                "nats",
                cfg!(feature = "nats"),
                "nats://localhost",
                "http://a",
                "stream = \"S\"\nfilter = \"a.>\"",
            ),
            (
                "rabbitmq",
                cfg!(feature = "rabbitmq"),
                "amqp://localhost",
                "http://a",
                "queue = \"q\"\nprefetch = 9",
            ),
            (
                "redis",
                cfg!(feature = "redis"),
                "redis://localhost",
                "http://a",
                "stream = \"s\"\nfrom_now = true",
            ),
        ] {
            if is_built_in {
                assert_eq!(opened(kind, url, said), Ok(()));
                assert!(opened(kind, wrong, said).is_err(), "{kind}");
            } else {
                let said = opened(kind, url, said).unwrap_err();
                assert!(said.contains(&format!("build it again with --features {kind}")), "{said}");
            }
        }
    }

    #[test]
    fn each_kind_has_its_keys() {
        for right in [
            "type = \"redis\"\nstream = \"a\"\ngroup = \"b\"\ntake_over_after = \"1m\"",
            "type = \"nats\"\nstream = \"a\"\ndurable = \"b\"\npolicy = \"latest\"",
            "type = \"rabbitmq\"\nqueue = \"a\"\nprefetch = 5\nbatch = 100",
            "type = \"kafka\"\ntopics = [\"a\"]\noptions = { \"sasl.username\" = \"ann\" }",
            "type = \"nats\"\nstream = \"a\"\nmapping = { format = \"fields\", stream = { attribute = \"key\" } }",
        ] {
            assert_eq!(checked(right), Ok(()));
        }
        for (wrong, expected) in [
            ("type = \"redis\"", "needs `stream`"),
            ("type = \"kafka\"\nstream = \"a\"", "has no key `stream`; it needs `topics`"),
            ("type = \"nats\"\nstream = \"a\"\nqueue = \"b\"", "has no key `queue`"),
            ("type = \"pulsar\"", "line 3"),
            ("type = \"redis\"\nstrem = \"a\"", "strem"),
            ("type = \"redis\"\nstream = \"a\"\ntake_over_after = \"soon\"", "line 5"),
            ("type = \"redis\"\nstream = \"a\"\nmapping = { format = \"fields\" }", "stream"),
        ] {
            let said = checked(wrong).unwrap_err();
            assert!(said.contains(expected), "{wrong}: {said}");
        }
    }
}
