/* AGD's two passes over the weights, each over all tensors at once, on all threads: measure and apply, the latter also
 * with an average beside the weights. */
#include "autogd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef AUTOGD_SOURCE
#define AUTOGD_SOURCE "" /* what the files were when they were compiled: others' library must not be called */
#endif
const char *autogd_source(void) { return AUTOGD_SOURCE; }

/* A thread reads and writes in several places of a tensor by turns: from each of them the processor fetches ahead, and
 * memory is up to a third faster than in one place. Four are best to read, two to write, and one for three tensors. */
#define PLACES 4
#define LINE 16 /* numbers that are read in one place before the next */
#define STRETCH 64 /* numbers that are written in one place before the other */
#define LONG 65536 /* numbers of one run that are summed in float32, in 64 sums, before they are added to a double */

FOR_EVERY_PROCESSOR
static double sum_of_squares(const float *x, int64_t n) {
    float sums[PLACES][LINE] = {{0}};
    const int64_t each = n / (PLACES * LINE) * LINE;
    for (int64_t i = 0; i < each; i += LINE)
        for (int k = 0; k < PLACES; k++)
            for (int j = 0; j < LINE; j++) sums[k][j] += x[k * each + i + j] * x[k * each + i + j];
    for (int64_t i = PLACES * each; i < n; i++) sums[0][0] += x[i] * x[i];
    double sum = 0;
    for (int k = 0; k < PLACES; k++)
        for (int j = 0; j < LINE; j++) sum += sums[k][j];
    return sum;
}

/* Of one row, and of as many more as `rows` says, `gap` numbers apart. */
FOR_EVERY_PROCESSOR
static void add_squares(float *restrict sums, const float *restrict x, int64_t gap, int64_t rows, int64_t n) {
    if (rows == PLACES) {
        const float *a = x, *b = x + gap, *c = x + 2 * gap, *d = x + 3 * gap;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sums[i] += (a[i] * a[i] + b[i] * b[i]) + (c[i] * c[i] + d[i] * d[i]);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *a = x + r * gap;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) sums[i] += a[i] * a[i];
    }
}

void autogd_share(const tensor *tensors, int64_t count, int backwards, int without_turned, visitor *visit, void *context) {
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    int64_t total = 0;
    for (int64_t k = 0; k < count; k++)
        if (!(without_turned && tensors[k].turned)) total += tensors[k].blocks * tensors[k].rows * tensors[k].run;
    const int64_t from = total / threads * thread, to = thread + 1 == threads ? total : total / threads * (thread + 1);
    int64_t before = backwards ? total : 0;
    for (int64_t i = 0; i < count; i++) {
        const tensor *t = tensors + (backwards ? count - 1 - i : i);
        if (without_turned && t->turned) continue;
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

/* How a tensor's weights and their average go: each along what separates them; then the weights shrink and step along the
 * gradient, and the average goes a share of that way. */
typedef struct { float weight, average, share, keep; } mixture;

/* `scales`, or `scale` where it is null, gives what the gradient is multiplied by; `average` may be null. */
static inline __attribute__((always_inline)) void add_here(float *restrict weight, float *restrict average,
                                                           const float *restrict grad, float scale, const float *restrict scales,
                                                           mixture by, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float step = (scales ? scales[i] : scale) * grad[i];
        if (average) {
            const float apart = weight[i] - average[i];
            const float ahead = weight[i] + by.weight * apart, change = (by.keep - 1) * ahead + step;
            weight[i] = ahead + change;
            average[i] += by.average * apart + by.share * change;
        } else
            weight[i] += step;
    }
}

/* n numbers, and n more that begin `gap` later, by turns; where it is 0, none. */
static inline __attribute__((always_inline)) void add_by_turns(float *weight, float *average, const float *grad, float scale,
                                                               const float *scales, mixture by, int64_t n, int64_t gap) {
    for (int64_t i = 0; i < n; i += STRETCH) {
        const int64_t some = n - i < STRETCH ? n - i : STRETCH;
        for (int64_t at = i; at <= i + gap; at += gap ? gap : n) {
            float *to = average ? average + at : NULL;
            const float *with = scales ? scales + i : NULL;
            if (some == STRETCH) add_here(weight + at, to, grad + at, scale, with, by, STRETCH);
            else add_here(weight + at, to, grad + at, scale, with, by, some);
        }
    }
}

FOR_EVERY_PROCESSOR
static void add(float *weight, float *average, const float *grad, float scale, const float *scales, mixture by, int64_t n,
                int64_t gap) {
    if (average && scales) add_by_turns(weight, average, grad, scale, scales, by, n, gap);
    else if (average) add_by_turns(weight, average, grad, scale, NULL, by, n, gap);
    else if (scales) add_by_turns(weight, NULL, grad, scale, scales, by, n, gap);
    else add_by_turns(weight, NULL, grad, scale, NULL, by, n, gap);
}

typedef struct {
    double *sums;
    float *buffer;
    const float *scales;
    const tensor *tensors;
    const mixture *mixtures; /* of every tensor, or null */
} scratch;

static void measure_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, void *context) {
    const scratch *s = context;
    const float *x = t->grad + (block * t->rows + row) * t->run;
    double *sums = s->sums + t->first;
    if (!t->part) {
        for (int64_t i = 0; i < rows; i += LONG) sums[block] += sum_of_squares(x + i, rows - i < LONG ? rows - i : LONG);
        return;
    }
    memset(s->buffer, 0, t->run * sizeof(float));
    const int64_t each = rows / PLACES;
    for (int64_t r = 0; r < each; r++) add_squares(s->buffer, x + r * t->run, each * t->run, PLACES, t->run);
    add_squares(s->buffer, x + PLACES * each * t->run, t->run, rows - PLACES * each, t->run);
    const int32_t *part = t->part + block * t->run;
    for (int64_t j = 0; j < t->run; j++) sums[part[j]] += s->buffer[j];
}

static void apply_rows(const tensor *t, int64_t block, int64_t row, int64_t rows, void *context) {
    const scratch *s = context;
    const int64_t at = (block * t->rows + row) * t->run;
    const float *scales = s->scales + t->first, *grad = t->grad + at;
    const mixture by = s->mixtures ? s->mixtures[t - s->tensors] : (mixture){0};
    float *weight = t->weight + at, *average = s->mixtures ? t->average + at : NULL;
    if (t->part) {
        const int32_t *part = t->part + block * t->run;
        for (int64_t j = 0; j < t->run; j++) s->buffer[j] = scales[part[j]];
    }
    const float scale = t->part ? 0 : scales[block], *each = t->part ? s->buffer : NULL;
    if (average) {
        const int64_t n = t->part ? t->run : rows;
        for (int64_t i = 0; i < rows * t->run; i += n) add(weight + i, average + i, grad + i, scale, each, by, n, 0);
        return;
    }
    /* of a part that is one run, each half is a row */
    const int64_t n = t->part ? t->run : rows / 2, half = t->part ? rows / 2 : 1, done = 2 * half * n;
    for (int64_t i = 0; i < half * n; i += n) add(weight + i, NULL, grad + i, scale, each, by, n, half * n);
    if (done < rows * t->run) add(weight + done, NULL, grad + done, scale, each, by, rows * t->run - done, 0);
}

/* Gives every part's norm, where `norms` is not null; else adds to every part its gradient times its scale, and goes on
 * with the averages where `mixtures` is not null. `longest` is the longest run that has parts. Returns 0, or 1 where
 * there is no memory left. */
int autogd_pass(const tensor *tensors, int64_t count, int64_t longest, int64_t parts, float *norms, const float *scales,
                const mixture *mixtures, int threads) {
    double *sums = norms ? calloc(threads * parts, sizeof(double)) : NULL;
    float *buffers = longest ? malloc(sizeof(float) * longest * threads) : NULL;
    const int short_of_memory = (norms && !sums) || (longest && !buffers);
    if (!short_of_memory) {
#pragma omp parallel num_threads(threads)
        {
            const int thread = omp_get_thread_num();
            scratch s = {sums ? sums + thread * parts : NULL, buffers ? buffers + thread * longest : NULL, scales, tensors,
                         mixtures};
            autogd_share(tensors, count, !sums, 0, sums ? measure_rows : apply_rows, &s);
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
