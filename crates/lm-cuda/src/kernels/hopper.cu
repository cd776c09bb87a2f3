// Building blocks of attention on Hopper's tensor cores (sm_90a): warpgroups of four warps multiply tiles
// directly from shared memory (wgmma, bfloat16 operands, f32 sums), and one thread starts the copies of tiles
// to shared memory (TMA). HEAD_DIM is 64 or 128.
//
// A tile of ROWS rows is stored in shared memory as blocks of 64 columns. Each block has ROWS rows of 128
// bytes, whose 16-byte chunks are permuted by chunk ^ (row & 7): the 128-byte swizzle of the TMA, which avoids
// bank conflicts in both directions.

#define HALVES (HEAD_DIM / 64)
#define KSTEPS (HEAD_DIM / 16)
#define CHUNKS (HEAD_DIM / 8)

// Tensor map of a matrix in global memory, created by the driver: dimensions are 64 columns, rows, blocks of 64
// columns.
struct __align__(128) Map {
    u64 words[16];
};

DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Barriers in shared memory: `full` barriers wait for bytes, `empty` barriers for the warps that have read
// them.

DEVICE void barrier_new(u32 barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

DEVICE void barriers_made() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Announces a number of bytes; this also counts as the arrival of the thread that starts their copy.
DEVICE void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

DEVICE void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Waits until the barrier's phase of this parity is complete.
DEVICE void await(u32 barrier, u32 parity) {
    u32 done;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

// Copies a tile, starting at row `row` of head `head`, with as many rows as the map's box.
DEVICE void copy_tile(u32 to, const Map& map, int row, int head, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
                 "[%5];" ::"r"(to),
                 "l"(&map), "r"(0), "r"(row), "r"(head * HALVES), "r"(barrier)
                 : "memory");
}

// Copies contiguous bytes; both addresses and the count are multiples of 16.
DEVICE void copy_bytes(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Two groups take turns; a group ends its turn by giving it to the other group.
DEVICE void take_turn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(group + 3) : "memory"); }
DEVICE void give_turn(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(group + 3) : "memory"); }

// Waits for the other threads of a warpgroup.
DEVICE void meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

// Descriptors of tiles in shared memory. With the 64 columns as the inner dimension of the product, groups of
// eight rows are 1,024 bytes apart.
DEVICE u64 by_columns(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// With the rows as the inner dimension, blocks of 64 columns are ROWS rows apart.
template <int ROWS> DEVICE u64 by_rows(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(ROWS * 8) << 16 | 64ull << 32 | 1ull << 62;
}

// The registers of a product may be read and written again; prevents the compiler from moving accesses across
// this point.
template <int N> DEVICE void settled(float (&c)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most N groups of products are in flight.
template <int N> DEVICE void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

#define PAIR(c, i) "+f"(c[i]), "+f"(c[i + 1])
#define EIGHT(c, i) PAIR(c, i), PAIR(c, i + 2), PAIR(c, i + 4), PAIR(c, i + 6)
#define ALL32(c) EIGHT(c, 0), EIGHT(c, 8), EIGHT(c, 16), EIGHT(c, 24)
#define ALL64(c) ALL32(c), EIGHT(c, 32), EIGHT(c, 40), EIGHT(c, 48), EIGHT(c, 56)
#define LIST32 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define LIST64 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
    "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63}"

// c (+)= a x b for 16 elements of the inner dimension and 64 rows of a. c has 64 or 128 columns in registers,
// in the layout of mma.sync. The left factor is in shared memory, with its columns as the inner dimension, or
// in registers. The inner dimension of the right factor is its columns (ROWWISE 0) or its rows (ROWWISE 1).
template <int ROWWISE> DEVICE void multiply(float (&c)[32], u64 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LIST32
                 ", %32, %33, p, 1, 1, 0, %35;\n}"
                 : ALL32(c)
                 : "l"(a), "l"(b), "r"((int)add), "n"(ROWWISE));
}

template <int ROWWISE> DEVICE void multiply(float (&c)[32], const u32* a, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LIST32
                 ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
                 : ALL32(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(ROWWISE));
}

template <int ROWWISE> DEVICE void multiply(float (&c)[64], u64 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " LIST64
                 ", %64, %65, p, 1, 1, 0, %67;\n}"
                 : ALL64(c)
                 : "l"(a), "l"(b), "r"((int)add), "n"(ROWWISE));
}

template <int ROWWISE> DEVICE void multiply(float (&c)[64], const u32* a, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " LIST64
                 ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
                 : ALL64(c)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(ROWWISE));
}

// c = a x b^T over the head. a is 64 rows, starting at `row`, of a tile of LEFT rows in shared memory; b is a
// tile with as many rows as c has columns.
template <int LEFT, int N> DEVICE void product_t(float (&c)[N], u32 a, int row, u32 b) {
#pragma unroll
    for (int k = 0; k < KSTEPS; k++)
        multiply<0>(c, by_columns(a + row * 128 + k / 4 * (LEFT * 128) + k % 4 * 32),
                    by_columns(b + k / 4 * (2 * N * 128) + k % 4 * 32), k > 0);
}

// The same, with the left factor in registers.
template <int N> DEVICE void product_t(float (&c)[N], const u32 (&a)[KSTEPS][4], u32 b) {
#pragma unroll
    for (int k = 0; k < KSTEPS; k++)
        multiply<0>(c, a[k], by_columns(b + k / 4 * (2 * N * 128) + k % 4 * 32), k > 0);
}

// c (+)= a x b. b is a tile with as many rows as a, which is in registers, has columns.
template <int N> DEVICE void product(float (&c)[HEAD_DIM / 2], const u32 (&a)[N], u32 b, bool add) {
#pragma unroll
    for (int k = 0; k < N / 4; k++) multiply<1>(c, a + k * 4, by_rows<4 * N>(b + k * 2048), add || k > 0);
}

// Converts a product to the left factor of the next product.
template <int N> DEVICE void as_left(u32 (&a)[N], const float (&c)[2 * N]) {
#pragma unroll
    for (int i = 0; i < N; i++) a[i] = pack(c[2 * i], c[2 * i + 1]);
}

// Offset of 16 bytes in a tile of ROWS rows.
template <int ROWS> DEVICE u32 chunk_at(int row, int chunk) {
    return (chunk >> 3) * (ROWS * 128) + row * 128 + (((chunk & 7) ^ (row & 7)) << 4);
}

// Loads a warp's 16 rows, starting at `row`, of a tile of ROWS rows as the left factor of products over the
// head.
template <int ROWS> DEVICE void left(u32 (&a)[KSTEPS][4], u32 tile, int row) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int k = 0; k < KSTEPS; k++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a[k][0]), "=r"(a[k][1]), "=r"(a[k][2]), "=r"(a[k][3])
                     : "r"(tile + chunk_at<ROWS>(row + (lane & 15), 2 * k + (lane >> 4)))
                     : "memory");
}

// Writes a warp's 16 rows of a product, times `by0` (the thread's first row) and `by1` (eight rows later), to
// rows of a matrix, through rows of a tile of ROWS rows in shared memory, starting at `row`. Rows from `valid`
// on are skipped.
template <int ROWS>
DEVICE void write_rows(const float (&c)[HEAD_DIM / 2], float by0, float by1, char* tile, int row, bf16* to, u64 stride,
                       int valid) {
    int lane = threadIdx.x & 31, inside = (lane & 3) * 4;
#pragma unroll
    for (int n = 0; n < CHUNKS; n++) {
        *(u32*)(tile + chunk_at<ROWS>(row + (lane >> 2), n) + inside) = pack(c[4 * n] * by0, c[4 * n + 1] * by0);
        *(u32*)(tile + chunk_at<ROWS>(row + (lane >> 2) + 8, n) + inside) =
            pack(c[4 * n + 2] * by1, c[4 * n + 3] * by1);
    }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 16 * CHUNKS; i += 32) {
        int r = i / CHUNKS, chunk = i % CHUNKS;
        if (r < valid) *(uint4*)(to + r * stride + chunk * 8) = *(const uint4*)(tile + chunk_at<ROWS>(row + r, chunk));
    }
}

// Does the same without shared memory, to which the next tile may already be copied: four adjacent threads exchange
// their parts of a row, so that each writes 16 bytes.
DEVICE void write_rows_directly(const float (&c)[HEAD_DIM / 2], float by0, float by1, bf16* to, u64 stride, int valid) {
    int lane = threadIdx.x & 31, quarter = lane & 3;
    bool odd = lane & 1, high = lane & 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = (lane >> 2) + 8 * r;
        float by = r ? by1 : by0;
#pragma unroll
        for (int n = 0; n < CHUNKS; n += 4) {
            u32 v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) v[i] = pack(c[4 * (n + i) + 2 * r] * by, c[4 * (n + i) + 2 * r + 1] * by);
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                u32 got = __shfl_xor_sync(0xffffffffu, odd ? v[i] : v[i + 1], 1);
                v[i] = odd ? got : v[i];
                v[i + 1] = odd ? v[i + 1] : got;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                u32 got = __shfl_xor_sync(0xffffffffu, high ? v[i] : v[i + 2], 2);
                v[i] = high ? got : v[i];
                v[i + 2] = high ? v[i + 2] : got;
            }
            if (row < valid) *(uint4*)(to + row * stride + (n + quarter) * 8) = make_uint4(v[0], v[1], v[2], v[3]);
        }
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

// Number of registers per thread: released by the warps that only start copies, and acquired by those that
// compute.
template <int N> DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
