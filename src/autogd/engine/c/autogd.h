/* What the passes in C have in common: how a tensor is described, and how threads share the work.
 *
 * A tensor is a table in memory, blocks x rows x run, as autogd.engine.layout says. Where `part` is not null, it tells
 * for every number of a block's run which part it belongs to, and rows repeat that; where it is null, a run is one
 * number, and a block is a part. Parts are numbered within the tensor; `first` is where its own begin among all.
 */
#ifndef AUTOGD_H
#define AUTOGD_H

#include <stdint.h>

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_thread_num(void) { return 0; }
static inline int omp_get_num_threads(void) { return 1; }
#endif

/* Compiled several times, and the best for the processor is chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
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
    int64_t turned; /* its parts are matrices, to be orthogonalised */
    int64_t held;   /* its weights' norm is wanted */
} tensor;

#define PIECE 8192 /* numbers of one run that are summed in float32 before they are added to a double; over rows, all are */

/* Calls `visit` with every stretch of rows, within one block of one tensor, that falls to this thread. Rows are shared
 * evenly and always in the same way: what is summed by whom does not depend on the moment, so a run can be repeated to
 * the bit. Backwards, the last tensor comes first: what was measured last may still be in a cache. */
typedef void visitor(const tensor *t, int64_t block, int64_t row, int64_t rows, void *context);
void autogd_share(const tensor *tensors, int64_t count, int backwards, int without_turned, visitor *visit, void *context);

#endif
