// SPDX-License-Identifier: Apache-2.0
// Checks the baselines of --device gpu, and puts the buffers on GPUs.
#include "tools/lockstep/bench_gpu.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "collectives/nccl/library.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/device.hpp"

namespace lockstep::command {

void refuse_what_gpus_have_not(const std::vector<std::string>& baselines) {
  constexpr std::array<std::string_view, 5> known = {"nccl", "host", "mpi", "mpi:best", "none"};
  for (const std::string& each : baselines) {
    if (each.starts_with("file:") || std::ranges::find(known, each) != known.end()) continue;
    throw Error(Code::usage, text("--baseline ", printable(each), " with --device gpu"),
                "choose from nccl, host, mpi, mpi:best, none and file:EARLIER.json");
  }
}

void put_on_gpus(Communicator& world, const std::vector<std::string>& baselines, bench::BenchOptions& bench_options,
                 bench::BenchRun& run) {
  const auto has = [&](std::string_view name) { return std::ranges::find(baselines, name) != baselines.end(); };
  bench_options.gpu = bench::choose_gpu(world);
  bench_options.against_host = has("host");
  if (has("nccl")) bench_options.against_nccl = bench::NcclBaseline::make(world, *bench_options.gpu);
  run.settings.push_back({"device", "gpu"});
  const VisibleGpus devices = read_visible_gpus();
  const auto mine = static_cast<std::size_t>(*bench_options.gpu);
  if (mine < devices.gpus.size()) run.machine.push_back({"gpu", devices.gpus[mine].name});
  if (const nccl::NcclInterface* const library = nccl::library()) run.machine.push_back({"nccl", library->version()});
  if (has("nccl") && !bench_options.against_nccl)
    run.settings.push_back({"left out",
                            "nccl: not found, or ranks share a GPU, which needs NCCL 2.30 and "
                            "NCCL_MULTI_RANK_GPU_ENABLE"});
}

}  // namespace lockstep::command
