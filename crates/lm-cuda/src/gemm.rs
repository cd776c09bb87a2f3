//! Matrix products with cuBLASLt; the algorithm for each shape is selected once.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cudarc::cublaslt::{result as lt, sys};

use super::gpu::{Array, Gpu, failed};
use super::work::{LinearProduct, TimedWork};
use sgs_lm::device::{Linear, Write};
use sgs_lm::error::{LmError, Result};

/// Bytes of scratch memory for products, the size that cuBLAS itself uses on Hopper.
pub(super) const WORKSPACE: usize = 32 << 20;

/// Number of algorithms to request from cuBLASLt.
const CANDIDATES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ProductKey {
    product: LinearProduct,
    rows: usize,
    input: usize,
    output: usize,
    /// Alignment of the three matrices in bytes, up to 256.
    alignment: [u32; 3],
}

/// A product that cuBLASLt has planned.
#[derive(Debug)]
struct MatmulPlan {
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    /// The algorithm in use.
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// All algorithms that cuBLASLt proposed, its first choice first.
    algorithms: Vec<sys::cublasLtMatmulAlgo_t>,
}

/// Returns an error if cuBLASLt is missing.
fn present(found: bool, device: &str) -> Result<()> {
    if found {
        return Ok(());
    }
    let message = "libcublasLt.so.13 was not found; it comes with the CUDA toolkit 13, or set LD_LIBRARY_PATH to where \
                   it is";
    Err(LmError::Device { device: device.to_owned(), message: message.to_owned() })
}

/// Returns the number of bytes to which an address is aligned, up to 256.
fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

/// cuBLASLt on one GPU.
#[derive(Debug)]
pub struct Blas {
    gpu: Arc<Gpu>,
    handle: sys::cublasLtHandle_t,
    workspace: Array<u8>,
    bf16: bool,
    plans: Mutex<HashMap<ProductKey, MatmulPlan>>,
}

// SAFETY: cuBLASLt's handle may be used from any thread; the plans are protected by a lock.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

impl Blas {
    pub fn new(gpu: &Arc<Gpu>, bf16: bool) -> Result<Self> {
        // SAFETY: the call only searches for the library.
        present(unsafe { sys::is_culib_present() }, &gpu.label())?;
        gpu.bind()?;
        let handle = lt::create_handle().map_err(|e| failed(&gpu.label(), "starting cuBLASLt", e))?;
        let workspace = Array::zeros(gpu, WORKSPACE, 1)?;
        Ok(Self { gpu: Arc::clone(gpu), handle, workspace, bf16, plans: Mutex::default() })
    }

    /// Runs a product on matrices that the caller has checked: `a` and `b` are `x` and `w`, `dy` and `w`, or
    /// `dy` and `x`; `c` is the result.
    pub fn run(&self, product: LinearProduct, size: Linear, a: u64, b: u64, c: u64) -> Result<()> {
        let Linear { rows, input, output } = size;
        if rows == 0 {
            return Ok(());
        }
        // cuBLAS interprets row-major matrices as transposed and computes cᵀ = bᵀ aᵀ, so its left factor is our right
        // one.
        let (left, right) = (b, a);
        let alignment = [left, right, c].map(alignment);
        let key = ProductKey { product, rows, input, output, alignment };
        self.gpu.bind()?;
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(self.plan(key).map_err(|e| {
                let what = format!("planning the product {product:?} of {rows} x {input} x {output}");
                failed(&self.gpu.label(), &what, e)
            })?),
        };
        let alpha = 1.0f32;
        let beta = if product == LinearProduct::Weight(Write::Add) { 1.0f32 } else { 0.0f32 };
        let stream = self.gpu.stream();
        let own = self.workspace.front(WORKSPACE)?;
        let workspace = self.gpu.scratch().unwrap_or(own);
        // SAFETY: the caller checked the matrices; the plan's handles live as long as `self`.
        let start = || unsafe {
            lt::matmul(
                self.handle,
                plan.description,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                left as *const c_void,
                plan.layouts[0],
                right as *const c_void,
                plan.layouts[1],
                c as *const c_void,
                plan.layouts[2],
                c as *mut c_void,
                plan.layouts[2],
                &raw const plan.algorithm,
                workspace as *mut c_void,
                WORKSPACE,
                stream.cast(),
            )
        };
        self.gpu.timed(stream, TimedWork::Product(product, size), || {
            start().map_err(|e| {
                failed(
                    &self.gpu.label(),
                    &format!("the product {product:?} of {rows} x {input} x {output}"),
                    e,
                )
            })
        })
    }

    fn plan(&self, key: ProductKey) -> std::result::Result<MatmulPlan, lt::CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Pref;
        let ProductKey { product, rows, input, output, alignment } = key;
        let element =
            if self.bf16 { sys::cudaDataType_t::CUDA_R_16BF } else { sys::cudaDataType_t::CUDA_R_32F };
        let float = sys::cudaDataType_t::CUDA_R_32F;
        // Row-major [r, c] is column-major [c, r] with leading dimension c.
        let (x, w, y) = ((input, rows), (input, output), (output, rows));
        let (left, right, result, transposed, kind) = match product {
            LinearProduct::Forward => (w, x, y, [true, false], element),
            LinearProduct::Input => (w, y, x, [false, false], element),
            LinearProduct::Weight(_) => (x, y, w, [false, true], float),
        };
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let description = lt::create_matmul_desc(compute, float)?;
        let attributes = [
            sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
            sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB,
        ];
        for (attribute, transposed) in attributes.into_iter().zip(transposed) {
            // CUBLAS_OP_T and CUBLAS_OP_N.
            let value = i32::from(transposed);
            // SAFETY: the attribute is an int.
            unsafe { lt::set_matmul_desc_attribute(description, attribute, (&raw const value).cast(), 4) }?;
        }
        let layout = |(rows, columns): (usize, usize), kind| {
            lt::create_matrix_layout(kind, rows as u64, columns as u64, rows as i64)
        };
        let layouts = [layout(left, element)?, layout(right, element)?, layout(result, kind)?];
        let preference = lt::create_matmul_pref()?;
        let set = |attribute, value: *const c_void, size| {
            // SAFETY: `value` points to `size` bytes.
            unsafe { lt::set_matmul_pref_attribute(preference, attribute, value, size) }
        };
        let workspace = WORKSPACE;
        set(Pref::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), 8)?;
        let names = [
            Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Pref::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ];
        for (name, bytes) in names.into_iter().zip([alignment[0], alignment[1], alignment[2], alignment[2]]) {
            set(name, (&raw const bytes).cast(), 4)?;
        }
        let mut found = [const { MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit() }; CANDIDATES];
        let mut count = 0i32;
        // SAFETY: all handles were just created; at most `CANDIDATES` results are written, and `count` returns
        // their number.
        let results = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                description,
                layouts[0],
                layouts[1],
                layouts[2],
                layouts[2],
                preference,
                CANDIDATES as i32,
                found[0].as_mut_ptr(),
                &raw mut count,
            )
            .result()?;
            lt::destroy_matmul_pref(preference)?;
            found[..count.clamp(0, CANDIDATES as i32) as usize].iter().map(|r| r.assume_init_ref())
        };
        let algorithms: Vec<_> = results
            .filter(|r| r.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS)
            .map(|r| r.algo)
            .collect();
        let Some(algorithm) = algorithms.first().copied() else {
            return Err(lt::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED));
        };
        Ok(MatmulPlan { description, layouts, algorithm, algorithms })
    }

    /// Measures a product with each algorithm that cuBLASLt proposes for it, its first choice first; returns
    /// seconds. Several copies of the matrices are used in turn, so that weights are not in the cache.
    pub fn compare(&self, product: LinearProduct, size: Linear, at: [&[u64]; 3]) -> Result<Vec<f64>> {
        let run = |i: usize| {
            let pick = |m: usize| at[m][i % at[m].len()];
            self.run(product, size, pick(0), pick(1), pick(2))
        };
        run(0)?;
        let key = ProductKey {
            product,
            rows: size.rows,
            input: size.input,
            output: size.output,
            alignment: [at[1][0], at[0][0], at[2][0]].map(alignment),
        };
        let lock = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        #[allow(clippy::expect_used, reason = "times of another algorithm must not be reported")]
        let with_plan = |f: &mut dyn FnMut(&mut MatmulPlan)| {
            f(lock().get_mut(&key).expect("invariant: a product that has run has a plan"));
        };
        let mut algorithms = Vec::new();
        with_plan(&mut |plan| algorithms.clone_from(&plan.algorithms));
        let mut times = Vec::new();
        for algorithm in &algorithms {
            with_plan(&mut |plan| plan.algorithm = *algorithm);
            run(0)?;
            let mut best = f64::INFINITY;
            for _ in 0..3 {
                self.gpu.wait()?;
                let started = Instant::now();
                (0..20).try_for_each(run)?;
                self.gpu.wait()?;
                best = best.min(started.elapsed().as_secs_f64() / 20.0);
            }
            times.push(best);
        }
        with_plan(&mut |plan| plan.algorithm = algorithms[0]);
        Ok(times)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if self.gpu.bind().is_err() {
            return;
        }
        let plans = self.plans.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: each handle was created once and is not used again.
        unsafe {
            for plan in plans.values() {
                let _ = lt::destroy_matmul_desc(plan.description);
                for layout in plan.layouts {
                    let _ = lt::destroy_matrix_layout(layout);
                }
            }
            let _ = lt::destroy_handle(self.handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_missing_library_says_where_to_get_it() {
        // SAFETY: the call only searches for the library.
        let found = unsafe { sys::is_culib_present() };
        assert_eq!(present(found, "cuda:0").is_ok(), found);
        let error = present(false, "cuda:0").unwrap_err().to_string();
        for part in ["cuda:0", "libcublasLt.so.13", "CUDA toolkit 13", "LD_LIBRARY_PATH"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
