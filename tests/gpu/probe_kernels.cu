// The kernels of gpu-probe and the small helpers around them. No question is asked here.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <sys/mman.h>
#include <unistd.h>

#include "probe_gpu.cuh"

namespace gpu_probe {

namespace {

constexpr int threads = 256;

__host__ __device__ std::uint32_t pattern(std::size_t index, std::uint32_t seed) {
  std::uint32_t x = static_cast<std::uint32_t>(index) * 2654435761u + seed;
  x ^= x >> 15;
  return x * 2246822519u;
}

__global__ void fill_words(std::uint32_t* words, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    words[i] = pattern(i, seed);
}

__global__ void count_wrong_words(const std::uint32_t* words, std::size_t count, std::uint32_t seed,
                                  unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    mine += words[i] != pattern(i, seed);
  if (mine != 0) atomicAdd(wrong, mine);
}

__global__ void add_words(uint4* into, const uint4* from, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const uint4 a = into[i];
    const uint4 b = from[i];
    into[i] = make_uint4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
}

__global__ void work_steps(std::uint64_t steps, float* result) {
  float x = static_cast<float>(threadIdx.x);
  for (std::uint64_t i = 0; i < steps; ++i) x = x * 0.999f + 0.5f;
  result[threadIdx.x] = x;
}

__global__ void empty_kernel() {}

__global__ void write_at(std::uint32_t* words, std::size_t index) { words[index] = 1; }

__device__ std::uint64_t now_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void count(volatile std::uint32_t* word, std::uint64_t limit_ns) {
  const std::uint64_t start = now_ns();
  for (std::uint32_t i = 1; now_ns() - start < limit_ns; ++i) {
    *word = i;
    __threadfence_system();
  }
}

__global__ void meet(volatile std::uint32_t* mine, volatile std::uint32_t* theirs, std::uint32_t rounds,
                     std::uint64_t limit_ns, Meetings* meetings) {
  const std::uint64_t start = now_ns();
  std::uint32_t round = 1;
  for (; round <= rounds; ++round) {
    __threadfence_system();
    *mine = round;
    while (*theirs < round && now_ns() - start < limit_ns) {
    }
    if (*theirs < round) break;
  }
  meetings->reached = round - 1;
  meetings->nanoseconds = now_ns() - start;
}

int many_blocks() {
  int processors = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  return processors * 8;
}

}  // namespace

SharedMemory::SharedMemory(std::size_t size)
    : SharedMemory(static_cast<int>(check_system(memfd_create("gpu-probe", MFD_CLOEXEC))), size) {}

SharedMemory::SharedMemory(int descriptor, std::size_t size) : descriptor_(descriptor), size_(size) {
  check_system(ftruncate(descriptor_, static_cast<off_t>(size_)));
  data_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  require(data_ != MAP_FAILED, "shared memory cannot be mapped");
}

SharedMemory::~SharedMemory() {
  if (registered_) cudaHostUnregister(data_);
  munmap(data_, size_);
  close(descriptor_);
}

void* SharedMemory::registered() {
  if (!registered_) check(cudaHostRegister(data_, size_, cudaHostRegisterMapped | cudaHostRegisterPortable));
  registered_ = true;
  void* address = nullptr;
  check(cudaHostGetDevicePointer(&address, data_, 0));
  return address;
}

std::size_t large_size() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total));
  constexpr std::size_t step = std::size_t{16} << 20;
  const std::size_t size = std::min<std::size_t>(std::size_t{1} << 30, free / 8) / step * step;
  require(size > 0, text("only ", free >> 20, " MiB of the GPU's memory are free"));
  return size;
}

double median_seconds(const std::function<void()>& enqueue, int repeats) {
  cudaEvent_t before{};
  cudaEvent_t after{};
  check(cudaEventCreate(&before));
  check(cudaEventCreate(&after));
  enqueue();
  enqueue();
  std::vector<float> milliseconds(repeats);
  for (float& one : milliseconds) {
    check(cudaEventRecord(before));
    enqueue();
    check(cudaEventRecord(after));
    check(cudaEventSynchronize(after));
    check(cudaEventElapsedTime(&one, before, after));
  }
  check(cudaEventDestroy(before));
  check(cudaEventDestroy(after));
  std::sort(milliseconds.begin(), milliseconds.end());
  return milliseconds[milliseconds.size() / 2] / 1000;
}

void fill(void* data, std::size_t size, std::uint32_t seed) {
  fill_words<<<many_blocks(), threads>>>(static_cast<std::uint32_t*>(data), size / 4, seed);
  check(cudaGetLastError());
}

std::uint64_t count_wrong(const void* data, std::size_t size, std::uint32_t seed) {
  const DeviceMemory wrong(sizeof(unsigned long long));
  check(cudaMemset(wrong.as(), 0, wrong.size()));
  const auto* words = static_cast<const std::uint32_t*>(data);
  count_wrong_words<<<many_blocks(), threads>>>(words, size / 4, seed, wrong.as<unsigned long long>());
  check(cudaGetLastError());
  unsigned long long count = 0;
  check(cudaMemcpy(&count, wrong.as(), sizeof count, cudaMemcpyDeviceToHost));
  return count;
}

void add_into(void* into, const void* from, std::size_t size) {
  add_words<<<many_blocks(), threads>>>(static_cast<uint4*>(into), static_cast<const uint4*>(from), size / 16);
  check(cudaGetLastError());
}

void work(std::uint64_t steps) {
  const DeviceMemory result(threads * sizeof(float));
  work_steps<<<1, threads>>>(steps, result.as<float>());
  check(cudaGetLastError());
  check(cudaDeviceSynchronize());
}

void count_up(std::uint32_t* word, std::uint32_t limit_ms) {
  count<<<1, 1>>>(word, std::uint64_t{limit_ms} * 1'000'000);
  check(cudaGetLastError());
}

void nothing() {
  empty_kernel<<<1, 1>>>();
  check(cudaGetLastError());
}

void write_outside() {
  const DeviceMemory small(4096);
  write_at<<<1, 1>>>(small.as<std::uint32_t>(), 4096 / 4 + 8);
  check(cudaGetLastError());
  check(cudaDeviceSynchronize());
}

Meetings meet_by_flags(std::uint32_t* mine, std::uint32_t* theirs, std::uint32_t rounds, std::uint32_t limit_ms) {
  const DeviceMemory result(sizeof(Meetings));
  meet<<<1, 1>>>(mine, theirs, rounds, std::uint64_t{limit_ms} * 1'000'000, result.as<Meetings>());
  check(cudaGetLastError());
  Meetings meetings{};
  check(cudaMemcpy(&meetings, result.as(), sizeof meetings, cudaMemcpyDeviceToHost));
  return meetings;
}

}  // namespace gpu_probe
