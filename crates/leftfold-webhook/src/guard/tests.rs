use std::net::SocketAddr;

use tower_service::Service as _;

use super::{AddressGuard, Resolver};

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
fn allowed_networks_pass_and_no_others() {
    let guard = AddressGuard::allowing(["127.0.0.0/8", "10.1.0.0/16", "192.168.1.7", "fd00::/8"]).unwrap();
    for allowed in ["127.0.0.1", "::ffff:127.0.0.1", "10.1.255.255", "192.168.1.7", "fd12::1", "1.1.1.1"] {
        assert!(passes(&guard, allowed), "{allowed}");
    }
    for other in ["10.2.0.0", "192.168.1.8", "fc00::1", "::1", "64:ff9b::127.0.0.1", "169.254.169.254"] {
        assert!(!passes(&guard, other), "{other}");
    }
    for wrong in ["", "here", "10.0.0.0/33", "10.0.0.0/", "fd00::/129", "127.0.0.1:80"] {
        let text = AddressGuard::allowing([wrong]).map(drop).unwrap_err().to_string();
        assert!(text.contains("allowed network") && text.contains("10.1.0.0/16"), "{text}");
    }
}

#[test]
fn without_encryption_only_allowed_networks_pass() {
    let guard = AddressGuard::allowing(["127.0.0.0/8"]).unwrap().for_plain_http();
    assert!(passes(&guard, "127.0.0.1") && !passes(&guard, "1.1.1.1") && !passes(&guard, "10.0.0.1"));
    assert!(!passes(&AddressGuard::default().for_plain_http(), "1.1.1.1"));
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
fn only_permitted_addresses_of_a_host_are_connected_to() {
    let chosen = |found: &[&str]| {
        let found = found.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0));
        AddressGuard::default().choose("shop.example", found)
    };
    let good = chosen(&["10.0.0.1", "1.1.1.1", "::1", "2606:4700::1111"]).unwrap();
    let good: Vec<_> = good.iter().map(|address| address.ip().to_string()).collect();
    assert_eq!(good, ["1.1.1.1", "2606:4700::1111"]);
    let text = chosen(&["10.0.0.1"]).unwrap_err().to_string();
    assert!(
        text.contains("shop.example is 10.0.0.1, a private address") && text.contains("\"10.0.0.1/32\""),
        "{text}"
    );
    assert!(chosen(&[]).unwrap_err().to_string().contains("no address"));
}

/// The resolver checks a name on each connect: earlier results do not matter.
#[tokio::test]
async fn names_are_checked_when_they_are_looked_up() {
    let look = async |guard: AddressGuard| Resolver(guard).call("localhost".parse().unwrap()).await;
    let text = look(AddressGuard::default()).await.map(drop).unwrap_err().to_string();
    assert!(text.contains("localhost is ") && text.contains("allow = ["), "{text}");
    let found = look(AddressGuard::allowing(["127.0.0.0/8", "::1"]).unwrap()).await.unwrap();
    assert!(found.map(|address| address.ip()).all(|address| address.is_loopback()));
}
