// Building blocks of attention on tensor cores (mma.sync, bfloat16 operands, f32 sums): tiles in shared memory
// and products of tiles. HEAD_DIM is a multiple of 16 up to 128. A block has WARPS warps; each warp owns 16
// rows of the block's tile, and the other operand is streamed through two stages of shared memory.

#define ROWS (16 * WARPS)
#define STEP 64
#define LD (HEAD_DIM + 8)
#define CHUNKS (HEAD_DIM / 8)
#define KSTEPS (HEAD_DIM / 16)
#define THREADS (32 * WARPS)

DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Copies 16 bytes from global to shared memory, or zeros if `keep` is false.
DEVICE void copy16(bf16* to, const bf16* from, bool keep) {
    int bytes = keep ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

DEVICE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void wait_for() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Copies COUNT rows of a matrix to shared memory with row length LD; rows from `valid` on become zero.
template <int COUNT> DEVICE void copy_rows(bf16* to, const bf16* from, u64 stride, int valid) {
#pragma unroll
    for (int i = threadIdx.x; i < COUNT * CHUNKS; i += THREADS) {
        int row = i / CHUNKS, c = i % CHUNKS * 8;
        bool keep = row < valid;
        copy16(to + row * LD + c, from + (keep ? row * stride : 0) + c, keep);
    }
}

DEVICE void ldmatrix(u32 (&r)[4], const bf16* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

DEVICE void ldmatrix_t(u32 (&r)[4], const bf16* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

DEVICE void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads a 16x16 block of a row-major matrix as the left factor.
DEVICE void left(u32 (&a)[4], const bf16* m, int row, int column) {
    int lane = threadIdx.x & 31;
    ldmatrix(a, m + (row + (lane & 15)) * LD + column + (lane >> 4) * 8);
}

// c[n] += a x m^T over 16 columns of a and m, starting at `column`: rows of m are columns of the product.
template <int N> DEVICE void product_t(float (&c)[N][4], const u32 (&a)[4], const bf16* m, int column) {
    int lane = threadIdx.x & 31;
    const bf16* p = m + ((lane & 7) + ((lane >> 4) << 3)) * LD + column + ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        u32 b[4];
        ldmatrix(b, p + n * 8 * LD);
        mma(c[n], a, b[0], b[1]);
        mma(c[n + 1], a, b[2], b[3]);
    }
}

// c[n] += a x m over 16 columns of a, which correspond to the rows of m starting at `row`.
template <int N> DEVICE void product(float (&c)[N][4], const u32 (&a)[4], const bf16* m, int row) {
    int lane = threadIdx.x & 31;
    const bf16* p = m + (row + (lane & 15)) * LD + (lane >> 4) * 8;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        u32 b[4];
        ldmatrix_t(b, p + n * 8);
        mma(c[n], a, b[0], b[1]);
        mma(c[n + 1], a, b[2], b[3]);
    }
}

// Converts two adjacent tiles of a product to the left factor of the next product.
DEVICE void as_left(u32 (&a)[4], const float (&low)[4], const float (&high)[4]) {
    a[0] = pack(low[0], low[1]);
    a[1] = pack(low[2], low[3]);
    a[2] = pack(high[0], high[1]);
    a[3] = pack(high[2], high[3]);
}

// Writes a warp's 16 rows of a product, times `by0` (rows of c[.][0..1]) and `by1`, to rows of a matrix,
// through the warp's rows of shared memory. Rows from `valid` on are skipped.
DEVICE void write_rows(const float (&c)[HEAD_DIM / 8][4], float by0, float by1, bf16* stage, bf16* to, u64 stride,
                       int valid) {
    int lane = threadIdx.x & 31;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++) {
        int column = n * 8 + (lane & 3) * 2, row = lane >> 2;
        *(u32*)(stage + row * LD + column) = pack(c[n][0] * by0, c[n][1] * by0);
        *(u32*)(stage + (row + 8) * LD + column) = pack(c[n][2] * by1, c[n][3] * by1);
    }
    __syncwarp();
    for (int i = lane; i < 16 * CHUNKS; i += 32) {
        int row = i / CHUNKS, column = i % CHUNKS * 8;
        if (row < valid) *(uint4*)(to + row * stride + column) = *(const uint4*)(stage + row * LD + column);
    }
}

DEVICE float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

DEVICE float quad_sum(float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// Masks the scores of keys after their query. The thread's rows of the product are the queries `row` and `row`
// + 8; its first column is the key `at`.
DEVICE void causal(float (&s)[STEP / 8][4], int row, int at) {
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        int column = at + n * 8 + (threadIdx.x & 3) * 2;
        if (column > row) s[n][0] = -INFINITE;
        if (column + 1 > row) s[n][1] = -INFINITE;
        if (column > row + 8) s[n][2] = -INFINITE;
        if (column + 1 > row + 8) s[n][3] = -INFINITE;
    }
}

// Converts scores to weights e^(scale (s - peak)), updates the peaks and masses of both rows, and rescales the
// previous sums to the new peaks. Every row attends to its sequence's first key in the first step, so all peaks
// are finite afterwards.
DEVICE void soften(float (&s)[STEP / 8][4], float (&sum)[HEAD_DIM / 8][4], float& peak0, float& peak1, float& mass0,
                   float& mass1, float to_log2) {
    float top0 = peak0, top1 = peak1;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        top0 = fmaxf(top0, fmaxf(s[n][0], s[n][1]));
        top1 = fmaxf(top1, fmaxf(s[n][2], s[n][3]));
    }
    top0 = quad_max(top0);
    top1 = quad_max(top1);
    float fade0 = exp2_fast((peak0 - top0) * to_log2), fade1 = exp2_fast((peak1 - top1) * to_log2);
    peak0 = top0, peak1 = top1;
    float shift0 = top0 * to_log2, shift1 = top1 * to_log2;
    mass0 *= fade0, mass1 *= fade1;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        s[n][0] = exp2_fast(s[n][0] * to_log2 - shift0);
        s[n][1] = exp2_fast(s[n][1] * to_log2 - shift0);
        s[n][2] = exp2_fast(s[n][2] * to_log2 - shift1);
        s[n][3] = exp2_fast(s[n][3] * to_log2 - shift1);
        mass0 += s[n][0] + s[n][1];
        mass1 += s[n][2] + s[n][3];
    }
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++) {
        sum[n][0] *= fade0, sum[n][1] *= fade0;
        sum[n][2] *= fade1, sum[n][3] *= fade1;
    }
}

// One step of the forward pass: the warp's 16 queries, the first at position `own`, over STEP keys and values
// starting at position `at`.
DEVICE void attend(const bf16* queries, const bf16* keys, const bf16* values, int own, int at,
                   float (&sum)[HEAD_DIM / 8][4], float& peak0, float& peak1, float& mass0, float& mass1,
                   float to_log2) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float s[STEP / 8][4] = {};
#pragma unroll
    for (int i = 0; i < KSTEPS; i++) {
        u32 a[4];
        left(a, queries, warp * 16, i * 16);
        product_t(s, a, keys, i * 16);
    }
    if (at + STEP > own) causal(s, own + (lane >> 2), at);
    soften(s, sum, peak0, peak1, mass0, mass1, to_log2);
#pragma unroll
    for (int i = 0; i < STEP / 16; i++) {
        u32 a[4];
        as_left(a, s[2 * i], s[2 * i + 1]);
        product(sum, a, values, i * 16);
    }
}
