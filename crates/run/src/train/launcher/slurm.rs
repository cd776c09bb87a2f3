//! The rank environment of a Slurm step.

use crate::error::{Context, Result};

/// A task of a step with several tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// Index of the task.
    pub rank: usize,
    /// Number of tasks.
    pub ranks: usize,
    /// Index on this node.
    pub local_rank: usize,
    /// Number of tasks on this node.
    pub local_ranks: usize,
    /// The rendezvous: the step's first node, at a port derived from the job id.
    pub rendezvous: Option<String>,
}

const PORTS: std::ops::Range<u64> = 20_000..40_000;

/// Returns the Slurm step of this process, if the step has several tasks. `get` reads the environment. Only `srun` sets
/// these variables: a batch script alone is not a step.
///
/// # Errors
/// Returns an error if a variable is not a number, or if the step has several tasks and the task's place on its node is
/// missing.
pub(crate) fn step(get: impl Fn(&str) -> Option<String>) -> Result<Option<Step>> {
    let number = |name: &str| -> Result<Option<usize>> {
        let Some(value) = get(name) else { return Ok(None) };
        let number = value.trim().parse();
        number
            .map(Some)
            .with_context(|| format!("the environment variable {name} is `{value}`, not a number"))
    };
    let (Some(rank), Some(ranks)) = (number("SLURM_PROCID")?, number("SLURM_STEP_NUM_TASKS")?) else {
        return Ok(None);
    };
    if ranks < 2 {
        return Ok(None);
    }
    let nodes = get("SLURM_STEP_NODELIST").or_else(|| get("SLURM_JOB_NODELIST"));
    let job = number("SLURM_JOB_ID")?.unwrap_or(0) as u64;
    let step = number("SLURM_STEP_ID")?.unwrap_or(0) as u64;
    let port = PORTS.start + (job * 31 + step) % (PORTS.end - PORTS.start);
    let here = number("SLURM_NODEID")?.unwrap_or(0);
    let local_rank = number("SLURM_LOCALID")?;
    let local_rank =
        local_rank.context("the environment variable SLURM_LOCALID is missing, which srun sets")?;
    Ok(Some(Step {
        rank,
        ranks,
        local_rank,
        local_ranks: get("SLURM_STEP_TASKS_PER_NODE").and_then(|t| tasks_of(&t, here)).unwrap_or(1),
        rendezvous: nodes.and_then(|nodes| first_node(&nodes)).map(|node| format!("{node}:{port}")),
    }))
}

/// Returns the first name of a list such as `gpu[03-05,7],login`.
fn first_node(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (head, rest) = list.split_at(end);
    let Some(inner) = rest.strip_prefix('[') else { return (!head.is_empty()).then(|| head.to_owned()) };
    let number: String = inner.chars().take_while(char::is_ascii_digit).collect();
    let tail = inner.split_once(']')?.1;
    let tail = tail.split(',').next().unwrap_or_default();
    Some(format!("{head}{number}{tail}"))
}

/// Returns the number of tasks of a node from a list such as `2(x3),1`.
fn tasks_of(list: &str, node: usize) -> Option<usize> {
    let mut left = node;
    for part in list.split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.trim_end_matches(')').parse().ok()?),
            None => (part, 1),
        };
        if left < times {
            return tasks.trim().parse().ok();
        }
        left -= times;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_task_knows_its_place() {
        let environment: HashMap<&str, &str> = [
            ("SLURM_PROCID", "5"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "4(x2)"),
            ("SLURM_STEP_NODELIST", "gpu[003-004]"),
            ("SLURM_JOB_ID", "100"),
            ("SLURM_STEP_ID", "2"),
        ]
        .into();
        let place = step(|name| environment.get(name).map(|v| (*v).to_owned())).unwrap();
        let rendezvous = Some("gpu003:23102".to_owned());
        assert_eq!(place, Some(Step { rank: 5, ranks: 8, local_rank: 1, local_ranks: 4, rendezvous }));
        // If two tasks were both first on their node, they would share a GPU.
        for (wrong, value) in [
            ("SLURM_PROCID", Some("x")),
            ("SLURM_STEP_NUM_TASKS", Some("8 tasks")),
            ("SLURM_LOCALID", Some("one")),
            ("SLURM_LOCALID", None),
            ("SLURM_NODEID", Some("")),
            ("SLURM_JOB_ID", Some("100_2")),
        ] {
            let get = |name: &str| if name == wrong { value } else { environment.get(name).copied() };
            let told = format!("{:#}", step(|name| get(name).map(str::to_owned)).unwrap_err());
            assert!(told.contains(wrong), "{told}");
        }
    }

    #[test]
    fn a_batch_script_is_no_rank() {
        for (variable, value) in [("SLURM_NTASKS", "4"), ("SLURM_STEP_NUM_TASKS", "1")] {
            let get = |name: &str| match name {
                "SLURM_PROCID" => Some("0".to_owned()),
                name => (name == variable).then(|| value.to_owned()),
            };
            assert_eq!(step(get).unwrap(), None, "{variable}");
        }
    }

    #[test]
    fn lists_of_nodes_are_read() {
        for (list, first) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("gpu[03-05,7],login", "gpu03"),
            ("a[2,4]-ib", "a2-ib"),
            ("r[1-2].cluster,x", "r1.cluster"),
        ] {
            assert_eq!(first_node(list).as_deref(), Some(first), "{list}");
        }
        assert_eq!(first_node(""), None);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|n| tasks_of("2(x3),1", n)),
            [Some(2), Some(2), Some(2), Some(1), None]
        );
    }
}
