// SPDX-License-Identifier: Apache-2.0
// Whether a sanitizer watches this program, which then needs several times the time and memory.
#pragma once

namespace lockstep::test {

inline constexpr bool sanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

}  // namespace lockstep::test
