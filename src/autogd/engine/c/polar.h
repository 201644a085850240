/* Symmetric matrices as triangles of tiles, and what Zolotarev's function asks of them.
 *
 * A tile is 16 x 16, its columns one after the other. Of a symmetric matrix of side N, a multiple of 16, the tiles on and
 * below the diagonal lie in memory row by row: a row of tiles is what a multiplication wants on either side, and seldom is
 * anything packed. The product at the end wants both triangles: a square, N/16 rows of as many tiles.
 *
 * Functions that take `half` do the one or the other half of the work: two threads call them for one matrix. `room` is for
 * sixteen times N numbers to work with.
 */
#ifndef AUTOGD_POLAR_H
#define AUTOGD_POLAR_H

#include <stdint.h>

#include "products.h"

/* Numbers of a triangle. */
int64_t autogd_triangle(int64_t N);
/* triangle += x x^T, or = where `first`: the columns of x lie `stride` numbers apart. */
void autogd_add_gram(float *triangle, int64_t N, const float *x, int64_t stride, int64_t columns, int first);
/* Both triangles become their sum. */
void autogd_add_halves(float *one, float *other, int64_t N, int half);
/* The sum of squares of the numbers of A^2. */
double autogd_square_of_square(const float *triangle, int64_t N, float *room, int half);
/* triangle becomes (triangle * scale + pole * I)^-1, or zero where rounding has left no Cholesky factor. */
void autogd_invert(float *triangle, int64_t N, float scale, float pole);
/* one becomes scale * (whole * I + a * one + b * other). */
void autogd_add_fractions(float *one, const float *other, int64_t N, float a, float b, float whole, float scale, int half);
/* A triangle becomes a square in the same place: its rows of tiles move apart, and then the other tiles are filled in. */
void autogd_spread(float *square, int64_t N);
void autogd_mirror(float *square, int64_t N, int half);
/* out = square x: sixteen columns, `stride` numbers apart. */
void autogd_multiply(float *out, const float *square, int64_t N, const float *x, int64_t stride);

#endif
