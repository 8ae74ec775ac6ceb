// SPDX-License-Identifier: Apache-2.0
// Asks MPI for the texts of its errors and of its version.
#include "topology/machine/mpi/check.hpp"

#include <array>
#include <string_view>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

void check_mpi(int code, const char* function, int line) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> buffer{};
  int length = 0;
  MPI_Error_string(code, buffer.data(), &length);
  throw Error(Code::mpi, text(std::string_view(buffer.data(), static_cast<std::size_t>(length)), " (in ", function,
                              ", line ", line, ")"));
}

bool mpi_has_ended() {
  int is_over = 0;
  MPI_Finalized(&is_over);
  return is_over != 0;
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> buffer{};
  int length = 0;
  MPI_Get_library_version(buffer.data(), &length);
  // MPI libraries write "Open MPI v4.1.4, package: ..." and "MPICH Version:\t4.0.2
  // MPICH Release date: ...".
  std::string all(buffer.data(), static_cast<std::size_t>(length));
  all = all.substr(0, all.find_first_of(",\n"));
  for (const std::string_view noise : {" Version:\t", " Version:", " v"}) {
    const std::size_t at = all.find(noise);
    if (at != std::string::npos) return text(all.substr(0, at), ' ', all.substr(at + noise.size()));
  }
  return all;
}

}  // namespace lockstep
