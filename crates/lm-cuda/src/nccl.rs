//! Collective operations between GPUs with NCCL, on a separate stream, concurrently with the backward pass.
//!
//! The library is loaded when ranks connect; the signatures of its functions have not changed since version
//! 2.4. The ranks exchange its unique id through the [`ProcessGroup`]. If a rank is lost, a thread of the
//! process group aborts the communicator, which ends the kernels that wait for that rank.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::result as cu;
use cudarc::driver::sys;

use super::gpu::{Arg, Array, Element};
use super::{Cuda, Precision};
use sgs_lm::device::BufferSliceMut;
use sgs_lm::error::{LmError, Result};
use sgs_lm::ranks::{Collective, Parallel, ProcessGroup, Reduction};

/// File names of the NCCL library.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

type Comm = *mut c_void;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

// Values of `ncclDataType_t` and `ncclRedOp_t`.
const FLOAT32: c_int = 7;
const BFLOAT16: c_int = 9;
const SUM: c_int = 0;

/// Defines the struct of the library's functions and its loader.
macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        struct Api { $($field: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl Api {
            /// Looks up all functions.
            fn from(library: &libloading::Library) -> std::result::Result<Self, libloading::Error> {
                // SAFETY: the signatures are those of nccl.h; the library stays loaded, because its handle is
                // never dropped.
                unsafe { Ok(Self { $($field: *library.get($symbol)?,)* }) }
            }
        }
    };
}

functions! {
    version = b"ncclGetVersion\0": fn(*mut c_int) -> c_int;
    unique_id = b"ncclGetUniqueId\0": fn(*mut UniqueId) -> c_int;
    init = b"ncclCommInitRank\0": fn(*mut Comm, c_int, UniqueId, c_int) -> c_int;
    abort = b"ncclCommAbort\0": fn(Comm) -> c_int;
    destroy = b"ncclCommDestroy\0": fn(Comm) -> c_int;
    error = b"ncclGetErrorString\0": fn(c_int) -> *const c_char;
    last_error = b"ncclGetLastError\0": fn(Comm) -> *const c_char;
    group_start = b"ncclGroupStart\0": fn() -> c_int;
    group_end = b"ncclGroupEnd\0": fn() -> c_int;
    reduce_scatter = b"ncclReduceScatter\0":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, sys::CUstream) -> c_int;
    reduce = b"ncclReduce\0":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, sys::CUstream) -> c_int;
    all_gather = b"ncclAllGather\0": fn(*const c_void, *mut c_void, usize, c_int, Comm, sys::CUstream) -> c_int;
    broadcast = b"ncclBroadcast\0":
        fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, sys::CUstream) -> c_int;
}

/// Returns the library, which is loaded once.
fn api() -> std::result::Result<&'static Api, &'static str> {
    static API: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
    API.get_or_init(|| find(&NAMES)).as_ref().map_err(String::as_str)
}

/// Loads the first library that exists; the error says what to do.
fn find(names: &[&str]) -> std::result::Result<Api, String> {
    let mut reason = String::new();
    for name in names {
        // SAFETY: NCCL's initialisers have no harmful side effects.
        match unsafe { libloading::Library::new(*name) } {
            Ok(library) => {
                let found = Api::from(&library);
                // Its functions are used until the process ends.
                std::mem::forget(library);
                return found.map_err(|e| format!("NCCL ({name}) is too old or damaged: {}", reason_of(&e)));
            }
            Err(e) if reason.is_empty() => reason = reason_of(&e),
            Err(_) => {}
        }
    }
    Err(format!(
        "NCCL was not found ({reason}); training on several GPUs needs {}: install it (package libnccl2, or nvidia-nccl \
         from PyPI) and set LD_LIBRARY_PATH to its folder, or train on one GPU",
        names.join(" or ")
    ))
}

/// Returns the loader's message, which is in the source of the error.
fn reason_of(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns NCCL's version, for example 22809.
///
/// # Errors
/// Returns an error, which says what to do, if NCCL is not installed.
pub fn nccl_version() -> std::result::Result<i32, String> {
    let api = api()?;
    let mut version = 0;
    // SAFETY: writes one int.
    match unsafe { (api.version)(&raw mut version) } {
        0 => Ok(version),
        code => Err(format!("NCCL did not return its version (error {code})")),
    }
}

/// A communicator; `None` after it was aborted.
struct Link(Option<Comm>);

// SAFETY: NCCL's communicators may be used from any thread, by one at a time: a lock ensures this.
unsafe impl Send for Link {}

/// The connection of one rank's GPU to the others.
pub struct Nccl {
    device: Arc<Cuda>,
    group: ProcessGroup,
    api: &'static Api,
    link: Arc<Mutex<Link>>,
    stream: sys::CUstream,
    /// Marks the end of one stream's work, for the other stream to wait for.
    mark: sys::CUevent,
    /// For each buffer, the end of its last reduction.
    done: Vec<Option<sys::CUevent>>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Nccl {}

impl std::fmt::Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nccl").field("group", &self.group).finish_non_exhaustive()
    }
}

fn lock(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the communicator out of its lock and aborts it; gives up after a while if a call into NCCL holds the
/// lock.
fn abort(api: &Api, link: &Mutex<Link>) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if let Ok(mut link) = link.try_lock() {
            if let Some(comm) = link.0.take() {
                // SAFETY: the communicator was taken out of its lock, so it is not used again.
                let _ = unsafe { (api.abort)(comm) };
            }
            return;
        }
        if Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Nccl {
    /// Connects the GPUs of all ranks.
    ///
    /// # Errors
    /// Returns an error if NCCL is missing on a rank or if the GPUs cannot be connected.
    pub fn connect(device: &Arc<Cuda>, mut group: ProcessGroup) -> Result<Self> {
        let label = device.gpu().label();
        let api = group.together("looking for NCCL", || {
            api().map_err(|e| LmError::Device { device: label.clone(), message: e.to_owned() })
        })?;
        let mut id = UniqueId([0; 128]);
        if group.rank() == 0 {
            // SAFETY: writes the id.
            say(api, &label, "creating NCCL's unique id", unsafe { (api.unique_id)(&raw mut id) })?;
        }
        let told = group.broadcast(&id.0)?;
        id.0 = told
            .as_slice()
            .try_into()
            .map_err(|_| group.lost("rank 0 sent an invalid NCCL id".to_owned()))?;
        device.gpu().bind()?;
        let mut comm: Comm = std::ptr::null_mut();
        let (rank, ranks) = (group.rank() as c_int, group.ranks() as c_int);
        // SAFETY: the context is current; the communicator is written.
        let code = unsafe { (api.init)(&raw mut comm, ranks, id, rank) };
        say(api, &label, "connecting the GPUs with NCCL (does each rank have a separate GPU?)", code)?;
        let link = Arc::new(Mutex::new(Link(Some(comm))));
        let gpu = device.gpu();
        let (_, greatest) =
            cu::stream::get_priority_range().map_err(|e| gpu.error("reading stream priorities", e))?;
        // Reductions have priority over the kernels that they overlap with, because they are short and the next buffer
        // waits for them.
        let stream = cu::stream::create_with_priority(cu::stream::StreamKind::NonBlocking, greatest);
        let stream = stream.map_err(|e| gpu.error("creating a stream", e))?;
        let mark = event(device)?;
        let broken = Arc::clone(&link);
        group.on_loss(move || abort(api, &broken));
        Ok(Self { device: Arc::clone(device), group, api, link, stream, mark, done: Vec::new() })
    }

    /// Runs NCCL calls as one group.
    fn in_group(&self, what: &str, calls: impl FnOnce(Comm) -> [c_int; 2]) -> Result<()> {
        self.device.gpu().bind()?;
        let link = lock(&self.link);
        let Some(comm) = link.0 else {
            drop(link);
            return Err(self.group.lost(format!("{what}: the connection between the GPUs is broken")));
        };
        // SAFETY: no arguments.
        let start = unsafe { (self.api.group_start)() };
        let codes = calls(comm);
        // SAFETY: as above; ends the group even after a failed call.
        let end = unsafe { (self.api.group_end)() };
        drop(link);
        match [start, codes[0], codes[1], end].into_iter().find(|code| *code != 0) {
            None => Ok(()),
            Some(code) => {
                let error = say(self.api, &self.device.gpu().label(), what, code).err();
                Err(self.group.lost(error.map_or_else(|| what.to_owned(), |e| e.to_string())))
            }
        }
    }

    /// Makes one stream wait for all work submitted so far to another.
    fn after(&self, first: sys::CUstream, then: sys::CUstream) -> Result<()> {
        self.record(self.mark, first)?;
        self.wait(then, self.mark)
    }

    fn record(&self, event: sys::CUevent, stream: sys::CUstream) -> Result<()> {
        self.device.gpu().bind()?;
        // SAFETY: event and stream live as long as `self`.
        unsafe { cu::event::record(event, stream) }
            .map_err(|e| self.device.gpu().error("recording an event", e))
    }

    fn wait(&self, stream: sys::CUstream, event: sys::CUevent) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        self.device.gpu().bind()?;
        // SAFETY: as above.
        unsafe { cu::stream::wait_event(stream, event, flags) }
            .map_err(|e| self.device.gpu().error("waiting for an event", e))
    }

    fn compute(&self) -> sys::CUstream {
        self.device.gpu().stream
    }
}

/// Converts NCCL's result codes to errors.
fn say(api: &Api, device: &str, what: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let text = |at: *const c_char| {
        if at.is_null() {
            return String::new();
        }
        // SAFETY: NCCL returns a static zero-terminated string.
        unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
    };
    // SAFETY: any code is valid; the last error needs no communicator.
    let (error, last) = unsafe { (text((api.error)(code)), text((api.last_error)(std::ptr::null_mut()))) };
    Err(LmError::Device { device: device.to_owned(), message: format!("{what}: {error}. {}", last.trim()) })
}

fn event(device: &Cuda) -> Result<sys::CUevent> {
    device.gpu().bind()?;
    cu::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
        .map_err(|e| device.gpu().error("creating an event", e))
}

impl Collective<Cuda> for Nccl {
    fn group(&mut self) -> &mut ProcessGroup {
        &mut self.group
    }

    fn reduce(&mut self, reduction: Reduction<'_, Cuda>) -> Result<()> {
        let Reduction { slot, bucket, even, sum } = reduction;
        let (rank, ranks) = (self.group.rank(), self.group.ranks());
        let BufferSliceMut { buf, range } = bucket;
        let element = |i: usize| buf.at(&(range.start + i..range.end));
        let (start, own, rest) = (element(0)?, element(rank * even)?, element(ranks * even)?);
        let left = range.len() - ranks * even;
        let (last, stream) = ((ranks - 1) as c_int, self.stream);
        self.after(self.compute(), stream)?;
        self.in_group("summing gradients", |comm| {
            // SAFETY: every rank reduces a bucket of the same length, in place, as NCCL permits: the share of
            // rank r starts at r times its length. The ranges were checked above.
            unsafe {
                [
                    match even {
                        0 => 0,
                        n => (self.api.reduce_scatter)(
                            start as *const c_void,
                            own as *mut c_void,
                            n,
                            FLOAT32,
                            SUM,
                            comm,
                            stream,
                        ),
                    },
                    match left {
                        0 => 0,
                        n => (self.api.reduce)(
                            rest as *const c_void,
                            rest as *mut c_void,
                            n,
                            FLOAT32,
                            SUM,
                            last,
                            comm,
                            stream,
                        ),
                    },
                ]
            }
        })?;
        let n = sum.range.len();
        let arguments = [Arg::Ptr(own), Arg::Ptr(sum.buf.at(&sum.range)?), Arg::Long(n as u64)];
        let (gpu, kernel) = (self.device.gpu(), self.device.kernels.accumulate);
        gpu.launch_on(stream, kernel, (n.div_ceil(4 * 256), 1), 256, 0, &arguments)?;
        // SAFETY: the range was checked above.
        unsafe { cu::memset_d8_async(start, 0, 4 * range.len(), stream) }
            .map_err(|e| gpu.error("zeroing gradients", e))?;
        if self.done.len() <= slot {
            self.done.resize(slot + 1, None);
        }
        let done = match self.done[slot] {
            Some(event) => event,
            None => *self.done[slot].insert(event(&self.device)?),
        };
        self.record(done, stream)
    }

    fn wait_for_slot(&mut self, slot: usize) -> Result<()> {
        match self.done.get(slot).copied().flatten() {
            Some(done) => self.wait(self.compute(), done),
            None => Ok(()),
        }
    }

    fn gather(&mut self, bucket: BufferSliceMut<'_, Array<Element>>, even: usize) -> Result<()> {
        let (rank, ranks) = (self.group.rank(), self.group.ranks());
        let BufferSliceMut { buf, range } = bucket;
        let element = |i: usize| buf.at(&(range.start + i..range.end));
        let (start, own, rest) = (element(0)?, element(rank * even)?, element(ranks * even)?);
        let left = range.len() - ranks * even;
        let (last, stream) = ((ranks - 1) as c_int, self.stream);
        let kind = match self.device.precision() {
            Precision::Bf16 => BFLOAT16,
            Precision::F32 => FLOAT32,
        };
        self.after(self.compute(), stream)?;
        self.in_group("gathering weights", |comm| {
            // SAFETY: as in `reduce`; in place, the share of rank r starts at r times its length.
            unsafe {
                [
                    match even {
                        0 => 0,
                        n => (self.api.all_gather)(
                            own as *const c_void,
                            start as *mut c_void,
                            n,
                            kind,
                            comm,
                            stream,
                        ),
                    },
                    match left {
                        0 => 0,
                        n => (self.api.broadcast)(
                            rest as *const c_void,
                            rest as *mut c_void,
                            n,
                            kind,
                            last,
                            comm,
                            stream,
                        ),
                    },
                ]
            }
        })
    }

    fn wait_all(&mut self) -> Result<()> {
        self.group.check()?;
        self.after(self.stream, self.compute())
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if self.device.gpu().bind().is_err() {
            return;
        }
        let comm = lock(&self.link).0.take();
        let orderly = self.group.check().is_ok() && self.group.is_finished();
        // All ranks destroy the communicator together, so ranks that wait for commands must first be notified
        // that none will come.
        self.group.leave();
        // SAFETY: each handle was created once and is not used again; an aborted communicator was taken out.
        unsafe {
            if let Some(comm) = comm {
                let _ = if orderly { (self.api.destroy)(comm) } else { (self.api.abort)(comm) };
            }
            for event in self.done.iter().flatten().chain([&self.mark]) {
                let _ = cu::event::destroy(*event);
            }
            let _ = cu::stream::destroy(self.stream);
        }
    }
}

impl Parallel for Cuda {
    fn connect(device: &Arc<Self>, group: ProcessGroup) -> Result<Box<dyn Collective<Self>>> {
        Ok(Box::new(Nccl::connect(device, group)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_missing_library_says_where_to_get_it() {
        let error = find(&["libnccl-of-this-test.so.2"]).err().unwrap();
        for part in ["libnccl-of-this-test.so.2", "libnccl2", "LD_LIBRARY_PATH", "one GPU"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_library_without_the_functions_is_rejected() {
        // The C library exists everywhere, and it is not NCCL.
        let error = find(&["libc.so.6"]).err().unwrap();
        assert!(error.contains("libc.so.6") && error.contains("ncclGetVersion"), "{error}");
    }
}
