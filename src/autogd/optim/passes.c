/* The two passes over the weights, each over all tensors at once, on all threads.
 *
 * A tensor is a table in memory, blocks x rows x run, as autogd.geometry.runs says. Where `part` is not null, it tells
 * for every number of a block's run which part it belongs to, and rows repeat that; where it is null, a run is one
 * number, and a block is a part. Parts are numbered within the tensor; `first` is where its own begin among all.
 *
 * Threads share the rows evenly and always in the same way: what is summed by whom does not depend on the moment, so
 * a run can be repeated to the bit.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_thread_num(void) { return 0; }
static int omp_get_num_threads(void) { return 1; }
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define FOR_EVERY_PROCESSOR
#endif

#ifndef AUTOGD_SOURCE
#define AUTOGD_SOURCE "" /* what this file was when it was compiled: another one's library must not be called */
#endif
const char *autogd_source(void) { return AUTOGD_SOURCE; }

typedef struct {
    float *weight;
    const float *grad;
    const int32_t *part;
    int64_t blocks, rows, run, first;
} tensor;

#define LANES 64   /* sums that grow side by side: no addition waits for the last */
#define PIECE 8192 /* numbers of one run that are summed in float32 before they are added to a double; over rows, all are */

FOR_EVERY_PROCESSOR
static double sum_of_squares(const float *x, int64_t n) {
    float sums[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += x[i + j] * x[i + j];
    for (; i < n; i++) sums[0] += x[i] * x[i];
    double sum = 0;
    for (int j = 0; j < LANES; j++) sum += sums[j];
    return sum;
}

FOR_EVERY_PROCESSOR
static void add_squares(float *restrict sums, const float *restrict x, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sums[i] += x[i] * x[i];
}

FOR_EVERY_PROCESSOR
static void add_scaled(float *restrict weight, const float *restrict grad, float scale, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) weight[i] += scale * grad[i];
}

FOR_EVERY_PROCESSOR
static void add_products(float *restrict weight, const float *restrict grad, const float *restrict scale, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) weight[i] += scale[i] * grad[i];
}

/* Calls `visit` with every stretch of rows, within one block of one tensor, that falls to this thread; backwards, the last
 * tensor comes first: what was measured last may still be in a cache. */
typedef void visitor(const tensor *t, int64_t block, int64_t row, int64_t rows, void *context);

static void share(const tensor *tensors, int64_t count, int thread, int threads, int backwards, visitor *visit,
                  void *context) {
    int64_t total = 0;
    for (int64_t k = 0; k < count; k++) total += tensors[k].blocks * tensors[k].rows * tensors[k].run;
    const int64_t from = total / threads * thread, to = thread + 1 == threads ? total : total / threads * (thread + 1);
    int64_t before = backwards ? total : 0;
    for (int64_t i = 0; i < count; i++) {
        const tensor *t = tensors + (backwards ? count - 1 - i : i);
        const int64_t size = t->rows * t->run;
        if (backwards) before -= t->blocks * size;
        if (before < to && before + t->blocks * size > from) {
            for (int64_t block = 0; block < t->blocks; block++) {
                /* rows that begin within [from, to) */
                const int64_t here = before + block * size;
                int64_t low = from > here ? (from - here + t->run - 1) / t->run : 0;
                int64_t high = to < here + size ? (to - here + t->run - 1) / t->run : t->rows;
                if (low < high) visit(t, block, low, high - low, context);
            }
        }
        if (!backwards) before += t->blocks * size;
    }
}

typedef struct {
    double *sums;
    float *buffer;
    const float *scales;
} scratch;

static void measure_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, void *context) {
    const scratch *s = context;
    const float *x = t->grad + (block * t->rows + row) * t->run;
    double *sums = s->sums + t->first;
    if (!t->part) {
        for (int64_t i = 0; i < rows; i += PIECE) sums[block] += sum_of_squares(x + i, rows - i < PIECE ? rows - i : PIECE);
        return;
    }
    memset(s->buffer, 0, t->run * sizeof(float));
    for (int64_t r = 0; r < rows; r++) add_squares(s->buffer, x + r * t->run, t->run);
    const int32_t *part = t->part + block * t->run;
    for (int64_t j = 0; j < t->run; j++) sums[part[j]] += s->buffer[j];
}

static void apply_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, void *context) {
    const scratch *s = context;
    const int64_t at = (block * t->rows + row) * t->run;
    const float *scales = s->scales + t->first;
    if (!t->part) {
        add_scaled(t->weight + at, t->grad + at, scales[block], rows);
        return;
    }
    const int32_t *part = t->part + block * t->run;
    for (int64_t j = 0; j < t->run; j++) s->buffer[j] = scales[part[j]];
    for (int64_t r = 0; r < rows; r++) add_products(t->weight + at + r * t->run, t->grad + at + r * t->run, s->buffer, t->run);
}

/* Gives every part's norm, where `norms` is not null; else adds to every part its gradient times its scale.
 * `longest` is the longest run that has parts. Returns 0, or 1 where there is no memory left. */
int autogd_pass(const tensor *tensors, int64_t count, int64_t longest, int64_t parts, float *norms, const float *scales,
                int threads) {
    double *sums = norms ? calloc(threads * parts, sizeof(double)) : NULL;
    float *buffers = longest ? malloc(sizeof(float) * longest * threads) : NULL;
    const int short_of_memory = (norms && !sums) || (longest && !buffers);
    if (!short_of_memory) {
#pragma omp parallel num_threads(threads)
        {
            const int thread = omp_get_thread_num();
            scratch s = {sums ? sums + thread * parts : NULL, buffers ? buffers + thread * longest : NULL, scales};
            share(tensors, count, thread, omp_get_num_threads(), !sums, sums ? measure_rows : apply_rows, &s);
        }
        for (int64_t part = 0; norms && part < parts; part++) {
            for (int thread = 1; thread < threads; thread++) sums[part] += sums[thread * parts + part];
            norms[part] = (float)sqrt(sums[part]);
        }
    }
    free(sums);
    free(buffers);
    return short_of_memory;
}
