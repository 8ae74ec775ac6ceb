// SPDX-License-Identifier: Apache-2.0
// Makes and maps the parts of symmetric memory, and frees them.
#include "collectives/node/symmetric.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "topology/base/error.hpp"
#include "topology/base/shared_memory.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

constexpr std::size_t page_of_memory = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + page_of_memory - 1) / page_of_memory * page_of_memory; }

// Returns the mark behind the data, in a page of its own, that tells if the owner has freed its part.
std::atomic<std::uint32_t>& freed(std::byte* memory, std::size_t bytes) {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(memory + whole_pages(bytes));
}

struct PartOffer {
  std::string ticket;
  std::string wrong;
  std::size_t bytes;
};

PartOffer read_offer(const Bytes& bytes) {
  Reader reader(bytes);
  PartOffer offer;
  offer.ticket = reader.get_string();
  offer.wrong = reader.get_string();
  offer.bytes = static_cast<std::size_t>(reader.get<std::uint64_t>());
  return offer;
}

[[noreturn]] void refuse(std::size_t member, const std::string& why) {
  throw Error(Code::out_of_memory, text("symmetric memory: rank ", member, ": ", why),
              "ask for less, or raise the memory limits of that member's node");
}

void refuse_if_any(const std::vector<Bytes>& answers) {
  for (std::size_t member = 0; member < answers.size(); ++member) {
    if (const std::string wrong = Reader(answers[member]).get_string(); !wrong.empty()) refuse(member, wrong);
  }
}

// Maps the other members' parts here.
SymmetricMemory reach_all(const Exchange& exchange, const std::vector<Bytes>& all, const SharedMemory& mine) {
  SymmetricMemory reachable;
  for (std::size_t member = 0; member < all.size(); ++member) {
    const PartOffer theirs = read_offer(all[member]);
    const bool own = static_cast<int>(member) == exchange.rank();
    auto memory =
        own ? mine.memory() : SharedMemory::open(theirs.ticket, whole_pages(theirs.bytes) + page_of_memory).memory();
    if (own) reachable.bytes = theirs.bytes;
    reachable.freed.push_back(&freed(memory.get(), theirs.bytes));
    reachable.parts.push_back(memory.get());
    reachable.kept.push_back(std::move(memory));
  }
  return reachable;
}

}  // namespace

SymmetricPart::SymmetricPart(std::shared_ptr<std::byte> memory, std::size_t bytes)
    : memory_(std::move(memory)), bytes_(bytes), process_(::getpid()) {}

SymmetricPart& SymmetricPart::operator=(SymmetricPart&& other) noexcept {
  free();
  memory_ = std::move(other.memory_);
  bytes_ = other.bytes_;
  process_ = other.process_;
  return *this;
}

void SymmetricPart::free() noexcept {
  if (!memory_) return;
  if (process_ == ::getpid()) {
    if (bytes_ > 0) ::madvise(memory_.get(), whole_pages(bytes_), MADV_REMOVE);
    freed(memory_.get(), bytes_).store(1, std::memory_order_release);
  }
  memory_.reset();
}

SymmetricPart allocate(Exchange& exchange, Room* room, std::size_t bytes,
                       const std::function<void(SymmetricMemory)>& add) {
  constexpr std::size_t most = std::size_t{1} << 46U;
  SharedMemory mine;
  std::string wrong;
  try {
    if (bytes > most) throw Error(Code::out_of_memory, text(bytes, " bytes are more than any node has"));
    mine = SharedMemory::make(whole_pages(bytes) + page_of_memory, true);
#ifdef MADV_HUGEPAGE
    ::madvise(mine.memory().get(), whole_pages(bytes), MADV_HUGEPAGE);  // if the system allows it
#endif
  } catch (const Error& error) {
    wrong = error.detail();
  }
  const auto all = exchange.all_gather("symmetric memory", Writer()
                                                               .put(std::string_view(mine.ticket()))
                                                               .put(std::string_view(wrong))
                                                               .put(static_cast<std::uint64_t>(bytes))
                                                               .take());
  for (std::size_t member = 0; member < all.size(); ++member) {
    if (const PartOffer offer = read_offer(all[member]); !offer.wrong.empty()) refuse(member, offer.wrong);
  }
  if (room == nullptr || room->buffers().is_one_process()) return {mine.memory(), bytes};
  SymmetricMemory reachable;
  try {
    reachable = reach_all(exchange, all, mine);
  } catch (const Error& error) {
    wrong = error.detail();
  }
  refuse_if_any(exchange.all_gather("symmetric memory is open", Writer().put(std::string_view(wrong)).take()));
  add(std::move(reachable));
  return {mine.memory(), bytes};
}

}  // namespace lockstep::node
