// What gpu-probe asks about ends: of a process whose event, kernel or memory another one counts on, of memory that is
// freed while somebody has its address, and of a context that is reset. What may hang is asked last, and what was found
// out before is said at once.
// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <future>
#include <thread>

#include "probe_gpu.cuh"

namespace gpu_probe {

void kill_and_wait(pid_t process) {
  pollfd gone{static_cast<int>(check_system(syscall(SYS_pidfd_open, process, 0))), POLLIN, 0};
  check_system(kill(process, SIGKILL));
  const int found = poll(&gone, 1, gone_within_ms);
  close(gone.fd);
  require(found == 1, text("the process was killed and is not gone after ", gone_within_ms, " ms"));
}

namespace {

using std::chrono::milliseconds;

constexpr std::size_t block = std::size_t{2} << 20;  // what CUDA IPC passes whole
constexpr int patience_ms = 5000;

std::string words_of(cudaError_t status) { return status == cudaSuccess ? "well" : cudaGetErrorName(status); }

std::string words_of(CUresult status) {
  const char* name = nullptr;
  driver_function<decltype(cuGetErrorName)>("cuGetErrorName")(status, &name);
  return status == CUDA_SUCCESS ? "well" : name != nullptr ? name : "an unknown error";
}

// ---- the death of another process ----

// Whether it was done in time; how long it took.
bool is_done(cudaEvent_t event, double& ms) {
  const auto start = std::chrono::steady_clock::now();
  while (unfinished(cudaEventQuery(event)) && seconds_since(start) * 1e3 < patience_ms)
    std::this_thread::sleep_for(milliseconds(1));
  ms = seconds_since(start) * 1e3;
  return !unfinished(cudaEventQuery(event));
}

// A call that may wait for ever is made by a thread that is left behind then.
template <class Call>
void time_call(Answer& answer, const char* what, Call call) {
  auto* const done = new std::promise<cudaError_t>;
  std::future<cudaError_t> said = done->get_future();
  const auto start = std::chrono::steady_clock::now();
  std::thread([done, call] { done->set_value(call()); }).detach();
  if (said.wait_for(milliseconds(patience_ms)) != std::future_status::ready)
    return answer.detail(text(what, " has not returned after ", patience_ms, " ms"));
  answer.detail(text(what, ": ", words_of(said.get()), ", after ", seconds_since(start) * 1e3, " ms"));
}

struct DyingEvent {
  pid_t process;
  cudaIpcEventHandle_t event;
};

// A stream waits for the event of a process that dies before it has come to it.
void ask_death_event(Answer& answer) {
  check(cudaFree(nullptr));
  Partner partner("death_event");
  cudaStream_t stream{};
  cudaEvent_t behind{};
  cudaEvent_t theirs{};
  void* memory = nullptr;
  check(cudaMalloc(&memory, block));
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaEventCreateWithFlags(&behind, cudaEventDisableTiming));
  const auto dying = partner.channel().receive<DyingEvent>();
  check(cudaIpcOpenEventHandle(&theirs, dying.event));
  check(cudaStreamWaitEvent(stream, theirs, 0));
  check(cudaMemsetAsync(memory, 1, block, stream));
  check(cudaEventRecord(behind, stream));
  std::this_thread::sleep_for(milliseconds(200));
  require(unfinished(cudaEventQuery(behind)), "the stream did not wait for the other process's event at all");
  kill_and_wait(dying.process);
  double ms = 0;
  const bool goes_on = is_done(behind, ms);
  answer.figure("the stream went on after", goes_on ? ms : -1, "ms");
  answer.say(goes_on ? text("the stream goes on: ", words_of(cudaEventQuery(behind)))
                     : text("the stream still waits ", patience_ms, " ms after the death"));
  time_call(answer, "cudaEventDestroy of the dead one's event", [=] { return cudaEventDestroy(theirs); });
  time_call(answer, "cudaStreamDestroy", [=] { return cudaStreamDestroy(stream); });
  time_call(answer, "cudaFree of what the stream writes", [=] { return cudaFree(memory); });
  answer.detail("next its own end, which is late by what it waits for");
}

void wait_for_the_end(void*) {
  for (;;) pause();
}

void die_before_event(Channel& channel) {
  check(cudaFree(nullptr));
  cudaStream_t stream{};
  cudaEvent_t event{};
  DyingEvent dying{getpid(), {}};
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  check(cudaIpcGetEventHandle(&dying.event, event));
  check(cudaLaunchHostFunc(stream, wait_for_the_end, nullptr));
  check(cudaEventRecord(event, stream));
  channel.send(dying);
  for (;;) pause();
}

struct DyingMemory {
  pid_t process;
  cudaIpcMemHandle_t first;
  cudaIpcMemHandle_t second;
  cudaIpcEventHandle_t event;
};

std::uint32_t first_word(const void* memory, cudaStream_t stream) {
  std::uint32_t word = 0;
  check(cudaMemcpyAsync(&word, memory, sizeof word, cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  return word;
}

// A kernel of the dead one writes into memory of the living: whether it has ended when the system says so.
void ask_death_kernel(Answer& answer) {
  check(cudaFree(nullptr));
  Partner partner("death_kernel");
  const DeviceMemory memory(block);
  check(cudaMemset(memory.as(), 0, block));
  cudaIpcMemHandle_t handle{};
  check(cudaIpcGetMemHandle(&handle, memory.as()));
  partner.channel().send(handle);
  const auto process = partner.channel().receive<pid_t>();
  cudaStream_t stream{};
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto start = std::chrono::steady_clock::now();
  while (first_word(memory.as(), stream) == 0 && seconds_since(start) < 3) {
  }
  require(first_word(memory.as(), stream) > 0, "the other process's kernel wrote nothing for 3 s");
  kill_and_wait(process);
  const auto death = std::chrono::steady_clock::now();
  const std::uint32_t at_death = first_word(memory.as(), stream);
  std::uint32_t last = at_death;
  double last_ms = 0;
  while (seconds_since(death) < 1) {
    const std::uint32_t now = first_word(memory.as(), stream);
    if (now != last) last_ms = seconds_since(death) * 1e3;
    last = now;
  }
  answer.figure("written last after the death", last_ms, "ms");
  answer.say(last == at_death
                 ? "its kernel has ended when the system says that it has"
                 : text("its kernel went on writing for ", last_ms, " ms after the system said it was gone"));
}

void die_in_kernel(Channel& channel) {
  check(cudaFree(nullptr));
  const auto handle = channel.receive<cudaIpcMemHandle_t>();
  void* memory = nullptr;
  check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  constexpr std::uint32_t limit_ms = 8000;
  count_up(static_cast<std::uint32_t*>(memory), limit_ms);
  channel.send(getpid());
  for (;;) pause();
}

// What a dead process has shown: mapped before its death, and looked for after it.
void ask_death_memory(Answer& answer) {
  check(cudaFree(nullptr));
  Partner partner("death_memory");
  const auto dying = partner.channel().receive<DyingMemory>();
  void* mapped = nullptr;
  check(cudaIpcOpenMemHandle(&mapped, dying.first, cudaIpcMemLazyEnablePeerAccess));
  require(count_wrong(mapped, block, 5) == 0, "what was mapped does not hold what the other process wrote");
  kill_and_wait(dying.process);
  void* late = nullptr;
  cudaEvent_t event{};
  const std::string memory_says = words_of(cudaIpcOpenMemHandle(&late, dying.second, cudaIpcMemLazyEnablePeerAccess));
  const std::string event_says = words_of(cudaIpcOpenEventHandle(&event, dying.event));
  cudaGetLastError();
  answer.say(text("after its death mapping its memory says ", memory_says, ", opening its event ", event_says));
  answer.detail(text("what was mapped before has ", count_wrong(mapped, block, 5), " wrong words"));
  answer.detail(text("closing it: ", words_of(cudaIpcCloseMemHandle(mapped))));
}

void die_with_memory(Channel& channel) {
  check(cudaFree(nullptr));
  const DeviceMemory first(block);
  const DeviceMemory second(block);
  for (const DeviceMemory* each : {&first, &second}) fill(each->as(), block, 5);
  check(cudaDeviceSynchronize());
  cudaEvent_t event{};
  DyingMemory dying{getpid(), {}, {}, {}};
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  check(cudaIpcGetMemHandle(&dying.first, first.as()));
  check(cudaIpcGetMemHandle(&dying.second, second.as()));
  check(cudaIpcGetEventHandle(&dying.event, event));
  channel.send(dying);
  for (;;) pause();
}

// ---- memory that was freed ----

void ask_freed(Answer& answer) {
  check(cudaFree(nullptr));
  const DeviceMemory target(block);
  const auto attributes = driver_function<decltype(cuPointerGetAttributes)>("cuPointerGetAttributes");
  std::array<void*, 2> freed{};
  constexpr std::array<std::size_t, 2> sizes = {block / 2, 32 * block};
  std::string said;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    check(cudaMalloc(&freed[i], sizes[i]));
    check(cudaMemset(freed[i], 0, sizes[i]));
    check(cudaFree(freed[i]));
    CUmemorytype type{};
    std::array<CUpointer_attribute, 1> wanted = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    std::array<void*, 1> found = {&type};
    check_driver(attributes(1, wanted.data(), found.data(), reinterpret_cast<CUdeviceptr>(freed[i])));
    const cudaError_t copy = cudaMemcpyAsync(target.as(), freed[i], 4096, cudaMemcpyDeviceToDevice);
    const cudaError_t copied = cudaDeviceSynchronize();
    cudaGetLastError();
    said += text(i == 0 ? "" : "; ", "of ", sizes[i] >> 10,
                 " KiB: ", static_cast<int>(type) == 0 ? "not known any more" : "still known", ", a copy from it says ",
                 words_of(copy), ", its end ", words_of(copied));
    answer.say(said);
  }
  // It may end the context.
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::string reads = "well";
    try {
      add_into(target.as(), freed[i], 4096);
      check(cudaDeviceSynchronize());
    } catch (const Refused& reason) {
      reads = reason.what();
    }
    answer.detail(text("a kernel that reads freed memory of ", sizes[i] >> 10, " KiB: ", reads));
  }
}

// ---- a context that was reset ----

// What handles of before do is undefined: a stream of before ends the process by a fault (seen on an H200, driver 580).
void ask_reset(Answer& answer) {
  check(cudaFree(nullptr));
  CUcontext context = nullptr;
  check_driver(driver_function<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, 0));
  const auto push = driver_function<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent");
  const auto number_of = driver_function<decltype(cuCtxGetId)>("cuCtxGetId");
  unsigned long long before = 0;
  unsigned long long after = 0;
  check_driver(number_of(context, &before));
  check(cudaDeviceReset());
  const std::string asking = words_of(number_of(context, &after));
  answer.detail(text("the context's number before: ", before, ", after it: ", asking, ", ", after));
  const std::string pushing = words_of(push(context));
  answer.detail(text("its number when it lies on the stack: ", words_of(number_of(context, &after)), ", ", after));
  void* memory = nullptr;
  const std::string allocating = words_of(cudaMalloc(&memory, block));
  cudaGetLastError();
  answer.detail(text("its number after cudaMalloc: ", words_of(number_of(context, &after)), ", ", after));
  answer.say(text("after cudaDeviceReset, laying the context kept from before on the stack says ", pushing,
                  ", and cudaMalloc in it ", allocating, "; its number is ",
                  before == after ? "the same" : "another one"));
}

constexpr std::array questions{
    Question{"death_event", "does a stream outlive the process it waits for?", Needs::gpu, ask_death_event,
             die_before_event, 40},
    Question{"death_kernel", "do kernels end with their process?", Needs::gpu, ask_death_kernel, die_in_kernel},
    Question{"death_memory", "what is a dead process's memory?", Needs::gpu, ask_death_memory, die_with_memory},
    Question{"freed_memory", "is freed memory known as such?", Needs::gpu, ask_freed},
    Question{"context_reset", "does a context outlive its reset?", Needs::gpu, ask_reset},
};

}  // namespace

std::span<const Question> end_questions() { return questions; }

}  // namespace gpu_probe
