// Products of matrices, in registers as wide as the machine has them. Part of kernels.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <omp.h>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int WIDTH = 16;  // numbers a register
constexpr int TALL = 8;    // rows of x whose sums fit into the registers, each two wide
#else
constexpr int WIDTH = 8;
constexpr int TALL = 6;
#endif
constexpr int WIDE = 2 * WIDTH;
constexpr int64_t FEW = 8;       // rows of x up to which a product is bound by reading weights
constexpr int64_t NEAR = 65536;  // numbers that stay in the cache of one core
constexpr int64_t DEEP = 320;    // pairs of numbers whose products are added up in whole numbers
constexpr int64_t AHEAD = 4096;  // bytes: how far memory is asked for before it is needed
constexpr int64_t LINE = 64;     // bytes that memory gives at once

typedef float Floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t Ints __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t Words __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t Halves __attribute__((vector_size(2 * WIDTH)));
typedef int32_t __attribute__((may_alias)) Bits;

static inline Floats load(const float *p) {
    Floats v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline Floats load(const int8_t *p) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined(__AVX2__)
    return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#else
    Floats v;
    for (int i = 0; i < WIDTH; i++) v[i] = p[i];
    return v;
#endif
}

static inline void store(float *p, Floats v) { memcpy(p, &v, sizeof v); }

// A number in sixteen bits: the upper half of a float, rounded to the nearest, of two the even one.
struct Bf16 {
    uint16_t bits;

    template <class Word>
    static Word rounded(Word word) {
        return (word + 0x7fff + (word >> 16 & 1)) >> 16;
    }
    Bf16() = default;
    Bf16(float x) {
        uint32_t word;
        memcpy(&word, &x, sizeof word);
        bits = rounded(word);
    }
    operator float() const {
        uint32_t word = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &word, sizeof x);
        return x;
    }
};

static inline Floats load(const Bf16 *p) {
    Halves halves;
    memcpy(&halves, p, sizeof halves);
    return (Floats)(__builtin_convertvector(halves, Words) << 16);
}

static inline void store(Bf16 *p, Floats v) {
    Halves halves = __builtin_convertvector(Bf16::rounded((Words)v), Halves);
    memcpy(p, &halves, sizeof halves);
}

// Sixteen bits at a time: the products of neighbours added up, (a0·b0 + a1·b1, a2·b2 + a3·b3, ...).
static inline Ints multiply_pairs(Ints a, Ints b) {
#if defined(__AVX512BW__)
    return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__) && !defined(__AVX512F__)
    return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

static inline float sum(Floats v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#elif defined(__AVX2__)
    __m128 s = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
#else
    float s = 0;
    for (int i = 0; i < WIDTH; i++) s += v[i];
    return s;
#endif
}

// ---- Products ---------------------------------------------------------------------------------------------------

// A matrix of N rows and K columns: numbers, or codes. A code stands for code · scale + offset, with one scale for each
// `group` of numbers in a row, and as many offsets or none.
struct Matrix {
    const float *numbers;
    const int8_t *codes;
    const float *scales, *offsets, *bias;
    int64_t N, K, group;

    bool row_by_row() const { return group == K && !offsets; }  // then a product can be scaled when it is done
    float finish(float product, int64_t n) const {
        return product * (codes && row_by_row() ? scales[n] : 1) + (bias ? bias[n] : 0);
    }
};

// The stretch of n things that is this thread's.
struct Share {
    int64_t first, last;
    explicit Share(int64_t n) {
        int64_t parts = omp_get_num_threads(), part = omp_get_thread_num();
        first = n * part / parts, last = n * (part + 1) / parts;
    }
};

// One row of weights against M rows of x. U registers a row keep several additions under way at once.
template <int M, typename Weight>
static void row_product(const float *x, const Weight *w, int64_t K, float *sums) {
    constexpr int U = M < 8 ? 8 / M : 1;
    constexpr int64_t step = U * WIDTH;
    Floats acc[M][U] = {};
    int64_t k = 0;
    for (; k + step <= K; k += step) {
        if (sizeof(Weight) == 1)  // wider ones come in time by themselves
            for (int64_t byte = 0; byte < step; byte += LINE) __builtin_prefetch((const char *)(w + k) + AHEAD + byte);
        for (int u = 0; u < U; u++) {
            Floats weights = load(w + k + u * WIDTH);
            for (int m = 0; m < M; m++) acc[m][u] += weights * load(x + m * K + k + u * WIDTH);
        }
    }
    for (; k + WIDTH <= K; k += WIDTH)
        for (int m = 0; m < M; m++) acc[m][0] += load(w + k) * load(x + m * K + k);
    for (int m = 0; m < M; m++) {
        for (int u = 1; u < U; u++) acc[m][0] += acc[m][u];
        sums[m] = sum(acc[m][0]);
        for (int64_t rest = k; rest < K; rest++) sums[m] += (float)w[rest] * x[m * K + rest];
    }
}

// The same with codes that become numbers group by group.
template <int M>
static void row_product(const float *x, const Matrix &w, int64_t n, float *sums) {
    const int8_t *codes = w.codes + n * w.K;
    Floats acc[M][2] = {};
    for (int64_t k = 0, g = n * (w.K / w.group); k < w.K; k += w.group, g++) {
        float scale = w.scales[g], offset = w.offsets ? w.offsets[g] : 0;
        __builtin_prefetch(codes + k + AHEAD);
        int64_t i = k, last = k + w.group;
        for (; i + 2 * WIDTH <= last; i += 2 * WIDTH) {
            Floats left = load(codes + i) * scale + offset, right = load(codes + i + WIDTH) * scale + offset;
            for (int m = 0; m < M; m++) {
                acc[m][0] += left * load(x + m * w.K + i);
                acc[m][1] += right * load(x + m * w.K + i + WIDTH);
            }
        }
        for (; i < last; i++)
            for (int m = 0; m < M; m++) acc[m][0][0] += (codes[i] * scale + offset) * x[m * w.K + i];
    }
    for (int m = 0; m < M; m++) sums[m] = sum(acc[m][0] + acc[m][1]);
}

// A few rows of x: each thread reads its stretch of the weights from end to end.
template <int M>
static void product_of_few(const Matrix &w, const float *x, float *y, bool add) {
    Share share(w.N);
    for (int64_t n = share.first; n < share.last; n++) {
        float sums[M];
        if (!w.codes) row_product<M>(x, w.numbers + n * w.K, w.K, sums);
        else if (w.row_by_row()) row_product<M>(x, w.codes + n * w.K, w.K, sums);
        else row_product<M>(x, w, n, sums);
        for (int m = 0; m < M; m++) y[m * w.N + n] = w.finish(sums[m], n) + (add ? y[m * w.N + n] : 0);
    }
}

// Where torch brings a product of its own for many rows, that is the better one; null otherwise.
typedef void Sgemm(const char *, const char *, const int *, const int *, const int *, const float *, const float *,
                   const int *, const float *, const int *, const float *, float *, const int *);
extern "C" {
Sgemm *tfm_sgemm;
}

// The numbers that a row of codes stands for.
static void decode(const Matrix &w, int64_t n, float *numbers) {
    const int8_t *codes = w.codes + n * w.K;
    for (int64_t k = 0, g = n * (w.K / w.group); k < w.K; g++) {
        float scale = w.scales[g], offset = w.offsets ? w.offsets[g] : 0;
        int64_t last = k + w.group;
        for (; k + WIDTH <= last; k += WIDTH) store(numbers + k, load(codes + k) * scale + offset);
        for (; k < last; k++) numbers[k] = codes[k] * scale + offset;
    }
}

// Memory that a thread keeps from call to call: the kernel takes its time to give out new one. It begins on a line of
// its own, so that no sum is taken in another order because of where memory happened to be.
struct Room {
    std::unique_ptr<float[]> memory;
    int64_t size = 0;
    float *of(int64_t wanted) {
        constexpr int64_t more = LINE / sizeof(float);
        if (wanted > size) memory.reset(new float[(size = wanted) + more]);
        return (float *)(((uintptr_t)memory.get() + LINE - 1) / LINE * LINE);
    }
};

// Many rows of x, by torch's product: some rows of weights at a time if they have to be made of codes first.
static void product_by_torch(const Matrix &w, const float *x, int64_t M, float *y, bool add) {
    static thread_local Room room;
    Share share(w.N);
    int64_t some = w.codes ? std::max<int64_t>(1, NEAR / w.K) : w.N;
    float *decoded = w.codes ? room.of(some * w.K) : nullptr;
    for (int64_t first = share.first; first < share.last; first += some) {
        int64_t count = std::min(some, share.last - first);
        for (int64_t i = 0; w.codes && i < count; i++) decode(w, first + i, decoded + i * w.K);
        int rows = M, columns = count, K = w.K, N = w.N;
        float one = 1, keep = add;
        tfm_sgemm("T", "N", &columns, &rows, &K, &one, w.codes ? decoded : w.numbers + first * w.K, &K, x, &K, &keep,
                  y + first, &N);
        for (int64_t m = 0; w.bias && m < M; m++)
            for (int64_t n = first; n < first + count; n++) y[m * w.N + n] += w.bias[n];
    }
}

// Rows of x in whole numbers of sixteen bits, as large as products with codes can be added up in 32, and what one of
// them stands for in each row. Two numbers of K are a pair, if need be with a zero.
struct Rounded {
    float *steps;
    int32_t *pairs;
    Rounded(Room &room, int64_t M, int64_t K)
        : steps(M > FEW ? room.of(M * ((K + 1) / 2 + 1)) : nullptr), pairs((int32_t *)(steps + M)) {}
};

static void round_rows(const float *x, int64_t M, int64_t K, const Rounded &rounded) {
    constexpr float limit = std::min<int64_t>(32767, INT32_MAX / (128 * 2 * DEEP));
#pragma omp for
    for (int64_t m = 0; m < M; m++) {
        const float *row = x + m * K;
        int16_t *target = (int16_t *)(rounded.pairs + m * ((K + 1) / 2));
        int32_t bits = 0;  // of the largest number but for its sign: as whole numbers, floats have the same order
        for (int64_t k = 0; k < K; k++) bits = std::max(bits, ((const Bits *)row)[k] & INT32_MAX);
        float largest;
        memcpy(&largest, &bits, sizeof bits);
        float factor = largest > 0 ? limit / largest : 0;
        // Beyond this number there are no halves: added and taken away again, it rounds.
        for (int64_t k = 0; k < K; k++) target[k] = (int16_t)(int32_t)(row[k] * factor + 12582912.0f - 12582912.0f);
        if (K % 2) target[K] = 0;
        rounded.steps[m] = largest / limit;
    }
}

// 2 · WIDTH codes as pairs of sixteen bits.
static inline Ints load_pairs(const int8_t *p) {
#if defined(__AVX512BW__)
    return (Ints)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__AVX2__) && !defined(__AVX512F__)
    return (Ints)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
#else
    Ints v;
    for (int i = 0; i < WIDTH; i++) v[i] = (uint16_t)p[2 * i] | (uint32_t)p[2 * i + 1] << 16;
    return v;
#endif
}

// Where numbers of a and b stand with their bit S apart, those in the wrong one change places.
template <int S, int... I>
static inline void exchange(Ints &a, Ints &b, std::integer_sequence<int, I...>) {
    Ints low = __builtin_shufflevector(a, b, (I & S ? WIDTH + I - S : I)...);
    b = __builtin_shufflevector(a, b, (I & S ? WIDTH + I : I + S)...);
    a = low;
}

// Rows become columns, one bit of their numbers after the other.
template <int S = 1>
static inline void transpose(Ints *square) {
    for (int i = 0; i < WIDTH; i++)
        if (!(i & S)) exchange<S>(square[i], square[i + S], std::make_integer_sequence<int, WIDTH>());
    if constexpr (2 * S < WIDTH) transpose<2 * S>(square);
}

// WIDE rows of codes from row n on, side by side, two numbers of each at a time.
static void pack(const Matrix &w, int64_t n, int32_t *panel) {
    int64_t pairs = (w.K + 1) / 2;
    if (n + WIDE > w.N) memset(panel, 0, pairs * WIDE * sizeof *panel);
    for (int64_t r = 0; r < WIDE && n + r < w.N; r += WIDTH) {
        int64_t rows = std::min<int64_t>(WIDTH, w.N - n - r), k = 0;
        const int8_t *codes = w.codes + (n + r) * w.K;
        for (; rows == WIDTH && k + WIDTH <= w.K / 2; k += WIDTH) {
            Ints square[WIDTH];
            for (int i = 0; i < WIDTH; i++) square[i] = load_pairs(codes + i * w.K + 2 * k);
            transpose(square);
            for (int i = 0; i < WIDTH; i++) memcpy(panel + (k + i) * WIDE + r, square + i, sizeof *square);
        }
        for (; k < pairs; k++)
            for (int64_t i = 0; i < rows; i++) {
                const int8_t *pair = codes + i * w.K + 2 * k;
                panel[k * WIDE + r + i] = (uint16_t)pair[0] | (2 * k + 1 < w.K ? (uint32_t)pair[1] << 16 : 0);
            }
    }
}

// TALL rows of x against the pairs k to last of a panel, so that two numbers of x meet all its rows at once. The first
// `done` rows of y are not written.
static void panel_product(const Matrix &w, const int32_t *x, const float *steps, const int32_t *panel, int64_t n,
                          int64_t k, int64_t last, int64_t done, float *y, bool add) {
    Ints left[TALL] = {}, right[TALL] = {};
    int64_t pairs = (w.K + 1) / 2, columns = std::min<int64_t>(WIDE, w.N - n);
    bool begun = k > 0;
    for (; k < last; k++) {
        Ints a, b;
        memcpy(&a, panel + k * WIDE, sizeof a), memcpy(&b, panel + k * WIDE + WIDTH, sizeof b);
        for (int r = 0; r < TALL; r++) {
            Ints two = (Ints){} + x[r * pairs + k];
            left[r] += multiply_pairs(two, a);
            right[r] += multiply_pairs(two, b);
        }
    }
    auto copy = [columns](const float *from, float *to) {
        if (columns == WIDE) memcpy(to, from, WIDE * sizeof *to);  // of a length that the compiler knows
        else std::copy_n(from, columns, to);
    };
    float scales[WIDE] = {}, bias[WIDE] = {};
    copy(w.scales + n, scales);
    if (w.bias && !begun) copy(w.bias + n, bias);
    for (int r = done; r < TALL; r++) {
        float sums[WIDE];
        std::copy_n(bias, WIDE, sums);
        if (begun || add) {
            float before[WIDE] = {};
            copy(y + r * w.N + n, before);
            for (int c = 0; c < WIDE; c++) sums[c] += before[c];
        }
        Floats l = __builtin_convertvector(left[r], Floats), h = __builtin_convertvector(right[r], Floats);
        store(sums, load(sums) + l * steps[r] * load(scales));
        store(sums + WIDTH, load(sums + WIDTH) + h * steps[r] * load(scales + WIDTH));
        copy(sums, y + r * w.N + n);
    }
}

// Many rows of x against codes, in whole numbers, which is faster than in fp32. x has sixteen bits then, each row
// by a step of its own. Some panels stay near while all of x passes by.
static void product_of_many(const Matrix &w, const float *x, int64_t M, float *y, bool add, const Rounded &rounded) {
    static thread_local Room room;
    int64_t pairs = (w.K + 1) / 2, size = pairs * WIDE, near = std::max<int64_t>(1, NEAR / size);
    int64_t parts = (pairs + DEEP - 1) / DEEP, deep = (pairs + parts - 1) / parts;
    int32_t *panels = (int32_t *)room.of(near * size);
    round_rows(x, M, w.K, rounded);
    Share share((w.N + WIDE - 1) / WIDE);
    for (int64_t first = share.first; first < share.last; first += near) {
        int64_t count = std::min(near, share.last - first);
        for (int64_t p = 0; p < count; p++) pack(w, (first + p) * WIDE, panels + p * size);
        for (int64_t k = 0; k < pairs; k += deep)
            for (int64_t next = 0; next < M; next += TALL) {
                int64_t m = std::min(next, M - TALL);  // the last ones take some rows along that are done already
                for (int64_t p = 0; p < count; p++)
                    panel_product(w, rounded.pairs + m * pairs, rounded.steps + m, panels + p * size,
                                  (first + p) * WIDE, k, std::min(k + deep, pairs), next - m, y + m * w.N, add);
            }
    }
}

// y (M, N) = w · x (M, K), added to what y holds if `add`. Called by all threads of a team; nobody may read y before
// all are done.
static void product(const Matrix &w, const float *x, int64_t M, float *y, bool add, const Rounded &rounded) {
    switch (M) {
        case 1: product_of_few<1>(w, x, y, add); break;
        case 2: product_of_few<2>(w, x, y, add); break;
        case 3: product_of_few<3>(w, x, y, add); break;
        case 4: product_of_few<4>(w, x, y, add); break;
        case 5: product_of_few<5>(w, x, y, add); break;
        case 6: product_of_few<6>(w, x, y, add); break;
        case 7: product_of_few<7>(w, x, y, add); break;
        case 8: product_of_few<8>(w, x, y, add); break;
        default:
            if (w.codes && w.row_by_row()) product_of_many(w, x, M, y, add, rounded);
            else product_by_torch(w, x, M, y, add);
    }
#pragma omp barrier
}
