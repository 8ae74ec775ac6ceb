// What gpu-probe asks of NCCL: does it run with one rank, and what does it say to two ranks on one GPU. The library is
// opened at run time (GPU_PROBE_NCCL names another one), and the few things needed of it are declared here.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdlib>

#include "probe_gpu.cuh"

namespace gpu_probe {
namespace {

struct NcclId {
  std::array<char, 128> bytes;
};

class Nccl {
 public:
  using Communicator = void*;
  static constexpr int int32 = 2;
  static constexpr int sum = 0;

  Nccl() : library_(nccl_candidates()) {}
  int version() const {
    int code = 0;
    expect(library_.find<int(int*)>("ncclGetVersion")(&code), "ncclGetVersion");
    return code;
  }
  NcclId id() const {
    NcclId made{};
    expect(library_.find<int(NcclId*)>("ncclGetUniqueId")(&made), "ncclGetUniqueId");
    return made;
  }
  int start(Communicator* communicator, int ranks, NcclId id, int rank) const {
    return library_.find<int(Communicator*, int, NcclId, int)>("ncclCommInitRank")(communicator, ranks, id, rank);
  }
  void all_reduce(int* data, std::size_t count, Communicator communicator) const {
    using Call = int(const void*, void*, std::size_t, int, int, Communicator, cudaStream_t);
    expect(library_.find<Call>("ncclAllReduce")(data, data, count, int32, sum, communicator, nullptr), "ncclAllReduce");
  }
  void stop(Communicator communicator) const { library_.find<int(Communicator)>("ncclCommDestroy")(communicator); }
  std::string error(int status) const {
    return text(status, " (", library_.find<const char*(int)>("ncclGetErrorString")(status), ")");
  }
  void expect(int status, std::string_view what) const {
    if (status != 0) throw Refused(text(what, " returned ", error(status)));
  }

 private:
  Library library_;
};

// Every rank gives rank + 1 in every element; the microseconds of one call, or Refused when the sum is wrong.
double time_all_reduce(const Nccl& nccl, Nccl::Communicator communicator, int rank, int ranks) {
  constexpr std::size_t count = 1 << 18;
  const std::vector<int> mine(count, rank + 1);
  std::vector<int> sum(count);
  const DeviceMemory data(count * sizeof(int));
  const auto give = [&] { check(cudaMemcpy(data.as(), mine.data(), data.size(), cudaMemcpyHostToDevice)); };
  give();
  nccl.all_reduce(data.as<int>(), count, communicator);
  check(cudaMemcpy(sum.data(), data.as(), data.size(), cudaMemcpyDeviceToHost));
  require(std::count(sum.begin(), sum.end(), ranks * (ranks + 1) / 2) == static_cast<long>(count),
          "NCCL's sum is wrong");
  constexpr int calls = 20;
  check(cudaDeviceSynchronize());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) nccl.all_reduce(data.as<int>(), count, communicator);
  check(cudaDeviceSynchronize());
  return seconds_since(start) / calls * 1e6;
}

void ask_one_rank(Answer& answer) {
  check(cudaFree(nullptr));
  const Nccl nccl;
  Nccl::Communicator communicator = nullptr;
  const auto start = std::chrono::steady_clock::now();
  nccl.expect(nccl.start(&communicator, 1, nccl.id(), 0), "ncclCommInitRank with one rank");
  answer.figure("start", seconds_since(start) * 1e3, "ms");
  answer.figure("all-reduce of 1 MiB", time_all_reduce(nccl, communicator, 0, 1), "us");
  nccl.stop(communicator);
  answer.say(text("yes: version code ", nccl.version(), " runs"));
}

struct Verdict {
  int status;
  double all_reduce_us;
};

Verdict join(const Nccl& nccl, NcclId id, int rank, Channel& channel) {
  Nccl::Communicator communicator = nullptr;
  Verdict mine{nccl.start(&communicator, 2, id, rank), 0};
  channel.send(mine.status);
  if (channel.receive<int>() != 0 || mine.status != 0) return mine;
  mine.all_reduce_us = time_all_reduce(nccl, communicator, rank, 2);
  channel.meet();
  nccl.stop(communicator);
  return mine;
}

void ask_two_ranks(Answer& answer, const char* id) {
  Partner partner(id);
  check(cudaFree(nullptr));
  setenv("NCCL_DEBUG", "WARN", 0);
  const Nccl nccl;
  const NcclId unique = nccl.id();
  partner.channel().send(unique);
  const Verdict mine = join(nccl, unique, 0, partner.channel());
  const auto theirs = partner.channel().receive<Verdict>();
  const std::string first = nccl.error(mine.status);
  const std::string second = nccl.error(theirs.status);
  if (mine.status != 0 || theirs.status != 0) {
    answer.say(text("refused by version code ", nccl.version(), ": rank 0 gets ", first, ", rank 1 gets ", second));
    return;
  }
  answer.figure("all-reduce of 1 MiB", mine.all_reduce_us, "us");
  answer.say(text("permitted by version code ", nccl.version()));
}

void join_as_second(Channel& channel) {
  check(cudaFree(nullptr));
  const Nccl nccl;
  const auto id = channel.receive<NcclId>();
  channel.send(join(nccl, id, 1, channel));
}

void ask_shared(Answer& answer) { ask_two_ranks(answer, "nccl_shared_gpu"); }

// Known to NCCL from 2.30 on; older versions ignore the variables and refuse. See OPEN.md.
void permit_sharing() {
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setenv("NCCL_MAX_CTAS", "2", 0);
}

void ask_shared_permitted(Answer& answer) {
  permit_sharing();
  ask_two_ranks(answer, "nccl_shared_permitted");
}

constexpr std::array questions{
    Question{"nccl_one_rank", "does NCCL run with one rank?", Needs::gpu, ask_one_rank},
    Question{"nccl_shared_gpu", "two ranks on one GPU: what says NCCL?", Needs::gpu, ask_shared, join_as_second},
    Question{"nccl_shared_permitted", "... with 2.30's permission set?", Needs::gpu, ask_shared_permitted,
             join_as_second, 90},
};

}  // namespace

std::span<const Question> nccl_questions() { return questions; }

}  // namespace gpu_probe
