// SPDX-License-Identifier: Apache-2.0
// What the gRPC server and client have in common: how names and bytes travel.
#pragma once

#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <mutex>
#include <string>

#include "topology/base/bytes.hpp"
#include "topology/base/environment.hpp"

namespace lockstep::rpc::detail {

// Before the name of a function, in gRPC's path.
inline constexpr std::string_view service = "/lockstep.Rpc/";
// Tells the nonce of a server that has a key, to whoever asks.
inline constexpr std::string_view hello = "lockstep.hello";
// Metadata of a call that proves the key.
inline constexpr const char* proof_name = "lockstep-proof-bin";
// A message of gRPC has less than 2 GiB.
inline constexpr int most_bytes = 1 << 30;

// gRPC tells standard error what our errors say as well; whoever wants to see it sets GRPC_VERBOSITY.
inline void quieten() {
  static std::once_flag once;
  std::call_once(once, [] {
    refuse_code_of_the_user();
    if (process_environment("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args* /*line*/) {});
  });
}

// By the clock that nobody sets.
inline gpr_timespec after(std::chrono::nanoseconds time) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(time.count(), GPR_TIMESPAN));
}

inline grpc::ByteBuffer to_buffer(const Bytes& bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return {&slice, 1};
}
inline Bytes from_buffer(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  Bytes all;
  if (!buffer.Dump(&slices).ok()) return all;
  all.reserve(buffer.Length());
  for (const grpc::Slice& each : slices) {
    const auto* const begin = reinterpret_cast<const std::byte*>(each.begin());
    all.insert(all.end(), begin, begin + each.size());
  }
  return all;
}

}  // namespace lockstep::rpc::detail
