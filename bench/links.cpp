// SPDX-License-Identifier: Apache-2.0
// Judges links by the best quarter of their kind, and prints matrices and summaries.
#include "bench/links.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "bench/number_text.hpp"
#include "bench/statistics.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

constexpr auto short_text = number_text::short_number;

struct Rates {
  std::map<int, double> out;
  std::map<int, double> in;
  std::map<int, double> latency;
};

Rates best_of_members(const std::vector<PairLink*>& links) {
  Rates best;
  const auto better = [](std::map<int, double>& all, int member, double value) {
    all[member] = std::max(all[member], value);
  };
  for (const PairLink* link : links) {
    better(best.out, link->a, link->there);
    better(best.in, link->b, link->there);
    better(best.out, link->b, link->back);
    better(best.in, link->a, link->back);
    for (const int member : {link->a, link->b}) {
      const auto [found, is_new] = best.latency.try_emplace(member, link->latency_us);
      found->second = std::min(found->second, link->latency_us);
    }
  }
  return best;
}

// Returns the bound of the best quarter. Half of the members may be slow before it changes.
double typical(const std::map<int, double>& all, bool more_is_better) {
  std::vector<double> values;
  values.reserve(all.size());
  for (const auto& [member, value] : all) values.push_back(value);
  std::ranges::sort(values);
  return quantile(values, more_is_better ? 0.75 : 0.25);
}

class Judge {
 public:
  Judge(const LinkBounds& bounds, LinkVerdict& verdict) : bounds_(bounds), verdict_(verdict) {}

  void kind(const std::string& name, const std::vector<PairLink*>& links) {
    const Rates best = best_of_members(links);
    constexpr std::size_t enough = 3;
    if (best.out.size() < enough) return;
    verdict_.comparable = true;
    std::set<int> slow;
    for (const auto& [member, rate] : best.out) {
      const std::string why = why_slow(best, member);
      if (why.empty()) continue;
      slow.insert(member);
      verdict_.members.push_back({member, name, why});
    }
    for (PairLink* link : links) {
      const bool explained = slow.contains(link->a) || slow.contains(link->b);
      link->why =
          explained ? text("rank ", slow.contains(link->a) ? link->a : link->b, " is slow") : why_slow(best, *link);
      link->slow = !link->why.empty();
      if (link->slow && !explained) ++verdict_.slow_pairs;
    }
  }

 private:
  bool too_little(double rate, double usual) const { return rate < bounds_.bandwidth * usual; }
  bool too_late(double us, double usual) const {
    return us > bounds_.latency * usual && us > usual + bounds_.latency_us;
  }

  std::string why_slow(const Rates& best, int member) const {
    const auto clause = [](std::string_view what, double here, double usual, std::string_view unit) {
      return text(what, ' ', short_text(here), ' ', unit, " at best, where ", short_text(usual), " is usual");
    };
    const double out = typical(best.out, true);
    const double in = typical(best.in, true);
    const double latency = typical(best.latency, false);
    if (too_little(best.out.at(member), out)) return clause("it sends", best.out.at(member), out, "GB/s");
    if (too_little(best.in.at(member), in)) return clause("it receives", best.in.at(member), in, "GB/s");
    if (too_late(best.latency.at(member), latency))
      return clause("its messages take", best.latency.at(member), latency, "us");
    return {};
  }

  std::string why_slow(const Rates& best, const PairLink& link) const {
    const double there = std::min(best.out.at(link.a), best.in.at(link.b));
    const double back = std::min(best.out.at(link.b), best.in.at(link.a));
    const double latency = std::max(best.latency.at(link.a), best.latency.at(link.b));
    const auto clause = [](double here, double usual, std::string_view unit, std::string_view whither) {
      return text(short_text(here), ' ', unit, whither, ", where both reach ", short_text(usual), " with others");
    };
    if (too_little(link.there, there)) return clause(link.there, there, "GB/s", " there");
    if (too_little(link.back, back)) return clause(link.back, back, "GB/s", " back");
    if (too_late(link.latency_us, latency)) return clause(link.latency_us, latency, "us", "");
    return {};
  }

  const LinkBounds& bounds_;
  LinkVerdict& verdict_;
};

std::map<std::string, std::vector<const PairLink*>> by_kind(const std::vector<PairLink>& links) {
  std::map<std::string, std::vector<const PairLink*>> kinds;
  for (const PairLink& link : links) kinds[link.kind].push_back(&link);
  return kinds;
}

std::string padded(const std::string& words, std::size_t width) {
  return words.size() < width ? std::string(width - words.size(), ' ') + words : words;
}

constexpr std::size_t cell_width = 9;
constexpr std::size_t most_columns = 16;

using LinkValue = std::function<double(const PairLink&, bool from_a)>;

std::string matrix(std::string_view title, const std::vector<PairLink>& links, const std::vector<int>& members,
                   const LinkValue& value) {
  std::map<std::pair<int, int>, std::string> cells;
  for (const PairLink& link : links) {
    const char* const mark = link.slow ? "*" : "";
    cells[{link.a, link.b}] = text(short_text(value(link, true)), mark);
    cells[{link.b, link.a}] = text(short_text(value(link, false)), mark);
  }
  std::string all = text(title, '\n', padded("rank", cell_width));
  for (const int b : members) all += padded(text(b), cell_width);
  for (const int a : members) {
    all += text('\n', padded(text(a), cell_width));
    for (const int b : members) {
      const auto found = cells.find({a, b});
      all += padded(a == b ? "." : found == cells.end() ? "-" : found->second, cell_width);
    }
  }
  return all + '\n';
}

std::string kind_summary(const std::string& kind, const std::vector<const PairLink*>& links) {
  std::vector<double> latency;
  std::vector<double> rate;
  std::vector<double> together;
  for (const PairLink* link : links) {
    latency.push_back(link->latency_us);
    rate.push_back(std::min(link->there, link->back));
    together.push_back(link->both > 0 ? link->together / link->both : 0);
  }
  return text("  ", kind, ": ", links.size(), links.size() == 1 ? " pair" : " pairs", ", one way ",
              short_text(median_of(latency)), " us and ", short_text(median_of(rate)), " GB/s (slowest ",
              short_text(*std::ranges::min_element(rate)), "); with all pairs at work ",
              short_text(100 * median_of(together)), " % of alone\n");
}

}  // namespace

LinkVerdict judge_links(std::vector<PairLink>& links, const LinkBounds& bounds) {
  LinkVerdict verdict;
  std::map<std::string, std::vector<PairLink*>> kinds;
  for (PairLink& link : links) {
    link.slow = false;
    link.why.clear();
    kinds[link.kind].push_back(&link);
  }
  Judge judge(bounds, verdict);
  for (const auto& [name, of_kind] : kinds) {
    if (!bounds.network_only || name == "network") judge.kind(name, of_kind);
  }
  return verdict;
}

bool is_explained(const PairLink& link) { return link.why.ends_with(" is slow"); }

std::vector<std::string> good_hosts(const std::vector<PairLink>& links, const LinkVerdict& verdict,
                                    const std::vector<std::string>& hosts) {
  const auto host = [&](int member) { return hosts.at(static_cast<std::size_t>(member)); };
  std::set<std::string> bad;
  for (const SlowMember& each : verdict.members) bad.insert(host(each.member));
  while (true) {
    std::map<std::string, std::size_t> slow;
    for (const PairLink& link : links) {
      if (!link.slow || bad.contains(host(link.a)) || bad.contains(host(link.b))) continue;
      ++slow[host(link.a)];
      if (host(link.b) != host(link.a)) ++slow[host(link.b)];
    }
    if (slow.empty()) break;
    const auto worst = std::ranges::max_element(slow, {}, [](const auto& each) { return each.second; });
    bad.insert(worst->first);
  }
  std::vector<std::string> good;
  for (const std::string& each : hosts) {
    if (!bad.contains(each) && std::ranges::find(good, each) == good.end()) good.push_back(each);
  }
  return good;
}

std::string links_text(const std::vector<PairLink>& links, const LinkVerdict& verdict,
                       const std::vector<std::string>& hosts) {
  std::set<int> in_links;
  for (const PairLink& link : links) in_links.insert({link.a, link.b});
  const std::vector<int> members(in_links.begin(), in_links.end());
  std::string all;
  if (members.size() <= most_columns) {
    all += matrix("# latency, us one way; * slow", links, members,
                  [](const PairLink& link, bool) { return link.latency_us; });
    all += matrix("# bandwidth, GB/s from row to column; * slow", links, members,
                  [](const PairLink& link, bool from_a) { return from_a ? link.there : link.back; });
  } else {
    all += text("# ", members.size(), " ranks; --json has every pair, and `lockstep report` draws them\n");
  }
  all += "# kinds of links\n";
  for (const auto& [kind, of_kind] : by_kind(links)) all += kind_summary(kind, of_kind);
  const auto name = [&](int member) {
    return text("rank ", member, " (", printable(hosts.at(static_cast<std::size_t>(member))), ')');
  };
  for (const SlowMember& each : verdict.members)
    all += text("SLOW  ", name(each.member), " over ", each.kind, ": ", each.why, '\n');
  for (const PairLink& link : links) {
    if (link.slow && !is_explained(link))
      all += text("SLOW  ", name(link.a), " to ", name(link.b), ": ", link.why, '\n');
  }
  return all;
}

}  // namespace lockstep::bench
