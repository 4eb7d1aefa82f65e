//! The expiry of a certificate. Only the X.509 fields up to it are parsed.

use std::path::Path;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use leftfold::{Error, Kind};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Returns when the first certificate in a PEM file expires. Other fields and the chain are not
/// checked.
pub fn expires(certificate: &Path) -> leftfold::Result<Timestamp> {
    let failed = |why: &str| {
        let message = format!("reading the certificate {}: {why}", certificate.display());
        Error::new(Kind::Invalid, message)
    };
    let read =
        CertificateDer::from_pem_file(certificate).map_err(|_| failed("expected a certificate as PEM"))?;
    not_after(&read).ok_or_else(|| failed("it has no valid expiry date"))
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const TIME: u8 = 0x18;

/// Parses `Certificate { TBSCertificate { [version], serial, algorithm, issuer, Validity {
/// notBefore, notAfter }, … }, … }`.
fn not_after(der: &[u8]) -> Option<Timestamp> {
    let mut outer = Der(der).inside(SEQUENCE)?;
    let mut signed = outer.inside(SEQUENCE)?;
    if signed.0.first() == Some(&VERSION) {
        signed.inside(VERSION)?;
    }
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        signed.inside(tag)?;
    }
    let mut validity = signed.inside(SEQUENCE)?;
    validity.next()?;
    match validity.next()? {
        (UTC_TIME, text) => {
            // Years of two digits are from 1950 to 2049.
            let text = std::str::from_utf8(text).ok()?;
            let century = if text.get(..2)?.parse::<u8>().ok()? < 50 { "20" } else { "19" };
            time(&format!("{century}{text}"))
        }
        (TIME, text) => time(std::str::from_utf8(text).ok()?),
        _ => None,
    }
}

fn time(text: &str) -> Option<Timestamp> {
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The rest of a sequence of values. Each has a tag, a length and that many bytes.
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    fn next(&mut self) -> Option<(u8, &'d [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            ..=0x7F => (usize::from(first), rest),
            // The low bits are the number of length bytes that follow.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }

    /// Returns the content of the next value, if it has this tag.
    fn inside(&mut self, tag: u8) -> Option<Self> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, value)| Self(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_tells_when_it_expires() {
        let key = rcgen::KeyPair::generate().unwrap();
        for (year, expected) in [(2031, "2031-05-06T00:00:00Z"), (2079, "2079-05-06T00:00:00Z")] {
            let mut made = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            made.not_after = rcgen::date_time_ymd(year, 5, 6);
            let made = made.self_signed(&key).unwrap();
            assert_eq!(not_after(made.der()), Some(expected.parse().unwrap()));
            // A truncated certificate must not cause a panic.
            for end in 0..made.der().len() {
                let _ = not_after(&made.der()[..end]);
            }
        }
        assert_eq!(not_after(&[SEQUENCE, 0x84, 0xFF, 0xFF, 0xFF, 0xFF, 0]), None);
    }
}
