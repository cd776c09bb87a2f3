//! The filter that refuses system calls that Lean does not need.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;

macro_rules! calls {
    ($($call:ident)*) => { &[$(libc::$call),*] };
}

/// System calls that are refused regardless of their arguments.
const REFUSED: &[i64] = calls! {
    // Network.
    SYS_socket SYS_connect SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_sendto SYS_sendmsg SYS_sendmmsg
    // Other processes.
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_kill SYS_tkill SYS_pidfd_open SYS_pidfd_getfd
    SYS_pidfd_send_signal SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_setsid SYS_setpgid SYS_kcmp
    SYS_process_madvise
    // Namespaces, mounts and the machine.
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_unshare SYS_setns SYS_open_tree SYS_move_mount
    SYS_fsopen SYS_fsmount SYS_mount_setattr SYS_reboot SYS_swapon SYS_swapoff SYS_kexec_load
    SYS_init_module SYS_finit_module SYS_delete_module SYS_settimeofday SYS_clock_settime SYS_sethostname
    SYS_setdomainname SYS_acct SYS_quotactl
    // Ways around the other layers.
    SYS_bpf SYS_userfaultfd SYS_perf_event_open SYS_keyctl SYS_add_key SYS_request_key SYS_personality
    SYS_open_by_handle_at SYS_setrlimit
};

/// System calls that are reported as missing, so that libraries fall back to filtered ones.
const UNKNOWN: &[i64] = calls! { SYS_clone3 SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register };

fn arch() -> Option<TargetArch> {
    std::env::consts::ARCH.try_into().ok()
}

/// Returns the two filters, to be installed in this order. `children` allows the process to start other processes.
pub(super) fn filters(children: bool) -> Result<[BpfProgram; 2], String> {
    let arch = arch().ok_or_else(|| format!("no system call filter for {}", std::env::consts::ARCH))?;
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let condition = |argument, length, operator, value| {
        SeccompCondition::new(argument, length, operator, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
            .map_err(|e| e.to_string())
    };
    // Allow signals to the process's own threads only; `abort` needs them. `exec` does not change the process id.
    let own = u64::from(std::process::id());
    refused.insert(libc::SYS_tgkill, vec![condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, own)?]);
    // Limits may be read but not set.
    refused.insert(libc::SYS_prlimit64, vec![condition(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?]);
    if !children {
        // Without CLONE_THREAD, `clone` creates a process.
        let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
        let process = condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(thread), 0)?;
        refused.insert(libc::SYS_clone, vec![process]);
        #[cfg(target_arch = "x86_64")]
        for call in [libc::SYS_fork, libc::SYS_vfork] {
            refused.insert(call, Vec::new());
        }
    }
    let unknown = UNKNOWN.iter().map(|call| (*call, Vec::new())).collect();
    Ok([compile(refused, libc::EPERM, arch)?, compile(unknown, libc::ENOSYS, arch)?])
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: i32,
    arch: TargetArch,
) -> Result<BpfProgram, String> {
    let errno = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, errno, arch)
        .and_then(TryInto::try_into)
        .map_err(|e| e.to_string())
}
