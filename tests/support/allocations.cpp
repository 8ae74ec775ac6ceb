// SPDX-License-Identifier: Apache-2.0
// All forms of new and delete, so that none of a sanitizer's own is left to be mixed with these.
#include "tests/support/allocations.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace lockstep::test {
namespace {

std::atomic<std::ptrdiff_t> living = 0;
std::atomic<std::ptrdiff_t> bytes = 0;
thread_local std::size_t made = 0;

void* allocate(std::size_t size, std::align_val_t alignment) noexcept {
  ++made;
  void* memory = nullptr;
  if (posix_memalign(&memory, static_cast<std::size_t>(alignment), size == 0 ? 1 : size) != 0) return nullptr;
  living.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<std::ptrdiff_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  return memory;
}

void free_again(void* memory) noexcept {
  if (memory != nullptr) {
    living.fetch_sub(1, std::memory_order_relaxed);
    bytes.fetch_sub(static_cast<std::ptrdiff_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  }
  std::free(memory);
}

void* allocate_or_throw(std::size_t size, std::align_val_t alignment) {
  if (void* memory = allocate(size, alignment)) return memory;
  throw std::bad_alloc();
}

constexpr std::align_val_t usual{alignof(std::max_align_t)};

}  // namespace

std::size_t allocations_made() { return made; }
std::ptrdiff_t allocations_living() { return living; }
std::ptrdiff_t bytes_living() { return bytes; }

}  // namespace lockstep::test

using lockstep::test::allocate;
using lockstep::test::allocate_or_throw;
using lockstep::test::free_again;
using lockstep::test::usual;

void* operator new(std::size_t size) { return allocate_or_throw(size, usual); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, usual); }
void* operator new(std::size_t size, std::align_val_t alignment) { return allocate_or_throw(size, alignment); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return allocate_or_throw(size, alignment); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, usual); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, usual); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, alignment);
}
void operator delete(void* memory) noexcept { free_again(memory); }
void operator delete[](void* memory) noexcept { free_again(memory); }
void operator delete(void* memory, std::size_t) noexcept { free_again(memory); }
void operator delete[](void* memory, std::size_t) noexcept { free_again(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free_again(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { free_again(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { free_again(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { free_again(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { free_again(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { free_again(memory); }
