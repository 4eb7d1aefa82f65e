//! The networks that are not part of the internet, by the registries of IANA.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// Returns what an address is, if it is no address of the internet.
pub(super) fn reserved_v4(address: Ipv4Addr) -> Option<&'static str> {
    V4.iter().find(|(network, _)| network.contains(&address)).map(|(_, what)| *what)
}

/// Returns what an address is, if it is no address of the internet.
pub(super) fn reserved_v6(address: Ipv6Addr) -> Option<&'static str> {
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
    (v4([224, 0, 0, 0], 3), "not the address of a single machine"),
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
