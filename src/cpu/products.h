/* products.h - matrices that a device has no memory for, multiplied by the CPU on its behalf.
 *
 * The weights stay in the Model's memory and are not copied. Functions other than open and close neither
 * allocate nor fail, so they may run as host functions of a CUDA stream, one at a time. A row's results have
 * the bits of the CPU backend, whatever the other rows and the number of threads. */
#pragma once

#include "model/model.h"

typedef struct CpuProducts CpuProducts;

/* Opens products of a model that model_prepare() has prepared, for calls of at most max_rows rows, with
 * team_size(n_threads) threads, or fewer if not all can be made. Errors: there is no memory. */
Status cpu_products_open(const Model *model, int n_threads, int max_rows, CpuProducts **out, Error *err);
void cpu_products_close(CpuProducts *products); /* NULL is fine */

/* The name of the instruction set, which decides the bits of results. */
const char *cpu_products_arithmetic(const CpuProducts *products);

/* The stride, in floats, of rows of x with n numbers each; zeros fill the rest of a row. */
int cpu_products_stride(int n);

/* Rows of x, cpu_products_stride(inputs) apart, and of y. */
typedef struct {
  const float *x;
  int n_rows;
  float *y; /* [n_rows][y_stride] */
  int y_stride;
} ProductRows;

/* y = W x + bias of the layer's linear layers which[0 .. n) (model/layers.h), n <= MAX_MATMULS (cpu.h), with
 * their outputs side by side in a row of y. */
void cpu_products_stacked(CpuProducts *products, int layer, const int *which, int n, ProductRows rows);

/* y = g(Wgate x + bias, Wup x + bias). config.h, "Activation", defines g. */
void cpu_products_gated(CpuProducts *products, int layer, ProductRows rows);

/* y = sum over i, in order, of weights[row][i] * (Wdown g + bias), with the matrices of expert ids[row][i]
 * and g as in cpu_products_gated(). With scales_input the weight multiplies x instead. ids, weights:
 * [n_rows][n_chosen]; a wrong id means expert 0. */
void cpu_products_experts(CpuProducts *products, int layer, const int *ids, const float *weights,
                          ProductRows rows);
