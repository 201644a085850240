/* Products of tiles of 16 x 16: in registers of eight numbers, or of sixteen if the processor has them. */
#include "products.h"

#include "autogd.h"

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef eight sums_of_four[4][2]; /* eight independent sums: as many as a processor works on at once */

/* sums[c] += left[k] * right[k, c] over k, for four columns c: left[k] are sixteen numbers, `left_step` apart. */
static inline __attribute__((always_inline)) void add_products(sums_of_four sums, const float *left, int64_t left_step,
                                                               const float *right, int64_t step, int64_t column, int64_t depth) {
    for (int64_t k = 0; k < depth; k++) {
        const eight low = *(const eight *)(left + k * left_step), high = *(const eight *)(left + k * left_step + 8);
        for (int c = 0; c < 4; c++) {
            const float y = right[k * step + c * column];
            sums[c][0] += y * low;
            sums[c][1] += y * high;
        }
    }
}

static inline __attribute__((always_inline)) void put(float *out, int64_t apart, sums_of_four sums, float keep, float factor) {
    for (int c = 0; c < 4; c++) {
        eight *to = (eight *)(out + c * apart);
        for (int j = 0; j < 2; j++) to[j] = keep == 0 ? factor * sums[c][j] : factor * sums[c][j] + keep * to[j];
    }
}

FOR_EVERY_PROCESSOR
static void narrow_product(float *out, int64_t apart, const float *left, int64_t left_step, block right, int64_t depth,
                           float keep, float factor) {
    for (int first = 0; first < SIDE; first += 4) {
        sums_of_four sums = {{{0}}};
        add_products(sums, left, left_step, right.first + first * right.column, right.step, right.column, depth);
        put(out + first * apart, apart, sums, keep, factor);
    }
}

FOR_EVERY_PROCESSOR
static void narrow_product_of_tiles(float *out, const float *const *left, const float *const *right, int64_t step,
                                    int64_t column, int64_t count, float keep, float factor) {
    for (int first = 0; first < SIDE; first += 4) {
        sums_of_four sums = {{{0}}};
        for (int64_t b = 0; b < count; b++) add_products(sums, left[b], SIDE, right[b] + first * column, step, column, SIDE);
        put(out + first * SIDE, SIDE, sums, keep, factor);
    }
}

#ifdef WIDE
/* The same with 32 registers of sixteen numbers: they hold the sums of a whole tile. */
typedef float sixteen __attribute__((vector_size(64), aligned(4), may_alias));

static inline __attribute__((always_inline)) WIDE void add_wide(sixteen *sums, const float *left, int64_t left_step,
                                                                const float *right, int64_t step, int64_t column, int64_t depth) {
    for (int64_t k = 0; k < depth; k++) {
        const sixteen x = *(const sixteen *)(left + k * left_step);
#pragma GCC unroll 16
        for (int c = 0; c < SIDE; c++) sums[c] += right[k * step + c * column] * x;
    }
}

static inline __attribute__((always_inline)) WIDE void put_wide(float *out, int64_t apart, const sixteen *sums, float keep,
                                                                float factor) {
#pragma GCC unroll 16
    for (int c = 0; c < SIDE; c++) {
        sixteen *to = (sixteen *)(out + c * apart);
        *to = keep == 0 ? factor * sums[c] : factor * sums[c] + keep * *to;
    }
}

WIDE static void wide_product(float *out, int64_t apart, const float *left, int64_t left_step, block right, int64_t depth,
                              float keep, float factor) {
    sixteen sums[SIDE] = {{0}};
    add_wide(sums, left, left_step, right.first, right.step, right.column, depth);
    put_wide(out, apart, sums, keep, factor);
}

WIDE static void wide_product_of_tiles(float *out, const float *const *left, const float *const *right, int64_t step,
                                       int64_t column, int64_t count, float keep, float factor) {
    sixteen sums[SIDE] = {{0}};
    for (int64_t b = 0; b < count; b++) add_wide(sums, left[b], SIDE, right[b], step, column, SIDE);
    put_wide(out, SIDE, sums, keep, factor);
}

static int wide(void) { return __builtin_cpu_supports("avx512f"); }
#else
#define wide_product narrow_product
#define wide_product_of_tiles narrow_product_of_tiles
static int wide(void) { return 0; }
#endif

void autogd_product(float *out, int64_t apart, const float *left, int64_t left_step, block right, int64_t depth, float keep,
                    float factor) {
    (wide() ? wide_product : narrow_product)(out, apart, left, left_step, right, depth, keep, factor);
}

void autogd_product_of_tiles(float *out, const float *const *left, const float *const *right, int64_t step, int64_t column,
                             int64_t count, float keep, float factor) {
    (wide() ? wide_product_of_tiles : narrow_product_of_tiles)(out, left, right, step, column, count, keep, factor);
}
