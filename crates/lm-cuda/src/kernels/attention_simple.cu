// Causal attention within packed sequences with one warp per row and head, for f32 and for head widths that the
// tensor-core kernels do not support. Lanes hold the dimensions of a head; HEAD_DIM is at most 256.

#define PER_LANE ((HEAD_DIM + 31) / 32)

struct Lane {
    float x[PER_LANE];
};

DEVICE Lane lane_load(const T* p) {
    Lane l;
#pragma unroll
    for (int u = 0; u < PER_LANE; u++) {
        int d = (threadIdx.x & 31) + 32 * u;
        l.x[u] = d < HEAD_DIM ? to_f(p[d]) : 0.f;
    }
    return l;
}

DEVICE void lane_store(T* p, const Lane& l, float scale) {
#pragma unroll
    for (int u = 0; u < PER_LANE; u++) {
        int d = (threadIdx.x & 31) + 32 * u;
        if (d < HEAD_DIM) put(p + d, l.x[u] * scale);
    }
}

DEVICE float lane_dot(const Lane& a, const Lane& b) {
    float s = 0.f;
#pragma unroll
    for (int u = 0; u < PER_LANE; u++) s += a.x[u] * b.x[u];
    return warp_sum(s);
}

DEVICE void lane_add(Lane& a, const Lane& b, float k) {
#pragma unroll
    for (int u = 0; u < PER_LANE; u++) a.x[u] += k * b.x[u];
}

// rows: first row and length of each row's sequence, as pairs.
extern "C" __global__ void attention(const T* qkv, const int2* rows, int n, int heads, int kv_heads, float scale,
                                     T* out, float* lse) {
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), head = blockIdx.y;
    if (row >= n) return;
    u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM;
    int kv = heads + head / (heads / kv_heads);
    Lane q = lane_load(qkv + row * stride + head * HEAD_DIM), sum = {};
    float peak = -INFINITE, mass = 0.f;
    for (int j = rows[row].x; j <= row; j++) {
        const T* key = qkv + j * stride + kv * HEAD_DIM;
        float s = scale * lane_dot(q, lane_load(key));
        float top = fmaxf(peak, s), fade = expf(peak - top), p = expf(s - top);
        Lane v = lane_load(key + kv_heads * HEAD_DIM);
#pragma unroll
        for (int u = 0; u < PER_LANE; u++) sum.x[u] = sum.x[u] * fade + p * v.x[u];
        mass = mass * fade + p;
        peak = top;
    }
    lane_store(out + ((u64)row * heads + head) * HEAD_DIM, sum, 1.f / mass);
    if ((threadIdx.x & 31) == 0) lse[(u64)row * heads + head] = peak + logf(mass);
}

// Computes the gradient of the queries, and delta = sum of out dout over the head.
extern "C" __global__ void attention_dq(const T* qkv, const int2* rows, int n, int heads, int kv_heads, float scale,
                                        const T* out, const float* lse, const T* dout, T* dqkv, float* delta) {
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), head = blockIdx.y;
    if (row >= n) return;
    u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM, at = (u64)row * heads + head;
    int kv = heads + head / (heads / kv_heads);
    Lane q = lane_load(qkv + row * stride + head * HEAD_DIM), dq = {};
    Lane d = lane_load(dout + at * HEAD_DIM);
    float shift = lane_dot(d, lane_load(out + at * HEAD_DIM)), log_mass = lse[at];
    if ((threadIdx.x & 31) == 0) delta[at] = shift;
    for (int j = rows[row].x; j <= row; j++) {
        const T* at_key = qkv + j * stride + kv * HEAD_DIM;
        Lane key = lane_load(at_key);
        float p = expf(scale * lane_dot(q, key) - log_mass);
        float dp = lane_dot(d, lane_load(at_key + kv_heads * HEAD_DIM));
        lane_add(dq, key, p * (dp - shift));
    }
    lane_store(dqkv + row * stride + head * HEAD_DIM, dq, scale);
}

// Computes the gradients of keys and values, summed over the query heads that share them.
extern "C" __global__ void attention_dkv(const T* qkv, const int2* rows, int n, int heads, int kv_heads, float scale,
                                         const float* lse, const float* delta, const T* dout, T* dqkv) {
    int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), kv = blockIdx.y;
    if (row >= n) return;
    u64 stride = (u64)(heads + 2 * kv_heads) * HEAD_DIM;
    const T* at_key = qkv + row * stride + (heads + kv) * HEAD_DIM;
    Lane key = lane_load(at_key), value = lane_load(at_key + kv_heads * HEAD_DIM), dk = {}, dv = {};
    int end = rows[row].x + rows[row].y, group = heads / kv_heads;
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        for (int i = row; i < end; i++) {
            u64 at = (u64)i * heads + head;
            Lane q = lane_load(qkv + i * stride + head * HEAD_DIM), d = lane_load(dout + at * HEAD_DIM);
            float p = expf(scale * lane_dot(q, key) - lse[at]);
            lane_add(dv, d, p);
            lane_add(dk, q, p * (lane_dot(d, value) - delta[at]));
        }
    }
    lane_store(dqkv + row * stride + (heads + kv) * HEAD_DIM, dk, scale);
    lane_store(dqkv + row * stride + (heads + kv_heads + kv) * HEAD_DIM, dv, 1.f);
}
