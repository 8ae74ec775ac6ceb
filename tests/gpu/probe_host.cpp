// What gpu-probe asks of the machine around the GPU: memory between processes, limits, MPI, NCCL's file, tools.
// None of these questions needs a driver, so they are answered on every machine.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "probe.hpp"

namespace gpu_probe {
namespace {

constexpr double gib = 1024.0 * 1024.0 * 1024.0;

std::string read_file(const char* path) {
  std::ifstream in(path);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

void ask_system(Answer& answer) {
  utsname name{};
  check_system(uname(&name));
  const std::string model = first_line_with(read_file("/proc/cpuinfo"), "model name");
  const std::size_t colon = model.find(": ");
  answer.say(text(name.sysname, " ", name.release, " ", name.machine, ", glibc ", gnu_get_libc_version(), ", ",
                  colon == std::string::npos ? "unknown processor" : model.substr(colon + 2)));
  answer.figure("cpus", static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)), "");
  answer.figure("memory",
                static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / gib, "GiB");
  int nodes = 0;
  while (std::filesystem::exists(text("/sys/devices/system/node/node", nodes))) ++nodes;
  answer.figure("numa_nodes", nodes, "");
}

void ask_shm(Answer& answer) {
  struct statvfs size {};
  check_system(statvfs("/dev/shm", &size));
  answer.figure("size", static_cast<double>(size.f_blocks) * static_cast<double>(size.f_frsize) / gib, "GiB");
  answer.figure("free", static_cast<double>(size.f_bavail) * static_cast<double>(size.f_frsize) / gib, "GiB");
  const std::string name = text("/gpu-probe-", getpid());
  const int file = static_cast<int>(check_system(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600)));
  shm_unlink(name.c_str());
  const int reserved = posix_fallocate(file, 0, 16 << 20);
  require(reserved == 0, text("16 MiB of /dev/shm cannot be had: ", std::strerror(reserved)));
  check_system(memfd_create("gpu-probe", MFD_CLOEXEC));
  answer.say("yes: /dev/shm is writable and memfd_create works");
}

void ask_memlock(Answer& answer) {
  rlimit limit{};
  check_system(getrlimit(RLIMIT_MEMLOCK, &limit));
  if (limit.rlim_cur != RLIM_INFINITY) answer.figure("limit", static_cast<double>(limit.rlim_cur) / 1024, "KiB");
  constexpr std::size_t size = 256 << 20;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "256 MiB cannot be mapped");
  const bool locked = mlock(memory, size) == 0;
  answer.say(text(limit.rlim_cur == RLIM_INFINITY ? "unlimited" : "limited", "; mlock of 256 MiB ",
                  locked ? "works" : text("fails: ", std::strerror(errno))));
}

// The second process reads the first: under Yama's ptrace_scope 1 a parent may read its child, so the other way round
// is the one that tells what two ranks of a launcher may do.
constexpr std::size_t cma_size = 256 << 20;
constexpr unsigned char cma_byte = 0x5a;

struct CmaRead {
  double rate_gb_s;
  int wrong;
};

void ask_cma(Answer& answer) {
  Partner partner("host_cma");
  const std::string scope = read_file("/proc/sys/kernel/yama/ptrace_scope");
  answer.detail(scope.empty() ? "no Yama" : text("Yama ptrace_scope ", scope));
  const std::vector<unsigned char> memory(cma_size, cma_byte);
  partner.channel().send(reinterpret_cast<std::uintptr_t>(memory.data()));
  const CmaRead read = partner.channel().receive<CmaRead>();
  require(read.wrong == 0, "process_vm_readv returned wrong bytes");
  answer.say("yes: process_vm_readv between two processes works");
  answer.figure("read", read.rate_gb_s, "GB/s");
}

void read_by_cma(Channel& channel) {
  const auto address = channel.receive<std::uintptr_t>();
  std::vector<unsigned char> here(cma_size, 0);
  CmaRead best{0, 0};
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t at = 0; at < cma_size;) {
      iovec local{here.data() + at, cma_size - at};
      iovec remote{reinterpret_cast<void*>(address + at), cma_size - at};
      const long length = check_system(process_vm_readv(getppid(), &local, 1, &remote, 1, 0));
      require(length > 0, "process_vm_readv read nothing");
      at += static_cast<std::size_t>(length);
    }
    best.rate_gb_s = std::max(best.rate_gb_s, cma_size / seconds_since(start) / 1e9);
  }
  best.wrong = static_cast<int>(cma_size - std::count(here.begin(), here.end(), cma_byte));
  channel.send(best);
}

void ask_mpi(Answer& answer) {
  const std::string mpirun = find_program("mpirun");
  const std::string mpicxx = find_program("mpicxx");
  require(!mpirun.empty(), "there is no mpirun in PATH");
  answer.detail(text("mpirun ", mpirun, mpicxx.empty() ? ", no mpicxx" : ", mpicxx " + mpicxx));
  const std::string version = capture({mpirun, "--version"});
  answer.say(version.substr(0, version.find('\n')));
}

void ask_mpi_cuda(Answer& answer) {
  const std::string ompi_info = find_program("ompi_info");
  require(!ompi_info.empty(), "there is no ompi_info, so no Open MPI to ask");
  const std::string all = capture({ompi_info, "--parsable", "--all"});
  const std::string line = first_line_with(all, "mpi_built_with_cuda_support:value");
  require(!line.empty(), "ompi_info does not say whether CUDA support was built");
  answer.say(line.ends_with("true") ? "yes: built with CUDA support" : "no: built without CUDA support");
}

void ask_nccl_library(Answer& answer) {
  std::string found;
  std::string reasons;
  for (const std::string& name : nccl_candidates()) {
    try {
      int version = 0;
      Library(std::vector<std::string>{name}).find<int(int*)>("ncclGetVersion")(&version);
      answer.detail(text(name, " is version code ", version));
      const int step = version < 10000 ? 10 : 100;  // one digit for the minor version up to 2.8, two from then on
      if (!found.empty()) continue;
      found = text(version / 100 / step, ".", version / 100 % step, ".", version % 100, " from ", name);
    } catch (const Refused& reason) {
      reasons += text(reasons.empty() ? "" : "; ", reason.what());
    }
  }
  require(!found.empty(), reasons);
  answer.say(found);
}

void ask_tools(Answer& answer) {
  constexpr std::array names{"nvidia-smi",
                             "nvcc",
                             "compute-sanitizer",
                             "nvidia-cuda-mps-control",
                             "cuda-gdb",
                             "ncu",
                             "nsys",
                             "cuobjdump",
                             "g++",
                             "cmake",
                             "meson",
                             "ninja",
                             "python3",
                             "lstopo-no-graphics"};
  std::string there;
  std::string missing;
  for (const char* name : names) {
    const std::string path = find_program(name);
    std::string& list = path.empty() ? missing : there;
    list += text(list.empty() ? "" : ", ", name);
    if (path.empty() || std::string_view(name) == "nvidia-cuda-mps-control") continue;
    const std::string version = capture({path, "--version"});
    std::string release = first_line_with(version, "release ");
    if (release.empty()) release = first_line_with(version, "ersion");
    answer.detail(text(path, ": ", (release.empty() ? version.substr(0, version.find('\n')) : release).substr(0, 120)));
  }
  answer.say(text("there: ", there.empty() ? "none" : there, "; missing: ", missing.empty() ? "none" : missing));
}

constexpr std::array questions{
    Question{"host_system", "which system is it?", Needs::nothing, ask_system},
    Question{"host_shm", "can processes share memory?", Needs::nothing, ask_shm},
    Question{"host_memlock", "how much memory may be locked?", Needs::nothing, ask_memlock},
    Question{"host_cma", "may one process read another's memory?", Needs::nothing, ask_cma, read_by_cma},
    Question{"host_mpi", "which MPI is there?", Needs::nothing, ask_mpi},
    Question{"host_mpi_cuda", "was that MPI built for CUDA?", Needs::nothing, ask_mpi_cuda},
    Question{"host_nccl", "which NCCL is there, by its own word?", Needs::nothing, ask_nccl_library},
    Question{"host_tools", "which tools are there?", Needs::nothing, ask_tools, nullptr, 120},
};

}  // namespace

std::vector<std::string> nccl_candidates() {
  std::vector<std::string> names;
  if (const char* chosen = std::getenv("GPU_PROBE_NCCL")) names.emplace_back(chosen);
  names.emplace_back("libnccl.so.2");
  if (const char* cuda = std::getenv("CUDA_HOME")) names.push_back(text(cuda, "/lib64/libnccl.so.2"));
  names.emplace_back("/usr/local/cuda/lib64/libnccl.so.2");
  return names;
}

std::span<const Question> host_questions() { return questions; }

}  // namespace gpu_probe
