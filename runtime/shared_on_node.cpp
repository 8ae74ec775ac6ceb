// SPDX-License-Identifier: Apache-2.0
// Lets one process of each node load, and the others map the memory where its data lie.
#include "runtime/shared_on_node.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <string>

#include "collectives/spec.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/shared_memory.hpp"

namespace lockstep::detail {
namespace {

using LoadedTensors = std::vector<LoadedTensor>;

// Returns the bytes of all processes, in their order.
std::vector<Bytes> gather(Communicator& channel, const Bytes& mine) {
  const auto size = static_cast<std::uint64_t>(mine.size());
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(channel.size()));
  channel.all_gather(std::span(&size, 1), sizes);
  std::size_t total = 0;
  for (const std::uint64_t each : sizes) total += each;
  std::vector<std::uint8_t> own(mine.size());
  if (!mine.empty()) std::memcpy(own.data(), mine.data(), mine.size());
  std::vector<std::uint8_t> joined(total);
  channel.all_gather_v(own, joined, std::vector<std::size_t>(sizes.begin(), sizes.end()));
  std::vector<Bytes> all;
  auto next = std::as_bytes(std::span(joined)).begin();
  for (const std::uint64_t each : sizes) {
    const auto end = next + static_cast<std::ptrdiff_t>(each);
    all.emplace_back(next, end);
    next = end;
  }
  return all;
}

// Tells the other processes how loading has ended here. All parts are empty if this process does not load.
struct LoadReport {
  struct Tensor {
    TensorShape shape;
    std::string ticket;
  };
  bool has_failed = false;
  std::string failure;  // Is the exception's text, which may be empty.
  Code code = Code::remote;
  std::string unshared;  // Says why the tensors are not in shared memory.
  std::vector<Tensor> tensors;
};

Bytes write_report(const LoadReport& report) {
  Writer writer;
  writer.put(report.has_failed).put(report.failure).put(report.code).put(report.unshared);
  writer.put(static_cast<std::uint64_t>(report.tensors.size()));
  for (const LoadReport::Tensor& each : report.tensors)
    writer.put(std::as_bytes(std::span(each.shape.lengths()))).put(each.ticket);
  return writer.take();
}

LoadReport read_report(const Bytes& bytes) {
  Reader reader(bytes);
  LoadReport report;
  report.has_failed = reader.get<bool>();
  report.failure = reader.get_string();
  report.code = reader.get<Code>();
  report.unshared = reader.get_string();
  for (auto left = reader.get<std::uint64_t>(); left > 0; --left) {
    const Bytes lengths = reader.get_bytes();
    std::vector<std::int64_t> all(lengths.size() / sizeof(std::int64_t));
    if (!all.empty()) std::memcpy(all.data(), lengths.data(), all.size() * sizeof(std::int64_t));
    report.tensors.push_back({TensorShape(std::move(all)), reader.get_string()});
  }
  return report;
}

// Shares the data of one call.
class NodeSharing {
 public:
  NodeSharing(Communicator& channel, std::vector<DataType> types, const LoadTensors& load)
      : channel_(channel), types_(std::move(types)), load_(load) {}

  // Throws Error mismatch on all processes if their types differ.
  void require_equal_types();
  // Loads in one process of each node, and maps its data in the others. Returns a text if this process cannot map them,
  // and so has none.
  std::string share();
  // Loads in the processes that have no data yet.
  void load_rest();
  LoadedTensors take() { return std::move(*tensors_); }

 private:
  int node_of(int process) const;
  int first_of_node() const;
  bool is_alone() const;
  std::size_t bytes_of(std::size_t number, const TensorShape& shape) const;
  void wait_for_all(const std::future<void>& loaded);
  LoadReport load(bool shares);
  LoadReport call_loader();
  void publish(LoadReport& report);
  void move_to_shared_memory();
  std::vector<LoadReport> exchange(const LoadReport& mine);
  void map(const LoadReport& report);

  Communicator& channel_;
  std::vector<DataType> types_;
  const LoadTensors& load_;
  std::optional<LoadedTensors> tensors_;
  std::vector<SharedMemory> memory_;  // Holds each tensor, until all processes have mapped it.
};

// Other collectives of the channel begin with another number of elements. So the engine refuses a process that calls
// one of them instead.
void NodeSharing::require_equal_types() {
  std::string names;
  for (const DataType each : types_) names += text(names.empty() ? "" : ", ", to_string(each));
  const std::array<std::uint64_t, 2> own{hash(to_bytes("shared_on_node")), hash(to_bytes(names))};
  std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(channel_.size()));
  channel_.all_gather(own, all);
  for (std::size_t i = own.size(); i < all.size(); ++i) {
    if (all[i] == all[i % own.size()]) continue;
    throw Error(Code::mismatch,
                text("processes share different data: process 0 and process ", i / own.size(),
                     " differ; this one's loader returns tensors of ", names),
                "let the loaders of all processes return tensors of the same types");
  }
}

int NodeSharing::node_of(int process) const {
  return channel_.topology().member(channel_.ranks()[static_cast<std::size_t>(process)]).node;
}

int NodeSharing::first_of_node() const {
  int first = 0;
  while (node_of(first) != node_of(channel_.rank())) ++first;
  return first;
}

bool NodeSharing::is_alone() const {
  for (int process = 0; process < channel_.size(); ++process)
    if (process != channel_.rank() && node_of(process) == node_of(channel_.rank())) return false;
  return true;
}

std::size_t NodeSharing::bytes_of(std::size_t number, const TensorShape& shape) const {
  return std::max<std::size_t>(1, shape.count() * size_of(types_[number]));  // No mapping has 0 bytes.
}

std::string NodeSharing::share() {
  const bool may_share = channel_.options().node_memory;
  const int first = may_share ? first_of_node() : channel_.rank();
  const LoadReport mine = first == channel_.rank() ? load(may_share && !is_alone()) : (wait_for_all({}), LoadReport());
  const std::vector<LoadReport> all = exchange(mine);
  if (!may_share && !is_alone()) return "LOCKSTEP_NODE_MEMORY is 0";
  if (tensors_) return {};
  try {
    const LoadReport& report = all[static_cast<std::size_t>(first)];
    if (!report.unshared.empty()) return report.unshared;
    map(report);
  } catch (const Error& error) {
    return std::string(error.detail());
  }
  return {};
}

void NodeSharing::load_rest() { exchange(tensors_ ? (wait_for_all({}), LoadReport()) : load(false)); }

// Rounds keep each wait of the others below its deadline, however long a process loads.
void NodeSharing::wait_for_all(const std::future<void>& loaded) {
  constexpr std::chrono::milliseconds round(100);
  for (std::uint8_t still_loads = 1; still_loads != 0;) {
    still_loads = loaded.valid() && loaded.wait_for(round) == std::future_status::timeout ? 1 : 0;
    channel_.all_reduce(std::span(&still_loads, 1), max);
  }
}

// A second thread takes part in the rounds, since the loader belongs to the program's thread. The rounds end however
// this thread leaves the block, because the future waits for them.
LoadReport NodeSharing::load(bool shares) {
  std::promise<void> loaded;
  auto rounds = std::async(std::launch::async, [&, future = loaded.get_future()] { wait_for_all(future); });
  LoadReport report;
  {
    const auto end = [](std::promise<void>* promise) { promise->set_value(); };
    const std::unique_ptr<std::promise<void>, decltype(end)> guard(&loaded, end);
    report = call_loader();
    if (tensors_ && shares) publish(report);
  }
  rounds.get();
  return report;
}

LoadReport NodeSharing::call_loader() {
  LoadReport report;
  try {
    LoadedTensors all = load_();
    if (all.size() != types_.size())
      throw Error(Code::internal, text("the loader returned ", all.size(), " tensors of ", types_.size()));
    tensors_ = std::move(all);
    return report;
  } catch (const Error& error) {
    report.code = error.code();
    report.failure = error.detail();
  } catch (const std::exception& error) {
    report.failure = error.what();
  } catch (...) {
    report.failure = "an object that is not a std::exception";
  }
  report.has_failed = true;
  return report;
}

// Tells the other processes where the shared memory is, or why there is none.
void NodeSharing::publish(LoadReport& report) {
  try {
    move_to_shared_memory();
    for (std::size_t i = 0; i < memory_.size(); ++i)
      report.tensors.push_back({(*tensors_)[i].shape, memory_[i].ticket()});
    return;
  } catch (const Error& error) {
    report.unshared = error.detail();
  } catch (const std::exception& error) {
    report.unshared = error.what();
  }
  memory_.clear();
  report.tensors.clear();
}

// Frees each tensor before it copies the next one.
void NodeSharing::move_to_shared_memory() {
  for (std::size_t i = 0; i < tensors_->size(); ++i) {
    LoadedTensor& tensor = (*tensors_)[i];
    const std::size_t bytes = bytes_of(i, tensor.shape);
    SharedMemory memory = SharedMemory::make(bytes, true);
    copy_elements(tensor.elements.get(), tensor.shape.count() * size_of(types_[i]), memory.memory().get());
    memory.make_read_only(bytes);
    tensor.elements = memory.memory();
    memory_.push_back(std::move(memory));
  }
}

// Throws the first failure on all processes.
std::vector<LoadReport> NodeSharing::exchange(const LoadReport& mine) {
  std::vector<LoadReport> all;
  for (const Bytes& each : gather(channel_, write_report(mine))) {
    all.push_back(read_report(each));
    if (const LoadReport& report = all.back(); report.has_failed)
      throw Error(report.code, text("the loader of shared_on_node() threw in process ", all.size() - 1, ": ",
                                    report.failure.empty() ? "an exception without a text" : report.failure));
  }
  return all;
}

void NodeSharing::map(const LoadReport& report) {
  if (report.tensors.size() != types_.size())
    throw Error(Code::internal, text(report.tensors.size(), " shared tensors of ", types_.size()));
  LoadedTensors mapped;
  for (std::size_t i = 0; i < report.tensors.size(); ++i) {
    const auto& [shape, ticket] = report.tensors[i];
    SharedMemory memory = SharedMemory::open(ticket, bytes_of(i, shape));
    memory.make_read_only(bytes_of(i, shape));
    mapped.push_back({shape, memory.memory()});
  }
  tensors_ = std::move(mapped);
}

}  // namespace

std::vector<LoadedTensor> share_on_node(Communicator& channel, const Log& log, std::vector<DataType> types,
                                        const LoadTensors& load) {
  if (channel.size() == 1) return load();
  NodeSharing sharing(channel, std::move(types), load);
  sharing.require_equal_types();
  const std::vector<Bytes> answers = gather(channel, to_bytes(sharing.share()));
  const auto is_unshared = [](const Bytes& answer) { return !answer.empty(); };
  const auto found = std::ranges::find_if(answers, is_unshared);
  if (found == answers.end()) return sharing.take();
  if (channel.rank() == 0)
    log.warn(text("shared_on_node(): ", std::ranges::count_if(answers, is_unshared), " of ", answers.size(),
                  " processes have copies of their own; process ", found - answers.begin(), ": ", to_string(*found)));
  sharing.load_rest();
  return sharing.take();
}

}  // namespace lockstep::detail
