// What gpu-probe asks of the GPU from one process: what it is, what it can do, how fast its memory and launches are.
// The first question, driver, decides whether the others can be asked at all. Questions of two processes are in
// probe_share.cu. Nothing here changes a setting of the GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "probe_gpu.cuh"

namespace gpu_probe {
namespace {

std::string version_text(int code) { return text(code / 1000, ".", code % 1000 / 10); }

std::string uuid_of(const cudaDeviceProp& properties) {
  std::string out = "GPU-";
  for (int i = 0; i < 16; ++i) {
    std::array<char, 4> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(properties.uuid.bytes[i]));
    out += text(i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", digits.data());
  }
  return out;
}

// The few NVML functions that are asked, declared here because not every toolkit brings nvml.h.
class Nvml {
 public:
  using Device = void*;
  Nvml() : library_({"libnvidia-ml.so.1", "libnvidia-ml.so"}) {
    expect(library_.find<int()>("nvmlInit_v2")(), "nvmlInit_v2");
  }
  std::string driver() const {
    std::array<char, 96> version{};
    const auto get = library_.find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    expect(get(version.data(), version.size()), "the driver's version");
    return version.data();
  }
  Device device(const std::string& uuid) const {
    Device found = nullptr;
    expect(library_.find<int(const char*, Device*)>("nvmlDeviceGetHandleByUUID")(uuid.c_str(), &found),
           "the device by uuid");
    return found;
  }
  // Asks for one number, or for two of which the first is the present state; says why where it is not told.
  std::string number(Device device, const char* function, bool two) const {
    unsigned now = 0;
    unsigned pending = 0;
    try {
      const int status = two ? library_.find<int(Device, unsigned*, unsigned*)>(function)(device, &now, &pending)
                             : library_.find<int(Device, unsigned*)>(function)(device, &now);
      return status == 0 ? text(now) : text("not told (", error(status), ")");
    } catch (const Refused& reason) {
      return text("not told (", reason.what(), ")");
    }
  }
  int active_links(Device device) const {
    int active = 0;
    const auto state = library_.find<int(Device, unsigned, unsigned*)>("nvmlDeviceGetNvLinkState");
    for (unsigned link = 0; link < 36; ++link) {
      unsigned on = 0;
      if (state(device, link, &on) == 0 && on == 1) ++active;
    }
    return active;
  }

 private:
  std::string error(int status) const { return library_.find<const char*(int)>("nvmlErrorString")(status); }
  void expect(int status, std::string_view what) const {
    if (status != 0) throw Refused(text("NVML does not tell ", what, ": ", error(status)));
  }
  Library library_;
};

void ask_driver(Answer& answer) {
  try {
    Library driver(std::vector<std::string>{"libcuda.so.1"});
  } catch (const Refused& reason) {
    throw NoGpu(text("no driver: ", reason.what()));
  }
  int driver = 0;
  int runtime = 0;
  int count = 0;
  check(cudaDriverGetVersion(&driver));
  check(cudaRuntimeGetVersion(&runtime));
  check(cudaGetDeviceCount(&count));
  if (count == 0) throw NoGpu("no GPU: the driver shows none");
  std::string version = "version not told by NVML";
  try {
    version = Nvml().driver();
  } catch (const Refused& reason) {
    answer.detail(reason.what());
  }
  check(cudaFree(nullptr));
  answer.say(text("driver ", version, " for CUDA ", version_text(driver), ", runtime ", version_text(runtime)));
  answer.figure("gpus", count, "");
}

void ask_gpus(Answer& answer) {
  int count = 0;
  check(cudaGetDeviceCount(&count));
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp p{};
    check(cudaGetDeviceProperties(&p, device));
    answer.detail(text("device ", device, ": ", p.name, ", ", p.major, ".", p.minor, ", ", p.multiProcessorCount,
                       " SMs, ", p.totalGlobalMem >> 20, " MiB, L2 ", p.l2CacheSize >> 20, " MiB, ", p.asyncEngineCount,
                       " copy engines"));
    if (device == 0) answer.say(text(count, " x ", p.name));
  }
  answer.figure("gpus", count, "");
}

void ask_gpu_state(Answer& answer) {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, 0));
  const Nvml nvml;
  const std::string uuid = uuid_of(p);
  const Nvml::Device device = nvml.device(uuid);
  answer.say(text("MIG ", nvml.number(device, "nvmlDeviceGetMigMode", true), ", compute mode ",
                  nvml.number(device, "nvmlDeviceGetComputeMode", false), " (0 is shared by all), ECC ",
                  nvml.number(device, "nvmlDeviceGetEccMode", true), ", persistence ",
                  nvml.number(device, "nvmlDeviceGetPersistenceMode", false)));
  answer.detail(text("the uuid is readable and begins with ", uuid.substr(0, 12)));
}

void ask_links(Answer& answer) {
  int count = 0;
  check(cudaGetDeviceCount(&count));
  const Nvml nvml;
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, 0));
  answer.figure("active NVLinks of GPU 0", nvml.active_links(nvml.device(uuid_of(p))), "");
  int direct = 0;
  for (int from = 0; from < count; ++from)
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      int can = 0;
      int rank = 0;
      int atomics = 0;
      check(cudaDeviceCanAccessPeer(&can, from, to));
      check(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, from, to));
      check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to));
      direct += can;
      answer.detail(
          text("from ", from, " to ", to, ": access ", can, ", performance rank ", rank, ", native atomics ", atomics));
    }
  answer.say(count == 1 ? "one GPU: there is no pair to ask"
                        : text(direct, " of ", count * (count - 1), " ordered pairs reach each other"));
}

void ask_abilities(Answer& answer) {
  struct Ability {
    const char* name;
    CUdevice_attribute attribute;
  };
  constexpr std::array abilities{
      Ability{"ipc events", CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED},
      Ability{"virtual memory", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
      Ability{"handles as descriptors", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
      Ability{"fabric handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
      Ability{"multicast", CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED},
      Ability{"memory pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
      Ability{"dma-buf", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED},
      Ability{"GPUDirect RDMA", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED},
      Ability{"host memory registration", CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED},
      Ability{"pageable memory access", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
      Ability{"native host atomics", CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED},
      Ability{"cooperative launch", CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
      Ability{"compute preemption", CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
  };
  check(cudaFree(nullptr));
  const auto get = driver_function<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  std::string has;
  std::string lacks;
  for (const auto& [name, attribute] : abilities) {
    int value = 0;
    const CUresult status = get(&value, attribute, 0);
    std::string& list = status == CUDA_SUCCESS && value != 0 ? has : lacks;
    list += text(list.empty() ? "" : ", ", name, status == CUDA_SUCCESS ? "" : " (unknown to the driver)");
  }
  answer.say(text("has: ", has, "; lacks: ", lacks.empty() ? "nothing asked" : lacks));
}

void ask_context(Answer& answer) {
  const auto start = std::chrono::steady_clock::now();
  check(cudaFree(nullptr));
  answer.figure("start", seconds_since(start) * 1e3, "ms");
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total));
  answer.figure("memory not free", static_cast<double>(total - free) / (1 << 20), "MiB");
  answer.say("one process, one context, nothing allocated");
}

void ask_launch(Answer& answer) {
  constexpr int launches = 2000;
  nothing();
  check(cudaDeviceSynchronize());
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; ++i) nothing();
  const double enqueued = seconds_since(start);
  check(cudaDeviceSynchronize());
  answer.figure("enqueue", enqueued / launches * 1e6, "us");
  answer.figure("back to back", seconds_since(start) / launches * 1e6, "us");
  start = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; ++i) {
    nothing();
    check(cudaStreamSynchronize(nullptr));
  }
  answer.figure("launch and wait", seconds_since(start) / launches * 1e6, "us");
  answer.say("empty kernels in one stream");
}

void ask_device_rate(Answer& answer) {
  const std::size_t size = large_size();
  const DeviceMemory a(size);
  const DeviceMemory b(size);
  fill(a.as(), size, 1);
  fill(b.as(), size, 2);
  const double bytes = static_cast<double>(size);
  const double add = median_seconds([&] { add_into(b.as(), a.as(), size); });
  const double copy = median_seconds([&] { check(cudaMemcpyAsync(b.as(), a.as(), size, cudaMemcpyDeviceToDevice)); });
  require(count_wrong(b.as(), size, 1) == 0, "the copy differs from its source");
  answer.figure("copy, bytes read and written", 2 * bytes / copy / 1e9, "GB/s");
  answer.figure("add into, bytes read and written", 3 * bytes / add / 1e9, "GB/s");
  answer.say(text("median of 9, ", size >> 20, " MiB"));
}

struct HostRates {
  double up;
  double down;
};

HostRates host_rates(void* host, void* device, std::size_t size) {
  const double bytes = static_cast<double>(size);
  const double down = median_seconds([&] { check(cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost)); });
  const double up = median_seconds([&] { check(cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice)); });
  return {bytes / up / 1e9, bytes / down / 1e9};
}

void ask_host_rate(Answer& answer) {
  const std::size_t size = std::min<std::size_t>(large_size(), 256 << 20);
  const DeviceMemory device(size);
  fill(device.as(), size, 3);
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, size));
  const HostRates fast = host_rates(pinned, device.as(), size);
  std::vector<char> pageable(size, 1);
  const HostRates slow = host_rates(pageable.data(), device.as(), size);
  answer.figure("pinned to device", fast.up, "GB/s");
  answer.figure("device to pinned", fast.down, "GB/s");
  answer.figure("pageable to device", slow.up, "GB/s");
  answer.figure("device to pageable", slow.down, "GB/s");
  const DeviceMemory other(size);
  std::array<cudaStream_t, 2> streams{};
  for (cudaStream_t& stream : streams) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  void* second = nullptr;
  check(cudaMallocHost(&second, size));
  check(cudaDeviceSynchronize());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 9; ++i) {
    check(cudaMemcpyAsync(pinned, device.as(), size, cudaMemcpyDeviceToHost, streams[0]));
    check(cudaMemcpyAsync(other.as(), second, size, cudaMemcpyHostToDevice, streams[1]));
  }
  check(cudaDeviceSynchronize());
  answer.figure("both ways at once, together", 2.0 * 9 * static_cast<double>(size) / seconds_since(start) / 1e9,
                "GB/s");
  answer.say(text("median of 9, ", size >> 20, " MiB"));
}

void ask_registered(Answer& answer) {
  const std::size_t size = std::min<std::size_t>(large_size(), 256 << 20);
  SharedMemory memory(size);
  const DeviceMemory device(size);
  fill(device.as(), size, 4);
  const auto start = std::chrono::steady_clock::now();
  void* mapped = memory.registered();
  answer.figure("registering", seconds_since(start) * 1e3, "ms");
  const HostRates rates = host_rates(memory.as(), device.as(), size);
  require(count_wrong(mapped, size, 4) == 0,
          "a kernel reads other bytes from registered memory than were copied there");
  answer.figure("to device", rates.up, "GB/s");
  answer.figure("from device", rates.down, "GB/s");
  answer.say("yes: memory shared by processes can be registered, copied to, and read by kernels");
}

void ask_signals(Answer& answer) {
  SharedMemory memory(4096);
  const auto address = reinterpret_cast<CUdeviceptr>(memory.registered());
  volatile std::uint32_t* flag = memory.as<std::uint32_t>();
  cudaStream_t stream{};
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto write = driver_function<decltype(cuStreamWriteValue32)>("cuStreamWriteValue32");
  const auto wait = driver_function<decltype(cuStreamWaitValue32)>("cuStreamWaitValue32");
  constexpr std::uint32_t rounds = 1000;
  auto start = std::chrono::steady_clock::now();
  for (std::uint32_t i = 1; i <= rounds; ++i) {
    check_driver(write(stream, address, i, CU_STREAM_WRITE_VALUE_DEFAULT));
    while (*flag != i && seconds_since(start) < 20) {
    }
  }
  require(*flag == rounds, "the host does not see what a stream wrote");
  answer.figure("stream writes, host sees", seconds_since(start) / rounds * 1e6, "us");
  double waited = 0;
  for (std::uint32_t i = 1; i <= 100; ++i) {
    check_driver(wait(stream, address, rounds + i, CU_STREAM_WAIT_VALUE_GEQ));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    require(unfinished(cudaStreamQuery(stream)), "a stream did not wait for the host's value");
    start = std::chrono::steady_clock::now();
    *flag = rounds + i;
    check(cudaStreamSynchronize(stream));
    waited += seconds_since(start);
  }
  answer.figure("host writes, stream goes on", waited / 100 * 1e6, "us");
  answer.say("yes: a stream writes to and waits for shared host memory");
}

void ask_pointers(Answer& answer) {
  const DeviceMemory device(4096);
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, 4096));
  const std::vector<char> pageable(4096);
  const auto kind = [](const void* pointer) {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, pointer));
    return attributes.type;
  };
  require(kind(device.as()) == cudaMemoryTypeDevice, "device memory is not recognised");
  require(kind(pinned) == cudaMemoryTypeHost, "pinned memory is not recognised");
  require(kind(pageable.data()) == cudaMemoryTypeUnregistered, "ordinary memory is not recognised");
  constexpr int asked = 100'000;
  const std::array<std::pair<const char*, const void*>, 2> pointers{
      {{"device", device.as()}, {"ordinary", pageable.data()}}};
  for (const auto& [name, pointer] : pointers) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < asked; ++i) kind(pointer);
    answer.figure(name, seconds_since(start) / asked * 1e9, "ns a look");
  }
  answer.say("yes: device, pinned and ordinary memory are told apart");
}

void ask_planted_fault(Answer& answer) {
  write_outside();
  answer.say("written outside the allocation, unnoticed without a checker");
}

void ask_sanitizer(Answer& answer) {
  const std::string checker = find_program("compute-sanitizer");
  require(!checker.empty(), "there is no compute-sanitizer");
  const std::string said = capture({checker, "--tool", "memcheck", own_path(), "--ask", "fault_planted", "1"}, 90);
  answer.detail(text("compute-sanitizer: ", said.substr(0, 600)));
  const bool found = said.find("Invalid __global__ write") != std::string::npos;
  require(found, "compute-sanitizer did not find a planted write out of bounds");
  answer.say("yes: compute-sanitizer finds a planted write out of bounds");
}

constexpr std::array questions{
    Question{"driver", "which driver and runtime?", Needs::gpu, ask_driver},
    Question{"gpu_list", "how many GPUs, and which?", Needs::gpu, ask_gpus},
    Question{"gpu_state", "in which modes is the GPU?", Needs::gpu, ask_gpu_state},
    Question{"gpu_links", "do the GPUs reach each other?", Needs::gpu, ask_links},
    Question{"gpu_abilities", "what does the driver say it can do?", Needs::gpu, ask_abilities},
    Question{"gpu_context", "what does one more process cost?", Needs::gpu, ask_context},
    Question{"gpu_launch", "what does a kernel launch cost?", Needs::gpu, ask_launch},
    Question{"rate_device", "how fast is the GPU's memory?", Needs::gpu, ask_device_rate},
    Question{"rate_host", "how fast is the way to the host?", Needs::gpu, ask_host_rate},
    Question{"rate_registered", "can shared host memory be registered?", Needs::gpu, ask_registered},
    Question{"stream_signals", "can streams signal through host memory?", Needs::gpu, ask_signals},
    Question{"pointer_kinds", "are device pointers recognised?", Needs::gpu, ask_pointers},
    Question{"fault_planted", "does a small write out of bounds pass?", Needs::gpu, ask_planted_fault},
    Question{"fault_sanitizer", "does compute-sanitizer work?", Needs::gpu, ask_sanitizer, nullptr, 120},
};

}  // namespace

std::span<const Question> device_questions() { return questions; }

}  // namespace gpu_probe
