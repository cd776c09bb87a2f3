// Causal attention within packed sequences on tensor cores (mma.sync, bfloat16 in, f32 sums), after Dao 2023
// (FlashAttention-2): scores never leave the registers. The backward pass is two kernels, one by blocks of
// queries and one by blocks of keys, so that it needs no atomics and its sums have one order.
//
// A tile is a block of rows of one sequence: first row of the sequence, its length, first row of the tile
// within it. HEAD_DIM is a multiple of 16 up to 128. A block has WARPS warps; every warp owns 16 rows of the block's tile; the other
// side of the products streams through two stages of shared memory.

#define ROWS (16 * WARPS)
#define STEP 64
#define LD (HEAD_DIM + 8)
#define CHUNKS (HEAD_DIM / 8)
#define KSTEPS (HEAD_DIM / 16)
#define THREADS (32 * WARPS)
#define LOG2E 1.4426950408889634f

DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// 16 bytes from global to shared memory, zeros where `keep` is false.
DEVICE void copy16(bf16* to, const bf16* from, bool keep) {
    int bytes = keep ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}

DEVICE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void wait_for() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// COUNT rows of a matrix into shared memory with row length LD; rows from `valid` on become zero.
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

// The 16x16 piece of a row-major matrix as the left factor.
DEVICE void left(u32 (&a)[4], const bf16* m, int row, int column) {
    int lane = threadIdx.x & 31;
    ldmatrix(a, m + (row + (lane & 15)) * LD + column + (lane >> 4) * 8);
}

// c[n] += a x m^T over 16 columns of a and m from `column` on: rows of m are columns of the product.
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

// c[n] += a x m over 16 columns of a, which meet rows `row`.. of m.
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

// Two neighbouring tiles of a product as the left factor of the next.
DEVICE void as_left(u32 (&a)[4], const float (&low)[4], const float (&high)[4]) {
    a[0] = pack(low[0], low[1]);
    a[1] = pack(low[2], low[3]);
    a[2] = pack(high[0], high[1]);
    a[3] = pack(high[2], high[3]);
}

// A warp's 16 rows of a product, times `by0` (rows of c[.][0..1]) and `by1`, through its rows of shared memory
// to rows of a matrix; rows from `valid` on are left out.
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

DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

DEVICE float quad_sum(float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

extern "C" __global__ void __launch_bounds__(THREADS, 8 / WARPS)
    attention(const bf16* qkv, const int4* tiles, int heads, int kv_heads, float scale, bf16* out, float* lse) {
    extern __shared__ __align__(16) bf16 shared[];
    bf16 *queries = shared, *keys = queries + ROWS * LD, *values = keys + 2 * STEP * LD;
    int head = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int4 tile = tiles[blockIdx.y];
    int length = tile.y, first = tile.z;
    u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM;
    const bf16* base = qkv + (u64)tile.x * stride;
    const bf16* key = base + (heads + head / (heads / kv_heads)) * HEAD_DIM;
    const bf16* value = key + kv_heads * HEAD_DIM;
    int steps = (min(length, first + ROWS) + STEP - 1) / STEP;

    copy_rows<ROWS>(queries, base + first * stride + head * HEAD_DIM, stride, length - first);
    copy_rows<STEP>(keys, key, stride, length);
    copy_rows<STEP>(values, value, stride, length);
    commit();

    float sum[HEAD_DIM / 8][4] = {};
    float peak0 = -INFINITE, peak1 = -INFINITE, mass0 = 0.f, mass1 = 0.f;
    float to_log2 = scale * LOG2E;
    int own = first + warp * 16;
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            int next = (step + 1) & 1, at = (step + 1) * STEP;
            copy_rows<STEP>(keys + next * STEP * LD, key + at * stride, stride, length - at);
            copy_rows<STEP>(values + next * STEP * LD, value + at * stride, stride, length - at);
        }
        commit();
        wait_for<1>();
        __syncthreads();
        int at = step * STEP;
        if (at <= own + 15) {
            const bf16* k = keys + (step & 1) * STEP * LD;
            const bf16* v = values + (step & 1) * STEP * LD;
            float s[STEP / 8][4] = {};
#pragma unroll
            for (int i = 0; i < KSTEPS; i++) {
                u32 a[4];
                left(a, queries, warp * 16, i * 16);
                product_t(s, a, k, i * 16);
            }
            int row = own + (lane >> 2);
            if (at + STEP > own) {
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
                    int column = at + n * 8 + (lane & 3) * 2;
                    if (column > row) s[n][0] = -INFINITE;
                    if (column + 1 > row) s[n][1] = -INFINITE;
                    if (column > row + 8) s[n][2] = -INFINITE;
                    if (column + 1 > row + 8) s[n][3] = -INFINITE;
                }
            }
            float top0 = peak0, top1 = peak1;
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
                top0 = fmaxf(top0, fmaxf(s[n][0], s[n][1]));
                top1 = fmaxf(top1, fmaxf(s[n][2], s[n][3]));
            }
            top0 = quad_max(top0);
            top1 = quad_max(top1);
            // Every row sees its sequence's first key in the first step, so the peaks are finite from then on.
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
#pragma unroll
            for (int i = 0; i < STEP / 16; i++) {
                u32 a[4];
                as_left(a, s[2 * i], s[2 * i + 1]);
                product(sum, a, v, i * 16);
            }
        }
        __syncthreads();
    }
    mass0 = quad_sum(mass0);
    mass1 = quad_sum(mass1);
    int valid = length - own;
    u64 line = (u64)tile.x + own;
    write_rows(sum, 1.f / mass0, 1.f / mass1, queries + warp * 16 * LD, out + (line * heads + head) * HEAD_DIM,
               (u64)heads * HEAD_DIM, valid);
    if ((lane & 3) == 0) {
        int row = lane >> 2;
        if (row < valid) lse[(line + row) * heads + head] = peak0 * scale + logf(mass0);
        if (row + 8 < valid) lse[(line + row + 8) * heads + head] = peak1 * scale + logf(mass1);
    }
}

// The gradient of the queries, and delta = sum over the head of out dout.
extern "C" __global__ void __launch_bounds__(THREADS, 8 / WARPS)
    attention_dq(const bf16* qkv, const int4* tiles, int heads, int kv_heads, float scale, const bf16* out,
                 const float* lse, const bf16* dout, bf16* dqkv, float* delta) {
    extern __shared__ __align__(16) bf16 shared[];
    bf16 *queries = shared, *douts = queries + ROWS * LD, *keys = douts + ROWS * LD;
    bf16* values = keys + 2 * STEP * LD;
    __shared__ float deltas[ROWS];
    int head = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int4 tile = tiles[blockIdx.y];
    int length = tile.y, first = tile.z;
    u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM, narrow = (u64)heads * HEAD_DIM;
    const bf16* base = qkv + (u64)tile.x * stride;
    const bf16* key = base + (heads + head / (heads / kv_heads)) * HEAD_DIM;
    const bf16* value = key + kv_heads * HEAD_DIM;
    u64 line = (u64)tile.x + first;
    int steps = (min(length, first + ROWS) + STEP - 1) / STEP;

    copy_rows<ROWS>(queries, base + first * stride + head * HEAD_DIM, stride, length - first);
    copy_rows<ROWS>(douts, dout + line * narrow + head * HEAD_DIM, narrow, length - first);
    copy_rows<STEP>(keys, key, stride, length);
    copy_rows<STEP>(values, value, stride, length);
    commit();

    // Two threads a row.
    {
        int row = threadIdx.x >> 1, half = threadIdx.x & 1;
        float d = 0.f;
        if (first + row < length) {
            const bf16* a = out + (line + row) * narrow + head * HEAD_DIM;
            const bf16* b = dout + (line + row) * narrow + head * HEAD_DIM;
#pragma unroll
            for (int c = half; c < CHUNKS; c += 2) {
                float x[8], y[8];
                load8(a + c * 8, x);
                load8(b + c * 8, y);
#pragma unroll
                for (int j = 0; j < 8; j++) d += x[j] * y[j];
            }
        }
        d += __shfl_xor_sync(0xffffffffu, d, 1);
        if (half == 0) {
            deltas[row] = d;
            if (first + row < length) delta[(line + row) * heads + head] = d;
        }
    }
    __syncthreads();

    float dq[HEAD_DIM / 8][4] = {};
    float to_log2 = scale * LOG2E;
    int own = first + warp * 16, r0 = warp * 16 + (lane >> 2), r1 = r0 + 8;
    float log0 = first + r0 < length ? lse[(line + r0) * heads + head] * LOG2E : INFINITE;
    float log1 = first + r1 < length ? lse[(line + r1) * heads + head] * LOG2E : INFINITE;
    float delta0 = deltas[r0], delta1 = deltas[r1];
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) {
            int next = (step + 1) & 1, at = (step + 1) * STEP;
            copy_rows<STEP>(keys + next * STEP * LD, key + at * stride, stride, length - at);
            copy_rows<STEP>(values + next * STEP * LD, value + at * stride, stride, length - at);
        }
        commit();
        wait_for<1>();
        __syncthreads();
        int at = step * STEP;
        if (at <= own + 15) {
            const bf16* k = keys + (step & 1) * STEP * LD;
            const bf16* v = values + (step & 1) * STEP * LD;
            float s[STEP / 8][4] = {}, dp[STEP / 8][4] = {};
#pragma unroll
            for (int i = 0; i < KSTEPS; i++) {
                u32 a[4];
                left(a, queries, warp * 16, i * 16);
                product_t(s, a, k, i * 16);
                left(a, douts, warp * 16, i * 16);
                product_t(dp, a, v, i * 16);
            }
            int row = own + (lane >> 2);
            bool edge = at + STEP > own;
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int column = at + n * 8 + (lane & 3) * 2 + (j & 1);
                    float p = exp2_fast(s[n][j] * to_log2 - (j < 2 ? log0 : log1));
                    if (edge && column > row + (j < 2 ? 0 : 8)) p = 0.f;
                    s[n][j] = p * (dp[n][j] - (j < 2 ? delta0 : delta1));
                }
            }
#pragma unroll
            for (int i = 0; i < STEP / 16; i++) {
                u32 a[4];
                as_left(a, s[2 * i], s[2 * i + 1]);
                product(dq, a, k, i * 16);
            }
        }
        __syncthreads();
    }
    write_rows(dq, scale, scale, queries + warp * 16 * LD,
               dqkv + ((u64)tile.x + own) * stride + head * HEAD_DIM, stride, length - own);
}

// The gradients of keys and values. A tile is a block of keys; queries from its first row on stream by, for
// every query head that shares the key head.
extern "C" __global__ void __launch_bounds__(THREADS, 8 / WARPS)
    attention_dkv(const bf16* qkv, const int4* tiles, int heads, int kv_heads, float scale, const float* lse,
                  const float* delta, const bf16* dout, bf16* dqkv) {
    extern __shared__ __align__(16) bf16 shared[];
    bf16 *keys = shared, *values = keys + ROWS * LD, *queries = values + ROWS * LD;
    bf16* douts = queries + 2 * STEP * LD;
    __shared__ float logs[2][STEP], deltas[2][STEP];
    int kv = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int4 tile = tiles[blockIdx.y];
    int length = tile.y, first = tile.z, group = heads / kv_heads;
    u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM, narrow = (u64)heads * HEAD_DIM;
    const bf16* base = qkv + (u64)tile.x * stride;
    const bf16* key = base + first * stride + (heads + kv) * HEAD_DIM;
    // Steps over the queries of one head, from the one that holds the tile's first row.
    int begin = first / STEP * STEP, steps = (length - begin + STEP - 1) / STEP, total = steps * group;

    auto fetch = [&](int i) {
        int head = kv * group + i / steps, at = begin + i % steps * STEP, stage = i & 1;
        u64 line = (u64)tile.x + at;
        copy_rows<STEP>(queries + stage * STEP * LD, base + at * stride + head * HEAD_DIM, stride, length - at);
        copy_rows<STEP>(douts + stage * STEP * LD, dout + line * narrow + head * HEAD_DIM, narrow, length - at);
        if (threadIdx.x < STEP) {
            bool keep = at + (int)threadIdx.x < length;
            u64 from = (line + threadIdx.x) * heads + head;
            // e^-inf = 0: rows beyond the sequence add nothing.
            logs[stage][threadIdx.x] = keep ? lse[from] * LOG2E : INFINITE;
            deltas[stage][threadIdx.x] = keep ? delta[from] : 0.f;
        }
    };
    copy_rows<ROWS>(keys, key, stride, length - first);
    copy_rows<ROWS>(values, key + kv_heads * HEAD_DIM, stride, length - first);
    fetch(0);
    commit();

    float dk[HEAD_DIM / 8][4] = {}, dv[HEAD_DIM / 8][4] = {};
    float to_log2 = scale * LOG2E;
    int own = first + warp * 16;
    for (int i = 0; i < total; i++) {
        if (i + 1 < total) fetch(i + 1);
        commit();
        wait_for<1>();
        __syncthreads();
        int at = begin + i % steps * STEP, stage = i & 1;
        // Queries before the warp's first key see none of its keys.
        if (at + STEP > own) {
            const bf16* q = queries + stage * STEP * LD;
            const bf16* d = douts + stage * STEP * LD;
            float s[STEP / 8][4] = {};
#pragma unroll
            for (int k = 0; k < KSTEPS; k++) {
                u32 a[4];
                left(a, keys, warp * 16, k * 16);
                product_t(s, a, q, k * 16);
            }
            int row = own + (lane >> 2);
            bool edge = at < own + 16;
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int column = n * 8 + (lane & 3) * 2 + (j & 1);
                    s[n][j] = exp2_fast(s[n][j] * to_log2 - logs[stage][column]);
                    if (edge && at + column < row + (j < 2 ? 0 : 8)) s[n][j] = 0.f;
                }
            }
#pragma unroll
            for (int k = 0; k < STEP / 16; k++) {
                u32 a[4];
                as_left(a, s[2 * k], s[2 * k + 1]);
                product(dv, a, d, k * 16);
            }
            float dp[STEP / 8][4] = {};
#pragma unroll
            for (int k = 0; k < KSTEPS; k++) {
                u32 a[4];
                left(a, values, warp * 16, k * 16);
                product_t(dp, a, d, k * 16);
            }
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int column = n * 8 + (lane & 3) * 2 + (j & 1);
                    s[n][j] *= dp[n][j] - deltas[stage][column];
                }
            }
#pragma unroll
            for (int k = 0; k < STEP / 16; k++) {
                u32 a[4];
                as_left(a, s[2 * k], s[2 * k + 1]);
                product(dk, a, q, k * 16);
            }
        }
        __syncthreads();
    }
    bf16* to = dqkv + ((u64)tile.x + own) * stride + (heads + kv) * HEAD_DIM;
    bf16* stage = keys + warp * 16 * LD;
    write_rows(dk, scale, scale, stage, to, stride, length - own);
    write_rows(dv, 1.f, 1.f, stage, to + kv_heads * HEAD_DIM, stride, length - own);
}
