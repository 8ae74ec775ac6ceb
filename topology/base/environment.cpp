// SPDX-License-Identifier: Apache-2.0
// Looks for variables by which a library could load code that the user names.
#include "topology/base/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Some variables of each family name files that the library loads: HWLOC_PLUGINS_PATH, OMPI_MCA_mca_component_path,
// CUDA_INJECTION64_PATH. Which ones do so differs by version, so the whole family counts.
constexpr std::array<std::string_view, 6> families_of_mpi = {"MPICH_", "MPIR_", "OMPI_", "OPAL_", "PMIX_", "PRTE_"};
constexpr std::array<std::string_view, 7> other_families = {"CUDA_", "FI_",   "GRPC_", "HWLOC_",
                                                            "NCCL_", "NVTX_", "UCX_"};

bool is_of(const auto& families, std::string_view line) {
  return std::ranges::any_of(families, [&](std::string_view each) { return line.starts_with(each); });
}

}  // namespace

void refuse_code_of_the_user(bool has_program_started_mpi) {
  static std::atomic<bool> is_clean = false;
  if (is_clean || !has_raised_rights()) return;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view whole = *line;
    if (!is_of(other_families, whole) && (has_program_started_mpi || !is_of(families_of_mpi, whole))) continue;
    const std::string_view name = whole.substr(0, whole.find('='));
    throw Error(Code::usage,
                text("a program with raised rights (set-user-id, set-group-id, file capabilities) was started with ",
                     printable(name), ", and such a variable makes libraries load code of the user that started it"),
                "start it without that variable, or let it clear its environment before its first call of Lockstep");
  }
  is_clean = true;
}

}  // namespace lockstep
