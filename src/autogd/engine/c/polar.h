/* Symmetric matrices as triangles of tiles, and what Zolotarev's function needs of them.
 *
 * A tile is 16 x 16, its columns one after the other. A symmetric matrix of side N, a multiple of 16, is stored as
 * the tiles on and below the diagonal, row by row: a multiplication takes rows of tiles on both sides, so little has to be
 * packed. The product at the end needs both triangles: a square, N/16 rows of as many tiles.
 *
 * Functions with `half` do one half of the work: two threads call them for one matrix. `room` is scratch memory of
 * sixteen times N numbers.
 */
#ifndef AUTOGD_POLAR_H
#define AUTOGD_POLAR_H

#include <stdint.h>

#include "products.h"

/* Numbers of a triangle. */
int64_t autogd_triangle(int64_t N);
/* triangle += x x^T, or = if `first`: the columns of x lie `stride` numbers apart. */
void autogd_add_gram(float *triangle, int64_t N, const float *x, int64_t stride, int64_t columns, int first);
/* Both triangles become their sum. */
void autogd_add_halves(float *one, float *other, int64_t N, int half);
/* The sum of squares of the numbers of A^2. */
double autogd_square_of_square(const float *triangle, int64_t N, float *room, int half);
/* triangle becomes (triangle * scale + pole * I)^-1, or zero if rounding leaves no Cholesky factor. */
void autogd_invert(float *triangle, int64_t N, float scale, float pole);
/* one becomes scale * (whole * I + a * one + b * other). */
void autogd_add_fractions(float *one, const float *other, int64_t N, float a, float b, float whole, float scale, int half);
/* A triangle becomes a square in the same place: its rows of tiles are moved to their places, then the other tiles are filled in. */
void autogd_spread(float *square, int64_t N);
void autogd_mirror(float *square, int64_t N, int half);
/* out = square x: sixteen columns, `stride` numbers apart. */
void autogd_multiply(float *out, const float *square, int64_t N, const float *x, int64_t stride);

#endif
