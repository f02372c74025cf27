/* parts.h - how the GPU holds a layer's matrices. Called by: weights.c, prepare.c. */
#pragma once

#include "cuda/device_model.h"

typedef enum {
  HELD_JOINED,    /* DeviceLayer.joined[which] */
  HELD_ALONE,     /* DeviceLayer.linear[which] */
  HELD_APART,     /* the same where it multiplies another input than the layer's; else it is joined */
  HELD_ON_DEVICE, /* the same, never in the host's memory */
  HELD_ROUTER,    /* likewise; kernels of the router's read it */
  HELD_EXPERTS,   /* DeviceLayer.experts */
  HELD_HEADS,     /* key_heads and value_heads */
  HELD_SMALL,     /* DeviceLayer.small[which - LAYER_ALTUP_ROUTER] */
} Holding;

/* All that a layer may have, in the order of memory. */
typedef struct {
  Holding how;
  int which; /* JOINED_INPUTS .., or a linear layer */
} HeldMatrix;
enum { N_HELD = 27 };
extern const HeldMatrix held_matrices[N_HELD];

/* The matrices of joined[which], in the order of outputs: returns their number. */
int parts_joined(const ModelConfig *config, int layer, const ModelLayer *from, int which,
                 const Linear *out[MAX_PROJECTIONS]);
/* True if linear layer `which` multiplies another input than the layer's: with a gate_rank z and a of the
 * delta rule, with a q_rank q. */
bool parts_are_apart(const ModelConfig *config, int which);
