//! What a child does between `fork` and `exec`. Only calls that are allowed there (signal-safety(7)):
//! whatever may allocate has been done before.

use std::ffi::{CString, c_int, c_ulong};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use super::{check, find_user};

/// The number of a capability (linux/capability.h).
const CAP_NET_BIND_SERVICE: u32 = 10;
/// `_LINUX_CAPABILITY_VERSION_3`: two words of 32 capabilities.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// Groups of a user at most that are looked up at first.
const GROUPS_MAX: usize = 256;

/// `PR_CAP_AMBIENT_RAISE` and SIGKILL as the kernel's interface wants them.
const AMBIENT_RAISE: c_ulong = 2;
const KILL: c_ulong = 9;

/// Who a child is to be.
pub(crate) struct Identity {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
    /// Keeps the right to listen at low ports.
    low_ports: bool,
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

/// `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Looks up who a child that runs as `name` is; `None` when that is who we are.
pub(crate) fn identity(name: &str, low_ports: bool) -> io::Result<Option<Identity>> {
    let user = find_user(name)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no such user: {name}")))?;
    // SAFETY: takes nothing, and cannot fail.
    if unsafe { libc::geteuid() } == user.uid {
        return Ok(None);
    }
    let groups = groups(&user.name, user.gid)?;
    Ok(Some(Identity {
        uid: user.uid,
        gid: user.gid,
        groups,
        low_ports: low_ports && user.uid != 0,
    }))
}

/// Makes the child of `command` become who it is to be, take every signal, and die with the
/// process `parent`.
pub(crate) fn prepare(command: &mut Command, identity: Option<Identity>, parent: i32) {
    before_exec(command, move || {
        if let Some(identity) = &identity {
            become_identity(identity)?;
        }
        take_every_signal()?;
        keep_descriptors_to_ourselves();
        die_with(parent)
    });
}

/// Runs `step` in the child just before it becomes the program.
///
/// `step` may make system calls and nothing else, unless the process has one thread: another one may
/// hold the lock of the allocator, say, which nobody in the child would ever release.
pub(crate) fn before_exec(
    command: &mut Command,
    step: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: `step` does only what is allowed in a forked child (the caller's contract).
    unsafe { command.pre_exec(step) };
}

fn prctl(option: c_int, second: c_ulong, third: c_ulong) -> io::Result<()> {
    const NOTHING: c_ulong = 0;
    // SAFETY: none of the options used here takes a pointer.
    check(unsafe { libc::prctl(option, second, third, NOTHING, NOTHING) }).map(drop)
}

fn groups(name: &CString, gid: libc::gid_t) -> io::Result<Vec<libc::gid_t>> {
    let mut groups = vec![0; GROUPS_MAX];
    loop {
        let mut count = c_int::try_from(groups.len()).unwrap_or(c_int::MAX);
        // SAFETY: the name is terminated, and the count is that of the live elements.
        let rc =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if rc >= 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        // The kernel has a limit of 65,536 groups.
        if count <= groups.len() || count > 1 << 16 {
            return Err(io::Error::other("the groups of the user cannot be told"));
        }
        groups.resize(count, 0);
    }
}

pub(crate) fn become_identity(identity: &Identity) -> io::Result<()> {
    if identity.low_ports {
        prctl(libc::PR_SET_KEEPCAPS, 1, 0)?;
    }
    // SAFETY: the pointer and the count are those of a live vector.
    check(unsafe { libc::setgroups(identity.groups.len(), identity.groups.as_ptr()) })?;
    // SAFETY: takes a plain id.
    check(unsafe { libc::setgid(identity.gid) })?;
    // SAFETY: takes a plain id.
    check(unsafe { libc::setuid(identity.uid) })?;
    if identity.low_ports {
        keep_low_ports()?;
    }
    Ok(())
}

/// Of all capabilities leaves the one for low ports, and carries it over `exec` (ambient).
fn keep_low_ports() -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let bit = 1 << CAP_NET_BIND_SERVICE;
    let low = CapabilityData { effective: bit, permitted: bit, inheritable: bit };
    let none = CapabilityData { effective: 0, permitted: 0, inheritable: 0 };
    let data = [low, none];
    // SAFETY: both structures are the kernel's, of version 3, which takes two data words.
    let rc = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if rc != 0 {
        // A container without it: the child listens at high ports, or says that it cannot.
        return drop_capabilities();
    }
    // A failure (kernels before 4.3) is as above: the child will say that it cannot.
    let _ = prctl(libc::PR_CAP_AMBIENT, AMBIENT_RAISE, CAP_NET_BIND_SERVICE.into());
    Ok(())
}

/// Gives every capability up that was kept over the change of user.
fn drop_capabilities() -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let none = CapabilityData { effective: 0, permitted: 0, inheritable: 0 };
    let data = [none, none];
    // SAFETY: as in `keep_low_ports`.
    let rc = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// We block the signals that we read from a descriptor, and a mask survives `exec`: a child that
/// kept it would not hear SIGTERM.
fn take_every_signal() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is to memory of the right type.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: sigemptyset has initialised it, and a null old set asks for nothing back.
    let rc = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()) };
    if rc == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(rc)) }
}

/// Ours are close-on-exec; this is for those that whoever started us has left open. Kernels before
/// 5.11 do not know it, and then the child has what we were given.
fn keep_descriptors_to_ourselves() {
    const FIRST: c_ulong = 3;
    // SAFETY: plain numbers; nothing is closed before exec.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            c_ulong::from(u32::MAX),
            c_ulong::from(libc::CLOSE_RANGE_CLOEXEC),
        )
    };
}

/// Asks for SIGKILL when the parent dies. Comes last: a change of user takes it back.
fn die_with(parent: i32) -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, KILL, 0)?;
    // It may have died before the request.
    // SAFETY: takes nothing, and cannot fail.
    if unsafe { libc::getppid() } == parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}
