// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/book.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
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
  int file = -1;
  bool is_tried = false;
};

Own& own() {
  static Own* const one = new Own;  // communicators may end after statics
  return *one;
}

// Where files may not be so long, making one longer would end the program.
bool may_be_made() {
  rlimit longest{};
  return ::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur >= sizeof(Book);
}

void make(Own& mine) noexcept {
  if (!may_be_made()) return;
  const int file = ::memfd_create(file_name.data(), MFD_CLOEXEC);
  if (file < 0) return;
  void* memory = MAP_FAILED;
  if (::ftruncate(file, sizeof(Book)) == 0)
    memory = ::mmap(nullptr, sizeof(Book), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    ::close(file);
    return;
  }
  mine.file = file;
  mine.book = static_cast<Book*>(memory);  // zeros, which is what all begins with
  mine.book->layout = layout;
  mine.book->process = ::getpid();
  mine.book->magic = magic;
}

Book* book_of_this_process(const Own& mine) noexcept {
  return mine.book != nullptr && mine.book->process == ::getpid() ? mine.book : nullptr;
}

void set_state(const Page* page, Head::State state) noexcept {
  Own& mine = own();
  const std::lock_guard lock(mine.mutex);
  Book* const book = book_of_this_process(mine);
  if (page == nullptr || book == nullptr) return;
  const auto which = static_cast<std::size_t>(page - book->pages.data());
  book->heads[which].state.store(state, std::memory_order_release);
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

Page* take_page(std::string_view name, int rank, int size, std::uint64_t id) noexcept {
  Own& mine = own();
  const std::lock_guard lock(mine.mutex);
  if (!std::exchange(mine.is_tried, true)) make(mine);
  Book* const book = book_of_this_process(mine);
  if (book == nullptr) return nullptr;
  const int order = book->made.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < most_pages; ++i) {
    Head& head = book->heads[i];
    if (head.state.load(std::memory_order_relaxed) != Head::State::unused) continue;
    Page& page = book->pages[i];
    page.name.write(name);
    page.started.store(0, std::memory_order_relaxed);
    page.finished.store(0, std::memory_order_relaxed);
    page.exchanges.store(0, std::memory_order_relaxed);
    page.wait_no_more();
    page.waits.write({});
    page.failure.write({});
    for (Called& call : page.calls) {
      call.number.store(0, std::memory_order_relaxed);
      call.source = nullptr;
    }
    head.rank = rank;
    head.size = size;
    head.order = order;
    head.id.store(id, std::memory_order_relaxed);
    head.state.store(Head::State::open, std::memory_order_release);
    return &page;
  }
  return nullptr;
}

void give_back(const Page* page) noexcept { set_state(page, Head::State::unused); }

void mark_failed(const Page* page) noexcept { set_state(page, Head::State::failed); }

int file_of_this_process() noexcept {
  Own& mine = own();
  const std::lock_guard lock(mine.mutex);
  return book_of_this_process(mine) != nullptr ? mine.file : -1;
}

}  // namespace lockstep::book
