// SPDX-License-Identifier: Apache-2.0
// Loaded before a program (LD_PRELOAD): the time of day is set again and again, by years, there and back, while the
// monotonic clock goes on as it does. The kernel's stays, so who sleeps until a time of day sleeps for years: gRPC
// does, by Abseil, and sees the clock as it is unless CLOCK_JUMPS=all.
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#include <cstdlib>
#include <cstring>

namespace {

using ClockGettime = int (*)(clockid_t, timespec*);

int real(clockid_t clock, timespec* now) {
  static const auto next = reinterpret_cast<ClockGettime>(::dlsym(RTLD_NEXT, "clock_gettime"));
  return next(clock, now);
}

// Another one every 70 ms.
time_t jump() {
  constexpr time_t year = 31'556'952;
  constexpr time_t jumps[] = {0, 10 * year, -30 * year, 86'400, -3600, 5 * year, -1};
  timespec now{};
  real(CLOCK_MONOTONIC, &now);
  const long long milliseconds = now.tv_sec * 1000LL + now.tv_nsec / 1'000'000;
  return jumps[milliseconds / 70 % static_cast<long long>(sizeof jumps / sizeof jumps[0])];
}

bool is_spared(const void* caller) {
  static const bool is_anybody = std::getenv("CLOCK_JUMPS") == nullptr;
  Dl_info from{};
  if (!is_anybody || ::dladdr(caller, &from) == 0 || from.dli_fname == nullptr) return false;
  constexpr const char* spared[] = {"libgrpc", "libgpr", "libabsl"};
  for (const char* const each : spared) {
    if (std::strstr(from.dli_fname, each) != nullptr) return true;
  }
  return false;
}

int gettime(clockid_t clock, timespec* now, const void* caller) {
  const int result = real(clock, now);
  const bool is_set = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result == 0 && is_set && !is_spared(caller)) now->tv_sec += jump();
  return result;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) { return gettime(clock, now, __builtin_return_address(0)); }

int gettimeofday(timeval* __restrict now, void* __restrict /*zone*/) {
  timespec exact{};
  const int result = gettime(CLOCK_REALTIME, &exact, __builtin_return_address(0));
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return result;
}

time_t time(time_t* now) {
  timespec exact{};
  gettime(CLOCK_REALTIME, &exact, __builtin_return_address(0));
  if (now != nullptr) *now = exact.tv_sec;
  return exact.tv_sec;
}
}
