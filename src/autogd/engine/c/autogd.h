/* What the passes in C have in common: how a tensor is described, and how threads share the work.
 *
 * A tensor is a table in memory, blocks x rows x run, as autogd.engine.layout says. If `part` is not null, it has
 * the part that every number of a block's run belongs to, the same for all rows; if it is null, a run is one number, and
 * a block is a part. Parts are numbered within the tensor; `first` is the number of its first part among all parts.
 */
#ifndef AUTOGD_H
#define AUTOGD_H

#include <stdint.h>

#ifdef _OPENMP
int omp_get_thread_num(void); /* not every compiler finds omp.h */
int omp_get_num_threads(void);
#else
static inline int omp_get_thread_num(void) { return 0; }
static inline int omp_get_num_threads(void) { return 1; }
#endif

/* Compiled several times; the loader takes the best version for the processor. WIDE functions are only for registers of
 * 512 bits. -DAUTOGD_PLAIN leaves one version: the tests compare it with the others. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(AUTOGD_PLAIN)
#define WIDE __attribute__((target("avx512f")))
#if __GNUC__ >= 12
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#endif
#else
#define FOR_EVERY_PROCESSOR
#endif

typedef struct {
    float *weight;
    const float *grad;
    uint16_t *momentum; /* bfloat16 */
    float *average;
    const int32_t *part;
    int64_t blocks, rows, run, first;
    int64_t matrices; /* whether to orthogonalise its parts */
    int64_t held;     /* whether to measure its weights' norm */
} tensor;

#define PIECE 8192 /* numbers of one run to sum in float32 before adding to a double; over rows, all are */

/* The tensors' numbers, one tensor after the other, are cut into `slices` of equal length; a row belongs to the slice in
 * which it begins. autogd_share calls `visit` with every stretch of rows, within one block of one tensor, of the slices
 * `first` to `last`. Backwards, the last tensor comes first: what was measured last may still be in a cache. */
typedef void visitor(const tensor *t, int64_t block, int64_t row, int64_t rows, int64_t slice, int continued, void *context);
typedef struct { int64_t first, last, slices; } share;
void autogd_share(const tensor *tensors, int64_t count, share mine, int backwards, int without_matrices, visitor *visit,
                  void *context);

/* Sums over parts that do not depend on the number of threads, since slices do not. The slice in which a part begins adds
 * to the part's own sums, a later one to sums of its own, which are added in order at the end. `width` is the number of
 * sums of a part, `largest` the most parts of a tensor whose parts share its rows. */
typedef struct { double *sums, *later; const tensor **tensor; int64_t *block, width, largest, slices; } summation;
/* The doubles that a summation needs. */
int64_t autogd_summands(const tensor *tensors, int64_t count, int64_t parts, int64_t width);
summation autogd_begin_sums(const tensor *tensors, int64_t count, int64_t parts, int64_t width, double *room);
/* Where a stretch of rows adds its sums: those of its block, or of all its tensor's parts if `part` is not null. */
double *autogd_sums_of(const summation *s, const tensor *t, int64_t block, int64_t slice, int continued);
/* Adds the later sums to the parts' own, which then are the first numbers of the room. */
void autogd_end_sums(const summation *s, const tensor *tensors, int64_t count, int64_t parts);
/* The slices of one thread. */
share autogd_slices(int64_t slices, int thread, int threads);

#endif
