//! The filter of system calls that Lean does not need.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;

/// System calls that are refused regardless of their arguments.
const REFUSED: &[i64] = &[
    // Network.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
    // Namespaces, mounts and the machine.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    // Ways around the other layers.
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_personality,
    libc::SYS_open_by_handle_at,
    libc::SYS_setrlimit,
];

/// System calls that are reported as missing, so that libraries fall back to filtered ones.
const UNKNOWN: &[i64] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

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
    // Signals to its own threads only, which `abort` needs. The process id does not change in `exec`.
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
