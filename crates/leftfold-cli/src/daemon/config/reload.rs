//! Decides whether a configuration can replace another one without a restart.

use leftfold_terminal::{Exit, Failure};

use super::Config;
use super::file::ServerConfig;

impl Config {
    /// Checks that this configuration can replace the previous one without a restart.
    pub(crate) fn can_follow(&self, before: &Self) -> Result<(), Failure> {
        let store = |config: &Self| config.reveal("the store's URL", &config.store.url);
        let key = if store(self)? != store(before)? {
            "store.url"
        } else if self.server.listen != before.server.listen {
            "server.listen"
        } else if self.server.health != before.server.health {
            "server.health"
        } else {
            let ServerConfig { connections, memory, .. } = self.server;
            if (connections, memory) != (before.server.connections, before.server.memory)
                || self.log != before.log
            {
                tracing::warn!("server.connections, server.memory and [log] change only with a restart");
            }
            return Ok(());
        };
        Err(Failure::new(Exit::Usage, format!("{key} has changed; restart the daemon to apply it")))
    }
}
