//! Chat templates: render a conversation as the text that the model was trained on.
//!
//! Templates are Jinja, as Hugging Face transformers runs them (`apply_chat_template`): blocks are trimmed,
//! strings and maps have Python's methods, and there are `raise_exception`, `strftime_now`, and `tojson` with
//! the behaviour of `json.dumps`.

use std::fmt::Write;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};

use crate::error::{LmError, Result};
use crate::json::{optional_json, optional_text};

/// Maximum number of steps of a template, so that a malicious one cannot loop forever.
const FUEL: u64 = 10_000_000;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// The speaker: `system`, `user` or `assistant`.
    pub role: String,
    /// Text of the message.
    pub content: String,
}

impl ChatMessage {
    /// Creates a turn of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// Texts of the special tokens that templates refer to (`bos_token`, …).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Beginning of a sequence.
    pub bos: Option<String>,
    /// End of a sequence.
    pub eos: Option<String>,
    /// Padding.
    pub pad: Option<String>,
    /// Unknown token.
    pub unk: Option<String>,
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    origin: String,
}

impl ChatTemplate {
    /// Loads the template of a model folder: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json` (a
    /// string, or a list whose entry named `default` is used). Returns `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or if the template does not parse (with its line).
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join("chat_template.jinja");
        if let Some(source) = optional_text(&path)? {
            return Self::new(source, &path.display().to_string()).map(Some);
        }
        let path = dir.join("tokenizer_config.json");
        let config = optional_json(&path)?;
        let origin = format!("{}: chat_template", path.display());
        match config.get("chat_template") {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(source)) => Self::new(source.clone(), &origin).map(Some),
            Some(serde_json::Value::Array(named)) => {
                let default = named
                    .iter()
                    .find(|t| t.get("name").and_then(|n| n.as_str()) == Some("default"))
                    .and_then(|t| t.get("template"))
                    .and_then(|t| t.as_str());
                match default {
                    Some(source) => Self::new(source.to_owned(), &origin).map(Some),
                    None => {
                        Err(LmError::Input(format!("{origin}: a list without a template named \"default\"")))
                    }
                }
            }
            Some(other) => Err(LmError::Input(format!("{origin}: {other} is neither a string nor a list"))),
        }
    }

    /// Compiles a template; `origin` names it in errors.
    ///
    /// # Errors
    /// Returns an error, with the line, if the template does not parse.
    pub fn new(source: String, origin: &str) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| LmError::Input(format!("{origin}: {e}")))?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", to_json);
        environment
            .add_template_owned("chat", source)
            .map_err(|e| LmError::Input(format!("{origin}: the template does not parse: {e}")))?;
        Ok(Self { environment, origin: origin.to_owned() })
    }

    /// Renders the conversation. With `add_generation_prompt`, the text ends where the assistant's answer begins.
    ///
    /// # Errors
    /// Returns an error, with the line, if the template raises an exception (an unknown role, turns that do not
    /// alternate), uses something undefined, or runs too long.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        special: &SpecialTokens,
        add_generation_prompt: bool,
    ) -> Result<String> {
        let fail = |e: Error| {
            LmError::Input(format!("{}: cannot render {} messages: {e}", self.origin, messages.len()))
        };
        let template = self.environment.get_template("chat").map_err(fail)?;
        template
            .render(context! {
                messages => Value::from(Serde(messages)),
                add_generation_prompt => add_generation_prompt,
                bos_token => special.bos.as_deref().unwrap_or(""),
                eos_token => special.eos.as_deref().unwrap_or(""),
                pad_token => special.pad.as_deref().unwrap_or(""),
                unk_token => special.unk.as_deref().unwrap_or(""),
            })
            .map_err(fail)
    }
}

/// Raises the error of a template that cannot render a conversation.
fn raise_exception(message: String) -> std::result::Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Formats today's date (UTC) with `strftime`. Some templates include it in the system turn.
fn strftime_now(format: String) -> std::result::Result<String, Error> {
    let mut text = String::new();
    write!(text, "{}", chrono::Utc::now().format(&format)).map_err(|_| {
        let reason = format!("strftime_now({format:?}): the format has an unknown directive");
        Error::new(ErrorKind::InvalidOperation, reason)
    })?;
    Ok(text)
}

/// Implements `json.dumps(value, indent=indent, ensure_ascii=False)`, without escapes for HTML.
fn to_json(value: Value, indent: Option<usize>, options: Kwargs) -> std::result::Result<String, Error> {
    let indent = match indent {
        Some(n) => Some(n),
        None => options.get::<Option<usize>>("indent")?,
    };
    // Arguments that only configure Python's encoder are accepted without effect.
    for key in ["ensure_ascii", "separators", "sort_keys"] {
        let _ = options.get::<Option<Value>>(key)?;
    }
    options.assert_all_used()?;
    let mut out = Vec::new();
    let done = match indent {
        Some(n) => {
            let spaces = " ".repeat(n.min(64));
            let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, PythonSpacing)),
    };
    done.map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("tojson: {e}")))?;
    String::from_utf8(out).map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("tojson: {e}")))
}

/// Python's default separators, `", "` and `": "`.
struct PythonSpacing;

impl serde_json::ser::Formatter for PythonSpacing {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, w: &mut W) -> std::io::Result<()> {
        w.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, messages: &[ChatMessage], generation: bool) -> Result<String> {
        let special =
            SpecialTokens { bos: Some("<s>".into()), eos: Some("</s>".into()), ..SpecialTokens::default() };
        ChatTemplate::new(source.to_owned(), "test")?.render(messages, &special, generation)
    }

    fn talk() -> Vec<ChatMessage> {
        vec![
            ChatMessage::new("system", "  Be brief. "),
            ChatMessage::new("user", "Hi <b>"),
            ChatMessage::new("assistant", "Hello"),
            ChatMessage::new("user", "Bye"),
        ]
    }

    #[test]
    fn chatml() {
        let source = "{% for message in messages %}\n{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\n{% endfor %}\n{% if add_generation_prompt %}\n{{ '<|im_start|>assistant\\n' }}\n{% endif %}";
        let text = render(source, &talk()[1..3], true).unwrap();
        assert_eq!(
            text,
            "<|im_start|>user\nHi <b><|im_end|>\n\n<|im_start|>assistant\nHello<|im_end|>\n\n<|im_start|>assistant\n\n"
        );
    }

    #[test]
    fn namespaces_methods_slices_and_loop_controls() {
        let source = r"{%- set ns = namespace(system='') -%}
{%- for m in messages -%}
  {%- if m['role'] == 'system' -%}{%- set ns.system = m['content'].strip() -%}{%- continue -%}{%- endif -%}
  {%- if loop.index0 > 2 -%}{%- break -%}{%- endif -%}
  {%- for k, v in m.items() -%}{{ k }}={{ v | trim }};{%- endfor -%}
{%- endfor -%}
[{{ ns.system }}]{{ bos_token }}{{ messages[1:] | length }}{{ messages[-1].content.upper() }}
{%- if 'x' is defined and messages[0].role.startswith('sys') and not tools %}!{{ eos_token }}{% endif -%}";
        let text = render(source, &talk(), false).unwrap();
        assert_eq!(text, "role=user;content=Hi <b>;role=assistant;content=Hello;[Be brief.]<s>3BYE!</s>");
    }

    #[test]
    fn json_is_pythons() {
        let text =
            render("{{ messages[0] | tojson }} {{ messages[1:2] | tojson(indent=2) }}", &talk()[1..3], false);
        assert_eq!(
            text.unwrap(),
            "{\"role\": \"user\", \"content\": \"Hi <b>\"} [\n  {\n    \"role\": \"assistant\",\n    \"content\": \"Hello\"\n  }\n]"
        );
    }

    #[test]
    fn dates_are_formatted() {
        let text = render("{{ strftime_now('%d %b %Y') }}", &talk(), false).unwrap();
        let parts: Vec<&str> = text.split(' ').collect();
        assert_eq!(parts.iter().map(|p| p.len()).collect::<Vec<_>>(), [2, 3, 4], "{text}");
        let directives = "%A %B %H:%M:%S %I %p %j %U %W %u %w %y %c %x %X %Z %z %D %F %T %e %-d %s %%";
        let text = render(&format!("{{{{ strftime_now('{directives}') }}}}"), &talk(), false).unwrap();
        assert!(text.contains(" UTC +0000 ") && text.ends_with(" %"), "{text}");
        for wrong in ["%!", "%", "%Q", "%-", "%E"] {
            let template = format!("{{{{ strftime_now('{wrong}') }}}}");
            assert!(
                render(&template, &talk(), false).unwrap_err().to_string().contains("strftime_now"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn template_errors_say_where_and_why() {
        let raised = render(
            "\n{% if messages[0].role != 'user' %}{{ raise_exception('the first turn must be of the user') }}{% endif %}",
            &talk(),
            false,
        );
        let raised = raised.unwrap_err().to_string();
        assert!(raised.contains("the first turn must be of the user") && raised.contains("test"), "{raised}");
        let broken = render("{% for m in messages %}", &talk(), false).unwrap_err().to_string();
        assert!(broken.contains("does not parse"), "{broken}");
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        assert!(render(endless, &talk(), false).is_err());
    }
}
