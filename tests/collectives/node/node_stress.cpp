// SPDX-License-Identifier: Apache-2.0
// Drawn calls for as long as is asked, verified, on several communicators at once, each member late now and then. All
// members draw the same calls from the same seed, so that nothing but the calls themselves connects them. The script
// beside the other tests of the command stops members and takes cores away meanwhile.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <thread>

#include "collectives/communicator/communicator.hpp"
#include "lockstep.hpp"
#include "tests/collectives/communicator/random_case.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using lockstep::Communicator;
using lockstep::test::RandomCase;

constexpr std::size_t large_below = 600'000;  // elements: past what goes in one segment

class Stress {
 public:
  Stress(Communicator& world, std::uint64_t seed)
      : common_(seed), own_(seed * 1000 + static_cast<unsigned>(world.rank()) + 1) {
    communicators_.push_back(world.duplicate());
    communicators_.push_back(world.duplicate());
    communicators_.push_back(*world.split(world.rank() % 2));
  }

  // The words of what went wrong; empty: nothing did.
  std::string run_for(std::chrono::seconds time, Communicator& world) {
    const auto end = Clock::now() + time;
    for (;;) {
      if (const std::string wrong = round(); !wrong.empty()) return wrong;
      std::vector<int> over = {Clock::now() >= end ? 1 : 0};
      world.all_reduce(over, lockstep::max);
      if (over[0] != 0) return {};
    }
  }

  std::uint64_t calls() const { return calls_; }

 private:
  // Twenty kinds of calls, each as often as training would repeat it.
  std::string round() {
    for (int i = 0; i < 20; ++i) {
      const std::size_t which = common_() % communicators_.size();
      const std::uint64_t seed = common_();
      const bool large = common_() % 8 == 0;
      const auto repeats = static_cast<int>(common_() % 6) + 1;
      RandomCase each = drawn(communicators_[which].size(), seed, large);
      for (int repeat = 0; repeat < repeats; ++repeat, ++each.seed) {
        be_late();
        std::string wrong = run_case(communicators_[which], each);
        if (!wrong.empty()) return with_case(wrong, each);
        ++calls_;
      }
    }
    return {};
  }

  static RandomCase drawn(int members, std::uint64_t seed, bool large) {
    RandomCase each = lockstep::test::random_case(members, true)(rc::Random(seed), 100).value();
    each.algorithm = 0;  // what the planner takes on this node
    if (large && each.count > 0) each.count = seed % large_below;
    return each;
  }

  static std::string with_case(const std::string& wrong, const RandomCase& each) {
    std::ostringstream out;
    out << wrong << " in " << each;
    return out.str();
  }

  void be_late() {
    const std::uint64_t draw = own_() % 200;
    if (draw < 4) std::this_thread::sleep_for(std::chrono::microseconds(own_() % 3000));
    if (draw < 20) {
      const auto end = Clock::now() + std::chrono::nanoseconds(own_() % 20'000);
      while (Clock::now() < end) continue;
    }
  }

  std::mt19937_64 common_;
  std::mt19937_64 own_;
  std::vector<Communicator> communicators_;
  std::uint64_t calls_ = 0;
};

std::optional<std::uint64_t> number(const char* words) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(words, &end, 10);
  if (end == words || *end != '\0') return std::nullopt;
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  const auto seconds = argc == 3 ? number(argv[1]) : std::nullopt;
  const auto seed = argc == 3 ? number(argv[2]) : std::nullopt;
  if (!seconds || !seed) {
    std::cerr << "usage: node_stress SECONDS SEED, two whole numbers\n";
    return 2;
  }
  lockstep::Session session(argc, argv);
  Communicator& world = session.world();
  std::string wrong;
  std::uint64_t calls = 0;
  {
    Stress stress(world, *seed);
    wrong = stress.run_for(std::chrono::seconds(*seconds), world);
    calls = stress.calls();
  }
  if (!wrong.empty()) {
    std::cerr << "node_stress: " << wrong << '\n';
    std::_Exit(1);  // the others wait for this member, and are told that it is gone
  }
  if (world.rank() == 0) std::cout << calls << " calls right\n";
}
