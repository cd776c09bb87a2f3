//! One GPU: its context, streams and memory, kernel launches, and error messages.
//!
//! Unless stated otherwise, all work, in particular training, runs on one stream, so calls take effect in their order
//! and only reads wait. A [`Lane`] is a separate stream for work that may run concurrently. A [`Graph`] is recorded on
//! a further stream, on which nothing runs. Threads sleep while they wait.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::result as cu;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::work::{CudaKernel, TimedWork, WorkRecorder};
use sgs_lm::error::{LmError, Result};
use sgs_lm::host_buffer::ForeignMemory;

/// Oldest supported architecture: the first whose tensor cores support bfloat16 and that copies to shared
/// memory asynchronously.
const OLDEST: (i32, i32) = (8, 0);

/// A GPU of this machine, with the process's context and a stream.
#[derive(Debug)]
pub struct Gpu {
    pub(super) context: sys::CUcontext,
    device: sys::CUdevice,
    pub(super) stream: sys::CUstream,
    /// The stream on which graphs are recorded, one at a time.
    recording: Mutex<Recording>,
    /// Index of the GPU.
    pub ordinal: usize,
    /// Name of the GPU, from the driver.
    pub name: String,
    /// Compute capability, for example (9, 0).
    pub arch: (i32, i32),
    /// CUDA version of the driver: 1000 major + 10 minor.
    pub driver: i32,
    /// Number of streaming multiprocessors.
    pub processors: usize,
    /// Total memory in bytes.
    pub memory: usize,
    /// Bytes of live buffers, and their maximum so far.
    live: AtomicUsize,
    peak: AtomicUsize,
    /// Times of kernels and products while a profile is recorded.
    pub(super) recorder: WorkRecorder,
}

// SAFETY: the driver's handles may be used from any thread; `bind` makes the context current first.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Gpu {}

#[derive(Debug)]
struct Recording(sys::CUstream);

/// The stream to which a thread submits its work.
#[derive(Debug, Clone, Copy)]
struct StreamBinding {
    stream: sys::CUstream,
    /// Scratch memory for matrix products, which concurrent streams must not share. `None` for the GPU's own
    /// stream.
    scratch: Option<u64>,
}

thread_local! {
    /// This thread's stream; `None` for the GPU's own stream.
    static BINDING: Cell<Option<StreamBinding>> = const { Cell::new(None) };
}

/// Shortest sleep of a waiting thread.
const NAP: Duration = Duration::from_micros(20);
/// Longest sleep of a waiting thread.
const LONG_NAP: Duration = Duration::from_millis(1);

/// Sleeps until `query` no longer returns "not ready". Each sleep lasts an eighth of the time waited so far.
/// The driver's own waits either keep a core busy, which checkers and other runs could use, or end 40 to 80 us
/// late, and a step of a small model takes only 300 us.
pub(super) fn wait_until(
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

/// Sleeps without the 50 us that Linux may add to combine wake-ups.
fn sleep_exactly(time: Duration) {
    #[cfg(target_os = "linux")]
    {
        thread_local! {
            static EXACT: Cell<bool> = const { Cell::new(false) };
        }
        if !EXACT.replace(true) {
            let nanoseconds: libc::c_ulong = 1;
            // SAFETY: the call sets a property of this thread; if it fails, sleeps are longer.
            let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0) };
        }
    }
    std::thread::sleep(time);
}

/// Runs `f` with this thread's work submitted to a stream.
fn with_binding<R>(binding: StreamBinding, f: impl FnOnce() -> R) -> R {
    /// Restores the previous binding, even if `f` panics.
    struct Restore(Option<StreamBinding>);
    impl Drop for Restore {
        fn drop(&mut self) {
            BINDING.set(self.0);
        }
    }
    let _restore = Restore(BINDING.replace(Some(binding)));
    f()
}

/// Creates an error of a device; `what` is the failed operation.
pub(super) fn failed(device: &str, what: &str, error: impl std::fmt::Display) -> LmError {
    LmError::Device { device: device.to_owned(), message: format!("{what}: {error}") }
}

/// Oldest driver that supports the CUDA 13 libraries, as a CUDA version: 1000 major + 10 minor.
const OLDEST_DRIVER: i32 = 13_000;

/// Returns the number of GPUs that the driver lists.
///
/// # Errors
/// Returns an error if there is no driver or if it is too old.
pub fn gpu_count() -> Result<usize> {
    count("cuda")
}

/// Initialises the driver and counts its GPUs; `name` is the device's name in errors.
fn count(name: &str) -> Result<usize> {
    // SAFETY: the call only searches for the library.
    if !unsafe { sys::is_culib_present() } {
        let message = "no NVIDIA driver: libcuda.so.1 was not found. Install the driver (in a container: \
                       start it with its GPUs), or use the CPU";
        return Err(LmError::Device { device: name.to_owned(), message: message.to_owned() });
    }
    let say = |what: &str, error: cu::DriverError| failed(name, what, explain(error));
    let mut driver = 0;
    // SAFETY: writes one int; the driver need not be initialised.
    let version = unsafe { sys::cuDriverGetVersion(&raw mut driver) }.result();
    version.map_err(|e| say("reading the driver's version", e))?;
    check_driver(driver).map_err(|message| LmError::Device { device: name.to_owned(), message })?;
    cu::init().map_err(|e| say("starting the driver", e))?;
    Ok(cu::device::get_count().map_err(|e| say("counting GPUs", e))?.max(0) as usize)
}

/// Checks the driver's version; the error says what to do.
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
    /// Opens a GPU by its index.
    ///
    /// # Errors
    /// Returns an error if there is no driver or no such GPU, or if the GPU is too old.
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
        let attribute = |a| {
            // SAFETY: the driver returned `device`.
            let value = unsafe { cu::device::get_attribute(device, a) };
            value.map_err(|e| say("reading a GPU attribute", e))
        };
        let arch = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as usize;
        let full = cu::device::get_name(device).map_err(|e| say("reading a GPU attribute", e))?;
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
        version.map_err(|e| say("reading the driver's version", e))?;
        // SAFETY: `device` is valid; the context is released in `drop`.
        let (memory, context) = unsafe {
            let memory =
                cu::device::total_mem(device).map_err(|e| say("reading the size of GPU memory", e))?;
            // Set the flag for waits inside the driver, in particular those of large copies.
            let flags = sys::CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC as u32;
            let set = sys::cuDevicePrimaryCtxSetFlags_v2(device, flags).result();
            set.map_err(|e| say("enabling blocking waits", e))?;
            let context = cu::primary_ctx::retain(device).map_err(|e| say("creating a context", e))?;
            cu::ctx::set_current(context).map_err(|e| say("creating a context", e))?;
            (memory, context)
        };
        let new_stream = || {
            cu::stream::create(cu::stream::StreamKind::NonBlocking).map_err(|e| say("creating a stream", e))
        };
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
            recorder: WorkRecorder::default(),
        })
    }

    /// Returns the stream to which this thread's kernels are submitted.
    pub(super) fn stream(&self) -> sys::CUstream {
        BINDING.get().map_or(self.stream, |binding| binding.stream)
    }

    /// Returns the scratch memory for this thread's products; `None` for that of the GPU's own stream.
    pub(super) fn scratch(&self) -> Option<u64> {
        BINDING.get().and_then(|binding| binding.scratch)
    }

    /// Records the kernels that `f` starts in this thread, without running them. `f` must only start kernels,
    /// and all of them must have run before (so that they are loaded).
    pub(super) fn record(self: &Arc<Self>, f: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = recording.0;
        self.bind()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream belongs to `self`, and the lock excludes other recordings.
        unsafe { cu::stream::begin_capture(stream, mode) }.map_err(|e| self.error("recording a graph", e))?;
        // A recording uses the scratch memory of the stream on which it will run.
        let outcome = with_binding(StreamBinding { stream, scratch: self.scratch() }, f);
        // SAFETY: ends the recording that was started above, even if `f` failed.
        let graph = unsafe { cu::stream::end_capture(stream) };
        outcome?;
        let graph = graph.map_err(|e| self.error("recording a graph", e))?;
        // SAFETY: the graph was just created; the executable graph does not depend on it.
        let exec = unsafe {
            let exec = cu::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = cu::graph::destroy(graph);
            exec
        };
        let exec = exec.map_err(|e| self.error("preparing a graph", e))?;
        Ok(Graph { gpu: Arc::clone(self), exec })
    }

    /// Returns the name of this GPU in errors.
    pub fn label(&self) -> String {
        format!("cuda:{} ({})", self.ordinal, self.name)
    }

    /// Creates an error of this GPU.
    pub(super) fn error(&self, what: &str, error: cu::DriverError) -> LmError {
        failed(&self.label(), what, explain(error))
    }

    /// Makes the context current in this thread.
    pub(super) fn bind(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        unsafe { cu::ctx::set_current(self.context) }.map_err(|e| self.error("entering the context", e))
    }

    /// Waits until all work submitted so far to this thread's stream is done.
    ///
    /// # Errors
    /// Returns an error if some of this work failed.
    pub fn wait(&self) -> Result<()> {
        self.bind()?;
        let stream = self.stream();
        // SAFETY: the stream lives as long as `self`.
        let answer = wait_until(|| unsafe { sys::cuStreamQuery(stream) }.result());
        answer.map_err(|e| self.error("running kernels", e))
    }

    /// Returns the maximum number of bytes of live buffers so far.
    pub fn peak_bytes(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns the free and total memory in bytes.
    ///
    /// # Errors
    /// Returns an error if the driver fails.
    pub fn free_memory(&self) -> Result<(usize, usize)> {
        self.bind()?;
        cu::mem_get_info().map_err(|e| self.error("reading the free memory", e))
    }

    /// Loads a compiled program and returns its kernels in the order of `names`.
    pub(super) fn load(&self, cubin: &[u8], names: &[&str]) -> Result<Vec<CudaKernel>> {
        self.bind()?;
        // SAFETY: a cubin contains its size; the module stays loaded until the context is destroyed, like the
        // kernels in it.
        let module = unsafe { cu::module::load_data(cubin.as_ptr().cast()) };
        let module = module.map_err(|e| self.error("loading kernels", e))?;
        let find = |name: &&str| {
            let symbol = CString::new(*name).map_err(|e| failed(&self.label(), name, e))?;
            // SAFETY: the module was just loaded.
            let function = unsafe { cu::module::get_function(module, symbol) };
            function.map(CudaKernel).map_err(|e| self.error(&format!("looking up kernel {name}"), e))
        };
        names.iter().map(find).collect()
    }

    /// Permits a kernel to use this number of bytes of shared memory.
    pub(super) fn allow_shared(&self, kernel: CudaKernel, bytes: u32) -> Result<()> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the kernel's module stays loaded.
        unsafe { cu::function::set_function_attribute(kernel.0, attribute, bytes as i32) }
            .map_err(|e| self.error(&format!("{bytes} bytes of shared memory for attention"), e))
    }

    /// Describes a bfloat16 matrix for the Tensor Memory Accelerator, which then copies `box_rows` rows of a
    /// head at a time, in boxes of 64 columns with a 128-byte swizzle. `head_dim` is a multiple of 64 and
    /// divides `columns`.
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
        // SAFETY: the arrays have as many entries as the rank requires; the matrix is only described, not
        // accessed.
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
        status.result().map_err(|e| self.error("creating a tensor map", e))?;
        Ok(Arg::Map(map.opaque))
    }

    /// Starts a kernel; grid and block are as in CUDA.
    pub(super) fn launch(
        &self,
        kernel: CudaKernel,
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
        kernel: CudaKernel,
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
        self.timed(stream, TimedWork::Kernel(kernel), || {
            // SAFETY: callers pass arguments that match the kernel's signature, with addresses of memory that
            // they have checked and keep alive.
            unsafe { cu::launch_kernel(kernel.0, grid, (block as u32, 1, 1), shared, stream, pointers) }
                .map_err(|e| self.error("starting a kernel", e))
        })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Errors during the drop cannot be reported.
        if self.bind().is_ok() {
            // SAFETY: no other thread uses the streams; the context was retained once, by `open`.
            unsafe {
                let _ = cu::stream::destroy(self.stream);
                let recording = self.recording.get_mut().unwrap_or_else(PoisonError::into_inner);
                let _ = cu::stream::destroy(recording.0);
                let _ = cu::primary_ctx::release(self.device);
            }
        }
    }
}

/// Recorded kernels that are started together. The memory that they use must outlive the graph.
#[derive(Debug)]
pub(super) struct Graph {
    gpu: Arc<Gpu>,
    exec: sys::CUgraphExec,
}

// SAFETY: any thread may use the handle; launches take `&mut self`.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Graph {
    /// Starts the kernels after all work submitted so far.
    pub(super) fn launch(&mut self) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the code that recorded the graph keeps its memory alive.
        unsafe { cu::graph::launch(self.exec, self.gpu.stream()) }
            .map_err(|e| self.gpu.error("starting a graph", e))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: created once by `record`; the driver waits for a running launch.
            let _ = unsafe { cu::graph::exec_destroy(self.exec) };
        }
    }
}

/// Formats a driver error, with advice for common ones.
fn explain(error: cu::DriverError) -> String {
    use sys::cudaError_enum as E;
    match error.0 {
        E::CUDA_ERROR_OUT_OF_MEMORY => "out of GPU memory".to_owned(),
        E::CUDA_ERROR_NO_DEVICE => "the driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)".to_owned(),
        E::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the driver's library and its kernel module have different versions; reinstall the driver"
                .to_owned()
        }
        E::CUDA_ERROR_NO_BINARY_FOR_GPU | E::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "the driver is too old for the installed CUDA libraries; update the driver".to_owned()
        }
        other => format!("{other:?}"),
    }
}

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
    /// Whether there is an importance ratio.
    pub has_ratio: i32,
    /// Whether logits are replaced by gradients.
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

/// Page-locked host memory: the GPU copies from and to it directly, and copies do not block the thread that
/// starts them.
#[derive(Debug)]
pub(super) struct Pinned<S> {
    gpu: Arc<Gpu>,
    start: *mut S,
    len: usize,
}

// SAFETY: the value owns its memory, like a `Vec`.
unsafe impl<S: Send> Send for Pinned<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for Pinned<S> {}

impl<S: Copy> Pinned<S> {
    /// Allocates `len` copies of a value (at least one).
    pub(super) fn filled(gpu: &Arc<Gpu>, len: usize, value: S) -> Result<Self> {
        gpu.bind()?;
        let len = len.max(1);
        // SAFETY: freed in `drop`; all of it is written before it is read. The alignment of pages suffices for
        // every type used here.
        let start = unsafe {
            let start = cu::malloc_host(len * size_of::<S>(), 0)
                .map_err(|e| gpu.error("allocating host memory", e))?
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
        // SAFETY: `filled` has written `len` values, starting at a page boundary.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<S> std::ops::DerefMut for Pinned<S> {
    fn deref_mut(&mut self) -> &mut [S] {
        // SAFETY: as above; in addition, `&mut self` makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl ForeignMemory for Pinned<f32> {
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
            // SAFETY: allocated once by `filled`; the driver waits for running copies.
            let _ = unsafe { cu::free_host(self.start.cast()) };
        }
    }
}

/// A stream with its own scratch memory, whose work may run concurrently with that of other streams.
#[derive(Debug)]
pub(super) struct Lane {
    gpu: Arc<Gpu>,
    stream: sys::CUstream,
    scratch: Array<u8>,
    /// Events: the end of the work that was submitted to the GPU's own stream before this lane's work, and the
    /// ends of this lane's last two pieces of work, of which those with even numbers use the first event.
    before: sys::CUevent,
    ends: [sys::CUevent; 2],
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Lane {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Lane {}

impl Lane {
    /// Creates a lane with `scratch` bytes of scratch memory for products.
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
        let make =
            || Ok((cu::stream::create(cu::stream::StreamKind::NonBlocking)?, event()?, [event()?, event()?]));
        let (stream, before, ends) = make().map_err(|e| gpu.error("creating a stream", e))?;
        Ok(Self { gpu: Arc::clone(gpu), stream, scratch, before, ends })
    }

    /// Submits the work of `f`, which is number `number`, to this lane, to run after everything that was submitted to the
    /// GPU's own stream so far. The work with the number before the last must be done.
    pub(super) fn start<R>(&self, number: usize, f: impl FnOnce() -> Result<R>) -> Result<R> {
        self.gpu.bind()?;
        let fail = |e| self.gpu.error("synchronising two streams", e);
        // SAFETY: streams and events are alive.
        unsafe {
            cu::event::record(self.before, self.gpu.stream).map_err(fail)?;
            cu::stream::wait_event(self.stream, self.before, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
                .map_err(fail)?;
        }
        let binding = StreamBinding { stream: self.stream, scratch: Some(self.scratch.front(0)?) };
        let outcome = with_binding(binding, f);
        // SAFETY: as above. The event is recorded even after a failure, to mark the end of the work submitted
        // until then.
        unsafe { cu::event::record(self.ends[number % 2], self.stream) }.map_err(fail)?;
        outcome
    }

    /// Returns whether the work with this number, one of the last two, is done.
    pub(super) fn is_done(&self, number: usize) -> Result<bool> {
        self.gpu.bind()?;
        // SAFETY: the event is alive.
        match unsafe { cu::event::query(self.ends[number % 2]) } {
            Ok(()) => Ok(true),
            Err(cu::DriverError(sys::cudaError_enum::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(e) => Err(self.gpu.error("running kernels", e)),
        }
    }

    /// Waits until the work with this number, one of the last two, is done.
    pub(super) fn wait(&self, number: usize) -> Result<()> {
        self.gpu.bind()?;
        let end = self.ends[number % 2];
        // SAFETY: the event is alive.
        wait_until(|| unsafe { cu::event::query(end) }).map_err(|e| self.gpu.error("running kernels", e))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // The memory that the work uses is freed next.
        let _ = (self.wait(0), self.wait(1));
        if self.gpu.bind().is_ok() {
            // SAFETY: created once by `new`.
            unsafe {
                let _ = cu::event::destroy(self.before);
                let _ = (cu::event::destroy(self.ends[0]), cu::event::destroy(self.ends[1]));
                let _ = cu::stream::destroy(self.stream);
            }
        }
    }
}

/// Returns `n` as a kernel's `int`.
pub(super) fn int(n: usize) -> Arg {
    Arg::Int(n as i32)
}

/// Marks arrays of the device's element type: bfloat16 or f32.
#[derive(Debug)]
pub struct Element;

/// A fixed number of elements in GPU memory.
#[derive(Debug)]
pub struct Array<E> {
    gpu: Arc<Gpu>,
    ptr: sys::CUdeviceptr,
    /// Number of elements.
    pub len: usize,
    width: usize,
    element: PhantomData<E>,
}

impl<E> Array<E> {
    /// Allocates `len` zeroed elements of `width` bytes each.
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
                       more ranks, let sampling and training take turns (training.shared_memory=always), or end what \
                       else uses the GPU"
                    .to_owned(),
            },
            _ => gpu.error(&format!("allocating {bytes} bytes"), e),
        })?;
        let live = gpu.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        gpu.peak.fetch_max(live, Ordering::Relaxed);
        let array = Self { gpu: Arc::clone(gpu), ptr, len, width, element: PhantomData };
        // SAFETY: the allocation has `bytes` bytes.
        unsafe { cu::memset_d8_async(ptr, 0, bytes, gpu.stream()) }
            .map_err(|e| gpu.error("zeroing memory", e))?;
        Ok(array)
    }

    /// Returns the address of the first element of `range`, after a check that the range is inside the array.
    pub(super) fn at(&self, range: &std::ops::Range<usize>) -> Result<u64> {
        if range.start > range.end || range.end > self.len {
            let message = format!("elements {range:?} of a buffer of {}", self.len);
            return Err(LmError::Device { device: self.gpu.label(), message });
        }
        Ok(self.ptr + (range.start * self.width) as u64)
    }

    /// Returns the address of the first element, after a check that there are at least `len`.
    pub(super) fn front(&self, len: usize) -> Result<u64> {
        self.at(&(0..len))
    }

    /// Zeroes a range.
    pub(super) fn zero(&mut self, range: &std::ops::Range<usize>) -> Result<()> {
        let at = self.at(range)?;
        self.gpu.bind()?;
        let (gpu, bytes) = (&self.gpu, range.len() * self.width);
        let stream = gpu.stream();
        gpu.timed(stream, TimedWork::Zeros(bytes), || {
            // SAFETY: `at` checked the range.
            unsafe { cu::memset_d8_async(at, 0, bytes, stream) }.map_err(|e| gpu.error("zeroing memory", e))
        })
    }

    /// Copies numbers of the elements' size to the GPU.
    pub(super) fn write<S: Copy>(&mut self, from: &[S], offset: usize) -> Result<()> {
        debug_assert_eq!(size_of::<S>(), self.width);
        let at = self.at(&(offset..offset + from.len()))?;
        self.gpu.bind()?;
        // SAFETY: the range was checked. Pageable memory is staged before the call returns, and page-locked
        // memory is overwritten only after a wait.
        unsafe { cu::memcpy_htod_async(at, from, self.gpu.stream()) }
            .map_err(|e| self.gpu.error("copying to the GPU", e))
    }

    /// Starts a copy of the first `len` elements to the host, after all work submitted so far. It is complete
    /// after the next wait.
    pub(super) fn fetch<S: Copy>(&self, to: &mut Pinned<S>, len: usize) -> Result<()> {
        debug_assert_eq!(size_of::<S>(), self.width);
        let at = self.front(len)?;
        self.gpu.bind()?;
        // SAFETY: the range was checked; page-locked memory is freed only after the copy.
        unsafe { cu::memcpy_dtoh_async(&mut to[..len], at, self.gpu.stream()) }
            .map_err(|e| self.gpu.error("copying from the GPU", e))
    }

    /// Copies numbers of the elements' size from the GPU, after all work submitted so far.
    pub(super) fn read<S: Copy>(&self, offset: usize, to: &mut [S]) -> Result<()> {
        debug_assert_eq!(size_of::<S>(), self.width);
        let at = self.at(&(offset..offset + to.len()))?;
        self.gpu.bind()?;
        // Wait here, because otherwise the copy itself would use the driver's wait.
        self.gpu.wait()?;
        // SAFETY: the range was checked; the wait below ends before `to` is returned to the caller.
        unsafe { cu::memcpy_dtoh_async(to, at, self.gpu.stream()) }
            .map_err(|e| self.gpu.error("copying from the GPU", e))?;
        self.gpu.wait()
    }
}

impl<E> Drop for Array<E> {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: freed once; the driver waits for kernels that use the memory.
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
    fn the_error_without_a_gpu_says_what_is_missing() {
        // SAFETY: the call only searches for the library.
        if unsafe { sys::is_culib_present() } {
            return;
        }
        let error = Gpu::open(0).unwrap_err().to_string();
        assert!(error.contains("cuda:0") && error.contains("libcuda.so.1"), "{error}");
    }

    #[test]
    fn an_old_driver_is_rejected_by_its_version() {
        assert!(check_driver(13_000).is_ok() && check_driver(13_020).is_ok());
        let error = check_driver(12_040).unwrap_err();
        assert!(error.contains("CUDA up to 12.4") && error.contains("CUDA 13.0 is needed"), "{error}");
    }
}
