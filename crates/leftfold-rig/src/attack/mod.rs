//! Attacks on the processes and servers: kills at places and at random moments, and zombies.

mod attacker;
mod documents;
mod kills;
mod reactors;
mod stops;
mod victims;
mod zombies;

pub(crate) use attacker::Attacker;
