// SPDX-License-Identifier: Apache-2.0
// Chooses how a collective is done and writes it down as a plan. Members that ask for the same choose the same
// without a word to each other: a choice depends only on what all of them know. A name that is forced goes before a
// row of the table that was measured, and that before the cost model.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectives/cost_model.hpp"
#include "collectives/plan.hpp"
#include "collectives/plan_table.hpp"

namespace lockstep {

struct PlannerOptions {
  std::string algorithm = {};                         // as LOCKSTEP_ALGORITHM is written; empty: none is forced
  std::string algorithm_name = "LOCKSTEP_ALGORITHM";  // who forces it, for messages
  std::string table = {};                             // the text of the file that LOCKSTEP_TABLE names, not its path
  std::string table_name = "the plan table";          // for messages
  // The members share memory, in which elements of up to so many bytes can be reduced; 0: they do not.
  std::size_t node_element = 0;
  // The same of the members of each node, where there are several.
  std::size_t near_element = 0;
  std::size_t most_plans = 1024;  // kept; the oldest go first
};

// What was considered for a specification.
struct AlgorithmCandidate {
  std::string_view name;
  std::size_t piece = 0;       // elements sent at a time; 0: whole
  int segments = 1;            // that flow through its stages one behind the other
  std::size_t rounds = 0;      // messages that follow each other
  std::size_t sent_bytes = 0;  // by the member that sends most; 0 too where members do not know each other's counts
  double predicted_us = 0;
  bool chosen = false;
  bool narrow = false;  // its messages between nodes would be in the wire format
  std::string why_not;  // it cannot be taken; empty: it can
};

struct SpecHash {
  std::size_t operator()(const Spec& spec) const noexcept;
};

// Of one group. One thread at a time.
class Planner {
 public:
  // Throws Error bad_setting when the options name what does not exist.
  Planner(const std::shared_ptr<const Topology>& topology, Group group, PlannerOptions options = {});

  // The same object again for an equal specification. Throws Error bad_setting when a forced algorithm does not fit.
  std::shared_ptr<const Plan> plan(const Spec& spec);
  // All algorithms of the collective, the cheapest first, those that cannot be taken last. None for a member alone.
  std::vector<AlgorithmCandidate> candidates(const Spec& spec);

  const GroupFacts& facts() const { return facts_; }
  const Group& group() const { return group_; }
  std::size_t kept() const { return plans_.size(); }

 private:
  struct PricedAlgorithm {
    const Algorithm* algorithm;
    std::size_t piece_bytes;
    double us;
    bool narrow = false;  // with messages in the wire format, which saves enough
    double plain_us = 0;  // without
  };
  struct AlgorithmChoice {
    const Algorithm* algorithm = nullptr;
    std::size_t piece_bytes = 0;                              // 0: whole
    std::optional<std::size_t> segment_bytes = std::nullopt;  // as a row of the table says; nothing: by the rule
    std::string why = {};
    bool in_node = false;
    bool narrow = false;
  };
  struct RankingKey {
    Collective collective;
    std::uint64_t bytes;
    bool may_be_narrow;
    auto operator<=>(const RankingKey&) const = default;  // NOLINT(modernize-use-nullptr): of the comparison itself
  };
  struct Segmentation {
    std::size_t segment = 0;
    int segments = 1;
    int depth = 1;
  };

  void check(const Spec& spec) const;
  // What all members know of the shape, as the root sees it; an algorithm has its own levels.
  Shape common_shape(const Algorithm& algorithm, const Spec& spec, std::size_t count, std::size_t piece) const;
  Shape my_shape(const Algorithm& algorithm, const Spec& spec, std::size_t count, std::size_t piece) const;
  Shape my_shape(const Spec& spec) const;  // whatever it is done by
  std::string objection(const Algorithm& algorithm, const Spec& spec) const;
  const std::vector<PricedAlgorithm>& ranking(const Spec& spec);
  PricedAlgorithm priced(const Algorithm& algorithm, Shape problem, bool may_be_narrow);
  double whole_us(const Algorithm& algorithm, const Shape& problem);
  std::size_t blocks_cut(const Algorithm& algorithm) const;
  int segments_of(const Algorithm& algorithm, std::size_t bytes) const;
  std::string node_objection(const Spec& spec) const;
  AlgorithmChoice choose(const Spec& spec);
  AlgorithmChoice choose_forced(const Spec& spec, const std::string& name);
  std::optional<AlgorithmChoice> choose_measured(const Spec& spec);
  AlgorithmChoice choose_priced(const Spec& spec);
  Segmentation cut_for(const Spec& spec, const AlgorithmChoice& choice, std::size_t piece) const;
  std::size_t cut_segment_bytes(const Spec& spec, const AlgorithmChoice& choice, std::size_t piece) const;
  // Of an algorithm whose stages use different links, so that segments overlap; 0: whole.
  std::size_t staged_segment_bytes(const Algorithm& algorithm, std::size_t bytes) const;
  Schedule build(const AlgorithmChoice& choice, const Spec& spec, std::size_t count, std::size_t piece) const;
  std::shared_ptr<const Plan> make(const Spec& spec);
  std::shared_ptr<const Plan> plan_like(const Spec& spec);
  void keep(const std::shared_ptr<const Plan>& plan);

  Group group_;
  PlannerOptions options_;
  GroupFacts facts_;
  std::vector<ForcedAlgorithm> forced_;
  std::vector<TableRow> table_;
  std::map<RankingKey, std::vector<PricedAlgorithm>> rankings_;
  // Of large groups; true: with what crosses between nodes rounded off.
  std::map<std::pair<const Algorithm*, bool>, Workload> workloads_;
  std::unordered_map<Spec, std::shared_ptr<const Plan>, SpecHash> plans_;
  std::deque<const Spec*> oldest_;  // keys of plans_, in the order in which they came
};

}  // namespace lockstep
