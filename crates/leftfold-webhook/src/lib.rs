//! Reactions that call webhooks.
//!
//! A [`Webhook`] is posted to when a document comes to match a reaction, or changes in what it watches, as [Standard
//! Webhooks](https://www.standardwebhooks.com) 1.0 say: whoever hears it can tell who sent it, when, and that it was heard before.
//!
//! - **At least once, and recognisable.** `webhook-id` is the same for all attempts at one state of a document; a receiver that keeps the ids it has
//!   seen hears each once. The document is sent as it is at that moment, and not at all if it is no longer what the reaction is about.
//! - **Signed**, with each secret there is, so that secrets can be changed without a gap: [`Signer`].
//! - **To public addresses only**, unless others are [allowed](Guard): what a name stands for is checked when it is connected to, so that a name
//!   which stands for something else by then does not help. Redirects are not followed.
//! - **As patient as it is told to be.** An answer 429 or 503 with `Retry-After` holds up the whole reaction until then, in all processes; 410 pauses it
//!   until somebody resumes it; any other failure is tried again by the reaction's [policy](leftfold::react::Retry). What an answer means is
//!   decided in [`judge`].
//!
//! ```
//! use leftfold::Json;
//! use leftfold::react::Reaction;
//! use leftfold_webhook::{Guard, Signer, Webhook};
//!
//! let signer = Signer::new("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")?;
//! let webhook = Webhook::new("https://shop.example/hooks", signer, Guard::default())?;
//! let reaction = webhook.run(Reaction::on_plain::<Json>("orders", "order-paid"));
//! # Ok::<(), leftfold::Error>(())
//! ```

mod answer;
mod guard;
mod sign;
mod webhook;

pub use answer::{Answer, Verdict, judge};
pub use guard::{Guard, Refused};
pub use sign::Signer;
pub use webhook::{Webhook, usual_retry};
