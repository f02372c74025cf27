/* quantizer.h - a GPU as the device of `auk quantize`, in programs built with CUDA. */
#pragma once

#include "quantize/quantizer.h"

extern const Quantizer cuda_quantizer;
