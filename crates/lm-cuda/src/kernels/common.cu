// Types and small helpers that all kernels use. NVRTC compiles them without any header. BF16 is 1 if
// activations and parameters are bfloat16, and 0 if they are f32.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct __align__(2) bf16 {
    u16 bits;
};

#if BF16
typedef bf16 T;
#else
typedef float T;
#endif

#define INFINITE __int_as_float(0x7f800000)
#define DEVICE __device__ __forceinline__
#define LOG2E 1.4426950408889634f

DEVICE float to_f(float v) { return v; }
DEVICE float to_f(bf16 v) { return __uint_as_float((u32)v.bits << 16); }

DEVICE void put(float* p, float v) { *p = v; }
DEVICE void put(bf16* p, float v) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(p->bits) : "f"(v)); }

// Packs two floats as bfloat16, `lo` in the lower half.
DEVICE u32 pack(float lo, float hi) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

// Returns the value after rounding to T.
DEVICE float stored(float v) {
    T t;
    put(&t, v);
    return to_f(t);
}

DEVICE void load8(const float* p, float (&v)[8]) {
    float4 a = *(const float4*)p, b = *(const float4*)(p + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

DEVICE void load8(const bf16* p, float (&v)[8]) {
    uint4 u = *(const uint4*)p;
    u32 w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(w[i] << 16);
        v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}

DEVICE void store8(float* p, const float (&v)[8]) {
    *(float4*)p = make_float4(v[0], v[1], v[2], v[3]);
    *(float4*)(p + 4) = make_float4(v[4], v[5], v[6], v[7]);
}

DEVICE void store8(bf16* p, const float (&v)[8]) {
    *(uint4*)p = make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
}

// Eight adjacent elements as stored in memory, so that many loads can be in flight in few registers.
#if BF16
struct Eight {
    uint4 bits;
};
DEVICE void unpack(const Eight& e, float (&v)[8]) {
    u32 w[4] = {e.bits.x, e.bits.y, e.bits.z, e.bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(w[i] << 16);
        v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}
DEVICE Eight fetch8(const T* p, int n, bool wide) {
    if (wide) return {*(const uint4*)p};
    u32 w[4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < n) w[i / 2] |= (u32)p[i].bits << (i % 2 * 16);
    return {make_uint4(w[0], w[1], w[2], w[3])};
}
#else
struct Eight {
    float v[8];
};
DEVICE void unpack(const Eight& e, float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = e.v[i];
}
DEVICE Eight fetch8(const T* p, int n, bool wide) {
    Eight e;
    if (wide) {
        load8(p, e.v);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) e.v[i] = i < n ? p[i] : 0.f;
    }
    return e;
}
#endif

// Loads up to eight adjacent elements: with one wide access if `wide`, otherwise the first `n` one by one (the
// others are 0).
template <class S> DEVICE void get8(const S* p, int n, bool wide, float (&v)[8]) {
    if (wide) {
        load8(p, v);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = i < n ? to_f(p[i]) : 0.f;
    }
}

template <class S> DEVICE void put8(S* p, int n, bool wide, const float (&v)[8]) {
    if (wide) {
        store8(p, v);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < n) put(p + i, v[i]);
    }
}

// Returns whether rows of `width` elements, starting at `p`, can be read in groups of eight.
template <class S> DEVICE bool wide_rows(const S* p, int width) {
    return (width & 7) == 0 && ((u64)p & 15) == 0;
}

DEVICE float warp_sum(float v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}

DEVICE float warp_max(float v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

// Returns the sum over the block to every thread; the block consists of whole warps.
DEVICE float block_sum(float v) {
    __shared__ float parts[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = warp_sum(v);
    if (warps == 1) return v;
    __syncthreads();
    if (lane == 0) parts[warp] = v;
    __syncthreads();
    return warp_sum(lane < warps ? parts[lane] : 0.f);
}

DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
