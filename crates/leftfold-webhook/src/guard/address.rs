//! The check of an address.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use leftfold::Invalid;

use super::reserved::{reserved_v4, reserved_v6};

/// The allowed addresses: those of the internet, and explicitly allowed networks.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    allowed: Arc<[IpNet]>,
    /// `true` to permit only allowed networks. Elsewhere on the way, an unencrypted call could be
    /// read and changed.
    allowed_only: bool,
}

/// The refusal of an address.
#[derive(Debug, thiserror::Error)]
#[error("{host} is {address}, {what}; to call it, allow its network, as in allow = [\"{address}/{bits}\"]", bits = bits(*address))]
pub struct Refused {
    host: String,
    address: IpAddr,
    what: &'static str,
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl AddressGuard {
    /// Also allows these networks: `127.0.0.0/8`, `fd00::/8`, or single addresses.
    pub fn allowing(networks: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Invalid> {
        let network = |text: &str| {
            let one = text.parse::<IpAddr>().map(IpNet::from);
            one.or_else(|_| text.parse::<IpNet>()).map_err(|_| {
                Invalid::new("allowed network", text, "a network such as 10.1.0.0/16, fd00::/8 or 127.0.0.1")
            })
        };
        let allowed = networks.into_iter().map(|text| network(text.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { allowed, allowed_only: false })
    }

    /// Returns the guard for unencrypted calls, which permits only allowed networks.
    pub(crate) fn for_plain_http(self) -> Self {
        Self { allowed_only: true, ..self }
    }

    /// Checks an address of a host.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), Refused> {
        let canonical = address.to_canonical();
        if self.allowed.iter().any(|network| network.contains(&address) || network.contains(&canonical)) {
            return Ok(());
        }
        let what = match canonical {
            IpAddr::V4(address) => reserved_v4(address),
            IpAddr::V6(address) => reserved_v6(address),
        };
        let what = what.or(self.allowed_only.then_some("which must be called by https"));
        what.map_or(Ok(()), |what| Err(Refused { host: host.to_owned(), address, what }))
    }

    /// Checks a host that is an address. `HttpConnector` resolves only names.
    pub(crate) fn check_literal(&self, host: &str) -> Result<(), Refused> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        bare.parse().map_or(Ok(()), |address| self.check(host, address))
    }
}
