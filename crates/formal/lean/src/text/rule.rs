//! The rules of the text layer, and the refusal of a text by one of them.

use std::fmt;

/// A rule of the text layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextRule {
    /// Limits on size and nesting, unbalanced brackets, unclosed strings and comments, control characters.
    Bounds,
    /// A place where Lean's lexer might split the text differently from ours.
    Ambiguous,
    /// A command where only a proof is allowed.
    Command,
    /// A command that begins with `#`.
    HashCommand,
    /// `sorry` under any of its names.
    Sorry,
    /// Trust in the compiler instead of the kernel.
    Compiler,
    /// Code that runs during elaboration.
    MetaCode,
    /// An option that is not on the allow-list.
    Option,
    /// `open` without `in`, or of a namespace of Lean's own machinery.
    Open,
    /// An attribute.
    Attribute,
    /// A quotation or a name literal.
    Quotation,
    /// A string that contains code.
    InterpolatedString,
    /// A name of Lean's own machinery, of input and output, or of this checker.
    ReservedName,
    /// A helper that is not a plain theorem, or whose name occurs in the statement.
    Helper,
    /// A problem's header that adds an axiom, `sorry` or code that runs during elaboration.
    Header,
}

impl TextRule {
    /// Returns the rule's name, as it is reported and counted.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bounds => "bounds",
            Self::Ambiguous => "ambiguous",
            Self::Command => "command",
            Self::HashCommand => "hash-command",
            Self::Sorry => "sorry",
            Self::Compiler => "compiler",
            Self::MetaCode => "meta-code",
            Self::Option => "option",
            Self::Open => "open",
            Self::Attribute => "attribute",
            Self::Quotation => "quotation",
            Self::InterpolatedString => "interpolated-string",
            Self::ReservedName => "reserved-name",
            Self::Helper => "helper",
            Self::Header => "header",
        }
    }
}

/// The reason why the text layer refuses a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRefusal {
    /// The rule that the text breaks.
    pub rule: TextRule,
    /// The offending words, or the limit that is exceeded.
    pub what: String,
    /// Line of the text, counted from 1.
    pub line: u32,
}

impl fmt::Display for TextRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "text layer, rule {}: `{}` in line {}", self.rule.as_str(), self.what, self.line)
    }
}
