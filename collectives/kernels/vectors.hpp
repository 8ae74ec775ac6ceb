// SPDX-License-Identifier: Apache-2.0
// Which sets of vector instructions there are kernels for. To be included before anything of Highway's.
#pragma once

// Processors that have SSSE3 but not SSE4 are older than 2010; without this set they take the scalar kernels.
#define HWY_DISABLED_TARGETS HWY_SSSE3
