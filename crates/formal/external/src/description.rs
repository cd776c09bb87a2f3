//! The description that an external system gives of itself: its name, its version, and the templates of its prompts.

use serde::Deserialize;
use sgs_formal::Prompt;

/// The reply to `describe`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    pub name: String,
    /// Its version. Systems with the same name and version give the same verdicts.
    pub version: String,
    /// Whether prompts are user messages for the tokenizer's chat template.
    #[serde(default)]
    pub chat: bool,
    pub prompts: Prompts,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prompts {
    pub solver: Template,
    /// Template of the Solver's prompt for a refused proof and its error. Without it, the problem is shown alone.
    pub solver_repair: Option<Template>,
    /// Template of the Conjecturer's prompt, for an unsolved target.
    pub conjecturer: Template,
    /// Template of the Conjecturer's prompt, for a solved problem. Without it, the problem is shown without its proof.
    pub conjecturer_solved: Option<Template>,
    /// Template of the Conjecturer's prompt, without a problem. Without it, the statement is left empty.
    pub conjecturer_unconditioned: Option<Template>,
    /// Template of the Guide's prompt. A run whose Guide is a model needs it. Without it, the statements of target and
    /// conjecture are the prompt.
    pub guide: Option<Template>,
}

impl Description {
    pub(crate) fn prompt(&self, template: &Template, fields: &[(&str, &str)]) -> Prompt {
        let text = template.render(fields);
        if self.chat { Prompt::Chat(text) } else { Prompt::Raw(text) }
    }

    /// Checks that every template uses only the fields that its prompt has.
    pub(crate) fn check(&self) -> Result<(), String> {
        let p = &self.prompts;
        let templates: [(&str, Option<&Template>, &[&str]); 6] = [
            ("solver", Some(&p.solver), &["statement", "context"]),
            ("solver_repair", p.solver_repair.as_ref(), &["statement", "context", "proof", "error"]),
            ("conjecturer", Some(&p.conjecturer), &["statement", "context"]),
            ("conjecturer_solved", p.conjecturer_solved.as_ref(), &["statement", "context", "proof"]),
            ("conjecturer_unconditioned", p.conjecturer_unconditioned.as_ref(), &["context"]),
            ("guide", p.guide.as_ref(), &["statement", "context", "conjecture"]),
        ];
        for (name, template, allowed) in templates {
            let parts = template.into_iter().flat_map(|template| &template.parts);
            if let Some(field) =
                parts.filter_map(|p| p.field.as_deref()).find(|field| !allowed.contains(field))
            {
                let list = allowed.iter().map(|field| format!("{{{field}}}")).collect::<Vec<_>>().join(", ");
                return Err(format!("the prompt `{name}` has no field {{{field}}}, only {list}"));
            }
        }
        Ok(())
    }
}

/// A text with fields in braces. Braces of the text itself are doubled.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Template {
    parts: Vec<Part>,
}

/// A piece of text, and the field after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    text: String,
    field: Option<String>,
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(template: String) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut part = Part::default();
        let mut chars = template.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.next_if_eq(&c).is_some() => part.text.push(c),
                '{' => {
                    let mut field = String::new();
                    while let Some(c) = chars.next_if(|c| *c != '}') {
                        field.push(c);
                    }
                    if chars.next().is_none() {
                        return Err(format!("a `{{` without `}}` in the prompt `{template}`: write `{{{{`"));
                    }
                    part.field = Some(field);
                    parts.push(std::mem::take(&mut part));
                }
                '}' => return Err(format!("a single `}}` in the prompt `{template}`: write `}}}}`")),
                c => part.text.push(c),
            }
        }
        parts.push(part);
        Ok(Self { parts })
    }
}

impl Template {
    /// Replaces the fields.
    ///
    /// # Panics
    /// Panics if a field has no value.
    #[allow(clippy::expect_used, reason = "`Description::check` has examined the fields")]
    fn render(&self, fields: &[(&str, &str)]) -> String {
        let mut out = String::new();
        for part in &self.parts {
            out.push_str(&part.text);
            if let Some(name) = &part.field {
                let field = fields.iter().find(|field| field.0 == name);
                out.push_str(field.expect("invariant: a checked template uses only the prompt's fields").1);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_replaced_once() {
        let template = Template::try_from("{{a}} {statement}: {context}!".to_owned()).unwrap();
        let fields = [("statement", "{context}"), ("context", "c")];
        assert_eq!(template.render(&fields), "{a} {context}: c!");
    }

    #[test]
    fn a_single_brace_is_an_error() {
        for template in ["x } y", "prove {statement", "{", "{{{"] {
            let error = Template::try_from(template.to_owned()).unwrap_err();
            assert!(error.contains(template), "{error}");
        }
    }

    #[test]
    fn an_unknown_field_is_an_error() {
        let description = serde_json::json!({"name": "n", "version": "1", "prompts": {
            "solver": "{statement}", "conjecturer": "{statement}", "conjecturer_solved": "{proof}",
            "conjecturer_unconditioned": "{statement}", "guide": "{conjecture}"}});
        let description: Description = serde_json::from_value(description).unwrap();
        let error = description.check().unwrap_err();
        assert_eq!(error, "the prompt `conjecturer_unconditioned` has no field {statement}, only {context}");
    }
}
