// SPDX-License-Identifier: Apache-2.0
// What /proc says of processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Of a file in /proc, at most so much; nothing where it cannot be read, or there is no memory for it just now.
std::string read_proc(const std::string& path, std::size_t most = 1024);

// All that its file `stat` has after its name, which may have spaces; so the third field comes first. None: it is not
// there.
std::vector<std::string> fields_of_process(std::int64_t number);

}  // namespace lockstep
