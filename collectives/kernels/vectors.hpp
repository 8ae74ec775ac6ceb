// SPDX-License-Identifier: Apache-2.0
// Chooses the sets of vector instructions that kernels are compiled for. It must be included before any header of
// Highway.
#pragma once

// Processors without AVX2 take the scalar kernels. Servers have had AVX2 since 2013, and each set of instructions costs
// the build about 50 seconds of processor time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
