// SPDX-License-Identifier: Apache-2.0
// Knows the variables of Open MPI, MPICH, Slurm, PALS, and launchers that set WORLD_SIZE.
#include "topology/machine/launcher.hpp"

#include <array>
#include <string_view>

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

struct Launcher {
  const char* size;      // the variable that has the number of processes
  const char* presence;  // must be set too; null: no second variable
  std::string_view command;
};

// Slurm sets SLURM_NTASKS in batch scripts too, where one process is right. Only a job step sets the SLURM_STEP_
// variables.
constexpr std::array launchers = {
    Launcher{"OMPI_COMM_WORLD_SIZE", nullptr,
             "start it with the mpirun of the MPI library it was built with (lockstep --version), not with Open MPI's"},
    Launcher{"PMI_SIZE", nullptr,
             "start it with the mpirun of the MPI library it was built with (lockstep --version), not with MPICH's; "
             "under Slurm: srun --mpi=pmix"},
    Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID",
             "srun --mpi=pmix -n {} PROGRAM (srun --mpi=list shows the choices), or mpirun -n {} PROGRAM inside an "
             "allocation"},
    Launcher{"PALS_APP_SIZE", nullptr,
             "start it with an MPI library that knows this launcher, or mpirun -n {} PROGRAM"},
    Launcher{"WORLD_SIZE", "RANK", "mpirun -n {} PROGRAM; or set TF_CONFIG, which names a cluster without MPI"},
};

std::string fill(std::string_view command, int size) {
  std::string all(command);
  for (std::size_t at = all.find("{}"); at != std::string::npos; at = all.find("{}")) all.replace(at, 2, text(size));
  return all;
}

}  // namespace

std::optional<LauncherHint> launcher_hint(const Environment& environment) {
  for (const Launcher& launcher : launchers) {
    const char* value = environment(launcher.size);
    if (value == nullptr) continue;
    if (launcher.presence != nullptr && environment(launcher.presence) == nullptr) continue;
    const auto size = parse_integer(trim(value));
    if (size && *size == 1 && launcher.presence == nullptr) return std::nullopt;  // mpirun -n 1 inside another launcher
    if (!size || *size <= 1 || *size > 1 << 24) continue;
    return LauncherHint{launcher.size, static_cast<int>(*size), fill(launcher.command, static_cast<int>(*size))};
  }
  return std::nullopt;
}

std::optional<int> launcher_rank(const Environment& environment) {
  struct LauncherVariables {
    const char* rank;
    const char* size;  // must be set too: other programs use names such as RANK for other things
  };
  constexpr std::array sources = {
      LauncherVariables{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, LauncherVariables{"PMI_RANK", "PMI_SIZE"},
      LauncherVariables{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, LauncherVariables{"RANK", "WORLD_SIZE"}};
  for (const LauncherVariables& source : sources) {
    const char* rank_text = environment(source.rank);
    const char* size_text = environment(source.size);
    if (rank_text == nullptr || size_text == nullptr) continue;
    const auto rank = parse_integer(trim(rank_text));
    const auto size = parse_integer(trim(size_text));
    if (rank && size && *rank >= 0 && *rank < *size && *size < 1 << 24) return static_cast<int>(*rank);
  }
  return std::nullopt;
}

// Reads Open MPI's own setting, which it hands down to the processes wherever it was given.
bool launcher_keeps_survivors(const Environment& environment) {
  const char* value = environment("OMPI_MCA_orte_enable_recovery");
  return value != nullptr && std::string_view(value) != "0" && std::string_view(value) != "false";
}

bool tf_config_names_cluster(const Environment& environment) {
  const char* value = environment("TF_CONFIG");
  // The resolver checks the form. An empty cluster names nothing.
  return value != nullptr && std::string_view(value).find("\"cluster\"") != std::string_view::npos;
}

}  // namespace lockstep
