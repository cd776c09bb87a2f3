//! Builds tasks from commands: batching, prompts and payloads.

use crate::error::Result;
use crate::round::sampling_context::{SamplingContext, condition_of, role};
use crate::workers::sampling::{encode, room};
use crate::workers::tasks::{self, GENERATE, GenerateTask, VERIFY, VerifyTask, task_number};
use rayon::prelude::*;
use sgs_fleet::{Payload, Task, TaskId, WorkKind};
use sgs_formal::conjecture_prompt;
use sgs_selfplay::{Command, Problem, Role};
use std::sync::Arc;

/// Maximum number of tokens to sample for a task with several completions. The completions of a task are reported
/// together. Short completions of one problem therefore share a task, and each long completion is a separate task,
/// which limits the work that is lost with a worker.
const MAX_TOKENS_PER_TASK: usize = 1024;

/// Minimum number of prompts, results or statements that a thread processes when a list of them is processed in parallel.
pub(crate) const MIN_ITEMS_PER_THREAD: usize = 16;

/// The commands of a task and their common prompt, in tokens.
pub(crate) struct TaskCommands {
    pub commands: Vec<Command>,
    pub prompt: Arc<[u32]>,
}

impl SamplingContext<'_> {
    /// Groups commands into tasks: completions of the same prompt, and proofs for a checker whose verdict takes less
    /// time than a round trip to the worker.
    pub(crate) fn groups(&self, commands: Vec<Command>) -> Vec<Vec<Command>> {
        let proofs = self.system.proofs_per_call().max(1);
        let mut groups: Vec<Vec<Command>> = Vec::new();
        let mut checks: Vec<Command> = Vec::new();
        for command in commands {
            if let Command::Verify { .. } = command {
                checks.push(command);
                continue;
            }
            let most = self.max_completions(&command);
            match groups.last_mut() {
                Some(group) if group.len() < most && have_one_prompt(&group[0], &command) => {
                    group.push(command)
                }
                _ => groups.push(vec![command]),
            }
        }
        while !checks.is_empty() {
            let rest = checks.split_off(checks.len().min(proofs));
            groups.push(std::mem::replace(&mut checks, rest));
        }
        groups
    }

    /// Returns the maximum number of completions of one prompt in one task.
    fn max_completions(&self, command: &Command) -> usize {
        if self.is_served(command) {
            return 1;
        }
        (MAX_TOKENS_PER_TASK / self.limit(command).max(1)).max(1)
    }

    /// Builds a task for each group of commands.
    pub(crate) fn tasks(&self, groups: Vec<Vec<Command>>) -> Result<Vec<(Task, TaskCommands)>> {
        let prompts = self.prompts(&groups)?;
        groups.into_iter().zip(prompts).map(|(commands, prompt)| self.task(commands, prompt)).collect()
    }

    /// Builds a task from commands that share a prompt.
    pub(crate) fn task(&self, commands: Vec<Command>, prompt: Arc<[u32]>) -> Result<(Task, TaskCommands)> {
        let (kind, priority, payload) = self.payload(&commands, &prompt)?;
        let id = TaskId(task_number(commands.iter().map(Command::key), payload.as_bytes()));
        Ok((Task { id, kind, priority, payload }, TaskCommands { commands, prompt }))
    }

    /// Returns the prompt of each group in tokens. Adjacent groups of the same problem share theirs.
    fn prompts(&self, groups: &[Vec<Command>]) -> Result<Vec<Arc<[u32]>>> {
        let is_next = |i: usize| match (groups[i].first(), groups[i - 1].first()) {
            (Some(command), Some(before)) => have_one_prompt(before, command),
            _ => false,
        };
        let own: Vec<usize> = (0..groups.len()).filter(|&i| i == 0 || !is_next(i)).collect();
        let encode = |&i: &usize| groups[i].first().map_or(Ok(Arc::default()), |first| self.prompt(first));
        let encoded: Vec<Arc<[u32]>> =
            own.par_iter().with_min_len(MIN_ITEMS_PER_THREAD).map(encode).collect::<Result<_>>()?;
        let ends = own.iter().skip(1).copied().chain([groups.len()]);
        let shared = own.iter().zip(ends).zip(encoded);
        Ok(shared.flat_map(|((&start, end), prompt)| vec![prompt; end - start]).collect())
    }

    /// Returns the prompt of a command in tokens; empty for a verification.
    fn prompt(&self, command: &Command) -> Result<Arc<[u32]>> {
        let system = self.system;
        let prompt = match command {
            Command::Verify { .. } => return Ok(Arc::default()),
            Command::SampleConjecture { condition, .. } => {
                let form = self.config.algorithm.conjecturer.form;
                conjecture_prompt(system, form, condition_of(condition))?
            }
            Command::SampleReview { target, conjecture, .. } => system.guide_prompt(target, conjecture),
            Command::SampleRollout { problem, failed: Some(failed), .. } => {
                system.repair_prompt(problem, failed)
            }
            Command::SampleRollout { problem, .. } => system.solver_prompt(problem),
        };
        encode(self.tokenizer, &prompt)
    }

    /// Encodes a task. The Conjecturer has the highest priority, because the rest of the round waits for it.
    fn payload(&self, commands: &[Command], prompt: &[u32]) -> Result<(WorkKind, i32, Payload)> {
        let Some(role) = commands.first().and_then(role) else {
            return Ok((VERIFY, 0, tasks::pack(&self.verify_task(commands))?));
        };
        let priority = match role {
            Role::Conjecturer => 2,
            Role::Guide => 1,
            Role::Solver => 0,
        };
        let SamplingContext { config, policy_version, policy_id, window, .. } = *self;
        let task = GenerateTask {
            role,
            policy_version,
            policy_id: policy_id.unwrap_or_default().to_owned(),
            prompt: prompt.to_vec(),
            seeds: commands.iter().filter_map(Command::seed).collect(),
            max_new_tokens: room(config.sampling.tokens(role), prompt.len(), window),
            temperature: config.algorithm.temperature as f32,
        };
        let kind = config.sampling.endpoint.kind_of(role).unwrap_or(GENERATE);
        Ok((kind, priority, tasks::pack(&task)?))
    }

    /// Returns the proofs of commands, with those of one problem together.
    pub(crate) fn verify_task(&self, commands: &[Command]) -> VerifyTask {
        let mut proofs: Vec<(Arc<Problem>, Vec<Arc<str>>)> = Vec::new();
        for command in commands {
            let Command::Verify { problem, proof, .. } = command else { continue };
            match proofs.last_mut() {
                Some((last, of_it)) if last.id == problem.id => of_it.push(Arc::clone(proof)),
                _ => proofs.push((Arc::clone(problem), vec![Arc::clone(proof)])),
            }
        }
        VerifyTask { checker: self.system.identity(), proofs }
    }
}

fn have_one_prompt(a: &Command, b: &Command) -> bool {
    match (a, b) {
        (
            Command::SampleRollout { problem: p, failed: f, .. },
            Command::SampleRollout { problem: q, failed: g, .. },
        ) => Arc::ptr_eq(p, q) && f == g,
        _ => false,
    }
}
