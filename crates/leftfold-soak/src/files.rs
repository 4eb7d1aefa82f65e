//! Configuration files that the daemon must reject.

use crate::args::Store;
use crate::dice::Dice;

/// A change that makes a valid file invalid.
pub(crate) struct Fault {
    pub(crate) title: &'static str,
    apply: Apply,
    /// The only store on which the file is invalid; `None` for any store.
    on: Option<Store>,
}

enum Apply {
    /// Adds the text at the end.
    Append(&'static str),
    Replace(&'static str, &'static str),
    Truncate,
    Empty,
}

const fn fault(title: &'static str, apply: Apply) -> Fault {
    Fault { title, apply, on: None }
}

macro_rules! projection {
    ($name:literal, $more:literal) => {
        Apply::Append(concat!("\n[[projection]]\nname = \"", $name, "\"\n", $more, "\n"))
    };
}

/// All faults.
pub(crate) const FAULTS: &[Fault] = &[
    fault("a name twice", projection!("carts", "script = \"projections/carts.js\"")),
    fault("a name in another case", projection!("CARTS", "script = \"projections/carts.js\"")),
    fault("a name with a dash", projection!("my-carts", "script = \"projections/carts.js\"")),
    fault("a name with a dot", projection!("my.carts", "script = \"projections/carts.js\"")),
    Fault {
        title: "a reserved name",
        apply: projection!("leftfold_events", "script = \"projections/carts.js\""),
        on: Some(Store::Sqlite),
    },
    fault("an empty name", projection!("", "script = \"projections/carts.js\"")),
    fault("a missing script", projection!("more", "script = \"projections/nowhere.js\"")),
    fault("a script that is a directory", projection!("more", "script = \"projections\"")),
    fault("a broken script", projection!("more", "script = \"leftfold.toml\"")),
    fault(
        "a memory limit of nothing",
        projection!("more", "script = \"projections/carts.js\"\nmemory_limit_mib = 0"),
    ),
    fault(
        "a time limit that is none",
        projection!("more", "script = \"projections/carts.js\"\ntime_limit = \"never\""),
    ),
    fault("an unknown key", Apply::Replace("[server]", "[server]\nlistne = 1")),
    fault("another store", Apply::Replace("url = \"", "url = \"other")),
    fault("no TOML", Apply::Replace("[store]", "[store")),
    fault("half a file", Apply::Truncate),
    fault("an empty file", Apply::Empty),
];

impl Fault {
    /// Returns the invalid file.
    pub(crate) fn applied(&self, valid: &str) -> String {
        match self.apply {
            Apply::Append(text) => format!("{valid}{text}"),
            Apply::Replace(from, to) => valid.replacen(from, to, 1),
            // Cut in the middle of the last key.
            Apply::Truncate => valid[..valid.rfind(" = ").unwrap_or(0)].to_owned(),
            Apply::Empty => String::new(),
        }
    }
}

/// Returns a random fault that applies to a store.
pub(crate) fn any(store: Store, dice: &mut Dice) -> &'static Fault {
    loop {
        let fault = dice.pick(FAULTS);
        if fault.on.is_none_or(|on| on == store) {
            return fault;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::configuration;

    #[test]
    fn every_fault_changes_the_file() {
        let valid = configuration("127.0.0.1:1", "sqlite:a.db");
        let mut all: Vec<_> = FAULTS.iter().map(|fault| fault.applied(&valid)).collect();
        assert!(all.iter().all(|text| *text != valid));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), FAULTS.len());
    }
}
