// SPDX-License-Identifier: Apache-2.0
// Executes schedules on numbers, in any of the orders in which messages may go, and says what the definition of a
// collective wants: a judge of prove that shares nothing with it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/shape.hpp"

namespace lockstep::test {

using Number = std::uint64_t;
using Numbers = std::vector<Number>;

// Equal seeds give equal numbers, everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(next() % end); }
  int between(int first, int last) {
    return first + static_cast<int>(below(static_cast<std::size_t>(last - first + 1)));
  }
  bool chance(std::size_t one_in) { return below(one_in) == 0; }

 private:
  std::uint64_t state_;
};

// sum: any order gives the same. affine: maps x -> a x + b, done one after the other, for which the order of the
// operands matters. tangle: for which their grouping matters too.
enum class Op : std::uint8_t { sum, affine, tangle };
Number combine(Op op, Number left, Number right);

// When a send ends: when it is received, as soon as it is read, or either, by chance.
enum class Sends : std::uint8_t { meet, leave, mixed };

struct Way {
  Op op = Op::sum;
  std::uint64_t seed = 0;  // of the order in which things happen, and of what lies in memory before
  Sends sends = Sends::mixed;
  int late = -1;  // this member begins only when nothing else can happen any more
};

struct Execution {
  std::string trouble;  // empty: everybody has ended
  std::vector<Numbers> outputs;
  std::vector<Numbers> before;  // what lay in the outputs
  bool left_early = false;      // somebody ended before the late one began
};

std::vector<Numbers> random_inputs(const Problem& problem, std::uint64_t seed);
Execution execute(const Problem& problem, std::span<const Schedule> schedules, std::span<const Numbers> inputs,
                  const Way& way);

// Every lap of every round on its own, with slices that stay.
Schedule written_out(const Schedule& schedule);

// What everybody must have in the end; nothing where anything is right, and `untouched` between blocks. Operands are
// combined in the members' order, those of tangle as the balanced tree.
inline constexpr Number untouched = 0x756e746f75636865;
std::vector<Numbers> right_outputs(const Problem& problem, std::span<const Numbers> inputs, Op op);

// Executes in several ways, and says what was wrong in one of them. Of all-reduce also: that all members combine in
// one way; of a barrier: that somebody leaves before all have come.
std::string find_trouble(const Problem& problem, std::span<const Schedule> schedules, std::uint64_t seed);
// Whether the result is that of operands in the members' order (affine) or of the balanced tree (tangle).
bool gives(const Problem& problem, std::span<const Schedule> schedules, Op op, std::uint64_t seed);

}  // namespace lockstep::test
