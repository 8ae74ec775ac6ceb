// SPDX-License-Identifier: Apache-2.0
// Sets control variables of Open MPI and MPICH. Their names and meanings are those of the two libraries.
#include "bench/mpi/forced.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "topology/base/text.hpp"
#include "topology/machine/mpi/check.hpp"

namespace lockstep::bench {
namespace {

using enum Collective;

// Returns the name in both libraries' variables.
std::string_view mpi_name(Collective collective) {
  switch (collective) {
    case all_reduce:
      return "allreduce";
    case reduce:
      return "reduce";
    case reduce_scatter:
      return "reduce_scatter_block";
    case all_gather:
      return "allgather";
    case broadcast:
      return "bcast";
    case gather:
      return "gather";
    case scatter:
      return "scatter";
    case all_to_all:
      return "alltoall";
    case scan:
      return "scan";
    case exscan:
      return "exscan";
    case barrier:
      return "barrier";
    case reduce_scatter_v:
      return "reduce_scatter";
    case all_gather_v:
      return "allgatherv";
    case gather_v:
      return "gatherv";
    case scatter_v:
      return "scatterv";
    case all_to_all_v:
      return "alltoallv";
    case sendrecv:
    case split:
    case allocate:
      break;
  }
  return "sendrecv";
}

struct ControlValue {
  int number;
  std::string name;
};

// Accesses a control variable of the library that is a whole number.
class ControlVariable {
 public:
  static std::optional<ControlVariable> find(const std::string& name) {
    int index = 0;
    if (MPI_T_cvar_get_index(name.c_str(), &index) != MPI_SUCCESS) return std::nullopt;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_T_enum values = MPI_T_ENUM_NULL;
    std::array<char, 256> words = {};
    int length = static_cast<int>(words.size());
    int more = 0;
    int verbosity = 0;
    int bind = 0;
    int scope = 0;
    if (MPI_T_cvar_get_info(index, words.data(), &length, &verbosity, &type, &values, nullptr, &more, &bind, &scope) !=
            MPI_SUCCESS ||
        (type != MPI_INT && type != MPI_UNSIGNED))
      return std::nullopt;
    ControlVariable variable;
    int count = 0;
    if (MPI_T_cvar_handle_alloc(index, nullptr, &variable.handle_, &count) != MPI_SUCCESS || count != 1)
      return std::nullopt;
    variable.read_values(values);
    return variable;
  }

  bool set(int value) const { return MPI_T_cvar_write(handle_, &value) == MPI_SUCCESS; }
  int get() const {
    int value = 0;
    MPI_T_cvar_read(handle_, &value);
    return value;
  }
  const std::vector<ControlValue>& values() const { return values_; }

 private:
  void read_values(MPI_T_enum values) {
    int count = 0;
    std::array<char, 256> words = {};
    int length = static_cast<int>(words.size());
    if (values == MPI_T_ENUM_NULL || MPI_T_enum_get_info(values, &count, words.data(), &length) != MPI_SUCCESS) return;
    for (int i = 0; i < count; ++i) {
      int number = 0;
      length = static_cast<int>(words.size());
      if (MPI_T_enum_get_item(values, i, &number, words.data(), &length) == MPI_SUCCESS)
        values_.push_back({number, words.data()});
    }
  }

  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
  std::vector<ControlValue> values_;
};

MPI_Comm copy_of(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &copy));
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
  return copy;
}

// Adds Open MPI's algorithms. Its variable is read when a communicator is made, and only if
// `coll_tuned_use_dynamic_rules` was set before MPI began.
void add_tuned(std::vector<MpiAlgorithm>& all, Collective collective, MPI_Comm comm) {
  const std::string name = text("coll_tuned_", mpi_name(collective), "_algorithm");
  const auto algorithm = ControlVariable::find(name);
  if (!algorithm) return;
  const auto segment = ControlVariable::find(text(name, "_segmentsize"));
  const int before = algorithm->get();
  for (const ControlValue& each : algorithm->values()) {
    if (each.number == 0) continue;
    constexpr std::array sizes = {0, 1 << 15, 1 << 20};
    for (const int size : sizes) {
      if (size != 0 && !segment) break;
      const int old = segment ? segment->get() : 0;
      if (size != 0 && !segment->set(size)) break;
      if (algorithm->set(each.number)) {
        const std::string pieces = size == 0 ? "" : text(" by ", format_bytes(static_cast<std::uint64_t>(size)));
        all.push_back({.name = text("tuned:", each.name, pieces), .comm = copy_of(comm)});
      }
      if (size != 0) segment->set(old);
      const bool cuts = each.name.find("seg") != std::string::npos || each.name.find("chain") != std::string::npos ||
                        each.name.find("pipeline") != std::string::npos || each.name.find("bin") != std::string::npos;
      if (!cuts) break;
    }
  }
  algorithm->set(before);
}

// Adds MPICH's algorithms. Its variable is read at every call.
void add_mpich(std::vector<MpiAlgorithm>& all, Collective collective, MPI_Comm comm) {
  std::string upper(mpi_name(collective));
  for (char& letter : upper) letter = letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
  const auto algorithm = ControlVariable::find(text("MPIR_CVAR_", upper, "_INTRA_ALGORITHM"));
  if (!algorithm) return;
  const int own = algorithm->get();
  for (const ControlValue& each : algorithm->values()) {
    if (each.number == own) continue;
    all.push_back({.name = text("mpich:", each.name),
                   .comm = comm,
                   .before = [variable = *algorithm, number = each.number] { variable.set(number); },
                   .after = [variable = *algorithm, own] { variable.set(own); }});
  }
}

// Open MPI calls this function of its own once, when MPI begins, with mpi_yield_when_idle. It returns the previous
// value.
using SetYield = bool (*)(bool yields);
SetYield set_yield() {
  static const auto found = reinterpret_cast<SetYield>(::dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle"));
  return found;
}

}  // namespace

void prepare_for_forcing() { ::setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0); }

std::optional<bool> yields_when_idle() {
  const SetYield set = set_yield();
  if (set == nullptr) return std::nullopt;
  const bool yields = set(false);
  set(yields);
  return yields;
}

YieldWhenIdle::YieldWhenIdle(std::optional<bool> yields) {
  if (yields && set_yield() != nullptr) before_ = set_yield()(*yields);
}

YieldWhenIdle::~YieldWhenIdle() {
  if (before_) set_yield()(*before_);
}

ForcedAlgorithms::ForcedAlgorithms() {
  int provided = 0;
  works_ = MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided) == MPI_SUCCESS;
}

ForcedAlgorithms::~ForcedAlgorithms() {
  int ended = 0;
  MPI_Finalized(&ended);
  for (auto& [collective, all] : all_) {
    for (MpiAlgorithm& each : all) {
      if (ended == 0 && each.name.starts_with("tuned:")) MPI_Comm_free(&each.comm);
    }
  }
  if (works_) MPI_T_finalize();
}

const std::vector<MpiAlgorithm>& ForcedAlgorithms::of(Collective collective, MPI_Comm comm) {
  const auto [found, is_new] = all_.try_emplace(collective);
  if (is_new && works_) {
    add_tuned(found->second, collective, comm);
    add_mpich(found->second, collective, comm);
  }
  return found->second;
}

std::string ForcedAlgorithms::what() const {
  if (!works_) return "nothing: this library has no tools interface";
  if (ControlVariable::find("coll_tuned_allreduce_algorithm"))
    return "all of Open MPI's tuned, in this process; han, sm and adapt need launches of their own (tools/peers)";
  if (ControlVariable::find("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM")) return "all of MPICH's, in this process";
  return "nothing that is known of this library";
}

}  // namespace lockstep::bench
