// What gpu-probe asks about a stream that is held back, by the host or by a process that has died: which calls of CUDA
// wait for it, and whether words in shared memory let it go on where events do not.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "probe_gpu.cuh"

namespace gpu_probe {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t block = std::size_t{2} << 20;

__global__ void never_before(int* out) { *out = 1; }

void wait_until_set(void* flag) {
  while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::sleep_for(milliseconds(1));
}

struct Theirs {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t event;
};

// What a call does while another stream is held back by the host: whether it returns before that goes on.
class Held {
 public:
  explicit Held(Answer& answer) : answer_(answer) { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

  template <class Call>
  void ask(const char* what, Call call) {
    std::atomic<bool> goes_on = false;
    check(cudaLaunchHostFunc(stream_, wait_until_set, &goes_on));
    const auto start = std::chrono::steady_clock::now();
    std::future<cudaError_t> said = std::async(std::launch::async, [&] {
      cudaSetDevice(0);
      return call();
    });
    const bool returns = said.wait_for(milliseconds(700)) == std::future_status::ready;
    const double us = seconds_since(start) * 1e6;
    goes_on = true;
    const cudaError_t status = said.get();
    cudaGetLastError();
    check(cudaStreamSynchronize(stream_));
    if (!returns) waiting_ += text(waiting_.empty() ? "" : ", ", what);
    answer_.detail(text(what, returns ? text(": returns after ", us, " us") : ": WAITS for it",
                        status == cudaSuccess ? "" : text(", and says ", cudaGetErrorName(status))));
  }
  void conclude() {
    answer_.say(waiting_.empty() ? "none of the calls that were tried waits for it" : text("waits: ", waiting_));
  }

 private:
  Answer& answer_;
  cudaStream_t stream_{};
  std::string waiting_;
};

void ask_held(Answer& answer) {
  check(cudaFree(nullptr));
  Partner partner("held_calls");
  const auto theirs = partner.channel().receive<Theirs>();
  Held held(answer);
  cudaStream_t other{};
  cudaStream_t made{};
  cudaEvent_t event{};
  cudaEvent_t opened{};
  void* memory = nullptr;
  void* pinned = nullptr;
  void* mapped = nullptr;
  void* pooled = nullptr;
  int* word = nullptr;
  check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  check(cudaMalloc(&word, sizeof *word));
  std::vector<std::byte> pageable(block);
  SharedMemory shared(block);
  cudaIpcMemHandle_t shown{};
  held.ask("cudaMalloc", [&] { return cudaMalloc(&memory, block); });
  held.ask("cudaIpcGetMemHandle", [&] { return cudaIpcGetMemHandle(&shown, memory); });
  held.ask("cudaMallocHost", [&] { return cudaMallocHost(&pinned, block); });
  held.ask("the first launch of a kernel", [&] {
    never_before<<<1, 1, 0, other>>>(word);
    return cudaGetLastError();
  });
  held.ask("cudaMemcpyAsync to pageable memory, and its end", [&] {
    const cudaError_t begun = cudaMemcpyAsync(pageable.data(), memory, block, cudaMemcpyDefault, other);
    return begun == cudaSuccess ? cudaStreamSynchronize(other) : begun;
  });
  held.ask("cudaMemcpyAsync between GPU and pinned memory, and its end", [&] {
    const cudaError_t begun = cudaMemcpyAsync(pinned, memory, block, cudaMemcpyDefault, other);
    return begun == cudaSuccess ? cudaStreamSynchronize(other) : begun;
  });
  held.ask("cudaIpcOpenMemHandle",
           [&] { return cudaIpcOpenMemHandle(&mapped, theirs.memory, cudaIpcMemLazyEnablePeerAccess); });
  held.ask("cudaIpcOpenEventHandle", [&] { return cudaIpcOpenEventHandle(&opened, theirs.event); });
  held.ask("cudaEventCreate between processes",
           [&] { return cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess); });
  held.ask("cudaEventDestroy", [&] { return cudaEventDestroy(event); });
  held.ask("cudaStreamCreate", [&] { return cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking); });
  held.ask("cudaStreamDestroy", [&] { return cudaStreamDestroy(made); });
  held.ask("cudaHostRegister", [&] { return cudaHostRegister(shared.as(), block, cudaHostRegisterPortable); });
  held.ask("cudaHostUnregister", [&] { return cudaHostUnregister(shared.as()); });
  held.ask("cudaMallocAsync", [&] { return cudaMallocAsync(&pooled, block, other); });
  held.ask("cudaFreeAsync, and its end", [&] {
    const cudaError_t begun = cudaFreeAsync(pooled, other);
    return begun == cudaSuccess ? cudaStreamSynchronize(other) : begun;
  });
  held.ask("cudaIpcCloseMemHandle", [&] { return cudaIpcCloseMemHandle(mapped); });
  held.ask("cudaFreeHost", [&] { return cudaFreeHost(pinned); });
  held.ask("cudaFree", [&] { return cudaFree(memory); });
  held.conclude();
  partner.channel().meet();
}

void show_for_held(Channel& channel) {
  check(cudaFree(nullptr));
  const DeviceMemory memory(block);
  cudaEvent_t event{};
  Theirs mine{};
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  check(cudaIpcGetMemHandle(&mine.memory, memory.as()));
  check(cudaIpcGetEventHandle(&mine.event, event));
  channel.send(mine);
  channel.meet();
}

constexpr std::size_t page = 4096;

// Streams of two processes in turns, by words in memory that both share; then one of them dies before it has written,
// and the host of the other writes in its place.
void ask_death_word(Answer& answer) {
  check(cudaFree(nullptr));
  Partner partner("death_word");
  SharedMemory memory(page);
  partner.channel().send_descriptor(memory.descriptor());
  const auto process = partner.channel().receive<pid_t>();
  const auto address = reinterpret_cast<CUdeviceptr>(memory.registered());
  cudaStream_t stream{};
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto write = driver_function<decltype(cuStreamWriteValue32)>("cuStreamWriteValue32");
  const auto wait = driver_function<decltype(cuStreamWaitValue32)>("cuStreamWaitValue32");
  constexpr std::uint32_t rounds = 200;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint32_t i = 1; i <= rounds; ++i) {
    check_driver(write(stream, address, i, CU_STREAM_WRITE_VALUE_DEFAULT));
    check_driver(wait(stream, address + 64, i, CU_STREAM_WAIT_VALUE_GEQ));
  }
  check(cudaStreamSynchronize(stream));
  answer.figure("one turn of two processes' streams", seconds_since(start) / rounds * 1e6, "us");
  check_driver(wait(stream, address + 64, rounds + 1, CU_STREAM_WAIT_VALUE_GEQ));
  std::this_thread::sleep_for(milliseconds(100));
  require(unfinished(cudaStreamQuery(stream)), "the stream did not wait for the other process at all");
  kill_and_wait(process);
  std::this_thread::sleep_for(milliseconds(100));
  require(unfinished(cudaStreamQuery(stream)), "the stream went on by the death itself");
  const auto written = std::chrono::steady_clock::now();
  *reinterpret_cast<volatile std::uint32_t*>(memory.as<char>() + 64) = rounds + 1;
  check(cudaStreamSynchronize(stream));
  answer.figure("the host writes for the dead one, the stream goes on", seconds_since(written) * 1e6, "us");
  answer.say("yes: what waits for a word of a dead process goes on when somebody else writes it");
}

void die_before_word(Channel& channel) {
  check(cudaFree(nullptr));
  SharedMemory memory(channel.receive_descriptor(), page);
  const auto address = reinterpret_cast<CUdeviceptr>(memory.registered());
  cudaStream_t stream{};
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto write = driver_function<decltype(cuStreamWriteValue32)>("cuStreamWriteValue32");
  const auto wait = driver_function<decltype(cuStreamWaitValue32)>("cuStreamWaitValue32");
  channel.send(getpid());
  constexpr std::uint32_t rounds = 200;
  for (std::uint32_t i = 1; i <= rounds; ++i) {
    check_driver(wait(stream, address, i, CU_STREAM_WAIT_VALUE_GEQ));
    check_driver(write(stream, address + 64, i, CU_STREAM_WRITE_VALUE_DEFAULT));
  }
  check_driver(wait(stream, address, 2 * rounds, CU_STREAM_WAIT_VALUE_GEQ));  // never
  check_driver(write(stream, address + 64, rounds + 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  for (;;) pause();
}

constexpr std::array questions{
    Question{"held_calls", "which calls wait for a stream that is held back?", Needs::gpu, ask_held, show_for_held},
    Question{"death_word", "do words of shared memory outlive their process?", Needs::gpu, ask_death_word,
             die_before_word},
};

}  // namespace

std::span<const Question> held_questions() { return questions; }

}  // namespace gpu_probe
