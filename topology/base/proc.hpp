// SPDX-License-Identifier: Apache-2.0
// Reads the files in /proc about processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns the first `most` bytes of a file in /proc, or all if it is shorter. Returns an empty text if it cannot be
// read, or the kernel has no memory for it just now.
std::string read_proc(const std::string& path, std::size_t most = 1024);

// Returns the fields of a process's file `stat` after its name, so the third field comes first. The name is left out
// because it may have spaces. Returns nothing if there is no such process.
std::vector<std::string> fields_of_process(std::int64_t number);

// True if the real, effective and saved user ids of `process` are the effective one of this process. Callers read
// nothing else in /proc of another user: its processes can make each reader block.
bool is_of_this_user(int process);

// Calls `visit` for each process of this user, in ascending order, until `visit` returns true.
void visit_processes_of_this_user(const std::function<bool(int process)>& visit);

// Opens a memory file (memfd_create) by its path in /proc, such as /proc/7/fd/3. Never blocks, and opens nothing
// else, such as a pipe or a device. Returns the descriptor, which the caller closes, or -1. Then errno is 0 if the
// path leads to something else.
int open_memory_file(const std::string& path, int flags);

// Holds a memory file of another process, open for reading.
struct MemoryFile {
  int descriptor = -1;    // the caller closes it; -1: none was found
  std::string name = {};  // the name that memfd_create was given
  int error = 0;          // errno if the process or its file could not be opened
};

// Returns the first memory file of `process` with a name that begins with `prefix`.
MemoryFile find_memory_file(int process, std::string_view prefix);

}  // namespace lockstep
