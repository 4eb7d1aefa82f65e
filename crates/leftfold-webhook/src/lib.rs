//! Reactions that call webhooks.
//!
//! A reaction posts to a [`Webhook`] when a document begins to match, or when a watched part of it
//! changes. Calls follow [Standard Webhooks](https://www.standardwebhooks.com) 1.0: a receiver can
//! verify the sender and the time, and recognize duplicates.
//!
//! - **At least once, with a stable id.** `webhook-id` is the same for all attempts at one state of
//!   a document. A receiver that records the ids can drop duplicates. The call contains the current
//!   document, and is left out if the document no longer matches the reaction.
//! - **Signed** with every configured secret, so that secrets can be rotated without a gap:
//!   [`Signer`].
//! - **To public addresses only**, unless others are [allowed](AddressGuard). A name's addresses
//!   are checked on each connect, so changing what a name resolves to does not bypass the check.
//!   Redirects are not followed.
//! - **Controlled by the receiver.** A response 429 or 503 with `Retry-After` delays the whole
//!   reaction in all processes. 410 pauses it until an operator resumes it. Any other failure is
//!   retried by the reaction's [policy](leftfold::react::Retry). [`judge`] decides the meaning of a
//!   response.
//!
//! ```
//! use leftfold::Json;
//! use leftfold::react::Reaction;
//! use leftfold_webhook::{AddressGuard, Signer, Webhook};
//!
//! let signer = Signer::new("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")?;
//! let webhook = Webhook::new("https://shop.example/hooks", signer, AddressGuard::default())?;
//! let reaction = webhook.run(Reaction::on_plain::<Json>("orders", "order-paid"));
//! # Ok::<(), leftfold::Error>(())
//! ```

mod answer;
mod guard;
mod sign;
mod webhook;

pub use answer::{WebhookOutcome, WebhookResponse, judge};
pub use guard::{AddressGuard, Refused};
pub use sign::Signer;
pub use webhook::{Webhook, usual_retry};
