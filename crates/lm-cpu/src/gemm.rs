//! Matrix products over strided views, computed by the `gemm` crate.

#![allow(unsafe_code)]

use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;

/// A read-only strided view of a slice as a matrix.
#[derive(Debug, Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

/// A writable row-major view of a slice as a matrix; the row stride may exceed the width.
#[derive(Debug)]
pub struct MatMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
}

pub use sgs_lm::device::Write;

/// Number of threads of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    One,
    /// All threads of the current rayon pool.
    All,
}

/// Returns the number of elements that a strided matrix spans.
fn reach(rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * row_stride + (cols - 1) * col_stride + 1 }
}

impl<'a> Mat<'a> {
    /// Creates a view of the dense row-major `[rows, cols]` matrix at the start of `data`.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Creates a view of a row-major matrix with `row_stride` elements between the starts of rows.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(reach(rows, cols, row_stride, 1) <= data.len(), "matrix reaches beyond its buffer");
        Self { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// Returns the transpose, without a copy.
    pub fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

impl<'a> MatMut<'a> {
    /// Creates a view of the dense row-major `[rows, cols]` matrix at the start of `data`.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Creates a view of a row-major matrix with `row_stride >= cols` elements between the starts of rows.
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(reach(rows, cols, row_stride, 1) <= data.len(), "matrix reaches beyond its buffer");
        assert!(row_stride >= cols, "rows of a destination may not overlap");
        Self { data, rows, cols, row_stride }
    }
}

/// Computes `dst = scale · lhs rhs` or `dst += scale · lhs rhs`.
///
/// # Panics
/// Panics if the shapes do not match; callers derive them from one configuration.
pub fn matmul(dst: MatMut<'_>, write: Write, scale: f32, lhs: Mat<'_>, rhs: Mat<'_>, threads: Threads) {
    assert!(
        dst.rows == lhs.rows && dst.cols == rhs.cols && lhs.cols == rhs.rows,
        "product of {}x{} and {}x{} into {}x{}",
        lhs.rows,
        lhs.cols,
        rhs.rows,
        rhs.cols,
        dst.rows,
        dst.cols
    );
    let product = RawProduct {
        m: dst.rows,
        n: dst.cols,
        k: lhs.cols,
        dst: dst.data.as_mut_ptr(),
        dst_row_stride: dst.row_stride,
        lhs: lhs.data.as_ptr(),
        lhs_strides: (lhs.row_stride, lhs.col_stride),
        rhs: rhs.data.as_ptr(),
        rhs_strides: (rhs.row_stride, rhs.col_stride),
    };
    // SAFETY: the constructors checked that each view is within its slice, the shapes were compared above, and
    // the destination is borrowed mutably, so it overlaps neither operand.
    unsafe { product.run(write, scale, threads) }
}

/// A product over raw pointers, for kernels whose tasks write disjoint column blocks of one buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawProduct {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub dst: *mut f32,
    pub dst_row_stride: usize,
    pub lhs: *const f32,
    pub lhs_strides: (usize, usize),
    pub rhs: *const f32,
    pub rhs_strides: (usize, usize),
}

impl RawProduct {
    /// Computes the product.
    ///
    /// # Safety
    /// Every element that the shapes and strides span must be within its allocation and initialised, and no
    /// other thread may access the elements of the destination during the call.
    pub(crate) unsafe fn run(self, write: Write, scale: f32, threads: Threads) {
        let parallelism = match threads {
            Threads::One => Parallelism::None,
            Threads::All => Parallelism::Rayon(0),
        };
        let stride = self.dst_row_stride as isize;
        let strides = |(row, col): (usize, usize)| (row as isize, col as isize);
        let ((lhs_row, lhs_col), (rhs_row, rhs_col)) = (strides(self.lhs_strides), strides(self.rhs_strides));
        // The kernels prefer column-major destinations, and ours are row-major, so compute the transposed product.
        let (m, n, (dst_col, dst_row)) =
            if stride > 1 { (self.n, self.m, (stride, 1)) } else { (self.m, self.n, (1, stride)) };
        let ((lhs, lhs_col, lhs_row), (rhs, rhs_col, rhs_row)) = if stride > 1 {
            ((self.rhs, rhs_row, rhs_col), (self.lhs, lhs_row, lhs_col))
        } else {
            ((self.lhs, lhs_col, lhs_row), (self.rhs, rhs_col, rhs_row))
        };
        let add = write == Write::Add;
        let gemm = get_gemm_fn();
        // SAFETY: guaranteed by the caller; strides fit into isize because the buffers do.
        unsafe {
            gemm(
                m,
                n,
                self.k,
                self.dst,
                dst_col,
                dst_row,
                add,
                lhs,
                lhs_col,
                lhs_row,
                rhs,
                rhs_col,
                rhs_row,
                1.0,
                scale,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_equals_the_triple_loop_for_every_transposition() {
        let (m, n, k) = (5, 7, 3);
        let a: Vec<f32> = (0..m * k).map(|i| (i as f32 * 0.37).sin()).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i as f32 * 0.71).cos()).collect();
        let at: Vec<f32> = (0..k * m).map(|i| a[(i % m) * k + i / m]).collect();
        let bt: Vec<f32> = (0..n * k).map(|i| b[(i % k) * n + i / k]).collect();
        for lhs in [Mat::new(&a, m, k), Mat::new(&at, k, m).t()] {
            for rhs in [Mat::new(&b, k, n), Mat::new(&bt, n, k).t()] {
                let mut c = vec![1.0f32; m * (n + 2)];
                matmul(MatMut::strided(&mut c, m, n, n + 2), Write::Add, 2.0, lhs, rhs, Threads::All);
                for i in 0..m {
                    for j in 0..n {
                        let want: f32 = 1.0 + 2.0 * (0..k).map(|x| a[i * k + x] * b[x * n + j]).sum::<f32>();
                        assert!((c[i * (n + 2) + j] - want).abs() < 1e-5);
                    }
                }
                assert_eq!(c[n], 1.0, "the gap between rows is untouched");
            }
        }
    }
}
