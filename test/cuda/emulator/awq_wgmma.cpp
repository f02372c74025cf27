/* awq_wgmma.cpp - in place of cuda/awq_wgmma.cu: the emulated chip has no wgmma, so the table never asks for
 * it. */
#include "cuda/launch.cuh"

static Status launch_awq_wgmma(const LinearArgs &args, Error *err) {
  return error_set(err, STATUS_FAILED, "%s: no wgmma here", args.w->name);
}

extern const LinearKernel awq_wgmma_kernel = {nullptr, launch_awq_wgmma, false};
