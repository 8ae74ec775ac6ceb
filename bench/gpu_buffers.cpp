// SPDX-License-Identifier: Apache-2.0
// Mirrors buffers in GPU memory, and calls NCCL directly for the baseline.
#include "bench/gpu_buffers.hpp"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "collectives/nccl/library.hpp"
#include "topology/base/environment.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {

GpuBuffers::GpuBuffers(Communicator& world, Buffers& buffers, int device)
    : buffers_(buffers), device_(device), host_input_(buffers.input_bytes()), host_output_(buffers.output_bytes()) {
  const std::byte* const in = host_input_.data();
  const std::byte* const out = host_output_.data();
  is_one_ = in < out + host_output_.size() && out < in + host_input_.size();
  begin_ = is_one_ ? std::min(in, out) : in;
  const std::byte* const end =
      is_one_ ? std::max(in + host_input_.size(), out + host_output_.size()) : in + host_input_.size();
  bytes_ = static_cast<std::size_t>(end - begin_);
  std::string wrong;
  try {
    input_ = DeviceVector<std::byte>(bytes_, device);
    if (!is_one_) output_ = DeviceVector<std::byte>(host_output_.size(), device);
  } catch (const Error& error) {
    wrong = error.detail();
  }
  const int who = world.all_reduce(wrong.empty() ? -1 : world.rank(), max);
  if (who < 0) return;
  throw Error(Code::out_of_memory, wrong.empty() ? text("rank ", who, " lacks the memory on its GPU") : wrong,
              "give a smaller end (-e), or end other programs on that GPU (nvidia-smi)");
}

std::byte* GpuBuffers::there(const std::byte* here) const {
  if (here == nullptr) return nullptr;
  const bool is_output = !is_one_ && !host_output_.empty() && here == host_output_.data();
  return is_output ? output_.data() : input_.data() + (here - begin_);
}

detail::CallRequest GpuBuffers::request() const {
  detail::CallRequest request = buffers_.request();
  request.input.data = there(static_cast<const std::byte*>(request.input.data));
  request.output.data = there(static_cast<const std::byte*>(request.output.data));
  return request;
}

void GpuBuffers::take() {
  input_.copy_from(std::span(begin_, bytes_));
  if (!is_one_) output_.copy_from(host_output_);
}

void GpuBuffers::give_back() {
  if (!host_output_.empty()) gpu::copy(device_, host_output_.data(), output().data(), host_output_.size());
}

BenchCandidate GpuBuffers::copy(std::size_t bytes) {
  if (copied_.size() != 2 * bytes) copied_ = DeviceVector<std::byte>(2 * bytes, device_);
  return {"copy", [this, bytes] { gpu::copy(device_, copied_.data() + bytes, copied_.data(), bytes); }};
}

std::function<void(gpu::Stream)> GpuBuffers::copying(std::size_t bytes) {
  if (copied_.size() != 2 * bytes) copied_ = DeviceVector<std::byte>(2 * bytes, device_);
  return [this, bytes](gpu::Stream stream) {
    gpu::backend()->begin_copy(device_, copied_.data() + bytes, copied_.data(), bytes, stream);
  };
}

BenchCandidate GpuBuffers::staged(BenchCandidate by_host) {
  const std::size_t in = host_input_.size();
  const std::size_t out = host_output_.size();
  by_host.once = [this, in, out, pinned = gpu::backend()->pinned(std::max(in, out)), once = std::move(by_host.once)] {
    if (in > 0) gpu::copy(device_, pinned.get(), input().data(), in);
    once();
    if (out > 0) gpu::copy(device_, output().data(), pinned.get(), out);
  };
  return by_host;
}

namespace {

// Returns true if this version of NCCL, such as "2.30.1", may share a GPU.
bool bears_shared_gpus(const std::string& version) {
  const char* const permitted = process_environment("NCCL_MULTI_RANK_GPU_ENABLE");
  int major = 0;
  int minor = 0;
  if (permitted == nullptr || std::string_view(permitted) == "0") return false;
  std::istringstream words(version);
  char dot = 0;
  words >> major >> dot >> minor;
  return major > 2 || (major == 2 && minor >= 30);
}

class NcclGroupBaseline final : public NcclBaseline {
 public:
  NcclGroupBaseline(Communicator& world, const nccl::NcclId& id, int device)
      : device_(device),
        stream_(gpu::backend()->make_stream(device)),
        member_(library_.join(id, world.size(), world.rank(), device)) {
    settle();
  }
  ~NcclGroupBaseline() override {
    try {
      library_.finish(member_);
      settle();
    } catch (const Error&) {
      // The error was reported before, and is broken off.
    }
    library_.leave(member_);
    gpu::backend()->end_stream(device_, stream_);
  }
  NcclGroupBaseline(const NcclGroupBaseline&) = delete;
  NcclGroupBaseline& operator=(const NcclGroupBaseline&) = delete;

  std::optional<BenchCandidate> candidate(const Subject& subject, const GpuBuffers& on) override {
    const auto put = operation(subject, on);
    if (!put) return std::nullopt;
    return BenchCandidate{"nccl", [this, put] {
                            put(stream_);
                            gpu::backend()->wait(stream_);
                          }};
  }

  std::function<void(gpu::Stream)> operation(const Subject& subject, const GpuBuffers& on) override {
    const bool is_moved = subject.collective == Collective::all_gather || subject.collective == Collective::broadcast;
    const bool is_reduced = subject.collective == Collective::all_reduce || subject.collective == Collective::reduce ||
                            subject.collective == Collective::reduce_scatter;
    if (!is_moved && !(is_reduced && nccl::reduces(subject.op, subject.type))) return {};
    if (subject.gradients) {
      return [this, gradients = subject.gradients, data = on.output().data()](gpu::Stream stream) {
        for (const GradientBucket& bucket : gradients->buckets) put_bucket(bucket, data, stream);
      };
    }
    return [this, subject, in = on.input().data(), out = on.output().data()](gpu::Stream stream) {
      library_.begin_group();
      put(subject, in, out, stream);
      library_.end_group(member_);
      settle();
    };
  }

 private:
  // Puts a bucket's tensors into the stream, grouped as one operation of NCCL.
  void put_bucket(const GradientBucket& bucket, std::byte* data, gpu::Stream stream) const {
    library_.begin_group();
    for (const TensorRange& each : bucket.tensors) {
      std::byte* const tensor = data + each.begin * sizeof(float);
      library_.all_reduce(member_, tensor, tensor, each.count, DataType::f32, ReduceOp::sum, stream);
    }
    library_.end_group(member_);
    settle();
  }
  void settle() const {
    constexpr double most_us = 60e6;
    const double begin = now_us();
    while (library_.is_busy(member_)) {
      if (now_us() - begin > most_us)
        throw Error(Code::stall, "NCCL's own operation has not begun for 60 s", "NCCL_DEBUG=INFO shows the reason");
      std::this_thread::yield();
    }
  }
  void put(const Subject& subject, const std::byte* in, std::byte* out, gpu::Stream stream) const {
    const std::size_t bytes = subject.count * size_of(subject.type);
    switch (subject.collective) {
      case Collective::all_gather:
        return library_.all_gather(member_, in, out, bytes, stream);
      case Collective::broadcast:
        return library_.broadcast(member_, in == nullptr ? out : in, out, bytes, subject.root, stream);
      case Collective::reduce:
        return library_.reduce(member_, in, out, subject.count, subject.type, subject.op, subject.root, stream);
      case Collective::reduce_scatter:
        return library_.reduce_scatter(member_, in, out, subject.count, subject.type, subject.op, stream);
      default:
        return library_.all_reduce(member_, in, out, subject.count, subject.type, subject.op, stream);
    }
  }

  nccl::NcclInterface& library_ = *nccl::library();
  int device_;
  gpu::Stream stream_;
  nccl::NcclComm* member_;
};

}  // namespace

std::shared_ptr<NcclBaseline> NcclBaseline::make(Communicator& world, int device) {
  if (world.all_reduce(nccl::library() == nullptr ? 0 : 1, min) == 0) return nullptr;
  std::string serial = gpu::backend()->id(device);
  serial.resize(64);
  std::vector<char> all(serial.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(serial, all);
  std::set<std::string> serials;
  for (std::size_t i = 0; i < all.size(); i += serial.size()) serials.emplace(all.data() + i, serial.size());
  const bool is_shared = serials.size() < static_cast<std::size_t>(world.size());
  if (world.all_reduce(is_shared && !bears_shared_gpus(nccl::library()->version()) ? 0 : 1, min) == 0) return nullptr;
  nccl::NcclId id{};
  if (world.rank() == 0) id = nccl::library()->make_id();
  world.broadcast(id, 0);
  return std::make_shared<NcclGroupBaseline>(world, id, device);
}

int choose_gpu(Communicator& world) {
  const bool has_one = gpu::backend() != nullptr;
  const int without = world.all_reduce(has_one ? -1 : world.rank(), max);
  if (without >= 0)
    throw Error(Code::device,
                text("--device gpu: ", has_one ? text("rank ", without, " sees no GPU") : gpu::why_none()),
                "start it where every rank sees a GPU; `lockstep doctor` lists the GPUs of each rank");
  const Topology& topology = world.topology();
  const auto node_of = [&](int index) { return topology.member(world.ranks()[static_cast<std::size_t>(index)]).node; };
  int before = 0;
  for (int index = 0; index < world.rank(); ++index) before += node_of(index) == node_of(world.rank()) ? 1 : 0;
  return before % gpu::backend()->devices();
}

}  // namespace lockstep::bench
