// The loss for a block of logits, and the optimizer.

// Largest value m, sum of e^(z - m) and sum of e^(z - m) (z - m) of a set of logits.
struct Summary {
    float peak, mass, moment;
};

DEVICE Summary merge(Summary a, Summary b) {
    float peak = fmaxf(a.peak, b.peak);
    if (peak == -INFINITE) return {peak, 0.f, 0.f};
    // An empty set has peak -inf and nothing to rescale.
    float da = a.mass > 0.f ? a.peak - peak : 0.f, db = b.mass > 0.f ? b.peak - peak : 0.f;
    float ea = expf(da), eb = expf(db);
    return {peak, a.mass * ea + b.mass * eb,
            ea * (a.moment + da * a.mass) + eb * (b.moment + db * b.mass)};
}

DEVICE Summary block_merge(Summary s) {
    __shared__ Summary parts[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        Summary other = {__shfl_xor_sync(0xffffffffu, s.peak, o), __shfl_xor_sync(0xffffffffu, s.mass, o),
                         __shfl_xor_sync(0xffffffffu, s.moment, o)};
        s = merge(s, other);
    }
    if (lane == 0) parts[warp] = s;
    __syncthreads();
    s = lane < warps ? parts[lane] : Summary{-INFINITE, 0.f, 0.f};
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        Summary other = {__shfl_xor_sync(0xffffffffu, s.peak, o), __shfl_xor_sync(0xffffffffu, s.mass, o),
                         __shfl_xor_sync(0xffffffffu, s.moment, o)};
        s = merge(s, other);
    }
    return s;
}

// Returns the summary of a row of logits to every thread. If there is a NaN, mass or moment is NaN.
DEVICE Summary summarise(const T* z, int vocabulary, bool wide) {
    Summary s = {-INFINITE, 0.f, 0.f};
    for (int c = threadIdx.x * 8; c < vocabulary; c += blockDim.x * 8) {
        float v[8];
        int n = min(8, vocabulary - c);
        get8(z + c, n, wide, v);
        Summary own = {v[0], 0.f, 0.f};
#pragma unroll
        for (int j = 1; j < 8; j++)
            if (j < n) own.peak = fmaxf(own.peak, v[j]);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (j < n) {
                float below = v[j] - own.peak, e = expf(below);
                own.mass += e;
                own.moment += e * below;
            }
        }
        s = merge(s, own);
    }
    return block_merge(s);
}

struct RowLoss {
    float ratio_low, ratio_high, entropy_bonus, kl_penalty;
    int ratio, backward;
};

// Computes, with one block per row, the log-probability of the target, the entropy, and with `backward` the gradient,
// which replaces the logits: a (p_j - [j = target]) + e p_j (ln p_j + H).
extern "C" __global__ void loss_rows(T* logits, int vocabulary, RowLoss loss, const u32* targets,
                                     const float* weight, const float* norm, const float* old,
                                     const float* reference, float* log_prob, float* entropy) {
    int row = blockIdx.x;
    T* z = logits + (u64)row * vocabulary;
    bool wide = wide_rows(logits, vocabulary);
    u32 target = targets[row];
    float target_logit = to_f(z[target]);
    Summary s = summarise(z, vocabulary, wide);
    float log_mass = logf(s.mass), lp = target_logit - s.peak - log_mass;
    float h = fmaxf(log_mass - s.moment / s.mass, 0.f);
    if (threadIdx.x == 0) {
        log_prob[row] = lp;
        // fmaxf drops a NaN; the row's log-probability keeps it.
        entropy[row] = h;
    }
    if (!loss.backward) return;
    float ratio = loss.ratio ? fminf(fmaxf(expf(lp - old[row]), loss.ratio_low), loss.ratio_high) : 1.f;
    float a = weight[row] * ratio;
    if (loss.kl_penalty != 0.f) a -= loss.kl_penalty * norm[row] * (1.f - expf(reference[row] - lp));
    float bonus = loss.entropy_bonus * norm[row], lse = s.peak + log_mass;
    // Every thread must have read the target's logit before gradients overwrite it.
    __syncthreads();
    for (int c = threadIdx.x * 8; c < vocabulary; c += blockDim.x * 8) {
        float v[8];
        int n = min(8, vocabulary - c);
        get8(z + c, n, wide, v);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float log_p = v[j] - lse, p = expf(log_p);
            v[j] = p * a;
            if (bonus != 0.f) v[j] += bonus * p * (log_p + h);
            if (c + j == target) v[j] -= a;
        }
        put8(z + c, n, wide, v);
    }
}

// partial[block] = sum of squares of the block's share, f64
extern "C" __global__ void sum_of_squares(const float* grad, u64 n, double* partial) {
    __shared__ double parts[8];
    double sum = 0.0;
    u64 stride = (u64)gridDim.x * 256 * 4;
    for (u64 i = ((u64)blockIdx.x * 256 + threadIdx.x) * 4; i < n; i += stride) {
        if (i + 4 <= n) {
            float4 g = *(const float4*)(grad + i);
            sum += (double)(g.x * g.x + g.y * g.y) + (double)(g.z * g.z + g.w * g.w);
        } else {
            for (u64 j = i; j < n; j++) sum += (double)grad[j] * grad[j];
        }
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; w++) sum += parts[w];
        partial[blockIdx.x] = sum;
    }
}

// to += from
extern "C" __global__ void accumulate(const float* from, float* to, u64 n) {
    u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i >= n) return;
    // Shares start and end at multiples of four elements.
    float4 a = *(const float4*)(from + i), b = *(float4*)(to + i);
    *(float4*)(to + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

struct Adam {
    float step, inverse_root, keep, beta1, beta2, rest1, rest2, eps, scale;
};

// Master weights as in master_weights.rs: the bits of the bfloat16 weight, shifted left by 16, plus a signed
// remainder of 16 bits.
DEVICE float join(u32 weight, u32 remainder) {
    return __uint_as_float((weight << 16) + (u32)(int)(short)remainder);
}

// Returns the bits of a master weight, without the payload of a NaN; the lower half is the remainder.
DEVICE u32 master_bits(float master) { return master != master ? 0x7fc00000u : __float_as_uint(master); }

// Returns the weight of a master, with ties rounded away from zero.
DEVICE u32 weight_of(u32 bits) { return (bits + 0x8000u) >> 16; }

extern "C" __global__ void split_masters(const float* from, u16* weights, u16* remainder, u64 n) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 bits = master_bits(from[i]);
    weights[i] = (u16)weight_of(bits);
    remainder[i] = (u16)bits;
}

extern "C" __global__ void join_masters(const u16* weights, const u16* remainder, float* to, u64 n) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = join(weights[i], remainder[i]);
}

// Applies one Adam update to n parameters, four per thread; also zeroes gradients if requested. If parameters are
// bfloat16, they and their remainders form the f32 master weights that are updated.
extern "C" __global__ void adam(Adam a, T* params, u16* remainder, float* grad, float* m, float* v, u64 n,
                                int zero) {
    u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (i + j >= n) return;
        u64 k = i + j;
        float x = grad[k] * a.scale;
        float first = a.beta1 * m[k] + a.rest1 * x;
        float second = a.beta2 * v[k] + a.rest2 * x * x;
#if BF16
        float p = join(params[k].bits, remainder[k]);
#else
        float p = params[k];
#endif
        p = p * a.keep - a.step * first / (sqrtf(second) * a.inverse_root + a.eps);
        m[k] = first;
        v[k] = second;
        if (zero) grad[k] = 0.f;
#if BF16
        u32 bits = master_bits(p);
        params[k].bits = (u16)weight_of(bits);
        remainder[k] = (u16)bits;
#else
        params[k] = p;
#endif
    }
}

// Does the same for aligned groups of four.
extern "C" __global__ void adam_wide(Adam a, T* params, u16* remainder, float* grad, float* m, float* v, u64 n,
                                int zero) {
    u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i >= n) return;
    float4 g = *(float4*)(grad + i), first = *(float4*)(m + i), second = *(float4*)(v + i);
#if BF16
    uint2 w = *(uint2*)(params + i), r = *(uint2*)(remainder + i);
    float4 p = make_float4(join(w.x, r.x), join(w.x >> 16, r.x >> 16), join(w.y, r.y), join(w.y >> 16, r.y >> 16));
#else
    float4 p = *(float4*)(params + i);
#endif
    float *gs = &g.x, *fs = &first.x, *ss = &second.x, *ps = &p.x;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float x = gs[j] * a.scale;
        fs[j] = a.beta1 * fs[j] + a.rest1 * x;
        ss[j] = a.beta2 * ss[j] + a.rest2 * x * x;
        ps[j] = ps[j] * a.keep - a.step * fs[j] / (sqrtf(ss[j]) * a.inverse_root + a.eps);
    }
    *(float4*)(m + i) = first;
    *(float4*)(v + i) = second;
    if (zero) *(float4*)(grad + i) = make_float4(0.f, 0.f, 0.f, 0.f);
#if BF16
    u32 b[4];
#pragma unroll
    for (int j = 0; j < 4; j++) b[j] = master_bits(ps[j]);
    *(uint2*)(params + i) = make_uint2(weight_of(b[0]) | weight_of(b[1]) << 16, weight_of(b[2]) | weight_of(b[3]) << 16);
    *(uint2*)(remainder + i) = make_uint2((b[0] & 0xffffu) | b[1] << 16, (b[2] & 0xffffu) | b[3] << 16);
#else
    *(float4*)(params + i) = p;
#endif
}
