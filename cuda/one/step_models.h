/* step_models.h - which models the fused step computes, and the shape of its plan for them. Host only:
 * programs built without CUDA have it too. Called by: fused.c. */
#pragma once

#include "cuda/kernels/fused/plan.h"
#include "model/model.h"

/* STATUS_MODEL, with the reason, if the fused step cannot compute this model. step_plan() can still refuse
 * the model's sizes. The model needs weights of one type (fp16, bf16, 4 bits in groups of 32, 64 or 128, FP4,
 * FP8 in groups of 128 or of all inputs, int8; gpt-oss: one type for q, k, v and o, one for experts), an
 * lm_head in fp16 or bf16, and heads of 64 or 128 numbers (hybrids: 256; latent attention: 512 + 64). It may
 * have only the differences (model/differences.def) of its form, STEP to LATENT_STEP in model/forms.def. */
Status step_supports(const Model *model, Error *err);

/* STATUS_OK if the config does not exclude the model; its weights still can. */
Status step_supports_config(const ModelConfig *config, Error *err);

/* step_shape() gives a shape with the members that follow from a config. The members group and attn_group
 * follow from the weights: step_group() and step_attn_group() give them. */
StepShape step_shape(const ModelConfig *config);
int step_group(const Model *model);
int step_attn_group(const Model *model);

/* StepModel.windows, the layers that have a window, and *window, the window of the last one; 0: none has. */
uint64_t step_windows(const ModelConfig *config, int *window);
