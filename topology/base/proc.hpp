// SPDX-License-Identifier: Apache-2.0
// What /proc says of processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Of a file in /proc, at most so much; nothing where it cannot be read, or there is no memory for it just now.
std::string read_proc(const std::string& path, std::size_t most = 1024);

// All that its file `stat` has after its name, which may have spaces; so the third field comes first. None: it is not
// there.
std::vector<std::string> fields_of_process(std::int64_t number);

// True if the real, effective and saved user ids of `process` are the effective one of this process. Another user can
// make files of its own processes in /proc block every reader, so look no further into those.
bool is_of_this_user(int process);

// Calls `visit` for each process of this user, in ascending order, until `visit` returns true.
void visit_processes_of_this_user(const std::function<bool(int process)>& visit);

// Opens a memory file (memfd_create) by its path in /proc, such as /proc/7/fd/3. Never blocks, and never opens anything
// else, such as a pipe or a device. Returns the descriptor, which the caller closes, or -1; then errno is 0 if the path
// leads to something else.
int open_memory_file(const std::string& path, int flags);

// A memory file of another process, open for reading.
struct MemoryFile {
  int descriptor = -1;    // the caller closes it; -1: none was found
  std::string name = {};  // as memfd_create was given it
  int error = 0;          // errno if the process or its file could not be opened
};

// Returns the first memory file of `process` whose name begins with `prefix`.
MemoryFile find_memory_file(int process, std::string_view prefix);

}  // namespace lockstep
