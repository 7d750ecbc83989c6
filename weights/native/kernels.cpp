// Matrix products that read every weight once, as fast as memory gives it, and the blocks of a decoder around them, so
// that a token costs no more than its bytes and a prompt no more than its multiplications.
//
// In fp32, with weights in fp32 or eight bits. Compiled for the machine it runs on (-march=native). Functions take
// plain pointers: no headers of torch are needed, and none of its versions is. Threads come from the OpenMP runtime
// that torch has already loaded.

#include "products.h"

// ---- The parts between them -------------------------------------------------------------------------------------

template <class X, class Y>
static void rms_norm(const X *x, const float *gain, float eps, int64_t C, Y *y) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; c++) squares += (float)x[c] * (float)x[c];
    float factor = 1 / sqrtf(squares / C + eps);
    for (int64_t c = 0; c < C; c++) y[c] = x[c] * factor * gain[c];
}

// Turns pair (i, i + half) of one head by its angle.
static void rotate(float *head, const float *cos, const float *sin, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cos[i] - b * sin[i];
        head[i + half] = b * cos[i] + a * sin[i];
    }
}

// e^x for x <= 0: a power of two times a polynomial for what is left of x, good to the last bits.
static inline Floats exponential(Floats x) {
    x = x < -87.0f ? (Floats){} - 87.0f : x;  // below that nothing is left
    Ints n = __builtin_convertvector(x * 1.44269504f - 0.5f, Ints);  // cut off towards zero, so rounded
    Floats whole = __builtin_convertvector(n, Floats);
    Floats r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    Floats p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (Floats)((n + 127) << 23);
}

enum Activation { SILU, GELU_TANH, GELU, RELU };

// y = activation(gate) * up
template <class X>
static void gate(const X *gates, const X *ups, int64_t F, int32_t activation, X *y) {
    int64_t f = 0;
    for (; activation == SILU && f + WIDTH <= F; f += WIDTH) {
        Floats x = load(gates + f), e = exponential(x < 0 ? x : -x);  // of minus the distance from zero
        store(y + f, x * (x < 0 ? e : (Floats){} + 1) / (1 + e) * load(ups + f));
    }
    for (; f < F; f++) {
        float x = gates[f];
        switch (activation) {
            case SILU: x = x / (1 + expf(-x)); break;
            case GELU_TANH: x = 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); break;
            case GELU: x = 0.5f * x * (1 + erff(x * 0.7071067812f)); break;
            case RELU: x = x > 0 ? x : 0;
        }
        y[f] = x * ups[f];
    }
}

constexpr int64_t SPAN = 256;  // keys taken at once: with their values they stay in the cache of one core

// ---- Attention --------------------------------------------------------------------------------------------------

// The scores of Q queries and KEYS keys: every number that is loaded meets several others.
template <int Q, int KEYS>
static inline void scores_of(const float *q, const float *k, int64_t D, float scale, float (*scores)[SPAN + WIDTH]) {
    Floats acc[Q][KEYS] = {};
    for (int64_t d = 0; d < D; d += WIDTH)
        for (int j = 0; j < KEYS; j++)
            for (int i = 0; i < Q; i++) acc[i][j] += load(q + i * D + d) * load(k + j * D + d);
    for (int i = 0; i < Q; i++)
        for (int j = 0; j < KEYS; j++) scores[i][j] = sum(acc[i][j]) * scale;
}

// For Q queries and U registers of the values' width: y times `shrink`, plus the values of all keys by their weights.
template <int Q, int U>
static inline void add_values(const float (*weights)[SPAN + WIDTH], const float *v, int64_t keys, int64_t D,
                              const float *shrink, float *y) {
    Floats acc[Q][U];
    for (int i = 0; i < Q; i++)
        for (int u = 0; u < U; u++) acc[i][u] = shrink[i] * load(y + i * D + u * WIDTH);
    for (int64_t j = 0; j < keys; j++)
        for (int u = 0; u < U; u++)
            for (int i = 0; i < Q; i++) acc[i][u] += weights[i][j] * load(v + j * D + u * WIDTH);
    for (int i = 0; i < Q; i++)
        for (int u = 0; u < U; u++) store(y + i * D + u * WIDTH, acc[i][u]);
}

// What a softmax over scores comes to before the division: the largest score, and the sum of all e^(score - largest).
struct Softmax {
    float largest = -1e30f, total = 0;

    // Takes in more scores, which become such factors; gives what earlier ones must be multiplied with.
    float add(float *scores, int64_t count) {
        float before = largest;
        for (int64_t j = 0; j < count; j++)
            if (!(scores[j] <= largest)) largest = scores[j];  // so that a NaN is not passed over
        std::fill(scores + count, scores + count + WIDTH, -1e30f);  // fills up the last register, counts nothing
        Floats sums = {};
        for (int64_t j = 0; j < count; j += WIDTH) {
            Floats factors = exponential(load(scores + j) - largest);
            store(scores + j, factors);
            sums += factors;
        }
        float shrink = expf(before - largest);
        total = total * shrink + sum(sums);
        return shrink;
    }
};

// Q heads of one token over keys that they share, SPAN at a time. y (Q, D) becomes the sum of the values by their
// factors.
template <int Q>
static void attend(const float *q, const float *k, const float *v, int64_t keys, int64_t D, float scale, float *y,
                   Softmax *softmax) {
    float weights[Q][SPAN + WIDTH], shrink[Q];
    std::fill(y, y + Q * D, 0.0f);
    for (; keys > 0; keys -= SPAN, k += SPAN * D, v += SPAN * D) {
        int64_t count = std::min(keys, SPAN), j = 0, d = 0;
        for (; j + 4 <= count; j += 4) {
            // Memory sends the values while the keys are worked on.
            for (int64_t i = 0; i < 4 * D; i += LINE / 4) __builtin_prefetch(v + j * D + i);
            scores_of<Q, 4>(q, k + j * D, D, scale, (float(*)[SPAN + WIDTH])(weights[0] + j));
        }
        for (; j < count; j++) scores_of<Q, 1>(q, k + j * D, D, scale, (float(*)[SPAN + WIDTH])(weights[0] + j));
        for (int i = 0; i < Q; i++) shrink[i] = softmax[i].add(weights[i], count);
        for (; d + 4 * WIDTH <= D; d += 4 * WIDTH) add_values<Q, 4>(weights, v + d, count, D, shrink, y + d);
        for (; d < D; d += WIDTH) add_values<Q, 1>(weights, v + d, count, D, shrink, y + d);
    }
}

// As many heads as share the keys, up to three at once: that many sums fit into the registers.
static void attend_together(int64_t heads, const float *q, const float *k, const float *v, int64_t keys, int64_t D,
                            float scale, float *y, Softmax *softmax) {
    for (; heads > 0; heads -= 3, q += 3 * D, y += 3 * D, softmax += 3) {
        std::fill(softmax, softmax + std::min<int64_t>(heads, 3), Softmax());
        if (heads == 1) attend<1>(q, k, v, keys, D, scale, y, softmax);
        else if (heads == 2) attend<2>(q, k, v, keys, D, scale, y, softmax);
        else attend<3>(q, k, v, keys, D, scale, y, softmax);
    }
}

// The parts of one query put together, as if the softmax had been taken over all keys at once.
static void join(const float *parts, const Softmax *softmax, int64_t count, int64_t stride, int64_t D, float *y) {
    float peak = softmax[0].largest, total = 0;
    for (int64_t i = 1; i < count; i++)
        if (!(softmax[i * stride].largest <= peak)) peak = softmax[i * stride].largest;
    std::fill(y, y + D, 0.0f);
    for (int64_t i = 0; i < count; i++) {
        float factor = expf(softmax[i * stride].largest - peak);
        total += factor * softmax[i * stride].total;
        for (int64_t d = 0; d < D; d++) y[d] += factor * parts[i * stride * D + d];
    }
    for (int64_t d = 0; d < D; d++) y[d] /= total;
}

// ---- A block: x + attention(norm(x)), then x + mlp(norm(x)) ----------------------------------------------------

struct Block {
    Matrix qkv, out, gate_up, down;
    const float *attention_gain, *mlp_gain, *q_gain, *k_gain;  // the last two may be absent
    int64_t C, H, K, D, F;
    int64_t half;  // of the rotated numbers of a head; 0 if there are none
    float eps, scale;
    int32_t activation;
};

// M tokens that join a cache: token m is the (m % T)-th new one of row m / T and goes into slot slots[m]; it reads that
// slot and all before it, in as many parts as `parts` says, each but the last of `part` keys. Keys and values of each
// layer are (rows, K heads, capacity, D).
struct Pass {
    float *const *keys, *const *values;
    int64_t row_stride, head_stride, M, T, parts, part;
    const int64_t *slots;
    const float *cos, *sin;  // (angles, half): one for each token, or one for all
    int64_t angles;
};

static int64_t room_size(const Block &b, const Pass &c) {
    return c.M * (b.C + 2 * (b.H + b.K) * b.D + 3 * b.F + b.H * c.parts * (b.D + 2));
}

// Called by all threads of a team. x (M, C) becomes the block's output.
static void block(const Block &b, const Pass &c, int64_t layer, float *x, float *room, const Rounded &rounded) {
    int64_t M = c.M, group = b.H / b.K, heads = b.H + 2 * b.K;
    float *h = room, *qkv = h + M * b.C, *read = qkv + M * heads * b.D, *both = read + M * b.H * b.D;
    float *inner = both + 2 * M * b.F, *parts = inner + M * b.F;
    Softmax *softmax = (Softmax *)(parts + M * b.H * c.parts * b.D);
    float *keys = c.keys[layer], *values = c.values[layer];
#pragma omp for
    for (int64_t m = 0; m < M; m++) rms_norm(x + m * b.C, b.attention_gain, b.eps, b.C, h + m * b.C);
    product(b.qkv, h, M, qkv, false, rounded);
#pragma omp for
    for (int64_t i = 0; i < M * heads; i++) {
        int64_t m = i / heads, n = i % heads;  // heads of queries first, then of keys, then of values
        float *head = qkv + i * b.D;
        const float *gain = n < b.H ? b.q_gain : n < b.H + b.K ? b.k_gain : nullptr;
        if (gain) rms_norm(head, gain, b.eps, b.D, head);
        if (n < b.H + b.K && b.half) rotate(head, c.cos + m % c.angles * b.half, c.sin + m % c.angles * b.half, b.half);
        if (n >= b.H) {
            float *memory = n < b.H + b.K ? keys : values;
            int64_t at = m / c.T * c.row_stride + (n - b.H) % b.K * c.head_stride + c.slots[m] * b.D;
            std::copy(head, head + b.D, memory + at);
        }
    }
    // A part of the keys is read by all queries that share it before the next one is.
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < M * b.K * c.parts; i++) {
        int64_t part = i % c.parts, m = i / c.parts % M, kv = i / c.parts / M, first = part * c.part;
        int64_t count = c.slots[m] + 1 - first;
        if (part + 1 < c.parts) count = std::min(count, c.part);
        int64_t at = m / c.T * c.row_stride + kv * c.head_stride + first * b.D;
        int64_t item = (m * c.parts + part) * b.H + kv * group;
        if (count > 0)
            attend_together(group, qkv + (m * heads + kv * group) * b.D, keys + at, values + at, count, b.D, b.scale,
                            parts + item * b.D, softmax + item);
    }
#pragma omp for
    for (int64_t i = 0; i < M * b.H; i++) {
        int64_t m = i / b.H, item = m * c.parts * b.H + i % b.H, used = std::min(c.parts, c.slots[m] / c.part + 1);
        join(parts + item * b.D, softmax + item, used, b.H, b.D, read + i * b.D);
    }
    product(b.out, read, M, x, true, rounded);
#pragma omp for
    for (int64_t m = 0; m < M; m++) rms_norm(x + m * b.C, b.mlp_gain, b.eps, b.C, h + m * b.C);
    product(b.gate_up, h, M, both, false, rounded);
#pragma omp for
    for (int64_t m = 0; m < M; m++)
        gate(both + 2 * m * b.F, both + (2 * m + 1) * b.F, b.F, b.activation, inner + m * b.F);
    product(b.down, inner, M, x, true, rounded);
}

extern "C" {

// y (M, N) = w · x (M, K)
void tfm_linear(const Matrix *w, const float *x, float *y, int64_t M, int threads) {
    static thread_local Room room;
    Rounded rounded(room, M, w->K);
#pragma omp parallel num_threads(threads)
    product(*w, x, M, y, false, rounded);
}

// x (M, C) goes through all blocks.
void tfm_blocks(const Block *b, int64_t layers, const Pass *pass, float *x, int threads) {
    static thread_local Room room, wide;
    float *between = wide.of(room_size(b[0], *pass));
    Rounded rounded(room, pass->M, std::max({b->C, b->H * b->D, b->F}));
#pragma omp parallel num_threads(threads)
    for (int64_t layer = 0; layer < layers; layer++) block(b[layer], *pass, layer, x, between, rounded);
}

}  // extern "C"

#include "training.h"
