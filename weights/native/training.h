// What a block does between its matrix products when it is trained, there and back. Part of kernels.cpp.
//
// Each function is given whole tensors and divides them among threads in the same way whatever their number, so that a
// run can be repeated to the last bit.
#pragma once

constexpr int64_t QUERIES = 64;  // whose scores are held at once
constexpr int64_t PIECES = 64;   // into which rows are divided where something is added up over all of them

// C (M, N) = factor · A (M, K) · B (K, N), added to what C holds if `add`. Neighbours in a column are `…_row` apart;
// a transposed A or B is stored as (K, M) or (N, K).
static void multiply(bool a_transposed, bool b_transposed, int64_t M, int64_t N, int64_t K, float factor, const float *A,
                     int64_t A_row, const float *B, int64_t B_row, bool add, float *C, int64_t C_row) {
    int m = M, n = N, k = K, a_row = A_row, b_row = B_row, c_row = C_row;
    float keep = add;
    // sgemm counts by columns, so to it everything is transposed.
    tfm_sgemm(b_transposed ? "T" : "N", a_transposed ? "T" : "N", &n, &m, &k, &factor, B, &b_row, A, &a_row, &keep, C,
              &c_row);
}

// slope · d rms_norm(x) / dx, and what it means for the gain added to `gain_slope`.
template <class X, class Slope, class XSlope>
static void rms_norm_back(const X *x, const float *gain, float eps, int64_t C, const Slope *slope, XSlope *x_slope,
                          float *gain_slope) {
    float squares = 0, along = 0;
#pragma omp simd reduction(+ : squares, along)
    for (int64_t c = 0; c < C; c++) squares += (float)x[c] * (float)x[c], along += slope[c] * gain[c] * x[c];
    float factor = 1 / sqrtf(squares / C + eps), less = along * factor * factor / C;
    for (int64_t c = 0; c < C; c++) {
        float s = slope[c];
        gain_slope[c] += s * x[c] * factor;
        x_slope[c] = factor * (s * gain[c] - x[c] * less);
    }
}

static float dot(const float *a, const float *b, int64_t n) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; i++) total += a[i] * b[i];
    return total;
}

// Rows of D numbers, `x_row` and `y_row` apart, to where and how they are needed.
template <class X, class Y>
static void copy_rows(const X *x, int64_t x_row, int64_t rows, int64_t D, Y *y, int64_t y_row) {
    for (int64_t i = 0; i < rows; i++, x += x_row, y += y_row)
        for (int64_t d = 0; d < D; d++) y[d] = (float)x[d];
}

// ---- Attention --------------------------------------------------------------------------------------------------

// How to read qkv (B, T, H + 2K heads of D): queries, keys and values as one projection leaves them. Queries and keys
// are normed where there are gains, turned where `half` is not 0; then each token reads itself and all before it.
struct Heads {
    const float *q_gain, *k_gain, *cos, *sin;  // (D), (D), (T, half), (T, half)
    int64_t B, T, H, K, D, half;
    float eps, scale;

    int64_t row() const { return (H + 2 * K) * D; }
    int64_t held() const { return T + WIDTH; }  // scores of one query
    float *room() const {                       // for six heads, two blocks of queries and two of scores
        static thread_local Room kept;
        return kept.of(6 * T * D + 2 * QUERIES * D + 2 * QUERIES * held());
    }
};

// One head of all tokens (T, D), normed and turned.
template <class X>
static void prepare(const Heads &a, const X *x, const float *gain, float *y) {
    for (int64_t t = 0; t < a.T; t++, x += a.row(), y += a.D) {
        if (gain) rms_norm(x, gain, a.eps, a.D, y);
        else copy_rows(x, 0, 1, a.D, y, 0);
        rotate(y, a.cos + t * a.half, a.sin + t * a.half, a.half);
    }
}

// The way back. `slope` (T, D) is used up.
template <class X>
static void prepare_back(const Heads &a, const X *x, const float *gain, float *slope, X *x_slope, float *gain_slope) {
    for (int64_t t = 0; t < a.T; t++, x += a.row(), slope += a.D, x_slope += a.row()) {
        const float *cos = a.cos + t * a.half, *sin = a.sin + t * a.half;
        for (int64_t i = 0; i < a.half; i++) {
            float c = slope[i], d = slope[i + a.half];
            slope[i] = c * cos[i] + d * sin[i];
            slope[i + a.half] = d * cos[i] - c * sin[i];
        }
        if (gain) rms_norm_back(x, gain, a.eps, a.D, slope, x_slope, gain_slope);
        else copy_rows(slope, 0, 1, a.D, x_slope, 0);
    }
}

// The query heads that share keys and values `kv` of sequence b. y (B, T, H, D); logs (B, T, H) are the logarithms of
// what the softmax divides by.
template <class X>
static void attend_sequence(const Heads &a, int64_t b, int64_t kv, const X *qkv, X *y, float *logs) {
    const X *x = qkv + b * a.T * a.row();
    int64_t size = a.T * a.D;
    float *k = a.room(), *v = k + size, *q = v + size, *out = q + size, *scores = out + QUERIES * a.D;
    prepare(a, x + (a.H + kv) * a.D, a.k_gain, k);
    copy_rows(x + (a.H + a.K + kv) * a.D, a.row(), a.T, a.D, v, a.D);
    for (int64_t h = kv * (a.H / a.K); h < (kv + 1) * (a.H / a.K); h++) {
        prepare(a, x + h * a.D, a.q_gain, q);
        for (int64_t first = 0; first < a.T; first += QUERIES) {
            int64_t rows = std::min(QUERIES, a.T - first), keys = first + rows, at = (b * a.T + first) * a.H + h;
            float totals[QUERIES];
            multiply(false, true, rows, keys, a.D, a.scale, q + first * a.D, a.D, k, a.D, false, scores, a.held());
            for (int64_t i = 0; i < rows; i++) {
                float *row = scores + i * a.held();
                Softmax softmax;
                softmax.add(row, first + i + 1);
                std::fill(row + first + i + 1, row + keys, 0.0f);
                totals[i] = softmax.total;
                logs[at + i * a.H] = softmax.largest + logf(softmax.total);
            }
            multiply(false, false, rows, a.D, keys, 1, scores, a.held(), v, a.D, false, out, a.D);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t d = 0; d < a.D; d++) y[(at + i * a.H) * a.D + d] = out[i * a.D + d] / totals[i];
        }
    }
}

// The way back: y_slope (B, T, H, D) -> qkv_slope, and of the gains q_slope (D) and k_slope (D).
template <class X>
static void attend_sequence_back(const Heads &a, int64_t b, int64_t kv, const X *qkv, const X *y, const float *logs,
                                 const X *y_slope, X *qkv_slope, float *q_slope, float *k_slope) {
    int64_t begin = b * a.T * a.row(), key = (a.H + kv) * a.D, value = key + a.K * a.D, size = a.T * a.D;
    const X *x = qkv + begin;
    X *x_slope = qkv_slope + begin;
    float *k = a.room(), *v = k + size, *q = v + size, *dk = q + size, *dv = dk + size, *dq = dv + size;
    float *read = dq + size, *dy = read + QUERIES * a.D;
    float *weights = dy + QUERIES * a.D, *slopes = weights + QUERIES * a.held();
    prepare(a, x + key, a.k_gain, k);
    copy_rows(x + value, a.row(), a.T, a.D, v, a.D);
    std::fill_n(dk, 2 * size, 0.0f);
    for (int64_t h = kv * (a.H / a.K); h < (kv + 1) * (a.H / a.K); h++) {
        prepare(a, x + h * a.D, a.q_gain, q);
        for (int64_t first = 0; first < a.T; first += QUERIES) {
            int64_t rows = std::min(QUERIES, a.T - first), keys = first + rows, at = (b * a.T + first) * a.H + h;
            copy_rows(y + at * a.D, a.H * a.D, rows, a.D, read, a.D);
            copy_rows(y_slope + at * a.D, a.H * a.D, rows, a.D, dy, a.D);
            multiply(false, true, rows, keys, a.D, a.scale, q + first * a.D, a.D, k, a.D, false, weights, a.held());
            multiply(false, true, rows, keys, a.D, 1, dy, a.D, v, a.D, false, slopes, a.held());
            for (int64_t i = 0; i < rows; i++) {
                float *weight = weights + i * a.held(), *slope = slopes + i * a.held(), log = logs[at + i * a.H];
                float mean = dot(dy + i * a.D, read + i * a.D, a.D);
                int64_t count = first + i + 1;
                for (int64_t j = 0; j < count; j += WIDTH) {
                    Floats w = exponential(load(weight + j) - log);
                    store(weight + j, w);
                    store(slope + j, w * (load(slope + j) - mean));
                }
                std::fill(weight + count, weight + keys, 0.0f);
                std::fill(slope + count, slope + keys, 0.0f);
            }
            multiply(true, false, keys, a.D, rows, 1, weights, a.held(), dy, a.D, true, dv, a.D);
            multiply(false, false, rows, a.D, keys, a.scale, slopes, a.held(), k, a.D, false, dq + first * a.D, a.D);
            multiply(true, false, keys, a.D, rows, a.scale, slopes, a.held(), q + first * a.D, a.D, true, dk, a.D);
        }
        prepare_back(a, x + h * a.D, a.q_gain, dq, x_slope + h * a.D, q_slope);
    }
    prepare_back(a, x + key, a.k_gain, dk, x_slope + key, k_slope);
    copy_rows(dv, a.D, a.T, a.D, x_slope + value, a.row());
}

// ---- The gated MLP ----------------------------------------------------------------------------------------------

// Back through silu(gate) · up: gates and ups come in and their slopes go out as halves of rows (2F).
template <class X>
static void gate_back(const X *both, const X *slope, int64_t F, X *both_slope) {
    int64_t f = 0;
    for (; f + WIDTH <= F; f += WIDTH) {
        Floats x = load(both + f), up = load(both + F + f), s = load(slope + f);
        Floats e = exponential(x < 0 ? x : -x), share = (x < 0 ? e : (Floats){} + 1) / (1 + e);  // the sigmoid of x
        store(both_slope + f, s * up * share * (1 + x * (1 - share)));
        store(both_slope + F + f, s * x * share);
    }
    for (; f < F; f++) {
        float x = both[f], share = 1 / (1 + expf(-x));
        both_slope[f] = slope[f] * both[F + f] * share * (1 + x * (1 - share));
        both_slope[F + f] = slope[f] * x * share;
    }
}

// ---- The loss ---------------------------------------------------------------------------------------------------

// The logarithm of the sum of all e^logit.
template <class X>
static float log_sum(const X *logits, int64_t V) {
    Floats peaks = (Floats){} - INFINITY, sums = {};
    int64_t j = 0;
    for (; j + WIDTH <= V; j += WIDTH) {
        Floats x = load(logits + j);
        peaks = x > peaks ? x : peaks;
    }
    float peak = -INFINITY, total = 0;
    for (int i = 0; i < WIDTH; i++) peak = std::max(peak, peaks[i]);
    for (int64_t i = j; i < V; i++) peak = std::max(peak, (float)logits[i]);
    for (int64_t i = 0; i + WIDTH <= V; i += WIDTH) sums += exponential(load(logits + i) - peak);
    for (; j < V; j++) total += expf(logits[j] - peak);
    return peak + logf(total + sum(sums));
}

// factor · (the predicted probabilities, less one where the target is).
template <class X>
static void probabilities_less_one(const X *logits, float log, int64_t target, float factor, int64_t V, X *slope) {
    int64_t j = 0;
    for (; j + WIDTH <= V; j += WIDTH) store(slope + j, factor * exponential(load(logits + j) - log));
    for (; j < V; j++) slope[j] = factor * expf(logits[j] - log);
    slope[target] = factor * (expf(logits[target] - log) - 1);
}

constexpr float STEP = 5.0f / 64;  // as in transformer/lessons.py

// A logit of a teacher's as it is kept: steps below certainty.
struct Noted {
    uint8_t steps;

    operator float() const { return steps * -STEP; }
};

static inline Floats load(const Noted *p) {
    typedef uint8_t Bytes __attribute__((vector_size(WIDTH)));
    Bytes bytes;
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, Ints), Floats) * -STEP;
}

// What a row (V) of logits is on average, by the probabilities of another row whose log-sum is given.
template <class X, class Y>
static float mean_by(const X *logits, const Y *other, float log, int64_t V) {
    Floats sums = {};
    float total = 0;
    int64_t j = 0;
    for (; j + WIDTH <= V; j += WIDTH) sums += exponential(load(other + j) - log) * load(logits + j);
    for (; j < V; j++) total += expf(other[j] - log) * logits[j];
    return total + sum(sums);
}

// factor · (the predicted probabilities, less `voice` times another's, less the rest of one where the target is).
template <class X, class Y>
static void probabilities_less_told(const X *logits, float log, const Y *other, float other_log, float voice,
                                    int64_t target, float factor, int64_t V, X *slope) {
    int64_t j = 0;
    for (; j + WIDTH <= V; j += WIDTH)
        store(slope + j, factor * (exponential(load(logits + j) - log) - voice * exponential(load(other + j) - other_log)));
    for (; j < V; j++) slope[j] = factor * (expf(logits[j] - log) - voice * expf(other[j] - other_log));
    float there = expf(logits[target] - log) - voice * expf(other[target] - other_log);
    slope[target] = factor * (there - (1 - voice));
}

// ---- What is called ---------------------------------------------------------------------------------------------

template <class X>
static void attend_all(const Heads *heads, const X *qkv, X *y, float *logs, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < heads->B * heads->K; i++)
        attend_sequence(*heads, i / heads->K, i % heads->K, qkv, y, logs);
}

// The gains' slopes come as (B, K, 2, D), to be added up: of queries and of keys.
template <class X>
static void attend_all_back(const Heads *heads, const X *qkv, const X *y, const float *logs, const X *y_slope,
                            X *qkv_slope, float *gain_slopes, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < heads->B * heads->K; i++) {
        float *slopes = gain_slopes + 2 * i * heads->D;
        attend_sequence_back(*heads, i / heads->K, i % heads->K, qkv, y, logs, y_slope, qkv_slope, slopes,
                             slopes + heads->D);
    }
}

// both (M, 2F) -> y (M, F)
template <class X>
static void gates(const X *both, int64_t M, int64_t F, X *y, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) gate(both + 2 * m * F, both + (2 * m + 1) * F, F, SILU, y + m * F);
}

template <class X>
static void gates_back(const X *both, const X *slope, int64_t M, int64_t F, X *both_slope, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) gate_back(both + 2 * m * F, slope + m * F, F, both_slope + 2 * m * F);
}

// logits (M, V) -> logs (M)
template <class X>
static void log_sums(const X *logits, int64_t M, int64_t V, float *logs, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) logs[m] = log_sum(logits + m * V, V);
}

// A target below 0 is none.
template <class X>
static void cross_entropy_back(const X *logits, const float *logs, const int64_t *targets, float factor, int64_t M,
                               int64_t V, X *slopes, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) {
        if (targets[m] < 0) std::fill_n(slopes + m * V, V, 0.0f);
        else probabilities_less_one(logits + m * V, logs[m], targets[m], factor, V, slopes + m * V);
    }
}

// logits and a teacher's (M, V) -> the teacher's logs (M), and what the logits are on average by its word (M)
template <class X, class Y>
static void told(const X *logits, const Y *teacher, int64_t M, int64_t V, float *teacher_logs, float *means, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) {
        teacher_logs[m] = log_sum(teacher + m * V, V);
        means[m] = mean_by(logits + m * V, teacher + m * V, teacher_logs[m], V);
    }
}

template <class X, class Y>
static void told_back(const X *logits, const float *logs, const Y *teacher, const float *teacher_logs, float voice,
                      const int64_t *targets, float factor, int64_t M, int64_t V, X *slopes, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) {
        if (targets[m] < 0) std::fill_n(slopes + m * V, V, 0.0f);
        else
            probabilities_less_told(logits + m * V, logs[m], teacher + m * V, teacher_logs[m], voice, targets[m], factor,
                                    V, slopes + m * V);
    }
}

// By a teacher's logits, and by what is kept of them.
#define TOLD(X, Y, kind, name)                                                                                       \
    void tfm_##kind##_##name(const X *logits, const Y *teacher, int64_t M, int64_t V, float *teacher_logs,           \
                             float *means, int threads) {                                                            \
        told(logits, teacher, M, V, teacher_logs, means, threads);                                                   \
    }                                                                                                                \
    void tfm_##kind##_back_##name(const X *logits, const float *logs, const Y *teacher, const float *teacher_logs,   \
                                  float voice, const int64_t *targets, float factor, int64_t M, int64_t V,           \
                                  X *slopes, int threads) {                                                          \
        told_back(logits, logs, teacher, teacher_logs, voice, targets, factor, M, V, slopes, threads);               \
    }

// Each of them for what products leave in one precision.
#define IN(X, name)                                                                                                  \
    void tfm_attend_##name(const Heads *heads, const X *qkv, X *y, float *logs, int threads) {                       \
        attend_all(heads, qkv, y, logs, threads);                                                                    \
    }                                                                                                                \
    void tfm_attend_back_##name(const Heads *heads, const X *qkv, const X *y, const float *logs, const X *y_slope,   \
                                X *qkv_slope, float *gain_slopes, int threads) {                                     \
        attend_all_back(heads, qkv, y, logs, y_slope, qkv_slope, gain_slopes, threads);                              \
    }                                                                                                                \
    void tfm_gate_##name(const X *both, int64_t M, int64_t F, X *y, int threads) { gates(both, M, F, y, threads); }  \
    void tfm_gate_back_##name(const X *both, const X *slope, int64_t M, int64_t F, X *both_slope, int threads) {     \
        gates_back(both, slope, M, F, both_slope, threads);                                                          \
    }                                                                                                                \
    void tfm_log_sum_##name(const X *logits, int64_t M, int64_t V, float *logs, int threads) {                       \
        log_sums(logits, M, V, logs, threads);                                                                       \
    }                                                                                                                \
    void tfm_cross_entropy_back_##name(const X *logits, const float *logs, const int64_t *targets, float factor,     \
                                       int64_t M, int64_t V, X *slopes, int threads) {                               \
        cross_entropy_back(logits, logs, targets, factor, M, V, slopes, threads);                                    \
    }                                                                                                                \
    TOLD(X, X, told, name)                                                                                           \
    TOLD(X, Noted, told_noted, name)

extern "C" {

IN(float, fp32)
IN(Bf16, bf16)

// x (M, C) -> y (M, C)
void tfm_rms_norm(const float *x, const float *gain, float eps, int64_t M, int64_t C, float *y, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) rms_norm(x + m * C, gain, eps, C, y + m * C);
}

// The gain's slopes come as (PIECES, C), to be added up.
void tfm_rms_norm_back(const float *x, const float *gain, float eps, int64_t M, int64_t C, const float *slope,
                       float *x_slope, float *gain_slopes, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t p = 0; p < PIECES; p++)
        for (int64_t m = M * p / PIECES; m < M * (p + 1) / PIECES; m++)
            rms_norm_back(x + m * C, gain, eps, C, slope + m * C, x_slope + m * C, gain_slopes + p * C);
}

// x (M, K) · ease (K), each row in 127 steps up and down -> codes (M, K) and the size of a step (M)
void tfm_to_codes(const float *x, const float *ease, int64_t M, int64_t K, int8_t *codes, float *steps, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++) {
        const float *row = x + m * K;
        float largest = 0;
#pragma omp simd reduction(max : largest)
        for (int64_t k = 0; k < K; k++) largest = std::max(largest, fabsf(row[k] * ease[k]));
        float factor = largest > 0 ? 127 / largest : 0;
        steps[m] = largest / 127;
        for (int64_t k = 0; k < K; k++) codes[m * K + k] = (int8_t)(int32_t)nearbyintf(row[k] * ease[k] * factor);
    }
}

// The sums (M, N) of products of codes, times the steps (M) of one side and the scales (N) of the other
void tfm_from_sums(const int32_t *sums, const float *steps, const float *scales, int64_t M, int64_t N, float *y,
                   int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) y[m * N + n] = sums[m * N + n] * (steps[m] * scales[n]);
}

}  // extern "C"
