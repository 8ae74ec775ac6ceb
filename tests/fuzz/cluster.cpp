// SPDX-License-Identifier: Apache-2.0
// TF_CONFIG, and Slurm's lists of hosts and tasks.
#include "runtime/cluster/resolver.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::answers_or_refuses(data, size, [](std::string_view text) {
    using namespace lockstep;
    const std::string words(text);
    const Environment environment = [&](std::string_view name) -> const char* {
      if (name == "SLURM_STEP_NUM_TASKS") return "2";
      return name == "SLURM_PROCID" ? "0" : words.c_str();
    };
    try {
      fuzz::require(!TfConfigResolver({}, environment).describe().empty());
    } catch (const Error& error) {
      fuzz::require(error.code() == Code::cluster);
    }
    try {
      for (const int tasks : expand_tasks_per_node(words)) fuzz::require(tasks > 0);
    } catch (const Error& error) {
      fuzz::require(error.code() == Code::cluster);
    }
    fuzz::require(SlurmResolver({.tasks_per_node = 1}, environment).cluster_spec().num_tasks() == 2);
  });
}
