// SPDX-License-Identifier: Apache-2.0
// Declares the part of NCCL that collectives use, under Lockstep's own names. The implementation is the machine's NCCL,
// loaded when first needed; tests put another one in its place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/spec.hpp"

namespace lockstep::nccl {

// Names a group of ranks; those that join with the same id find each other.
using NcclId = std::array<std::byte, 128>;

// Is one rank's handle in a group of ranks with one GPU each. The library defines it.
class NcclComm {
 public:
  NcclComm() = default;
  virtual ~NcclComm() = default;
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;
};

// Calls NCCL without blocking. Any call but is_busy() and leave() may leave the member busy. Until it is idle again,
// only those two may be called. Calls throw Error device with NCCL's own text. Streams and buffers belong to the
// caller, and stay until the work in the stream is done.
class NcclInterface {
 public:
  NcclInterface() = default;
  virtual ~NcclInterface() = default;
  NcclInterface(const NcclInterface&) = delete;
  NcclInterface& operator=(const NcclInterface&) = delete;

  // Returns the version for people, for example 2.19.3.
  virtual std::string version() const = 0;
  // Makes an id, which one member sends to the others before all join.
  virtual NcclId make_id() = 0;
  // Joins a group as `rank` of `size` members. leave() frees the handle.
  virtual NcclComm* join(const NcclId& id, int size, int rank, int device) = 0;
  // True while a call is under way. Throws failures since the last look, also those of other members.
  virtual bool is_busy(NcclComm* member) = 0;
  // Ends the group in order. All members must begin it; it is complete when the member is idle.
  virtual void finish(NcclComm* member) = 0;
  // Frees the member, and aborts its work unless finish() is complete.
  virtual void leave(NcclComm* member) noexcept = 0;

  // Join the calls between them into one operation, in which sends and receives may cross. The work starts at the end
  // of the group.
  virtual void begin_group() = 0;
  virtual void end_group(NcclComm* member) = 0;

  // Reduce as in MPI; `count` is in elements.
  virtual void all_reduce(NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                          gpu::Stream stream) = 0;
  virtual void reduce(NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                      int root, gpu::Stream stream) = 0;
  // Takes as `count` the elements that each member receives.
  virtual void reduce_scatter(NcclComm* member, const void* in, void* out, std::size_t count, DataType type,
                              ReduceOp op, gpu::Stream stream) = 0;
  // Move bytes; the type does not matter. all_gather takes the bytes of each member.
  virtual void all_gather(NcclComm* member, const void* in, void* out, std::size_t bytes, gpu::Stream stream) = 0;
  virtual void broadcast(NcclComm* member, const void* in, void* out, std::size_t bytes, int root,
                         gpu::Stream stream) = 0;
  virtual void send(NcclComm* member, const void* from, std::size_t bytes, int to, gpu::Stream stream) = 0;
  virtual void receive(NcclComm* member, void* to, std::size_t bytes, int from, gpu::Stream stream) = 0;
};

// True if NCCL's own reduction gives the results that Lockstep defines. Its min and max of floats ignore NaN, so they
// do not.
bool reduces(ReduceOp op, DataType type);

// Returns this process's NCCL. Null if the build or the machine has no suitable NCCL, or the process sees no GPU.
NcclInterface* library();
// Explains a null library() to people; empty if there is one.
std::string why_none();
// Replaces library() while the object lives, for tests. It owns the replacement.
class NcclOverride {
 public:
  explicit NcclOverride(std::unique_ptr<NcclInterface> library);
  ~NcclOverride();
  NcclOverride(const NcclOverride&) = delete;
  NcclOverride& operator=(const NcclOverride&) = delete;
  NcclInterface& library() const { return *library_; }

 private:
  std::unique_ptr<NcclInterface> library_;
  NcclInterface* before_;
};

// Loads NCCL; the build decides between NCCL and a stub. Returns null, and sets `why_none`, if there is none.
std::unique_ptr<NcclInterface> load(std::string& why_none);

}  // namespace lockstep::nccl
