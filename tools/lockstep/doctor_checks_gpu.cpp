// SPDX-License-Identifier: Apache-2.0
// Checks GPUs: their drivers, their sharing, their state, and NCCL.
#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "tools/lockstep/doctor_checks.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/device.hpp"

namespace lockstep::command::check {
namespace {

std::string spell_cuda(int version) { return text(version / 1000, ".", version % 1000 / 10); }

void judge_gpu(const JobView& view, int rank, CheckOutcome& outcome) {
  const Facts& facts = view.of(rank);
  const std::size_t present = view.topology.machine_of(rank).gpus.size();
  if (!facts.gpu_ids.empty() || (present == 0 && facts.gpu_driver == 0)) return;
  const IndexSet here{rank};
  constexpr std::string_view unused = "the GPUs of the node stay idle";
  if (!facts.gpu_built) {
    outcome.add({Grade::note, here, text(counted(present, "GPU"), " in the machine, but this build has no CUDA"),
                 std::string(unused), "build with it: meson setup -Dcuda=enabled -Dnccl=enabled BUILD"});
  } else if (facts.gpu_driver == 0) {
    outcome.add(
        {Grade::note, here, text(counted(present, "GPU"), " in the machine, but no driver"), std::string(unused),
         facts.container.empty() ? "install the GPU's driver; nvidia-smi shows whether it works"
                                 : "docker run --gpus all ... (needs the container toolkit of the GPU's maker)"});
  } else if (facts.gpu_driver < facts.gpu_runtime) {
    outcome.add({Grade::broken, here,
                 text("the driver knows CUDA ", spell_cuda(facts.gpu_driver), ", this build needs ",
                      spell_cuda(facts.gpu_runtime)),
                 "no GPU can be used",
                 text("install a driver for CUDA ", spell_cuda(facts.gpu_runtime), " or newer, or build with CUDA ",
                      spell_cuda(facts.gpu_driver))});
  } else {
    outcome.add({Grade::note, here, text("no GPU can be used: ", printable(facts.why_no_gpu, 200)), std::string(unused),
                 "check CUDA_VISIBLE_DEVICES, nvidia-smi and the batch system's --gpus"});
  }
}

}  // namespace

CheckOutcome gpu_driver(const JobView& view) {
  CheckOutcome outcome;
  IndexSet with;
  for (int rank = 0; rank < view.size(); ++rank) {
    judge_gpu(view, rank, outcome);
    if (!view.of(rank).gpu_ids.empty()) with.insert(rank);
  }
  IndexSet without;
  for (int rank = 0; rank < view.size(); ++rank) {
    if (!with.contains(rank)) without.insert(rank);
  }
  if (!with.empty() && !without.empty()) {
    outcome.add({Grade::slow, without,
                 text("no GPU is seen here, while ", name_ranks(with), with.size() == 1 ? " sees one" : " see some"),
                 "the ranks with a GPU wait for those without",
                 "give every rank a GPU (Slurm: --gpus-per-task=1), or run on nodes of one kind"});
  }
  const auto drivers = group_ranks(view, [](const Facts& facts) { return spell_cuda(facts.gpu_driver); });
  if (without.empty() && drivers.size() > 1) {
    outcome.add({Grade::note, odd_ones(drivers), text("the driver knows CUDA ", by_ranks(drivers)),
                 "GPUs of different drivers may not exchange memory in all ways", "install one driver on all nodes"});
  }
  const Facts& mine = view.of(0);
  outcome.summary = with.empty() ? "no GPU in the machines"
                                 : text("driver for CUDA ", spell_cuda(mine.gpu_driver), ", built with ",
                                        spell_cuda(mine.gpu_runtime));
  return outcome;
}

// Every rank takes the first GPU that it sees, if the program does not choose another.
CheckOutcome gpu_sharing(const JobView& view) {
  std::map<std::string, IndexSet> first_of;
  for (int rank = 0; rank < view.size(); ++rank) {
    if (!view.of(rank).gpu_ids.empty()) first_of[view.of(rank).gpu_ids.front()].insert(rank);
  }
  CheckOutcome outcome{first_of.empty() ? "no rank has a GPU" : "every rank has a GPU of its own", {}};
  for (const auto& [gpu, ranks] : first_of) {
    if (ranks.size() < 2) continue;
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (const int rank : ranks.members()) fewest = std::min(fewest, view.of(rank).gpu_ids.size());
    const bool can_part = fewest >= ranks.size();
    outcome.add({can_part ? Grade::note : Grade::slow, ranks,
                 can_part ? text("the first GPU of all of them is ", printable(gpu), ", of ", fewest, " that they see")
                          : text("all of them use one GPU, ", printable(gpu)),
                 "they take turns on it, and NCCL before 2.30 refuses two ranks on one GPU",
                 text("give each rank its own: mpirun ... sh -c 'CUDA_VISIBLE_DEVICES=$",
                      is_open_mpi(view.of(ranks.first())) ? "OMPI_COMM_WORLD_LOCAL_RANK" : "MPI_LOCALRANKID",
                      " exec \"$@\"' sh PROGRAM (Slurm: --gpus-per-task=1), or fewer ranks on a node")});
  }
  return outcome;
}

namespace {

IndexSet ranks_with(const JobView& view, std::string_view state) {
  IndexSet ranks;
  for (int rank = 0; rank < view.size(); ++rank) {
    for (const std::string& each : view.of(rank).gpu_states) {
      if (each.find(state) != std::string::npos) ranks.insert(rank);
    }
  }
  return ranks;
}

}  // namespace

CheckOutcome gpu_state(const JobView& view) {
  CheckOutcome outcome;
  bool has_any = false;
  for (int rank = 0; rank < view.size(); ++rank) has_any = has_any || !view.of(rank).gpu_ids.empty();
  outcome.summary = has_any ? "whole GPUs, for any number of processes, with ECC" : "no rank has a GPU";
  const auto add = [&](std::string_view state, Grade grade, std::string_view what, std::string_view effect,
                       std::string_view fix) {
    const IndexSet ranks = ranks_with(view, state);
    if (!ranks.empty()) outcome.add({grade, ranks, std::string(what), std::string(effect), std::string(fix)});
  };
  add(VisibleGpu::prohibited, Grade::broken, "a GPU is set to run nothing (compute mode: prohibited)",
      "every call on it fails", "nvidia-smi -c DEFAULT, by the administrator");
  add(VisibleGpu::exclusive, Grade::note, "a GPU is for one process only (compute mode: exclusive)",
      "ranks that share it fail when the second one begins", "give each rank its own, or nvidia-smi -c DEFAULT");
  add(VisibleGpu::slice, Grade::note, "a GPU is a slice of one (MIG)",
      "slices cannot reach each other's memory or use NCCL's fast paths, and get a part of the bandwidth",
      "for training across GPUs ask for whole ones (nvidia-smi -mig 0, by the administrator)");
  add(VisibleGpu::no_ecc, Grade::note, "a GPU's memory does not correct flipped bits (ECC is off)",
      "wrong results may pass unnoticed", "nvidia-smi -e 1 and a restart, by the administrator");
  return outcome;
}

CheckOutcome nccl_library(const JobView& view) {
  std::map<std::string, IndexSet> versions;
  IndexSet without;
  for (int rank = 0; rank < view.size(); ++rank) {
    const Facts& facts = view.of(rank);
    if (facts.gpu_ids.empty()) continue;
    if (facts.nccl.empty())
      without.insert(rank);
    else
      versions[facts.nccl].insert(rank);
  }
  if (versions.empty() && without.empty()) return {"no rank has a GPU", {}};
  CheckOutcome outcome{versions.empty() ? "none" : text("NCCL ", versions.begin()->first), {}};
  if (!without.empty()) {
    const std::string why = printable(view.of(without.first()).why_no_nccl, 200);
    outcome.add(
        {Grade::slow, without, text("no NCCL: ", why), "data in GPU memory goes through the host",
         "install libnccl2 (pip: nvidia-nccl-cu13) and let LD_LIBRARY_PATH name its folder; a build needs nccl.h"});
  }
  if (versions.size() > 1) {
    outcome.add({Grade::broken, odd_ones(versions), text("NCCL ", by_ranks(versions)),
                 "different versions of NCCL do not work together", "install one NCCL on all nodes"});
  }
  return outcome;
}

}  // namespace lockstep::command::check
