// SPDX-License-Identifier: Apache-2.0
// gpu-numbers DIR: judges what was measured into DIR, as far as it is there, and leaves DIR/numbers.json. Exit status:
// 0 nothing was missed, 3 something was, 77 nothing could be measured, 1 wrong use.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/gpu/judge_numbers.hpp"

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  if (argc != 2) {
    std::cerr << "gpu-numbers: name the folder with the results\n";
    return 1;
  }
  const std::string folder = std::string(argv[1]) + '/';
  std::map<std::string, std::string> files;
  for (const std::string& name : files_of_gpu_numbers()) {
    const std::ifstream file(folder + name);
    if (!file) continue;
    std::ostringstream all;
    all << file.rdbuf();
    files[name] = all.str();
  }
  const auto numbers = gpu_numbers(files);
  std::ofstream out(folder + "numbers.json");
  out << numbers_as_json(numbers, machine_of_gpu_numbers(files));
  if (!out.flush()) {
    std::cerr << "gpu-numbers: " << folder << "numbers.json cannot be written\n";
    return 1;
  }
  std::cout << numbers_as_text(numbers);
  const auto has = [&](TargetStatus status) {
    return std::ranges::find(numbers, status, &GpuNumber::status) != numbers.end();
  };
  if (has(TargetStatus::missed)) return 3;
  return has(TargetStatus::met) || has(TargetStatus::aim) ? 0 : 77;
}
