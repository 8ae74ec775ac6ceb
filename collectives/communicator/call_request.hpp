// SPDX-License-Identifier: Apache-2.0
// Describes one call without its element type: addresses, counts and the operation. Everything behind the typed
// facade works on these, so that it is compiled once for all types.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "collectives/communicator/buffers.hpp"
#include "collectives/communicator/operations.hpp"
#include "collectives/gpu/stream.hpp"
#include "collectives/origin.hpp"

namespace lockstep::detail {

// Holds one member's request for a collective. It owns no data: buffers and counts belong to the caller and must live
// until the call returns.
struct CallRequest {
  Collective collective = Collective::barrier;
  DataType type = DataType::u8;
  std::size_t element_bytes = 1;
  Reduction reduction = {.op = ReduceOp::sum};
  Order order = Order::fast;
  WireFormat wire = WireFormat::as_is;
  int root = 0;
  BufferView input = {};
  BufferView output = {};
  // Hold the number of elements that each member gives or takes in unequal forms, and the blocks' offsets in elements.
  // Empty offsets mean that blocks lie one after the other.
  std::span<const std::size_t> send_counts = {};
  std::span<const std::size_t> send_offsets = {};
  std::span<const std::size_t> receive_counts = {};
  std::span<const std::size_t> receive_offsets = {};
  Origin origin = {};
  // Holds an error that was found while the request was made; null means none. The check throws it as Error usage.
  const char* error = nullptr;
  // Names the stream that orders the call. Nothing means no stream; a null stream is the default stream.
  std::optional<gpu::Stream> stream = {};
  // Holds a hash of the tensors' shapes if several tensors are one call; see layout_of().
  std::uint64_t layout = 0;
};

// Describes a message to or from the member of rank `peer`. The caller owns the data.
struct PeerMessage {
  int peer;
  BufferView data;
  std::size_t element_bytes;
  int tag = 0;
  bool neighbours = false;  // True for a CartesianGrid's messages, which have tags of their own.
};

// Returns a text such as "all_reduce (solver.cpp:31)" for error messages.
std::string name_of(const CallRequest& request);

}  // namespace lockstep::detail
