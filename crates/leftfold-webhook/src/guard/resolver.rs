//! The resolver of names, which returns only permitted addresses.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use super::{AddressGuard, Refused};

/// Resolves names to permitted addresses. A connector with this resolver connects to no others.
#[derive(Clone, Debug)]
pub(crate) struct Resolver(pub(crate) AddressGuard);

type Lookup = Pin<Box<dyn Future<Output = Result<std::vec::IntoIter<SocketAddr>, LookupError>> + Send>>;

/// The error of resolving a name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("resolving {0}: {1}")]
    Failed(String, std::io::Error),
    #[error("resolving {0}: it has no address")]
    None(String),
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = LookupError;
    type Future = Lookup;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LookupError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Lookup {
        let guard = self.0.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0)).await;
            let found = found.map_err(|error| LookupError::Failed(host.to_owned(), error))?;
            guard.choose(host, found).map(Vec::into_iter)
        })
    }
}

impl AddressGuard {
    /// Returns the permitted addresses of a host, or the error if there are none.
    pub(super) fn choose(
        &self,
        host: &str,
        found: impl Iterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, LookupError> {
        let (mut good, mut refused) = (Vec::new(), None);
        for address in found {
            match self.check(host, address.ip()) {
                Ok(()) => good.push(address),
                Err(refusal) => refused = Some(refusal),
            }
        }
        match refused {
            _ if !good.is_empty() => Ok(good),
            Some(refusal) => Err(refusal.into()),
            None => Err(LookupError::None(host.to_owned())),
        }
    }
}
