//! The configuration keys for roles that are sampled by external servers with an OpenAI-compatible completions API.

use crate::Usage;
use sgs_fleet::WorkKind;
use sgs_keys::{Allowed, above};
use sgs_selfplay::{AlgorithmConfig, Role, RoleBackend, Weights};
use std::collections::BTreeSet;

/// The work kind of tasks for the shared servers. Roles with dedicated servers use [`served_alone`].
pub(crate) const SERVED: WorkKind = WorkKind::of("endpoint");

/// Returns the work kind of a role that has dedicated servers.
pub(crate) const fn served_alone(role: Role) -> WorkKind {
    match role {
        Role::Solver => WorkKind::of("endpoint-solver"),
        Role::Conjecturer => WorkKind::of("endpoint-conjecturer"),
        Role::Guide => WorkKind::of("endpoint-guide"),
    }
}

sgs_keys::table! {
    /// External servers that sample some roles.
    #[derive(Clone, Debug, PartialEq)]
    pub struct EndpointConfig {
        /// Address of a server with an OpenAI-compatible completions API (vLLM, SGLang, llama.cpp).
        pub url: String = String::new(), in "empty for none, or an address such as http://127.0.0.1:8000/v1",
        /// Further servers of the same model, which share the tasks.
        pub urls: Vec<String> = Vec::new(), in "a list of addresses",
        /// Servers for the Solver only, used instead of url and urls.
        pub solver_urls: Vec<String> = Vec::new(), in "a list of addresses",
        /// Servers for the Conjecturer only, used instead of url and urls.
        pub conjecturer_urls: Vec<String> = Vec::new(), in "a list of addresses",
        /// Servers for the Guide only, used instead of url and urls.
        pub guide_urls: Vec<String> = Vec::new(), in "a list of addresses",
        /// How servers load the weights of a trained role after each update: never, by the API of SGLang, or by that of
        /// vLLM.
        pub refresh: Refresh = Refresh::Never,
        /// Folder for these weights. The servers must be able to read it, and only this run may use it.
        pub folder: String = String::new(), in "empty for none, or a folder",
        /// Path of that folder on the servers.
        pub folder_there: String = String::new(), in "empty for the same name, or a folder",
        /// Name of the served model.
        pub model: String = String::new(), in "empty if it serves exactly one, or a name",
        /// Roles that the servers sample. A role that is trained needs refresh.
        pub roles: Vec<Role> = Vec::new(), in Allowed::ListOf(&["solver", "conjecturer", "guide"]),
        /// Format of prompts: auto (token IDs if the server accepts them, otherwise text), tokens (token IDs; the
        /// served model must have the tokenizer of model.base), or text.
        pub prompt: PromptChoice = PromptChoice::Auto,
        /// Maximum number of concurrent requests.
        pub concurrency: usize = 64, in 1..=1024,
        /// Maximum number of attempts per request while other requests succeed.
        pub tries: u32 = 8, in 1..=1_000_000,
        /// Timeout of one request, in seconds.
        pub timeout_s: f64 = 600.0, in above(0.0).at_most(1e6),
        /// Time without any response after which the run stops, in seconds.
        pub patience_s: f64 = 600.0, in above(0.0).at_most(1e6),
        /// Name of the environment variable with the API key.
        pub key_env: String = "SGS_ENDPOINT_KEY".to_owned(), in "a name, or empty",
        /// File with the API key, used instead of the environment variable.
        pub key_file: String = String::new(), in "empty for none, or a file",
        /// PEM file with the certificates to trust for https:// addresses, instead of those of the public authorities.
        pub authority: String = String::new(), in "empty for none, or a file",
    }
}

/// The keys that only a run uses: a command with one server does not accept them.
pub const RUN_KEYS: [&str; 8] =
    ["urls", "solver_urls", "conjecturer_urls", "guide_urls", "refresh", "folder", "folder_there", "roles"];

sgs_keys::choice! {
    /// How servers load the weights of each update.
    pub enum Refresh {
        /// Never.
        Never = "never",
        /// By SGLang's `/update_weights_from_disk`.
        Sglang = "sglang",
        /// By vLLM's `reload_weights`.
        Vllm = "vllm",
    }
}

sgs_keys::choice! {
    /// The format in which prompts are sent.
    pub enum PromptChoice {
        /// Token IDs if the server accepts them, otherwise text.
        Auto = "auto",
        /// Token IDs only.
        Tokens = "tokens",
        /// Text only.
        Text = "text",
    }
}

/// A group of servers that share the tasks of the same roles.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerGroup {
    /// The work kind of the tasks.
    pub kind: WorkKind,
    /// The roles.
    pub roles: Vec<Role>,
    /// The addresses of the servers.
    pub urls: Vec<String>,
}

impl EndpointConfig {
    /// Returns whether external servers sample the role.
    pub fn plays(&self, role: Role) -> bool {
        self.roles.contains(&role) && !self.urls_of(role).is_empty()
    }

    /// Returns the backend that samples the role.
    pub(crate) fn backend_of(&self, role: Role) -> RoleBackend {
        match (self.plays(role), self.refresh) {
            (false, _) => RoleBackend::Local,
            (true, Refresh::Never) => RoleBackend::Endpoint,
            (true, Refresh::Sglang | Refresh::Vllm) => RoleBackend::SyncedEndpoint,
        }
    }

    /// Returns the addresses of a role's servers. Empty if there are none.
    pub fn urls_of(&self, role: Role) -> Vec<&str> {
        let own = self.own_urls(role);
        let shared = [&self.url].into_iter().filter(|url| !url.is_empty()).chain(&self.urls);
        if own.is_empty() {
            shared.map(String::as_str).collect()
        } else {
            own.iter().map(String::as_str).collect()
        }
    }

    fn own_urls(&self, role: Role) -> &[String] {
        match role {
            Role::Solver => &self.solver_urls,
            Role::Conjecturer => &self.conjecturer_urls,
            Role::Guide => &self.guide_urls,
        }
    }

    /// Returns the work kind of a role's tasks, or `None` if the role is sampled by this program.
    pub fn kind_of(&self, role: Role) -> Option<WorkKind> {
        let kind = if self.own_urls(role).is_empty() { SERVED } else { served_alone(role) };
        self.plays(role).then_some(kind)
    }

    /// Groups the servers by the tasks that they share.
    pub fn groups(&self) -> Vec<ServerGroup> {
        let mut groups: Vec<ServerGroup> = Vec::new();
        for role in &self.roles {
            let Some(kind) = self.kind_of(*role) else { continue };
            match groups.iter_mut().find(|group| group.kind == kind) {
                Some(group) => group.roles.push(*role),
                None => {
                    let urls = self.urls_of(*role).into_iter().map(str::to_owned).collect();
                    groups.push(ServerGroup { kind, roles: vec![*role], urls });
                }
            }
        }
        groups
    }

    /// Returns a copy of this configuration for one server whose weights are not refreshed.
    pub fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), refresh: Refresh::Never, ..self.clone() }
    }

    /// Checks the keys against each other and against the algorithm.
    ///
    /// # Errors
    /// Returns an error if a served role is off or has no server, if a served role is trained and its servers are not
    /// refreshed, or if one server would need two sets of weights.
    pub fn check(&self, algorithm: &AlgorithmConfig) -> Result<(), Usage> {
        let served = |role: &Role| !self.urls_of(*role).is_empty();
        if self.roles.is_empty() {
            if [Role::Solver, Role::Conjecturer, Role::Guide].iter().any(served) {
                return Err(Usage(
                    "`sampling.endpoint.roles` is empty; expected some of solver, conjecturer, guide".into(),
                ));
            }
            return Ok(());
        }
        if let Some(unserved) = self.roles.iter().find(|role| !served(role)) {
            let unserved = unserved.as_str();
            return Err(Usage(format!(
                "`sampling.endpoint.roles` names the {unserved}, and no server is given: set `sampling.endpoint.url` or \
                 `sampling.endpoint.{unserved}_urls`"
            )));
        }
        for role in &self.roles {
            self.check_role(*role, algorithm)?;
        }
        self.check_groups(algorithm)
    }

    fn check_role(&self, role: Role, algorithm: &AlgorithmConfig) -> Result<(), Usage> {
        let name = role.as_str();
        if !algorithm.samples(role) {
            return Err(Usage(format!(
                "`sampling.endpoint.roles` names the {name}, but this method has none"
            )));
        }
        if !algorithm.weights_of(role, RoleBackend::Local).is_trained() {
            return Ok(());
        }
        if self.refresh == Refresh::Never {
            return Err(Usage(format!(
                "`sampling.endpoint.roles` names the {name}, which this method trains: an external server would keep \
                 sampling with the old weights. Refresh the server's weights (`sampling.endpoint.refresh` and `.folder`), \
                 remove the {name} from the roles, or choose a method that does not train it (sampling-only; \
                 sgs-frozen-conjecturer for the Conjecturer)"
            )));
        }
        if self.folder.is_empty() {
            return Err(Usage(format!(
                "`sampling.endpoint.folder` is empty; the {name}'s servers need a folder to read its weights from"
            )));
        }
        Ok(())
    }

    /// Checks that each refreshed server belongs to one group only, and that the roles of its group share their
    /// weights.
    fn check_groups(&self, algorithm: &AlgorithmConfig) -> Result<(), Usage> {
        let mut taken: Vec<(&str, bool)> = Vec::new();
        let groups = self.groups();
        for group in &groups {
            let sets = group.roles.iter().map(|role| algorithm.weights_of(*role, self.backend_of(*role)));
            let sets: BTreeSet<Weights> = sets.collect();
            let is_trained = sets.iter().any(|set| set.is_trained());
            if is_trained && sets.len() > 1 {
                let names: Vec<&str> = group.roles.iter().map(|role| role.as_str()).collect();
                let last = names[names.len() - 1];
                return Err(Usage(format!(
                    "the servers at {} are configured for the {}, which do not share their weights: give the {last} dedicated \
                     servers (`sampling.endpoint.{last}_urls`)",
                    group.urls.join(", "),
                    names.join(" and the ")
                )));
            }
            for url in &group.urls {
                let url = url.trim_end_matches('/');
                if taken.iter().any(|(other, trained)| *other == url && (*trained || is_trained)) {
                    return Err(Usage(format!(
                        "the server {url} is named twice under `sampling.endpoint`: a server whose weights are refreshed \
                         may be named only once"
                    )));
                }
                taken.push((url, is_trained));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sgs_selfplay::Method;

    fn served(roles: &[Role]) -> EndpointConfig {
        EndpointConfig {
            url: "http://127.0.0.1:1".into(),
            roles: roles.to_vec(),
            ..EndpointConfig::default()
        }
    }

    #[test]
    fn only_untrained_roles_may_be_served_without_refresh() {
        let allowed =
            |method: &str, role: Role| served(&[role]).check(&method.parse::<Method>().unwrap().config());
        allowed("sampling-only", Role::Solver).unwrap();
        allowed("sgs", Role::Guide).unwrap();
        allowed("sgs-frozen-conjecturer", Role::Conjecturer).unwrap();
        for (method, role) in [("sgs", Role::Solver), ("sgs", Role::Conjecturer), ("reinforce", Role::Solver)]
        {
            let error = allowed(method, role).unwrap_err().to_string();
            assert!(error.contains("which this method trains"), "{method}: {error}");
        }
        let error = allowed("sampling-only", Role::Guide).unwrap_err().to_string();
        assert!(error.contains("this method has none"), "{error}");
        let error = served(&[]).check(&AlgorithmConfig::default()).unwrap_err().to_string();
        assert!(error.contains("roles"), "{error}");
    }

    #[test]
    fn a_trained_role_may_be_served_if_its_weights_are_refreshed() {
        let check = |e: &EndpointConfig, method: &str| e.check(&method.parse::<Method>().unwrap().config());
        let roles = [Role::Solver, Role::Conjecturer];
        let solver = EndpointConfig { refresh: Refresh::Sglang, ..served(&roles[..1]) };
        let error = check(&solver, "sgs").unwrap_err().to_string();
        assert!(error.contains("`sampling.endpoint.folder` is empty"), "{error}");
        let solver = EndpointConfig { folder: "weights".into(), ..solver };
        check(&solver, "sgs").unwrap();
        assert_eq!(solver.backend_of(Role::Solver), RoleBackend::SyncedEndpoint);
        // Two sets of weights on one server: two trained roles, and a trained role with the Guide.
        for (roles, own) in [(&roles[..], "conjecturer_urls"), (&[Role::Solver, Role::Guide], "guide_urls")] {
            let both = EndpointConfig { roles: roles.to_vec(), ..solver.clone() };
            let error = check(&both, "sgs").unwrap_err().to_string();
            assert!(error.contains("do not share their weights") && error.contains(own), "{error}");
        }
        let apart = EndpointConfig {
            roles: roles.to_vec(),
            urls: vec!["http://127.0.0.1:2".into()],
            conjecturer_urls: vec!["http://127.0.0.1:3".into()],
            ..solver.clone()
        };
        check(&apart, "sgs").unwrap();
        let groups: Vec<(String, usize)> =
            apart.groups().iter().map(|group| (group.kind.to_string(), group.urls.len())).collect();
        assert_eq!(groups, [("endpoint".to_owned(), 2), ("endpoint-conjecturer".to_owned(), 1)]);
        for twice in [
            EndpointConfig { urls: vec!["http://127.0.0.1:1/".into()], ..solver },
            EndpointConfig { conjecturer_urls: vec!["http://127.0.0.1:1".into()], ..apart.clone() },
        ] {
            let error = check(&twice, "sgs").unwrap_err().to_string();
            assert!(error.contains("named twice"), "{error}");
        }
        let none = EndpointConfig { url: String::new(), urls: Vec::new(), ..apart };
        let error = check(&none, "sgs").unwrap_err().to_string();
        assert!(error.contains("names the solver, and no server is given"), "{error}");
    }
}
