// SPDX-License-Identifier: Apache-2.0
// NCCL for machines without a GPU, among threads: its operations meet in streams that the tests make, and members that
// would hang it by differing from each other are told so.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "collectives/nccl/library.hpp"
#include "tests/collectives/gpu/fake_gpus.hpp"

namespace lockstep::test {

class FakeNccl final : public nccl::NcclInterface {
 public:
  // What all members must have alike.
  struct Asked {
    Collective collective;
    std::size_t count;
    DataType type;
    ReduceOp op;
    int root;
    bool operator==(const Asked&) const = default;
  };

  // Of GPUs that live as long.
  explicit FakeNccl(FakeGpus& gpus) : gpus_(gpus) {}

  std::string version() const override { return "0.0.0"; }
  nccl::NcclId make_id() override;
  nccl::NcclComm* join(const nccl::NcclId& id, int size, int rank, int device) override;
  bool is_busy(nccl::NcclComm* member) override;
  void finish(nccl::NcclComm* member) override;
  void leave(nccl::NcclComm* member) noexcept override;
  void begin_group() override;
  void end_group(nccl::NcclComm* member) override;
  void all_reduce(nccl::NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                  gpu::Stream stream) override;
  void reduce(nccl::NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
              int root, gpu::Stream stream) override;
  void reduce_scatter(nccl::NcclComm* member, const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                      gpu::Stream stream) override;
  void all_gather(nccl::NcclComm* member, const void* in, void* out, std::size_t bytes, gpu::Stream stream) override;
  void broadcast(nccl::NcclComm* member, const void* in, void* out, std::size_t bytes, int root,
                 gpu::Stream stream) override;
  void send(nccl::NcclComm* member, const void* from, std::size_t bytes, int to, gpu::Stream stream) override;
  void receive(nccl::NcclComm* member, void* to, std::size_t bytes, int from, gpu::Stream stream) override;

  // Operations by all members, a group as one.
  int operations() const { return operations_; }
  // Members that have joined and not left.
  int living() const { return living_; }

  // Of the thread that calls it: the call after so many more fails.
  static void fail_after(int more);
  // A group that is under way fails on all members, as a link that breaks does.
  void break_all();
  // Who leaves does not come to an end of it before it is let go.
  void hold(bool holds) { holds_ = holds; }

 private:
  struct Group;
  static void fail_if_told();
  void collective(nccl::NcclComm* member, const Asked& asked, const void* in, void* out, gpu::Stream stream);
  void put(nccl::NcclComm* member, std::function<void()> work, bool is_first, gpu::Stream stream);

  FakeGpus& gpus_;
  std::mutex mutex_;
  int ids_ = 0;
  std::map<nccl::NcclId, std::shared_ptr<Group>> groups_;
  std::atomic<int> operations_ = 0;
  std::atomic<int> living_ = 0;
  std::atomic<bool> holds_ = false;
};

}  // namespace lockstep::test
