// SPDX-License-Identifier: Apache-2.0
// Whether a sanitizer watches this program, which then needs several times the time and memory.
#pragma once

#ifdef __has_feature  // clang's way to say so; g++ defines __SANITIZE_
#define LOCKSTEP_HAS_FEATURE(name) __has_feature(name)
#else
#define LOCKSTEP_HAS_FEATURE(name) 0
#endif

namespace lockstep::test {

// By ThreadSanitizer, which takes what libraries do that it was not built into for races.
#if defined(__SANITIZE_THREAD__) || LOCKSTEP_HAS_FEATURE(thread_sanitizer)
inline constexpr bool watched_for_races = true;
#else
inline constexpr bool watched_for_races = false;
#endif

#if defined(__SANITIZE_ADDRESS__) || LOCKSTEP_HAS_FEATURE(address_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = watched_for_races;
#endif

}  // namespace lockstep::test

#undef LOCKSTEP_HAS_FEATURE
