// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/book.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace lockstep::book {
namespace {

// For as long as the process lives: who looks at it may come late. A child that was forked would write into its
// parent's, so it has none.
struct Own {
  std::mutex mutex;
  Book* book = nullptr;
  bool is_tried = false;
};

Own& own() {
  static Own* const one = new Own;  // communicators may end after statics
  return *one;
}

Book* make() noexcept {
  const int file = ::memfd_create(file_name.data(), MFD_CLOEXEC);
  if (file < 0) return nullptr;
  if (::ftruncate(file, sizeof(Book)) != 0) {
    ::close(file);
    return nullptr;
  }
  void* const memory = ::mmap(nullptr, sizeof(Book), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    ::close(file);
    return nullptr;
  }
  auto* const book = static_cast<Book*>(memory);  // zeros, which is what all begins with
  book->layout = layout;
  book->process = ::getpid();
  book->magic = magic;
  return book;
}

}  // namespace

void Page::write_source(Called& call, const char* source) {
  call.source = source;
  const std::string_view whole = source;
  const std::size_t most = call.file.size() - 1;
  const std::string_view end = whole.substr(whole.size() - std::min(whole.size(), most));
  std::copy(end.begin(), end.end(), call.file.begin());
  call.file[end.size()] = '\0';
}

Page* take_page(std::string_view name, int rank, int size) noexcept {
  Own& mine = own();
  const std::lock_guard lock(mine.mutex);
  if (!std::exchange(mine.is_tried, true)) mine.book = make();
  Book* const book = mine.book;
  if (book == nullptr || book->process != ::getpid()) return nullptr;
  const int order = book->made.fetch_add(1, std::memory_order_relaxed);
  for (Page& page : book->pages) {
    if (page.state.load(std::memory_order_relaxed) != Page::State::unused) continue;
    page.rank = rank;
    page.size = size;
    page.order = order;
    page.name.write(name);
    page.started.store(0, std::memory_order_relaxed);
    page.finished.store(0, std::memory_order_relaxed);
    page.exchanges.store(0, std::memory_order_relaxed);
    page.waits_since_ns.store(0, std::memory_order_relaxed);
    page.waits.write({});
    page.failure.write({});
    for (Called& call : page.calls) {
      call.number.store(0, std::memory_order_relaxed);
      call.source = nullptr;
    }
    page.state.store(Page::State::open, std::memory_order_release);
    return &page;
  }
  return nullptr;
}

void give_back(Page* page) noexcept {
  if (page == nullptr || of_this_process() == nullptr) return;
  page->state.store(Page::State::unused, std::memory_order_release);
}

const Book* of_this_process() noexcept {
  Own& mine = own();
  const std::lock_guard lock(mine.mutex);
  return mine.book != nullptr && mine.book->process == ::getpid() ? mine.book : nullptr;
}

}  // namespace lockstep::book
