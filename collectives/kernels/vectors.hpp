// SPDX-License-Identifier: Apache-2.0
// Chooses the sets of vector instructions that kernels are compiled for. It must be included before any header of
// Highway.
#pragma once

// Processors that have SSSE3 but not SSE4 are older than 2010; without this set they take the scalar kernels.
#define HWY_DISABLED_TARGETS HWY_SSSE3
