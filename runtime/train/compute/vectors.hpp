// SPDX-License-Identifier: Apache-2.0
// Chooses the sets of vector instructions that the trainer's kernels are compiled for. It must be included before any
// header of Highway.
#pragma once

// Processors without AVX2 take the baseline. The newer sets of AVX-512 add nothing that products use. Vectors of
// unknown length cannot be held in arrays.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
