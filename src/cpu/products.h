/* products.h - matrices that a device has no memory for, multiplied by the CPU on its behalf.
 *
 * Called by: cuda/products.c. The weights stay in the Model's memory, as the checkpoint has them. All but
 * open and close neither allocate nor fail, so they may run as host functions of a CUDA stream, one at a
 * time. Results are the CPU backend's own: the same bits for any other rows and number of threads. */
#pragma once

#include "model/model.h"

typedef struct CpuProducts CpuProducts;

/* For models that model_prepare() has prepared, and calls of at most max_rows rows, by team_size(n_threads)
 * threads, or as many as can be made. Errors: there is no memory. */
Status cpu_products_open(const Model *model, int n_threads, int max_rows, CpuProducts **out, Error *err);
void cpu_products_close(CpuProducts *products); /* NULL is fine */

/* The name of the instruction set, which decides the bits of results. */
const char *cpu_products_arithmetic(const CpuProducts *products);

/* The distance of rows of n numbers: x has zeros from number n on. */
int cpu_products_stride(int n);

/* Rows of x, each cpu_products_stride() of its length apart. */
typedef struct {
  const float *x;
  int n_rows;
  float *y; /* [n_rows][y_stride] */
  int y_stride;
} ProductRows;

/* y = W x + bias of the layer's linear layers which[0 .. n) (model/layers.h), n <= 4, whose outputs lie side
 * by side. */
void cpu_products_stacked(CpuProducts *products, int layer, const int *which, int n, ProductRows rows);

/* y = activation(Wgate x) * (Wup x), with their biases. */
void cpu_products_gated(CpuProducts *products, int layer, ProductRows rows);

/* y = the sum over the row's experts ids[row][i] of weights[row][i] (Wdown g + bias), g = activation(Wgate x)
 * * (Wup x), in the order of the choices; ids and weights [n_rows][n_chosen]. An id out of range counts as
 * 0. */
void cpu_products_experts(CpuProducts *products, int layer, const int *ids, const float *weights,
                          ProductRows rows);
