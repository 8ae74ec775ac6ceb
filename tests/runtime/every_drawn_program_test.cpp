// SPDX-License-Identifier: Apache-2.0
// Drawn programs of changes, reads and collectives, under every strategy and layout. In some, one replica has two steps
// in the other order: every difference is refused at all replicas, and nothing equal is.
#include <rapidcheck.h>

#include <ostream>

#include "tests/runtime/layouts.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

enum class Action { add, subtract, assign, scatter, read, reduce, gather, broadcast };

struct Step {
  Action action = Action::read;
  std::size_t variable = 0;  // of changes and reads
  std::size_t count = 1;     // elements of collectives
  float value = 0;
};

struct DrawnProgram {
  std::vector<Aggregation> variables;
  std::vector<Step> steps;
  int swaps_at = -1;  // the replica, by its number in the sync group, or -1
  std::size_t first = 0, second = 0;

  std::vector<Step> of(int replica) const {
    std::vector<Step> mine = steps;
    if (replica == swaps_at) std::swap(mine[first], mine[second]);
    return mine;
  }
  // Returns the steps that replicas must have in common.
  std::string trace(int replica) const {
    std::string all;
    for (const Step& each : of(replica)) {
      const bool is_of_variable = each.action <= Action::read;
      if (each.action == Action::read || (is_of_variable && variables[each.variable] == Aggregation::none)) continue;
      all += text(static_cast<int>(each.action), is_of_variable ? " of variable " : " of count ",
                  is_of_variable ? each.variable : each.count, "; ");
    }
    return all;
  }
};

rc::Gen<DrawnProgram> drawn_program(int replicas, bool has_own_parts) {
  return rc::gen::exec([=] {
    DrawnProgram program;
    const int number = *rc::gen::inRange(1, 4);
    for (int i = 0; i < number; ++i)
      program.variables.push_back(static_cast<Aggregation>(*rc::gen::inRange(has_own_parts ? 0 : 1, 4)));
    const int length = *rc::gen::inRange(2, 9);
    for (int i = 0; i < length; ++i) {
      // Sums and means of 60 and its multiples are exact for 1 to 6 replicas.
      program.steps.push_back({static_cast<Action>(*rc::gen::inRange(0, 8)),
                               static_cast<std::size_t>(*rc::gen::inRange(0, number)),
                               static_cast<std::size_t>(*rc::gen::inRange(1, 3)), 60.F * static_cast<float>(i + 1)});
    }
    if (replicas > 1 && *rc::gen::arbitrary<bool>()) {
      program.swaps_at = *rc::gen::inRange(0, replicas);
      program.first = *rc::gen::inRange<std::size_t>(0, program.steps.size() - 1);
      program.second = *rc::gen::inRange(program.first + 1, program.steps.size());
    }
    return program;
  });
}

class DrawnPrograms : public EveryLayout {
 protected:
  using Variables = std::vector<Variable<float>>;

  static void do_step(ReplicaContext& replica, Variables& variables, const Step& step) {
    const Tensor<float> value(TensorShape{2}, step.value);
    Variable<float>& variable = variables[step.variable];
    std::vector<float> data(step.count, step.value);
    switch (step.action) {
      case Action::add:
        return variable.assign_add(value);
      case Action::subtract:
        return variable.assign_sub(value);
      case Action::assign:
        return variable.assign(value);
      case Action::scatter:
        return variable.scatter_add(rows_of(step.value));
      case Action::read:
        return static_cast<void>(variable.read());
      case Action::reduce:
        return static_cast<void>(replica.all_reduce(data, sum));
      case Action::gather:
        return static_cast<void>(replica.all_gather(row(data)));
      case Action::broadcast:
        return replica.broadcast(data, 0);
    }
  }
  static IndexedSlices<float> rows_of(float value) {
    return {Tensor<float>(TensorShape{1}, value), {0}, TensorShape{2}};
  }

  Variables make(const DrawnProgram& program) {
    const Scope scope = strategy->scope();
    Variables all;
    all.reserve(program.variables.size());
    for (const Aggregation each : program.variables) all.emplace_back(Tensor<float>(TensorShape{2}), written(each));
    return all;
  }
  void run(const DrawnProgram& program, Variables& variables) {
    strategy->run([&](ReplicaContext& replica) {
      for (const Step& each : program.of(replica.replica_id_in_sync_group())) do_step(replica, variables, each);
    });
  }
  // Compares each variable with one that is changed by a single thread. Replicas give equal values.
  void compare(const DrawnProgram& program, Variables& variables) {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      std::vector<float> expected(2);
      const float times = program.variables[i] == Aggregation::sum ? static_cast<float>(size()) : 1.F;
      for (const Step& each : program.steps) {
        if (each.variable != i || each.action > Action::scatter) continue;
        for (std::size_t element = 0; element < (each.action == Action::scatter ? 1U : 2U); ++element) {
          float& number = expected[element];
          const float by = each.value * times;
          number = each.action == Action::assign ? by : each.action == Action::subtract ? number - by : number + by;
        }
      }
      for (const Tensor<float>& part : variables[i].parts())
        EXPECT_EQ(std::vector<float>(part.begin(), part.end()), expected) << "variable " << i;
    }
  }
};

TEST_P(DrawnPrograms, AreRefusedAtAllReplicasIfAndOnlyIfTheyDiffer) {
  const bool has_own_parts = !strategy->variable_layout({}).is_shared;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const DrawnProgram program = drawn_program(size(), has_own_parts)(rc::Random(seed), 100).value();
    const bool differs = program.swaps_at >= 0 && program.trace(program.swaps_at) != program.trace(-1);
    SCOPED_TRACE(text("seed ", seed, ", replica ", program.swaps_at, ": ", program.trace(program.swaps_at),
                      " and the others: ", program.trace(-1)));
    if (differs) {
      const auto all = [&] {
        Variables variables = make(program);
        run(program, variables);
        // The root of a broadcast that is the last call hears of others at its next one.
        strategy->run([](ReplicaContext& replica) { static_cast<void>(replica.all_reduce(1, sum)); });
      };
      end_calls();
      const std::string words = refusal(all, {Code::replica_failed, Code::mismatch});
      EXPECT_NE(words.find("E016"), std::string::npos) << words;
      ++refused;
    } else {
      Variables variables = make(program);
      run(program, variables);
      if (program.swaps_at < 0) compare(program, variables);
      for (std::size_t i = 0; i < variables.size(); ++i) {
        if (program.variables[i] != Aggregation::none) variables[i].check_sync();
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_TRUE(size() == 1 ? refused == 0 : refused > 10) << refused;
}

INSTANTIATE_TEST_SUITE_P(, DrawnPrograms, testing::ValuesIn(layouts()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep::test
