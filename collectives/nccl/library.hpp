// SPDX-License-Identifier: Apache-2.0
// NCCL as collectives see it: what is asked of it, by our own names. Behind it is the NCCL of the machine, which is
// loaded when it is first needed; tests put something of their own there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/spec.hpp"

namespace lockstep::nccl {

// By which members find each other.
using NcclId = std::array<std::byte, 128>;

// One member's end of a group of members with a GPU each; the library's own.
class NcclComm {
 public:
  NcclComm() = default;
  virtual ~NcclComm() = default;
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;
};

// How NCCL knows memory: not at all, each member its own (from 2.19 on), all members theirs as one (from 2.27 on).
enum class RegistrationMode : std::uint8_t { none, alone, together };

// The library's own word for memory that it knows.
class Registration {
 public:
  Registration() = default;
  virtual ~Registration() = default;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
};

// Nothing blocks; every call but is_busy() and leave() may leave the member busy, and then nothing but those two may be
// called before it is not. Throws Error device, with NCCL's words.
class NcclInterface {
 public:
  NcclInterface() = default;
  virtual ~NcclInterface() = default;
  NcclInterface(const NcclInterface&) = delete;
  NcclInterface& operator=(const NcclInterface&) = delete;

  virtual std::string version() const = 0;
  virtual NcclId make_id() = 0;
  virtual NcclComm* join(const NcclId& id, int size, int rank, int device) = 0;
  // Throws what failed since, also on other members.
  virtual bool is_busy(NcclComm* member) = 0;
  // In order: begun by all members, and over when the member is not busy any more.
  virtual void finish(NcclComm* member) = 0;
  // The member is gone; what it had under way is broken off, unless it had finished.
  virtual void leave(NcclComm* member) noexcept = 0;

  // What it can do at most.
  virtual RegistrationMode registering() const = 0;
  // Memory that it can know, of a device. Throws Error out_of_memory.
  virtual std::byte* allocate(int device, std::size_t bytes) = 0;
  // Of what it does not know any more, and the GPU does not use.
  virtual void free(std::byte* memory) noexcept = 0;
  // By all members together, as much by each; done when the member is not busy.
  virtual std::unique_ptr<Registration> add(NcclComm* member, std::byte* memory, std::size_t bytes,
                                            RegistrationMode how) = 0;
  virtual void remove(NcclComm* member, Registration& registration) = 0;

  // What comes between is one operation, in which messages cross; nothing starts before its end.
  virtual void begin_group() = 0;
  virtual void end_group(NcclComm* member) = 0;

  virtual void all_reduce(NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                          gpu::Stream stream) = 0;
  virtual void reduce(NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                      int root, gpu::Stream stream) = 0;
  // `count`: of what each member gets.
  virtual void reduce_scatter(NcclComm* member, const void* in, void* out, std::size_t count, DataType type,
                              ReduceOp op, gpu::Stream stream) = 0;
  virtual void all_gather(NcclComm* member, const void* in, void* out, std::size_t bytes, gpu::Stream stream) = 0;
  virtual void broadcast(NcclComm* member, const void* in, void* out, std::size_t bytes, int root,
                         gpu::Stream stream) = 0;
  virtual void send(NcclComm* member, const void* from, std::size_t bytes, int to, gpu::Stream stream) = 0;
  virtual void receive(NcclComm* member, void* to, std::size_t bytes, int from, gpu::Stream stream) = 0;
};

// Whether NCCL itself reduces so, to what the operation means here: its min and max of floats pass over NaN.
bool reduces(ReduceOp op, DataType type);

// What this process has; nothing where the build has no NCCL, the machine none that fits, or the process no GPU.
NcclInterface* library();
// Why there is none, for people; empty where there is one.
std::string why_none();
// Puts another one in its place, until it is gone: for tests.
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

// By the build: with NCCL, or without. Nothing, and why, where there is none.
std::unique_ptr<NcclInterface> load(std::string& why_none);

}  // namespace lockstep::nccl
