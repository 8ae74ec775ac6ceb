// What gpu-probe asks of two processes that share a GPU: memory by CUDA IPC, by descriptors and by fabric handles,
// events, kernels that wait for each other, and whether MPS can be started for them. MPS runs in a folder of its own
// and is stopped again; no setting of the GPU is touched. Two processes are enough: more differ in number, not in kind.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "probe_gpu.cuh"

namespace gpu_probe {
namespace {

constexpr std::uint32_t first_seed = 11;
constexpr std::uint32_t second_seed = 12;

// ---- one process's memory in another: the same questions for each way of passing it ----

struct SharedUse {
  double open_us;
  double copy_gb_s;
  double add_gb_s;
  std::uint64_t wrong;
};

// In the second process: read, time, then write a pattern that the first one must find.
SharedUse use_shared(void* theirs, std::size_t size, double open_us) {
  SharedUse use{open_us, 0, 0, count_wrong(theirs, size, first_seed)};
  const DeviceMemory mine(size);
  fill(mine.as(), size, 7);
  const double bytes = static_cast<double>(size);
  use.add_gb_s = 3 * bytes / median_seconds([&] { add_into(mine.as(), theirs, size); }) / 1e9;
  const auto copy = [&] { check(cudaMemcpyAsync(mine.as(), theirs, size, cudaMemcpyDeviceToDevice)); };
  use.copy_gb_s = 2 * bytes / median_seconds(copy) / 1e9;
  fill(theirs, size, second_seed);
  check(cudaDeviceSynchronize());
  return use;
}

void report_shared(Answer& answer, Channel& channel, const void* mine, std::size_t size, std::string_view way) {
  const auto use = channel.receive<SharedUse>();
  require(use.wrong == 0, text("the second process read ", use.wrong, " wrong words"));
  require(count_wrong(mine, size, second_seed) == 0, "what the second process wrote did not arrive");
  channel.meet();  // the memory must live until the second process has let go
  answer.figure("opening", use.open_us, "us");
  answer.figure("copy, bytes read and written", use.copy_gb_s, "GB/s");
  answer.figure("add into, bytes read and written", use.add_gb_s, "GB/s");
  answer.say(text("yes: ", way, " works both ways"));
}

struct MemoryOffer {
  cudaIpcMemHandle_t handle;
  std::size_t size;
};

void ask_ipc_memory(Answer& answer) {
  Partner partner("ipc_memory");
  const DeviceMemory memory(large_size());
  fill(memory.as(), memory.size(), first_seed);
  check(cudaDeviceSynchronize());
  MemoryOffer offer{{}, memory.size()};
  check(cudaIpcGetMemHandle(&offer.handle, memory.as()));
  partner.channel().send(offer);
  report_shared(answer, partner.channel(), memory.as(), memory.size(), "memory by cudaIpcOpenMemHandle");
}

void use_ipc_memory(Channel& channel) {
  check(cudaFree(nullptr));
  const auto offer = channel.receive<MemoryOffer>();
  void* memory = nullptr;
  const auto start = std::chrono::steady_clock::now();
  check(cudaIpcOpenMemHandle(&memory, offer.handle, cudaIpcMemLazyEnablePeerAccess));
  channel.send(use_shared(memory, offer.size, seconds_since(start) * 1e6));
  check(cudaIpcCloseMemHandle(memory));
  channel.meet();
}

// ---- virtual memory management: cuMemCreate, a handle, cuMemMap ----

CUmemAllocationProp properties_for(CUmemAllocationHandleType type) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  properties.requestedHandleTypes = type;
  return properties;
}

std::size_t mappable_size(const CUmemAllocationProp& properties) {
  std::size_t step = 0;
  const auto get = driver_function<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  check_driver(get(&step, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  const std::size_t size = large_size() / step * step;
  require(size > 0, "the mapping granularity is larger than what may be allocated");
  return size;
}

void* map(CUmemGenericAllocationHandle handle, std::size_t size) {
  CUdeviceptr address = 0;
  check_driver(driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&address, size, 0, 0, 0));
  check_driver(driver_function<decltype(cuMemMap)>("cuMemMap")(address, size, 0, handle, 0));
  CUmemAccessDesc access{};
  access.location = properties_for(CU_MEM_HANDLE_TYPE_NONE).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_driver(driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess")(address, size, &access, 1));
  return reinterpret_cast<void*>(address);
}

struct Mapped {
  CUmemGenericAllocationHandle handle = 0;
  std::size_t size = 0;
  void* address = nullptr;
};

Mapped create_mapped(CUmemAllocationHandleType type) {
  check(cudaFree(nullptr));
  const CUmemAllocationProp properties = properties_for(type);
  Mapped made;
  made.size = mappable_size(properties);
  check_driver(driver_function<decltype(cuMemCreate)>("cuMemCreate")(&made.handle, made.size, &properties, 0));
  made.address = map(made.handle, made.size);
  fill(made.address, made.size, first_seed);
  check(cudaDeviceSynchronize());
  return made;
}

void import_mapped(Channel& channel, void* shared, CUmemAllocationHandleType type, std::size_t size) {
  CUmemGenericAllocationHandle handle = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto import = driver_function<decltype(cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle");
  check_driver(import(&handle, shared, type));
  void* memory = map(handle, size);
  channel.send(use_shared(memory, size, seconds_since(start) * 1e6));
  channel.meet();
}

constexpr auto by_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

void ask_descriptor(Answer& answer) {
  Partner partner("ipc_descriptor");
  const Mapped memory = create_mapped(by_descriptor);
  int descriptor = -1;
  const auto export_handle = driver_function<decltype(cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
  check_driver(export_handle(&descriptor, memory.handle, by_descriptor, 0));
  partner.channel().send(memory.size);
  partner.channel().send_descriptor(descriptor);
  report_shared(answer, partner.channel(), memory.address, memory.size, "memory by a file descriptor");
}

void use_descriptor(Channel& channel) {
  check(cudaFree(nullptr));
  const auto size = channel.receive<std::size_t>();
  const auto descriptor = static_cast<std::intptr_t>(channel.receive_descriptor());
  import_mapped(channel, reinterpret_cast<void*>(descriptor), by_descriptor, size);
}

void ask_fabric(Answer& answer) {
  Partner partner("ipc_fabric");
  const Mapped memory = create_mapped(CU_MEM_HANDLE_TYPE_FABRIC);
  CUmemFabricHandle handle{};
  const auto export_handle = driver_function<decltype(cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
  check_driver(export_handle(&handle, memory.handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
  partner.channel().send(memory.size);
  partner.channel().send(handle);
  report_shared(answer, partner.channel(), memory.address, memory.size, "memory by a fabric handle");
}

void use_fabric(Channel& channel) {
  check(cudaFree(nullptr));
  const auto size = channel.receive<std::size_t>();
  auto handle = channel.receive<CUmemFabricHandle>();
  import_mapped(channel, &handle, CU_MEM_HANDLE_TYPE_FABRIC, size);
}

// ---- order and time between processes ----

struct EventOffer {
  MemoryOffer memory;
  cudaIpcEventHandle_t event;
};

// The first process enqueues slow work, then a pattern, then the event; the second waits for the event on the GPU
// alone.
void ask_ipc_event(Answer& answer) {
  Partner partner("ipc_event");
  const DeviceMemory memory(std::size_t{16} << 20);
  const DeviceMemory load(large_size());
  fill(memory.as(), memory.size(), second_seed);
  check(cudaDeviceSynchronize());
  cudaEvent_t event{};
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  EventOffer offer{{{}, memory.size()}, {}};
  check(cudaIpcGetMemHandle(&offer.memory.handle, memory.as()));
  check(cudaIpcGetEventHandle(&offer.event, event));
  partner.channel().send(offer);
  partner.channel().meet();  // opened there
  for (std::uint32_t i = 0; i < 200; ++i) fill(load.as(), load.size(), i);
  fill(memory.as(), memory.size(), first_seed);
  check(cudaEventRecord(event));
  const bool still_running = unfinished(cudaEventQuery(event));
  partner.channel().meet();  // recorded
  const auto wrong = partner.channel().receive<std::uint64_t>();
  require(wrong == 0, text("the other process did not wait: it read ", wrong, " words of what was there before"));
  partner.channel().meet();
  answer.say(still_running ? "yes: a stream of another process waits for the event"
                           : "undecided: the work was done before the wait began");
}

void wait_for_ipc_event(Channel& channel) {
  check(cudaFree(nullptr));
  const auto offer = channel.receive<EventOffer>();
  void* memory = nullptr;
  cudaEvent_t event{};
  check(cudaIpcOpenMemHandle(&memory, offer.memory.handle, cudaIpcMemLazyEnablePeerAccess));
  check(cudaIpcOpenEventHandle(&event, offer.event));
  const DeviceMemory copy(offer.memory.size);
  channel.meet();
  channel.meet();
  check(cudaStreamWaitEvent(nullptr, event, 0));
  check(cudaMemcpyAsync(copy.as(), memory, copy.size(), cudaMemcpyDeviceToDevice));
  channel.send(count_wrong(copy.as(), copy.size(), first_seed));
  channel.meet();
}

constexpr std::uint32_t most_meetings = 100'000;
constexpr std::uint32_t meeting_limit_ms = 4000;

// CUDA IPC passes whole blocks, and a smaller allocation may lie anywhere in one.
constexpr std::size_t shared_step = std::size_t{2} << 20;

// A kernel is loaded at its first launch, which must not happen while another one spins.
void load_meeting() {
  const DeviceMemory flag(4096);
  meet_by_flags(flag.as<std::uint32_t>(), flag.as<std::uint32_t>(), 1, 10);
}

// Two words in the first process's memory, 128 bytes apart; each process runs one thread that waits for the other's.
void ask_meeting(Answer& answer) {
  Partner partner("share_kernels");
  const DeviceMemory flags(shared_step);
  load_meeting();
  check(cudaMemset(flags.as(), 0, flags.size()));
  check(cudaDeviceSynchronize());
  MemoryOffer offer{{}, flags.size()};
  check(cudaIpcGetMemHandle(&offer.handle, flags.as()));
  partner.channel().send(offer);
  partner.channel().meet();
  auto* words = flags.as<std::uint32_t>();
  const Meetings meetings = meet_by_flags(words, words + 32, most_meetings, meeting_limit_ms);
  partner.channel().meet();
  answer.figure("meetings", meetings.reached, "");
  require(meetings.reached > 0, text("two kernels that wait for each other never met in ", meeting_limit_ms, " ms"));
  const double each_us = static_cast<double>(meetings.nanoseconds) / meetings.reached / 1e3;
  answer.figure("each", each_us, "us");
  answer.say(each_us < 50 ? "yes: kernels of two processes wait for each other"
                          : "only in turns: each meeting costs a time slice");
}

void meet_there(Channel& channel) {
  check(cudaFree(nullptr));
  const auto offer = channel.receive<MemoryOffer>();
  void* memory = nullptr;
  check(cudaIpcOpenMemHandle(&memory, offer.handle, cudaIpcMemLazyEnablePeerAccess));
  load_meeting();
  auto* words = static_cast<std::uint32_t*>(memory);
  channel.meet();
  meet_by_flags(words + 32, words, most_meetings, meeting_limit_ms);
  channel.meet();
  check(cudaIpcCloseMemHandle(memory));
}

double time_work(std::uint64_t steps) {
  const auto start = std::chrono::steady_clock::now();
  work(steps);
  return seconds_since(start);
}

// One block of each process: there is room for both at once, so twice the time means that they take turns.
void ask_at_once(Answer& answer) {
  Partner partner("share_at_once");
  constexpr std::uint64_t trial = 1 << 22;
  for (int i = 0; i < 50; ++i) work(trial);  // until the clocks have risen
  const auto steps = static_cast<std::uint64_t>(static_cast<double>(trial) * 0.3 / time_work(trial));
  const double before = time_work(steps);
  partner.channel().send(steps);
  partner.channel().meet();
  const auto start = std::chrono::steady_clock::now();
  time_work(steps);
  partner.channel().meet();
  const double together = seconds_since(start);
  const double alone = std::min(before, time_work(steps));
  answer.figure("alone", alone * 1e3, "ms");
  answer.figure("two processes", together * 1e3, "ms");
  const double ratio = together / alone;
  answer.say(ratio < 1.4   ? "yes: two processes run at once"
             : ratio > 1.7 ? "no: two processes take turns"
                           : "undecided: between the two");
}

void work_there(Channel& channel) {
  work(1);
  const auto steps = channel.receive<std::uint64_t>();
  channel.meet();
  work(steps);
  channel.meet();
}

// ---- MPS ----

// A control daemon of our own in the foreground; stopped in order, and ended with us if that fails.
class Mps {
 public:
  explicit Mps(const std::string& control) : control_(control) {
    std::string pattern = (std::filesystem::temp_directory_path() / "gpu-probe-XXXXXX").string();
    require(mkdtemp(pattern.data()) != nullptr, "no temporary folder can be made");
    folder_ = pattern;
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder_.c_str(), 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", folder_.c_str(), 1);
    process_ = start_process({control_, "-f"});
    for (int waited = 0; waited < 100 && !std::filesystem::exists(folder_ / "control"); ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  ~Mps() {
    const pid_t stopper = start_process({"/bin/sh", "-c", "echo quit -t 5 | timeout 15 \"$0\"", control_});
    waitpid(stopper, nullptr, 0);
    for (int waited = 0; waited < 100 && running(); ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (running()) kill(process_, SIGKILL);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;
  bool running() {
    ended_ = ended_ || waitpid(process_, nullptr, WNOHANG) != 0;
    return !ended_;
  }
  bool listening() { return running() && std::filesystem::exists(folder_ / "control"); }

 private:
  std::string control_;
  std::filesystem::path folder_;
  pid_t process_ = -1;
  bool ended_ = false;
};

// This process makes no CUDA call: what it asks runs in processes that inherit the variables and become MPS's clients.
void ask_mps(Answer& answer) {
  const std::string control = find_program("nvidia-cuda-mps-control");
  require(!control.empty(), "there is no nvidia-cuda-mps-control");
  Mps mps(control);
  require(mps.listening(), "nvidia-cuda-mps-control was started and does not listen");
  std::string said;
  for (const char* id : {"share_at_once", "share_kernels", "ipc_memory", "nccl_shared_permitted"}) {
    const Outcome outcome = ask(*find_question(id), 30);
    said += text(said.empty() ? "" : "; ", id, ": ", outcome.answer);
    for (const Figure& figure : outcome.figures) answer.figure(text(id, " ", figure.name), figure.value, figure.unit);
    for (const std::string& detail : outcome.details) answer.detail(text(id, ": ", detail));
  }
  answer.say(text("started; under it ", said));
}

constexpr std::array questions{
    Question{"ipc_memory", "can a process open another's GPU memory?", Needs::gpu, ask_ipc_memory, use_ipc_memory},
    Question{"ipc_descriptor", "... by file descriptor?", Needs::gpu, ask_descriptor, use_descriptor},
    Question{"ipc_fabric", "... by fabric handle?", Needs::gpu, ask_fabric, use_fabric},
    Question{"ipc_event", "can a stream wait for another's event?", Needs::gpu, ask_ipc_event, wait_for_ipc_event},
    Question{"share_at_once", "do two processes run at once?", Needs::gpu, ask_at_once, work_there},
    Question{"share_kernels", "do their kernels meet while they run?", Needs::gpu, ask_meeting, meet_there},
    Question{"share_mps", "can MPS be started, and then?", Needs::gpu, ask_mps, nullptr, 180},
};

}  // namespace

std::span<const Question> share_questions() { return questions; }

}  // namespace gpu_probe
