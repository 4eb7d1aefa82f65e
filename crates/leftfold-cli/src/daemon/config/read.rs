//! Reads the file. **Errors name the line and the key, but not the value, which may be secret.**

use std::path::Path;

use leftfold_terminal::{Exit, Failure};

use super::Config;

impl Config {
    /// Reads the file.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            let hint = "create one with `leftfold init`, or name one with --config";
            Failure::new(Exit::Usage, format!("reading {}: {error}; {hint}", file.display()))
        })?;
        let mut config = Self::parse(&text)
            .map_err(|wrong| Failure::new(Exit::Usage, format!("reading {}: {wrong}", file.display())))?;
        file.clone_into(&mut config.path);
        Ok(config)
    }

    /// Parses the file.
    fn parse(text: &str) -> Result<Self, String> {
        let described = |error: &toml::de::Error, path: Option<String>| {
            let message = error.message();
            let Some(span) = error.span() else {
                return path.map_or_else(|| message.to_owned(), |path| format!("{path}: {message}"));
            };
            let before = text.get(..span.start).unwrap_or(text);
            let start = before.rfind('\n').map_or(0, |end| end + 1);
            let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
            let number = before.matches('\n').count() + 1;
            match path.or_else(|| key_of(line).map(str::to_owned)) {
                Some(key) => format!("line {number}, {key}: {message}"),
                None => format!("line {number}: {message}"),
            }
        };
        let read = toml::Deserializer::parse(text).map_err(|error| described(&error, None))?;
        serde_path_to_error::deserialize(read).map_err(|error| {
            let path = error.path().to_string();
            described(error.inner(), Some(path).filter(|path| path != "."))
        })
    }
}

/// All keys that have values.
const KEYS: &str = "\
    ack_wait after allow attempts authorization batch certificate concurrency connections \
    consumer content durable every file filter first format from_now group health hosts key \
    listen mapping max_body_bytes memory memory_limit_mib most name on on_new_version \
    opentelemetry options policy prefetch queue rebuild_on_change requests_per_second retry \
    scopes script secret service_name sha256 source_in_id stream take_over_after time_limit timeout tls \
    topics type url version waits watch when window within";

/// Returns the key of a line that is not TOML. Other words may be part of a secret, and are not
/// repeated.
fn key_of(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    let last = key.rsplit('.').next()?.trim();
    KEYS.split(' ').any(|known| known == last).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        Config::parse(text).map(drop).unwrap_err()
    }

    #[test]
    fn errors_name_the_line_the_key_and_what_was_expected() {
        let said = wrong("[store]\nurl = \"sqlite:a.db\"\n[server]\nlisten = \"here\"\n");
        assert!(
            said.contains("line 4") && said.contains("listen") && said.contains("socket address"),
            "{said}"
        );
        let said = wrong("[store]\nurl = \"sqlite:a.db\"\n[[projection]]\nname = \"a\"\nscrpt = \"a.js\"\n");
        assert!(said.contains("line 5") && said.contains("scrpt") && said.contains("`script`"), "{said}");
        for line in ["listen=1", "  listen = 1", "\tlisten =1", "listen = [", "  listen=\"", "connections=0x"]
        {
            let said = wrong(&format!("[store]\nurl = \"sqlite:a.db\"\n[server]\n{line}\n"));
            let key = line.trim_start().split(['=', ' ']).next().unwrap_or_default();
            assert!(said.contains("line 4") && said.contains(key), "{line}: {said}");
        }
        let token = "[store]\nurl = \"a\"\n[[token]]\nname = \"shop\"\n";
        for line in ["sha256=\"00\"", " sha256 = 256", "sha256 ="] {
            let said = wrong(&format!("{token}{line}\nscopes = []\n"));
            assert!(said.contains("line 5") && said.contains("sha256"), "{line}: {said}");
        }
        let said = wrong("store.url = \"a\"\nserver = { listen=\"here\" }\n");
        assert!(said.contains("line 2") && said.contains("server.listen"), "{said}");
        let said = wrong("[store]\nurl = \"sqlite:a.db\"\n[server]\nmemory = 8\n");
        assert!(said.contains("line 4, server.memory: expected 64 to 1048576 mebibytes"), "{said}");
        let said = wrong("[store]\nurl = \"${LEFTFOLD_NO_SUCH_VARIABLE}\"\n");
        assert!(said.contains("line 2") && said.contains("LEFTFOLD_NO_SUCH_VARIABLE"), "{said}");
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let config: Config = toml::from_str("[store]\nurl = \"mongodb://ann:hidden@host/shop\"\n").unwrap();
        assert!(!format!("{config:?}").contains("hidden"));
        for text in [
            "[store]\nurl = \"mongodb://ann:hidden@host/shop\n",
            "[store]\nurl = mongodb://ann:hidden@host/shop\n",
            "[store]\nurl = [\"hidden\"]\n",
            "[store]\nurl = \"\"\"mongodb://\nHidden==\nhidden",
            "[store]\nurl = { fiel = \"hidden\" }\n",
            "[store]\nurl = \"a\"\n[[reaction]]\nsecret = [\nhidden=\n",
            "[store]\nurl = \"hidden\"\"hidden\"\n",
            "[store]\nurl = \"a\"\n[[token]]\nname = \"shop\"\nsha256 = \"lf_hidden\"\nscopes = []\n",
            "[store]\nurl = \"a\"\n[[reaction]]\nname = \"a\"\non = \"a\"\nurl = \"a\"\nsecret = 'hidden\n",
            "[store]\nurl = \"a\"\n[[reaction]]\nname = \"a\"\non = \"a\"\nurl = \"a\"\nsecret = [\"hidden\"]\n",
        ] {
            let said = wrong(text);
            assert!(said.contains("line ") && !said.contains("hidden"), "{said}");
        }
    }
}
