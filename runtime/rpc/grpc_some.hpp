// SPDX-License-Identifier: Apache-2.0
// Defines the details that the gRPC server and client share: names, limits, and bytes in messages.
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

// Precedes the name of a function in gRPC's path.
inline constexpr std::string_view service = "/lockstep.Rpc/";
// Names the function that tells a server's nonce to every caller, if the server has a key.
inline constexpr std::string_view hello = "lockstep.hello";
// Names the metadata by which a call proves the key.
inline constexpr const char* proof_name = "lockstep-proof-bin";
// Limits a message, in bytes. gRPC's own limit is below 2 GiB.
inline constexpr int most_bytes = 1 << 30;

// Silences gRPC's messages on standard error, which repeat our errors. The variable GRPC_VERBOSITY keeps them.
inline void silence_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    refuse_code_of_the_user();
    if (process_environment("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args* /*line*/) {});
  });
}

// Returns the time after a delay, by the monotonic clock.
inline gpr_timespec after(std::chrono::nanoseconds time) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(time.count(), GPR_TIMESPAN));
}

inline grpc::ByteBuffer to_buffer(const Bytes& bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return {&slice, 1};
}
// Returns no bytes if gRPC cannot give them.
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
