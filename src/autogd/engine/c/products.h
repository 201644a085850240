/* Products of tiles of 16 x 16, whose columns lie one after the other. */
#ifndef AUTOGD_PRODUCTS_H
#define AUTOGD_PRODUCTS_H

#include <stdint.h>

#define SIDE 16
#define TILE (SIDE * SIDE)

/* Sixteen columns of the right side of a product: number c of row k is at k * step + c * column. */
typedef struct { const float *first; int64_t step, column; } block;

/* Sixteen columns, `apart` from each other, become keep * out + factor * left * right, over any depth; left has sixteen
 * rows, and its columns lie `left_step` apart. */
void autogd_product(float *out, int64_t apart, const float *left, int64_t left_step, block right, int64_t depth, float keep,
                    float factor);
/* A tile becomes keep * out + factor * the sum of left[i] right[i]: number c of row k of right[i] is at k * step + c * column. */
void autogd_product_of_tiles(float *out, const float *const *left, const float *const *right, int64_t step, int64_t column,
                             int64_t count, float keep, float factor);

#endif
