//! One GPU: its context and streams, memory on it, kernels started on it, and what its errors say.
//!
//! Training, and whatever says nothing else, runs on one stream, so calls take effect in the order they are made and
//! only reads wait. Work that may run beside it has a [`Lane`] of its own. What a thread records as a [`Graph`] goes to
//! a further stream, where nothing runs. Threads sleep while they wait.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::result as cu;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::profile::{Recorder, Work};
use crate::cpu::Lent;
use crate::error::{LmError, Result};

/// Oldest architecture whose tensor cores take bfloat16 and whose copies to shared memory are asynchronous.
const OLDEST: (i32, i32) = (8, 0);

/// A GPU of this machine with the process's context on it and a stream.
#[derive(Debug)]
pub struct Gpu {
    pub(super) context: sys::CUcontext,
    device: sys::CUdevice,
    pub(super) stream: sys::CUstream,
    /// Where graphs are recorded, one at a time.
    recording: Mutex<Recording>,
    /// Number of the GPU.
    pub ordinal: usize,
    /// What the driver calls it.
    pub name: String,
    /// Compute capability, such as 9 and 0.
    pub arch: (i32, i32),
    /// CUDA version that the driver implements: 1000 major + 10 minor.
    pub driver: i32,
    pub processors: usize,
    /// Bytes of memory.
    pub memory: usize,
    /// Bytes of its buffers that are live, and their peak.
    live: AtomicUsize,
    peak: AtomicUsize,
    /// Times of what is started, while a profile is taken.
    pub(super) recorder: Recorder,
}

// SAFETY: the driver's handles may be used from any thread; `bind` makes the context current first.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Gpu {}

#[derive(Debug)]
struct Recording(sys::CUstream);

/// Where a thread's work goes.
#[derive(Debug, Clone, Copy)]
struct Place {
    stream: sys::CUstream,
    /// Scratch memory of products: what runs side by side must not share it. `None` on the GPU's own stream.
    scratch: Option<u64>,
}

thread_local! {
    /// Where this thread's work goes; `None` while it goes to the GPU's own stream.
    static PLACE: Cell<Option<Place>> = const { Cell::new(None) };
}

/// Shortest sleep of a thread that waits.
const NAP: Duration = Duration::from_micros(20);
/// Longest sleep.
const LONG_NAP: Duration = Duration::from_millis(1);

/// Sleeps until `query` says something else than that work is under way, an eighth of the time so far at a time. The
/// driver's own waits either keep a core busy, which checkers and other runs could use, or end 40 to 80 us late, and a
/// small model's step takes 300.
fn wait_until(
    mut query: impl FnMut() -> std::result::Result<(), cu::DriverError>,
) -> std::result::Result<(), cu::DriverError> {
    let started = Instant::now();
    loop {
        match query() {
            Err(cu::DriverError(sys::cudaError_enum::CUDA_ERROR_NOT_READY)) => {}
            answer => return answer,
        }
        sleep_exactly((started.elapsed() / 8).clamp(NAP, LONG_NAP));
    }
}

/// Sleeps without the 50 us that Linux may otherwise add to join wake-ups.
fn sleep_exactly(time: Duration) {
    #[cfg(target_os = "linux")]
    {
        thread_local! {
            static EXACT: Cell<bool> = const { Cell::new(false) };
        }
        if !EXACT.replace(true) {
            let nanoseconds: libc::c_ulong = 1;
            // SAFETY: sets a number of this thread; if it fails sleeps are longer, nothing else.
            let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0) };
        }
    }
    std::thread::sleep(time);
}

/// Runs `f` with this thread's work going to a place.
fn at_place<R>(place: Place, f: impl FnOnce() -> R) -> R {
    let before = PLACE.replace(Some(place));
    let outcome = f();
    PLACE.set(before);
    outcome
}

/// An error of the device that says what was tried.
pub(super) fn failed(device: &str, what: &str, error: impl std::fmt::Display) -> LmError {
    LmError::Device { device: device.to_owned(), message: format!("{what}: {error}") }
}

/// Oldest driver that the CUDA 13 libraries run on: CUDA version, 1000 major + 10 minor.
const OLDEST_DRIVER: i32 = 13_000;

/// GPUs that the driver shows.
///
/// # Errors
/// There is no driver, or it is too old.
pub fn gpu_count() -> Result<usize> {
    count("cuda")
}

/// Starts the driver and counts its GPUs; errors call the device `name`.
fn count(name: &str) -> Result<usize> {
    // SAFETY: looks for the library and touches nothing else.
    if !unsafe { sys::is_culib_present() } {
        let message = "no NVIDIA driver: libcuda.so.1 was not found. Install the driver (in a container: \
                       start it with its GPUs), or use the CPU";
        return Err(LmError::Device { device: name.to_owned(), message: message.to_owned() });
    }
    let say = |what: &str, error: cu::DriverError| failed(name, what, explain(error));
    let mut driver = 0;
    // SAFETY: writes one int; needs no initialised driver.
    let version = unsafe { sys::cuDriverGetVersion(&raw mut driver) }.result();
    version.map_err(|e| say("asking the driver's version", e))?;
    check_driver(driver).map_err(|message| LmError::Device { device: name.to_owned(), message })?;
    cu::init().map_err(|e| say("starting the driver", e))?;
    Ok(cu::device::get_count().map_err(|e| say("counting GPUs", e))?.max(0) as usize)
}

/// Whether a driver is new enough; the error says what to do.
fn check_driver(version: i32) -> std::result::Result<(), String> {
    let name = |v: i32| format!("{}.{}", v / 1000, v % 1000 / 10);
    if version >= OLDEST_DRIVER {
        return Ok(());
    }
    Err(format!(
        "the NVIDIA driver is too old: it runs CUDA up to {}, and CUDA {} is needed (driver 580 or newer); update the \
         driver, or use the CPU",
        name(version),
        name(OLDEST_DRIVER)
    ))
}

impl Gpu {
    /// Opens a GPU by its number.
    ///
    /// # Errors
    /// There is no driver, it has no such GPU, or the GPU is too old.
    pub fn open(ordinal: usize) -> Result<Self> {
        let name = format!("cuda:{ordinal}");
        let say = |what: &str, error: cu::DriverError| failed(&name, what, explain(error));
        let count = count(&name)?;
        if ordinal >= count {
            let message = format!(
                "there is no GPU {ordinal}: the driver lists {count} (CUDA_VISIBLE_DEVICES may hide some)"
            );
            return Err(LmError::Device { device: name, message });
        }
        let device = cu::device::get(ordinal as i32).map_err(|e| say("opening the GPU", e))?;
        // SAFETY: `device` was just given by the driver.
        let attribute =
            |a| unsafe { cu::device::get_attribute(device, a) }.map_err(|e| say("asking the GPU", e));
        let arch = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as usize;
        let full = cu::device::get_name(device).map_err(|e| say("asking the GPU", e))?;
        if arch < OLDEST {
            let message = format!(
                "{full} has compute capability {}.{}; {}.{} or newer is needed (A100, RTX 30 and later)",
                arch.0, arch.1, OLDEST.0, OLDEST.1
            );
            return Err(LmError::Device { device: name, message });
        }
        let mut driver = 0;
        // SAFETY: writes one int.
        let version = unsafe { sys::cuDriverGetVersion(&raw mut driver) }.result();
        version.map_err(|e| say("asking the driver's version", e))?;
        // SAFETY: `device` is valid; the context is released in `drop`.
        let (memory, context) = unsafe {
            let memory = cu::device::total_mem(device).map_err(|e| say("asking the GPU's memory", e))?;
            // For waits inside the driver, of large copies above all.
            let flags = sys::CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC as u32;
            let set = sys::cuDevicePrimaryCtxSetFlags_v2(device, flags).result();
            set.map_err(|e| say("asking for waits that sleep", e))?;
            let context = cu::primary_ctx::retain(device).map_err(|e| say("making a context", e))?;
            cu::ctx::set_current(context).map_err(|e| say("making a context", e))?;
            (memory, context)
        };
        let new_stream =
            || cu::stream::create(cu::stream::StreamKind::NonBlocking).map_err(|e| say("making a stream", e));
        let (stream, recording) = (new_stream()?, Mutex::new(Recording(new_stream()?)));
        let (live, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self {
            context,
            device,
            stream,
            recording,
            ordinal,
            name: full,
            arch,
            driver,
            processors,
            memory,
            live,
            peak,
            recorder: Recorder::default(),
        })
    }

    /// Where this thread's kernels go.
    pub(super) fn stream(&self) -> sys::CUstream {
        PLACE.get().map_or(self.stream, |place| place.stream)
    }

    /// Scratch memory for this thread's products, if not that of the GPU's own stream.
    pub(super) fn scratch(&self) -> Option<u64> {
        PLACE.get().and_then(|place| place.scratch)
    }

    /// Records the kernels that `f` starts in this thread, without running them. `f` must start kernels only, all of
    /// which have run before (so that they are loaded).
    pub(super) fn record(self: &Arc<Self>, f: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = recording.0;
        self.bind()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is ours, and nobody else records on it while it is locked.
        unsafe { cu::stream::begin_capture(stream, mode) }.map_err(|e| self.error("recording a graph", e))?;
        // What is recorded keeps the scratch of the place where it will run.
        let outcome = at_place(Place { stream, scratch: self.scratch() }, f);
        // SAFETY: the recording that was begun above is ended, whatever came of it.
        let graph = unsafe { cu::stream::end_capture(stream) };
        outcome?;
        let graph = graph.map_err(|e| self.error("recording a graph", e))?;
        // SAFETY: the graph was just made; the executable one does not need it.
        let exec = unsafe {
            let exec = cu::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = cu::graph::destroy(graph);
            exec
        };
        let exec = exec.map_err(|e| self.error("preparing a graph", e))?;
        Ok(Graph { gpu: Arc::clone(self), exec })
    }

    /// How errors call this GPU.
    pub fn label(&self) -> String {
        format!("cuda:{} ({})", self.ordinal, self.name)
    }

    /// An error of this GPU.
    pub(super) fn error(&self, what: &str, error: cu::DriverError) -> LmError {
        failed(&self.label(), what, explain(error))
    }

    /// Makes the context this thread's.
    pub(super) fn bind(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        unsafe { cu::ctx::set_current(self.context) }.map_err(|e| self.error("entering the context", e))
    }

    /// Waits until everything that was started so far where this thread works is done.
    ///
    /// # Errors
    /// Something started so far failed.
    pub fn wait(&self) -> Result<()> {
        self.bind()?;
        let stream = self.stream();
        // SAFETY: the stream lives as long as `self`.
        let answer = wait_until(|| unsafe { sys::cuStreamQuery(stream) }.result());
        answer.map_err(|e| self.error("running kernels", e))
    }

    /// Most bytes that buffers have taken at once so far.
    pub fn peak_bytes(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Free and total bytes of its memory.
    ///
    /// # Errors
    /// The driver fails.
    pub fn free_memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        cu::mem_get_info().map_err(|e| self.error("asking for free memory", e))
    }

    /// Loads a compiled program and gives its kernels by name.
    pub(super) fn load(&self, cubin: &[u8], names: &[&str]) -> Result<Vec<Kernel>> {
        self.bind()?;
        // SAFETY: a cubin carries its own size; the module stays loaded until the context ends, like the
        // kernels that point into it.
        let module = unsafe { cu::module::load_data(cubin.as_ptr().cast()) };
        let module = module.map_err(|e| self.error("loading kernels", e))?;
        let find = |name: &&str| {
            let symbol = CString::new(*name).map_err(|e| failed(&self.label(), name, e))?;
            // SAFETY: the module was just loaded.
            let function = unsafe { cu::module::get_function(module, symbol) };
            function.map(Kernel).map_err(|e| self.error(&format!("finding kernel {name}"), e))
        };
        names.iter().map(find).collect()
    }

    /// Lets a kernel use so much shared memory.
    pub(super) fn allow_shared(&self, kernel: Kernel, bytes: u32) -> Result<()> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the kernel's module stays loaded.
        unsafe { cu::function::set_function_attribute(kernel.0, attribute, bytes as i32) }
            .map_err(|e| self.error(&format!("{bytes} bytes of shared memory for attention"), e))
    }

    /// Describes a bfloat16 matrix to the copy engine, which then copies `box_rows` rows of a head at a time, in pieces
    /// of 64 columns with a swizzle of 128 bytes. `head_dim` is a multiple of 64 and divides `columns`.
    pub(super) fn tensor_map(
        &self,
        address: u64,
        rows: usize,
        columns: usize,
        box_rows: usize,
        head_dim: usize,
    ) -> Result<Arg> {
        const PIECE: usize = 64;
        self.bind()?;
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        let sizes = [PIECE, rows, columns / PIECE].map(|n| n as u64);
        let strides = [2 * columns, 2 * PIECE].map(|bytes| bytes as u64);
        let (piece, ones) = ([PIECE, box_rows, head_dim / PIECE].map(|n| n as u32), [1u32; 3]);
        // SAFETY: the arrays have as many entries as the rank asks for; the matrix is only described.
        let status = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                3,
                address as *mut c_void,
                sizes.as_ptr(),
                strides.as_ptr(),
                piece.as_ptr(),
                ones.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        status.result().map_err(|e| self.error("describing a matrix to the copy engine", e))?;
        Ok(Arg::Map(map.opaque))
    }

    /// Starts a kernel; grid and block as in CUDA.
    pub(super) fn launch(
        &self,
        kernel: Kernel,
        grid: (usize, usize),
        block: usize,
        shared: u32,
        arguments: &[Arg],
    ) -> Result<()> {
        self.launch_on(self.stream(), kernel, grid, block, shared, arguments)
    }

    /// Starts a kernel on another stream of this GPU.
    pub(super) fn launch_on(
        &self,
        stream: sys::CUstream,
        kernel: Kernel,
        grid: (usize, usize),
        block: usize,
        shared: u32,
        arguments: &[Arg],
    ) -> Result<()> {
        if grid.0 == 0 || grid.1 == 0 {
            return Ok(());
        }
        self.bind()?;
        let mut pointers = [std::ptr::null_mut::<c_void>(); 20];
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = argument.pointer();
        }
        let grid = (grid.0 as u32, grid.1 as u32, 1);
        let pointers = &mut pointers[..arguments.len()];
        self.timed(stream, Work::Kernel(kernel), || {
            // SAFETY: callers pass what the kernel's signature asks for, over memory that they checked and hold.
            unsafe { cu::launch_kernel(kernel.0, grid, (block as u32, 1, 1), shared, stream, pointers) }
                .map_err(|e| self.error("starting a kernel", e))
        })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Errors at the end have no one to tell.
        if self.bind().is_ok() {
            // SAFETY: nobody else has the stream; the context was retained once by `open`.
            unsafe {
                let _ = cu::stream::destroy(self.stream);
                let recording = self.recording.get_mut().unwrap_or_else(PoisonError::into_inner);
                let _ = cu::stream::destroy(recording.0);
                let _ = cu::primary_ctx::release(self.device);
            }
        }
    }
}

/// Kernels that are started together. The memory that they were recorded with must outlive it.
#[derive(Debug)]
pub(super) struct Graph {
    gpu: Arc<Gpu>,
    exec: sys::CUgraphExec,
}

// SAFETY: a handle that any thread may use; launches take `&mut self`.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Graph {
    /// Starts the kernels after everything started before.
    pub(super) fn launch(&mut self) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: whoever recorded the graph holds its memory.
        unsafe { cu::graph::launch(self.exec, self.gpu.stream()) }
            .map_err(|e| self.gpu.error("starting a graph", e))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: made once by `record`; the driver waits for a launch under way.
            let _ = unsafe { cu::graph::exec_destroy(self.exec) };
        }
    }
}

/// The driver's error with what to do about the usual ones.
fn explain(error: cu::DriverError) -> String {
    use sys::cudaError_enum as E;
    match error.0 {
        E::CUDA_ERROR_OUT_OF_MEMORY => "out of GPU memory".to_owned(),
        E::CUDA_ERROR_NO_DEVICE => "the driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)".to_owned(),
        E::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the driver's library and its kernel module do not fit together; reinstall the driver".to_owned()
        }
        E::CUDA_ERROR_NO_BINARY_FOR_GPU | E::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "the driver is too old for the installed CUDA libraries; update the driver".to_owned()
        }
        other => format!("{other:?}"),
    }
}

/// A function on the GPU.
#[derive(Debug, Clone, Copy)]
pub struct Kernel(pub(super) sys::CUfunction);

// SAFETY: a handle into a module that stays loaded, usable from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub enum Arg {
    /// An address on the GPU.
    Ptr(u64),
    /// `int`.
    Int(i32),
    /// `unsigned long long`.
    Long(u64),
    /// `float`.
    Float(f32),
    /// The struct `RowLoss` of training.cu.
    Loss(LossArg),
    /// The struct `Adam` of training.cu.
    Adam([f32; 9]),
    /// The struct `Cache` of cache.cu.
    Cache(CacheArg),
    /// The struct `Map` of hopper.cu.
    Map([u64; 16]),
}

/// The struct `Cache` of cache.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CacheArg {
    /// Address of the layer's first page.
    pub pages: u64,
    /// Key heads.
    pub kv_heads: i32,
}

/// The struct `RowLoss` of training.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LossArg {
    /// Bounds of the importance ratio.
    pub ratio: [f32; 2],
    /// Coefficients of the entropy bonus and the KL penalty.
    pub coefficients: [f32; 2],
    /// Whether there is a ratio.
    pub has_ratio: i32,
    /// Whether logits become gradients.
    pub backward: i32,
}

impl Arg {
    fn pointer(&self) -> *mut c_void {
        match self {
            Self::Ptr(v) | Self::Long(v) => std::ptr::from_ref(v).cast_mut().cast(),
            Self::Int(v) => std::ptr::from_ref(v).cast_mut().cast(),
            Self::Float(v) => std::ptr::from_ref(v).cast_mut().cast(),
            Self::Loss(v) => std::ptr::from_ref(v).cast_mut().cast(),
            Self::Adam(v) => std::ptr::from_ref(v).cast_mut().cast(),
            Self::Cache(v) => std::ptr::from_ref(v).cast_mut().cast(),
            Self::Map(v) => v.as_ptr().cast_mut().cast(),
        }
    }
}

/// Memory of the host that stays where it is, so that the GPU copies from and to it without a detour, and without
/// anybody waiting.
#[derive(Debug)]
pub(super) struct Pinned<S> {
    gpu: Arc<Gpu>,
    start: *mut S,
    len: usize,
}

// SAFETY: the memory is the value's own, like a `Vec`'s.
unsafe impl<S: Send> Send for Pinned<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for Pinned<S> {}

impl<S: Copy> Pinned<S> {
    /// `len` times a value, at least once.
    ///
    /// # Errors
    /// The driver has no such memory.
    pub(super) fn filled(gpu: &Arc<Gpu>, len: usize, value: S) -> Result<Self> {
        gpu.bind()?;
        let len = len.max(1);
        // SAFETY: freed in `drop`; all of it is written before anybody reads it. Pages suit every type here.
        let start = unsafe {
            let start = cu::malloc_host(len * size_of::<S>(), 0)
                .map_err(|e| gpu.error("allocating memory of the host", e))?
                .cast::<S>();
            (0..len).for_each(|i| start.add(i).write(value));
            start
        };
        Ok(Self { gpu: Arc::clone(gpu), start, len })
    }
}

impl<S> std::ops::Deref for Pinned<S> {
    type Target = [S];

    fn deref(&self) -> &[S] {
        // SAFETY: `filled` has written `len` values there, on a page boundary.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<S> std::ops::DerefMut for Pinned<S> {
    fn deref_mut(&mut self) -> &mut [S] {
        // SAFETY: as above, and `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Lent for Pinned<f32> {
    fn floats(&self) -> &[f32] {
        self
    }

    fn floats_mut(&mut self) -> &mut [f32] {
        self
    }
}

impl<S> Drop for Pinned<S> {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: allocated once by `filled`; the driver waits for copies that are under way.
            let _ = unsafe { cu::free_host(self.start.cast()) };
        }
    }
}

/// A stream beside the GPU's own with scratch memory of its own: what is started in it may run at the same time as what
/// is started elsewhere.
#[derive(Debug)]
pub(super) struct Lane {
    gpu: Arc<Gpu>,
    stream: sys::CUstream,
    scratch: Array<u8>,
    /// The end of what was started on the GPU's own stream before this lane's work, and the end of that work.
    before: sys::CUevent,
    end: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Lane {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Lane {}

impl Lane {
    /// A lane with so many bytes of scratch for products.
    pub(super) fn new(gpu: &Arc<Gpu>, scratch: usize) -> Result<Self> {
        let scratch = Array::zeros(gpu, scratch, 1)?;
        // The zeros are written on another stream.
        gpu.wait()?;
        let flags = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32
            | sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let event = || {
            let mut event = std::ptr::null_mut();
            // SAFETY: writes a handle.
            unsafe { sys::cuEventCreate(&raw mut event, flags) }.result().map(|()| event)
        };
        let make = || Ok((cu::stream::create(cu::stream::StreamKind::NonBlocking)?, event()?, event()?));
        let (stream, before, end) = make().map_err(|e| gpu.error("making a stream", e))?;
        Ok(Self { gpu: Arc::clone(gpu), stream, scratch, before, end })
    }

    /// Starts what `f` starts here, after everything that was started on the GPU's own stream so far.
    pub(super) fn start<R>(&self, f: impl FnOnce() -> Result<R>) -> Result<R> {
        self.gpu.bind()?;
        let fail = |e| self.gpu.error("ordering two streams", e);
        // SAFETY: streams and events are alive.
        unsafe {
            cu::event::record(self.before, self.gpu.stream).map_err(fail)?;
            cu::stream::wait_event(self.stream, self.before, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
                .map_err(fail)?;
        }
        let place = Place { stream: self.stream, scratch: Some(self.scratch.front(0)?) };
        let outcome = at_place(place, f);
        // SAFETY: as above. Also after a failure: the end of what was started until then.
        unsafe { cu::event::record(self.end, self.stream) }.map_err(fail)?;
        outcome
    }

    /// Whether what was started last is done.
    pub(super) fn is_done(&self) -> Result<bool> {
        self.gpu.bind()?;
        // SAFETY: the event is alive.
        match unsafe { cu::event::query(self.end) } {
            Ok(()) => Ok(true),
            Err(cu::DriverError(sys::cudaError_enum::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(e) => Err(self.gpu.error("running kernels", e)),
        }
    }

    /// Waits until what was started last is done.
    pub(super) fn wait(&self) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the event is alive.
        wait_until(|| unsafe { cu::event::query(self.end) }).map_err(|e| self.gpu.error("running kernels", e))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Whoever started work here gives back its memory next.
        let _ = self.wait();
        if self.gpu.bind().is_ok() {
            // SAFETY: made once by `new`.
            unsafe {
                let _ = cu::event::destroy(self.before);
                let _ = cu::event::destroy(self.end);
                let _ = cu::stream::destroy(self.stream);
            }
        }
    }
}

/// `n` as a kernel's `int`.
pub(super) fn int(n: usize) -> Arg {
    Arg::Int(n as i32)
}

/// Marks arrays of the device's element type: bfloat16 or f32.
#[derive(Debug)]
pub struct Element;

/// A fixed number of elements in the GPU's memory.
#[derive(Debug)]
pub struct Array<E> {
    gpu: Arc<Gpu>,
    ptr: sys::CUdeviceptr,
    pub len: usize,
    width: usize,
    element: PhantomData<E>,
}

impl<E> Array<E> {
    /// `len` zeroed elements of `width` bytes each.
    pub(super) fn zeros(gpu: &Arc<Gpu>, len: usize, width: usize) -> Result<Self> {
        gpu.bind()?;
        let bytes = (len * width).max(16).next_multiple_of(16);
        // SAFETY: freed in `drop`.
        let ptr = unsafe { cu::malloc_sync(bytes) }.map_err(|e| match e.0 {
            sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY => LmError::Memory {
                device: gpu.label(),
                what: "a buffer".to_owned(),
                needed: bytes,
                free: cu::mem_get_info().map_or(0, |(free, _)| free),
                hint: "make micro-batches, the batch of the sampler or its cache smaller, recompute layers, train on \
                       more ranks, or end what else uses the GPU"
                    .to_owned(),
            },
            _ => gpu.error(&format!("allocating {bytes} bytes"), e),
        })?;
        let live = gpu.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        gpu.peak.fetch_max(live, Ordering::Relaxed);
        let array = Self { gpu: Arc::clone(gpu), ptr, len, width, element: PhantomData };
        // SAFETY: the allocation is `bytes` long.
        unsafe { cu::memset_d8_async(ptr, 0, bytes, gpu.stream()) }
            .map_err(|e| gpu.error("zeroing memory", e))?;
        Ok(array)
    }

    /// The address of an element, checked that `range` lies inside.
    pub(super) fn at(&self, range: &std::ops::Range<usize>) -> Result<u64> {
        if range.start > range.end || range.end > self.len {
            let message = format!("elements {range:?} of a buffer of {}", self.len);
            return Err(LmError::Device { device: self.gpu.label(), message });
        }
        Ok(self.ptr + (range.start * self.width) as u64)
    }

    /// The address of the first element, checked that at least `len` follow.
    pub(super) fn front(&self, len: usize) -> Result<u64> {
        self.at(&(0..len))
    }

    /// Zeroes a piece.
    pub(super) fn zero(&mut self, range: &std::ops::Range<usize>) -> Result<()> {
        let at = self.at(range)?;
        self.gpu.bind()?;
        let (gpu, bytes) = (&self.gpu, range.len() * self.width);
        let stream = gpu.stream();
        gpu.timed(stream, Work::Zeros(bytes), || {
            // SAFETY: `at` checked the piece.
            unsafe { cu::memset_d8_async(at, 0, bytes, stream) }.map_err(|e| gpu.error("zeroing memory", e))
        })
    }

    /// Copies numbers of the same size as the elements to the GPU.
    pub(super) fn write<S: Copy>(&mut self, from: &[S], offset: usize) -> Result<()> {
        debug_assert_eq!(size_of::<S>(), self.width);
        let at = self.at(&(offset..offset + from.len()))?;
        self.gpu.bind()?;
        // SAFETY: the piece was checked; pageable memory is staged before the call returns, and pinned memory is written
        // again only after a wait.
        unsafe { cu::memcpy_htod_async(at, from, self.gpu.stream()) }
            .map_err(|e| self.gpu.error("copying to the GPU", e))
    }

    /// Starts a copy of the first numbers to the host, after everything started before; it takes place some time before
    /// the next wait ends.
    pub(super) fn fetch<S: Copy>(&self, to: &mut Pinned<S>, len: usize) -> Result<()> {
        debug_assert_eq!(size_of::<S>(), self.width);
        let at = self.front(len)?;
        self.gpu.bind()?;
        // SAFETY: the piece was checked; pinned memory is freed only after the copy.
        unsafe { cu::memcpy_dtoh_async(&mut to[..len], at, self.gpu.stream()) }
            .map_err(|e| self.gpu.error("copying from the GPU", e))
    }

    /// Copies numbers of the same size as the elements from the GPU, after everything started before.
    pub(super) fn read<S: Copy>(&self, offset: usize, to: &mut [S]) -> Result<()> {
        debug_assert_eq!(size_of::<S>(), self.width);
        let at = self.at(&(offset..offset + to.len()))?;
        self.gpu.bind()?;
        // The copy itself would wait in the driver's way.
        self.gpu.wait()?;
        // SAFETY: the piece was checked; the wait ends before `to` is given back.
        unsafe { cu::memcpy_dtoh_async(to, at, self.gpu.stream()) }
            .map_err(|e| self.gpu.error("copying from the GPU", e))?;
        self.gpu.wait()
    }
}

impl<E> Drop for Array<E> {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: freed once; the driver waits for kernels that use it.
            let _ = unsafe { cu::free_sync(self.ptr) };
            let bytes = (self.len * self.width).max(16).next_multiple_of(16);
            self.gpu.live.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_gpu_says_what_is_missing() {
        // SAFETY: looks for the library only.
        if unsafe { sys::is_culib_present() } {
            return;
        }
        let error = Gpu::open(0).unwrap_err().to_string();
        assert!(error.contains("cuda:0") && error.contains("libcuda.so.1"), "{error}");
    }

    #[test]
    fn an_old_driver_is_refused_by_its_version() {
        assert!(check_driver(13_000).is_ok() && check_driver(13_020).is_ok());
        let error = check_driver(12_040).unwrap_err();
        assert!(error.contains("CUDA up to 12.4") && error.contains("CUDA 13.0 is needed"), "{error}");
    }
}
