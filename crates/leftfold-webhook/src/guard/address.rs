//! The addresses that a webhook may connect to.
//!
//! Without this check, a webhook's URL could make this process call services that only it can
//! reach: on its own machine and network, or a cloud's metadata. A name is resolved on each
//! connect, and only checked addresses are connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use leftfold::Invalid;
use tower_service::Service;

/// The allowed addresses: those of the internet, and explicitly allowed networks.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    allowed: Arc<[IpNet]>,
    /// `true` to permit only allowed networks: without encryption, others could read and change the
    /// calls.
    plain: bool,
}

/// The refusal of an address.
#[derive(Debug, thiserror::Error)]
#[error("{host} is {address}, {what}; if it should be called, allow its network, as in allow = [\"{address}/{bits}\"]", bits = bits(*address))]
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
                Invalid::new("allowed network", text, "one such as 10.1.0.0/16, fd00::/8 or 127.0.0.1")
            })
        };
        let allowed = networks.into_iter().map(|text| network(text.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { allowed, plain: false })
    }

    /// Returns the guard for unencrypted calls, which permits only allowed networks.
    pub(crate) fn plain(self) -> Self {
        Self { plain: true, ..self }
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
        let what = what.or(self.plain.then_some("which must be called by https"));
        what.map_or(Ok(()), |what| Err(Refused { host: host.to_owned(), address, what }))
    }

    /// Checks a host that is an address. `HttpConnector` resolves only names.
    pub(crate) fn check_literal(&self, host: &str) -> Result<(), Refused> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        bare.parse().map_or(Ok(()), |address| self.check(host, address))
    }
}

const V4: [(Ipv4Net, &str); 14] = [
    (v4([0, 0, 0, 0], 8), "an address of this machine"),
    (v4([10, 0, 0, 0], 8), "a private address"),
    (v4([100, 64, 0, 0], 10), "a private address of a provider"),
    (v4([127, 0, 0, 0], 8), "an address of this machine"),
    (v4([169, 254, 0, 0], 16), "an address of the local network"),
    (v4([172, 16, 0, 0], 12), "a private address"),
    (v4([192, 0, 0, 0], 24), "a reserved address"),
    (v4([192, 0, 2, 0], 24), "an address for documentation"),
    (v4([192, 88, 99, 0], 24), "a reserved address"),
    (v4([192, 168, 0, 0], 16), "a private address"),
    (v4([198, 18, 0, 0], 15), "an address for measurements"),
    (v4([198, 51, 100, 0], 24), "an address for documentation"),
    (v4([203, 0, 113, 0], 24), "an address for documentation"),
    // Multicast, reserved for the future, and broadcast.
    (v4([224, 0, 0, 0], 3), "no address of a single machine"),
];

/// The range of global addresses. Everything else is reserved, except addresses that embed IPv4
/// ones.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0], 3);
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0], 96);
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0], 16);
const V6: [(Ipv6Net, &str); 3] = [
    // Teredo, measurements and others.
    (v6([0x2001, 0, 0], 23), "a reserved address"),
    (v6([0x2001, 0xdb8, 0], 32), "an address for documentation"),
    (v6([0x3fff, 0, 0], 20), "an address for documentation"),
];

const fn v4(address: [u8; 4], bits: u8) -> Ipv4Net {
    let [a, b, c, d] = address;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(begin: [u16; 3], bits: u8) -> Ipv6Net {
    let [a, b, c] = begin;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), bits)
}

fn reserved_v4(address: Ipv4Addr) -> Option<&'static str> {
    V4.iter().find(|(network, _)| network.contains(&address)).map(|(_, what)| *what)
}

fn reserved_v6(address: Ipv6Addr) -> Option<&'static str> {
    let octets = address.octets();
    let embedded = |at: usize| Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]);
    if NAT64.contains(&address) {
        return reserved_v4(embedded(12));
    }
    if SIX_TO_FOUR.contains(&address) {
        return reserved_v4(embedded(2));
    }
    if !GLOBAL_V6.contains(&address) {
        return Some("an address of this machine or a private network, or a reserved one");
    }
    V6.iter().find(|(network, _)| network.contains(&address)).map(|(_, what)| *what)
}

/// Resolves names to permitted addresses. A connector with this resolver connects to no others.
#[derive(Clone, Debug)]
pub(crate) struct Resolver(pub(crate) AddressGuard);

type Looking = Pin<Box<dyn Future<Output = Result<std::vec::IntoIter<SocketAddr>, LookupError>> + Send>>;

/// The error of resolving a name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("looking up {0}: {1}")]
    Failed(String, std::io::Error),
    #[error("looking up {0}: it has no address")]
    None(String),
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = LookupError;
    type Future = Looking;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LookupError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Looking {
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
    fn choose(
        &self,
        host: &str,
        found: impl Iterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, LookupError> {
        let (mut good, mut refused) = (Vec::new(), None);
        for address in found {
            match self.check(host, address.ip()) {
                Ok(()) => good.push(address),
                Err(why) => refused = Some(why),
            }
        }
        match refused {
            _ if !good.is_empty() => Ok(good),
            Some(why) => Err(why.into()),
            None => Err(LookupError::None(host.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(guard: &AddressGuard, address: &str) -> bool {
        guard.check("host", address.parse().unwrap()).is_ok()
    }

    #[test]
    fn only_public_addresses_pass() {
        let guard = AddressGuard::default();
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "2a00:1450:4001::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert!(passes(&guard, public), "{public} is public");
        }
        for other in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.1.2.3",
            "64:ff9b:1::1.1.1.1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a00:1::",
            "2002:c0a8:101::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!passes(&guard, other), "{other} is not public");
        }
    }

    #[test]
    fn what_is_allowed_passes_and_nothing_beside_it() {
        let guard =
            AddressGuard::allowing(["127.0.0.0/8", "10.1.0.0/16", "192.168.1.7", "fd00::/8"]).unwrap();
        for allowed in ["127.0.0.1", "::ffff:127.0.0.1", "10.1.255.255", "192.168.1.7", "fd12::1", "1.1.1.1"]
        {
            assert!(passes(&guard, allowed), "{allowed}");
        }
        for other in ["10.2.0.0", "192.168.1.8", "fc00::1", "::1", "64:ff9b::127.0.0.1", "169.254.169.254"] {
            assert!(!passes(&guard, other), "{other}");
        }
        for wrong in ["", "here", "10.0.0.0/33", "10.0.0.0/", "fd00::/129", "127.0.0.1:80"] {
            let said = AddressGuard::allowing([wrong]).map(drop).unwrap_err().to_string();
            assert!(said.contains("allowed network") && said.contains("10.1.0.0/16"), "{said}");
        }
    }

    #[test]
    fn without_encryption_only_what_is_allowed_passes() {
        let guard = AddressGuard::allowing(["127.0.0.0/8"]).unwrap().plain();
        assert!(passes(&guard, "127.0.0.1") && !passes(&guard, "1.1.1.1") && !passes(&guard, "10.0.0.1"));
        assert!(!passes(&AddressGuard::default().plain(), "1.1.1.1"));
    }

    #[test]
    fn hosts_that_are_addresses_are_checked() {
        let guard = AddressGuard::default();
        for refused in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"] {
            assert!(guard.check_literal(refused).is_err(), "{refused}");
        }
        for other in ["1.1.1.1", "[2606:4700::1111]", "localhost", "example.org"] {
            assert!(guard.check_literal(other).is_ok(), "{other}");
        }
    }

    #[test]
    fn of_the_addresses_of_a_host_only_checked_ones_are_connected_to() {
        let chosen = |found: &[&str]| {
            let found = found.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0));
            AddressGuard::default().choose("shop.example", found)
        };
        let good = chosen(&["10.0.0.1", "1.1.1.1", "::1", "2606:4700::1111"]).unwrap();
        let good: Vec<_> = good.iter().map(|address| address.ip().to_string()).collect();
        assert_eq!(good, ["1.1.1.1", "2606:4700::1111"]);
        let said = chosen(&["10.0.0.1"]).unwrap_err().to_string();
        assert!(
            said.contains("shop.example is 10.0.0.1, a private address") && said.contains("\"10.0.0.1/32\""),
            "{said}"
        );
        assert!(chosen(&[]).unwrap_err().to_string().contains("no address"));
    }

    /// The resolver checks a name on each connect: earlier results do not matter.
    #[tokio::test]
    async fn names_are_checked_when_they_are_looked_up() {
        let look = async |guard: AddressGuard| Resolver(guard).call("localhost".parse().unwrap()).await;
        let said = look(AddressGuard::default()).await.map(drop).unwrap_err().to_string();
        assert!(said.contains("localhost is ") && said.contains("allow = ["), "{said}");
        let found = look(AddressGuard::allowing(["127.0.0.0/8", "::1"]).unwrap()).await.unwrap();
        assert!(found.map(|address| address.ip()).all(|address| address.is_loopback()));
    }
}
