//! Signatures of Standard Webhooks 1.0.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use leftfold::Invalid;
use sha2::Sha256;

/// The prefix of Standard Webhooks secrets.
const PREFIX: &str = "whsec_";

/// Signs messages with one or several secrets. None of them is ever shown.
///
/// ```
/// use leftfold_webhook::Signer;
///
/// let signer = Signer::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let signature = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "2021-02-25T15:02:10Z".parse()?, br#"{"test": 2432232314}"#);
/// assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Signer(Vec<Hmac<Sha256>>);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(…)")
    }
}

impl Signer {
    /// Parses secrets: each is `whsec_` and 24 to 64 bytes in base64, separated by white space. A
    /// message is signed with all of them, in their order. So receivers can get a new secret before
    /// the old one is removed.
    pub fn new(secrets: &str) -> Result<Self, Invalid> {
        let keys: Vec<_> = secrets.split_whitespace().map(key).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Err(invalid("at least one secret"));
        }
        Ok(Self(keys))
    }

    /// Returns the value of the header `webhook-signature` for a message that is sent at this time.
    pub fn sign(&self, id: &str, sent: Timestamp, body: &[u8]) -> String {
        let mut signatures = String::new();
        for key in &self.0 {
            let mut hash = key.clone();
            hash.update(format!("{id}.{}.", sent.as_second()).as_bytes());
            hash.update(body);
            let signature = STANDARD.encode(hash.finalize().into_bytes());
            let space = if signatures.is_empty() { "" } else { " " };
            // Writing to a string never fails.
            let _ = write!(signatures, "{space}v1,{signature}");
        }
        signatures
    }
}

fn key(secret: &str) -> Result<Hmac<Sha256>, Invalid> {
    let expected =
        "whsec_ and 24 to 64 bytes in base64, such as from `echo whsec_$(openssl rand -base64 32)`";
    let wrong = || invalid(expected);
    let key = STANDARD.decode(secret.strip_prefix(PREFIX).ok_or_else(wrong)?).map_err(|_| wrong())?;
    if !(24..=64).contains(&key.len()) {
        return Err(wrong());
    }
    Hmac::new_from_slice(&key).map_err(|_| wrong())
}

fn invalid(expected: &str) -> Invalid {
    Invalid::new("secret of a webhook", "…", expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_message_has_the_signature_that_others_compute() {
        let body = br#"{"event_type":"ping","data":{"success":true}}"#;
        let signer = Signer::new(OLD).unwrap();
        let signature = signer.sign("msg_loFOjxBNrRLzqYUf", at(1_731_705_121), body);
        assert_eq!(signature, "v1,ra7kgjOCnSSR5URJ70WM3QMv18NGuuwnmtI2W0CEQ1c=");
    }

    #[test]
    fn each_secret_signs() {
        let new = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let sign = |secrets: &str| Signer::new(secrets).unwrap().sign("a/b/1", at(1_700_000_000), b"{}");
        let both = sign(&format!("{new}\n{OLD}\n"));
        assert_eq!(both, format!("{} {}", sign(new), sign(OLD)));
        assert_eq!(
            both,
            "v1,IizGaaxf1EluSdNe4NdUH+5w5jMVXxn0m8eScwKdKj0= v1,mmvh+kJ7oPkJJNT0UDJaqkl3cZV9rYBzt/YWw41qQ3k="
        );
    }

    #[test]
    fn what_is_no_secret_is_refused_and_not_shown() {
        for wrong in [
            "",
            " ",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2La*aSw",
            &format!("{OLD} short"),
            &format!("whsec_{}", "A".repeat(88)),
        ] {
            let text = Signer::new(wrong).map(drop).unwrap_err().to_string();
            assert!(text.contains("secret of a webhook") && !text.contains("MfKQ"), "{wrong:?}: {text}");
        }
        assert!(!format!("{:?}", Signer::new(OLD).unwrap()).contains("MfKQ"));
    }
}
