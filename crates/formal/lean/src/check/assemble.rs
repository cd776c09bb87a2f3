//! The text that a REPL is given: our commands, with the model's text embedded.
//!
//! ```text
//! namespace Sgs_0_NONCE
//! axiom _sgs_pin_NONCE BINDERS : CONCLUSION                (only if the proof has helpers)
//! HELPERS
//! theorem NAME BINDERS : CONCLUSION := by PROOF
//! theorem sgs_agree_NONCE : type_of% @NAME := @NAME        (or : type_of% @_sgs_pin_NONCE := @NAME)
//! #print axioms sgs_agree_NONCE                            (or #check, if this Lean cannot list axioms)
//! end Sgs_0_NONCE
//! ```
//!
//! Lean elaborates the statement from our text, before the proof. Helpers precede the statement and could change the
//! meaning of its words. The pin is therefore elaborated before the helpers, and the theorem must agree with it. The
//! pin is an axiom, so that Lean binds undeclared names in it in the same way as in the theorem. A proof that used the
//! pin would be detected: the name of the pin is random, searches skip names that begin with `_`, and `#print axioms`
//! would report it.

use crate::read::Proof;
use crate::text::LeanStatement;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A proof to be judged, with its statement and header.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Imports, `open` commands, options and definitions that precede the problem's theorem.
    pub header: Arc<str>,
    /// The theorem up to `:= by`.
    pub statement: Arc<str>,
    /// The model's proof.
    pub proof: Proof,
}

/// The command that provides the evidence that a theorem exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `#print axioms`: the theorem exists and depends on the listed axioms.
    Axioms,
    /// `#check`: the theorem exists. For builds of Lean that cannot list axioms.
    Presence,
}

impl Probe {
    /// Returns the command, up to the name that it is applied to.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::Axioms => "#print axioms ",
            Self::Presence => "#check @",
        }
    }
}

/// The lines of a candidate's parts, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The pin, if there is one.
    pub pin: Option<RangeInclusive<u32>>,
    /// The statement, from `theorem` to `:= by`.
    pub statement: RangeInclusive<u32>,
    /// The two lines that provide the evidence.
    pub probe: RangeInclusive<u32>,
    /// The name that the evidence must refer to.
    pub witness: String,
}

/// Returns the text for a proof, and the lines of its parts. `nonce` must be fresh for every text.
pub fn assemble(statement: &LeanStatement, proof: &Proof, nonce: &str, probe: Probe) -> (String, Region) {
    let mut writer = SourceWriter { text: String::new(), line: 1 };
    let region = writer.proof(statement, proof, &format!("0_{nonce}"), probe);
    (writer.text, region)
}

struct SourceWriter {
    text: String,
    line: u32,
}

impl SourceWriter {
    #[allow(clippy::expect_used, reason = "a text of 4 GiB is refused long before")]
    fn put(&mut self, text: &str) {
        let lines = u32::try_from(text.matches('\n').count());
        self.line += lines.expect("invariant: a text has fewer than 2^32 lines");
        self.text.push_str(text);
    }

    fn proof(&mut self, statement: &LeanStatement, proof: &Proof, id: &str, probe: Probe) -> Region {
        let name = statement.name();
        // A dotted name opens its namespace for the proof. The wrapping namespace would hide it, so it is created and opened.
        let own = statement.declared();
        let own = Some(own.namespace).filter(|space| !space.is_empty() && !own.rooted);
        if let Some(own) = own {
            self.put(&format!("namespace {own}\nend {own}\n"));
        }
        self.put(&format!("namespace Sgs_{id}\n"));
        if let Some(own) = own {
            self.put(&format!("open {own}\n"));
        }
        let witness = format!("sgs_agree_{id}");
        let pin = (!proof.helpers.trim().is_empty()).then(|| format!("_sgs_pin_{id}"));
        let pin_line = pin.as_ref().map(|pin| {
            let line = self.line;
            let signature = statement.signature();
            let glue = if signature.starts_with('.') { "" } else { " " };
            self.put(&format!("axiom {pin}{glue}{signature}\n"));
            line..=self.line - 1
        });
        if pin.is_some() {
            self.put(proof.helpers.trim());
            self.put("\n");
        }
        let start = self.line;
        self.put(&statement.text);
        let statement_lines = start..=self.line;
        self.put(&proof.body);
        if !self.text.ends_with('\n') {
            self.put("\n");
        }
        let probe_line = self.line;
        let pinned = pin.as_deref().unwrap_or(name);
        self.put(&format!("theorem {witness} : type_of% @{pinned} := @{name}\n"));
        self.put(&format!("{}{witness}\n", probe.command()));
        let probe = probe_line..=self.line - 1;
        self.put(&format!("end Sgs_{id}\n"));
        Region { pin: pin_line, statement: statement_lines, probe, witness }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(statement: &str, proof: &Proof) -> (String, Region) {
        assemble(&LeanStatement::read(statement).unwrap(), proof, "n0", Probe::Axioms)
    }

    fn lines(text: &str, range: &RangeInclusive<u32>) -> String {
        let skip = *range.start() as usize - 1;
        text.lines().skip(skip).take(*range.end() as usize - skip).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn regions_name_the_lines_of_their_parts() {
        let (text, a) = assembled("theorem a (x : ℝ) :\n  x = x := by", &Proof::new("\n  rfl"));
        let with_helper = Proof { helpers: "theorem h : 1 = 1 := rfl".into(), body: "\n  exact h".into() };
        let (helped, b) = assembled("theorem b : 1 = 1 := by", &with_helper);
        let (dotted, _) = assembled("theorem Foo.c : 1 = 1 := by", &Proof::new(" rfl"));
        assert_eq!(lines(&text, &a.statement), "theorem a (x : ℝ) :\n  x = x := by");
        assert_eq!(
            lines(&text, &a.probe),
            "theorem sgs_agree_0_n0 : type_of% @a := @a\n#print axioms sgs_agree_0_n0"
        );
        assert!(text.ends_with("end Sgs_0_n0\n"));
        assert_eq!(lines(&helped, b.pin.as_ref().unwrap()), "axiom _sgs_pin_0_n0 : 1 = 1");
        let probe = lines(&helped, &b.probe);
        assert!(probe.starts_with("theorem sgs_agree_0_n0 : type_of% @_sgs_pin_0_n0 := @b\n"), "{probe}");
        assert!(dotted.starts_with(
            "namespace Foo\nend Foo\nnamespace Sgs_0_n0\nopen Foo\ntheorem Foo.c : 1 = 1 := by"
        ));
    }
}
