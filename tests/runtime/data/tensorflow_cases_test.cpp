// SPDX-License-Identifier: Apache-2.0
// The behaviours that TensorFlow's own tests of tf.data have, which data_test.cpp does not hold:
// docs/tensorflow-tests.md names the test of each case.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <complex>
#include <functional>
#include <limits>
#include <thread>

#include "tests/runtime/data/elements.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

// Have one type for all functions, so that the compiler makes each stage once.
using Change = std::function<Number(Number)>;
using Condition = std::function<bool(Number)>;
using Merge = std::function<Number(Number, Number)>;
using Fill = std::function<Array(Number)>;
using Maker = std::function<Dataset<Number>(Number)>;
using Strings = std::vector<std::string>;
using Parts = std::tuple<Number, Array, double>;

constexpr Number largest = std::numeric_limits<Number>::max();

template <class E>
Strings listed(const Dataset<E>& data, std::size_t most = 1'000'000) {
  auto iterator = data.open();
  return rest_of(iterator, most);
}
Strings printed_all(const std::vector<Number>& numbers) {
  Strings all;
  for (const Number each : numbers) all.push_back(printed(each));
  return all;
}
// Returns the first numbers.
Strings counted(Number end) {
  Strings all;
  for (Number i = 0; i < end; ++i) all.push_back(printed(i));
  return all;
}
template <class T>
std::vector<T> sorted(std::vector<T> all) {
  std::ranges::sort(all);
  return all;
}
template <class T>
std::vector<T> repeated(const std::vector<T>& all, int times) {
  std::vector<T> result;
  for (int i = 0; i < times; ++i) result.insert(result.end(), all.begin(), all.end());
  return result;
}
// Reads a data set twice, and from each of its positions.
template <class E>
void expect_elements(const Dataset<E>& data, const Strings& elements) {
  SCOPED_TRACE(data.describe());
  EXPECT_EQ(listed(data), elements);
  auto iterator = data.open();
  rest_of(iterator);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(iterator.next()) << "it stays at the end";
  expect_positions(data, elements);
}

// Has 7 rows: a number, three numbers and a fraction.
Dataset<Parts> parts() {
  Array rows(TensorShape{7, 3});
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<Number>((i / 3) * (i % 3 + 1));
  return data::from_tensor_slices(
      std::tuple(std::vector<Number>{0, 1, 2, 3, 4, 5, 6}, rows, std::vector<double>{0, 1.5, 3, 4.5, 6, 7.5, 9}));
}

TEST(Batches, HaveTheRowsOfEachPartOfATuple) {
  const auto squares = parts().map([](const Parts& part) {
    auto [number, rows, fraction] = part;
    for (Number& each : rows) each *= each;
    return Parts(number * number, rows, fraction * fraction);
  });
  for (const int laps : {0, 4}) {
    for (const Number size : {4, 14, 15}) {
      for (const bool drop : {false, true}) {
        Strings expected;
        const Number rows = 7 * laps;
        for (Number first = 0; first + (drop ? size : 1) <= rows; first += size) {
          std::vector<std::string> columns[3];
          for (Number i = first; i < std::min(rows, first + size); ++i) {
            const Number x = i % 7;
            columns[0].push_back(text(x * x));
            columns[1].push_back(text('[', x * x, ' ', 4 * x * x, ' ', 9 * x * x, ']'));
            columns[2].push_back(text(2.25 * static_cast<double>(x * x)));
          }
          expected.push_back(
              text("([", join(columns[0], " "), "] [", join(columns[1], " "), "] [", join(columns[2], " "), "])"));
        }
        expect_elements(squares.repeat(laps).batch(size, {.drop_remainder = drop}), expected);
      }
    }
  }
}

TEST(Batches, MayBeLargerThanAllDataSets) {
  const std::string all = "[0 1 2 3 4 5 6 7 8 9]";
  const auto ten = data::range(10);
  EXPECT_EQ(listed(ten.batch(largest)), Strings{all});
  EXPECT_EQ(listed(ten.filter(Condition([](Number) { return true; })).batch(largest)), Strings{all});
  EXPECT_EQ(listed(ten.prefetch(2).padded_batch(largest)), Strings{all});
  EXPECT_EQ(listed(ten.batch(largest, {.drop_remainder = true})), Strings{});
}

// No element overtakes another one.
TEST(Pipelines, StayInOrderIfAnElementIsSlow) {
  const auto wait = [](Number x) { std::this_thread::sleep_for(std::chrono::milliseconds(x == 0 ? 30 : 0)); };
  const Change slow_change = [wait](Number x) { return wait(x), x; };
  const Maker slow_maker = [wait](Number x) { return wait(x), data::from_tensors(x); };
  EXPECT_EQ(listed(data::range(100).map(slow_change).prefetch(8).batch(6).prefetch(2).unbatch()), counted(100));
  EXPECT_EQ(listed(data::range(100).interleave(slow_maker, 10).prefetch(8)), counted(100));
}

TEST(Positions, AreSmallIfElementsAreLarge) {
  const auto large = data::range(8).map(Fill([](Number x) { return Array(TensorShape{1 << 17}, x); }));
  auto batches = large.repeat().batch(2).open();
  batches.next();
  EXPECT_LT(batches.position().size(), 300U);
  auto turns = large.interleave([](const Array& array) { return data::range(array[0], array[0] + 200); }, 5).open();
  const Strings first = rest_of(turns, 5);
  EXPECT_EQ(first, counted(5));
  EXPECT_LT(turns.position().size(), 1000U);
}

// The rows in the buffer are in the position.
TEST(Positions, MayHoldLargeRows) {
  const auto shuffled = data::range(6)
                            .batch(2)
                            .map([](const Array& pair) { return Array(TensorShape{1 << 17}, pair[0]); })
                            .shuffle(3, {.seed = 4});
  auto iterator = shuffled.open();
  const Number first = (*iterator.next())[0];
  auto other = shuffled.open();
  other.seek(iterator.position());
  std::vector<Number> all{first};
  while (const auto array = other.next()) {
    EXPECT_EQ(array, iterator.next());
    EXPECT_EQ(*array, Array(TensorShape{1 << 17}, (*array)[0]));
    all.push_back((*array)[0]);
  }
  EXPECT_EQ(sorted(all), (std::vector<Number>{0, 2, 4}));
}

TEST(Shuffles, OfTuplesFollowTheirSeed) {
  const auto shuffled = [](int laps, Number buffer, std::uint64_t seed) {
    return listed(parts().repeat(laps).shuffle(buffer, {.seed = seed}));
  };
  const Strings all = sorted(listed(parts().repeat(3)));
  for (const Number buffer : {2, 100}) {
    for (const std::uint64_t seed : {0U, 37U}) {
      EXPECT_EQ(sorted(shuffled(3, buffer, seed)), all);
      EXPECT_EQ(shuffled(3, buffer, seed), shuffled(3, buffer, seed));
      EXPECT_NE(shuffled(3, buffer, seed), shuffled(3, buffer, seed + 1));
    }
    EXPECT_EQ(shuffled(0, buffer, 37), Strings{});
  }
}

TEST(Shuffles, HaveEachElementOnceInEachLap) {
  for (const Number buffer : {Number{5}, data::unknown_length}) {
    auto iterator = data::range(5).shuffle(buffer).repeat().open();
    for (int lap = 0; lap < 10; ++lap) EXPECT_EQ(sorted(rest_of(iterator, 5)), counted(5));
  }
}

TEST(Shuffles, HaveAnotherOrderInEachLapAndLoopIfTheyShall) {
  for (const bool reshuffles : {true, false}) {
    for (const std::optional<std::uint64_t> seed : {std::optional<std::uint64_t>(), {42}}) {
      const auto make = [&, seed = seed] {
        return data::range(30).shuffle(30, {.seed = seed, .reshuffle_each_iteration = reshuffles});
      };
      const auto shuffled = make();
      const Strings laps = listed(shuffled.repeat(2));
      EXPECT_EQ(listed(make().repeat(2)) == laps, seed.has_value());
      EXPECT_EQ(std::equal(laps.begin(), laps.begin() + 30, laps.begin() + 30), !reshuffles);
      EXPECT_EQ(listed(shuffled) == listed(shuffled), !reshuffles);
    }
  }
}

// Each lap gives other numbers, as files do that are written anew.
Dataset<Number> laps_of(const std::shared_ptr<int>& lap, const std::vector<std::vector<Number>>& all) {
  return data::from_function([lap, all, mine = -1, next = std::size_t{0}]() mutable -> std::optional<Number> {
    if (mine < 0) mine = (*lap)++;
    const auto& numbers = all.at(static_cast<std::size_t>(mine));
    return next < numbers.size() ? std::optional(numbers[next++]) : std::nullopt;
  });
}

TEST(Shuffles, MayHaveABufferForAllElements) {
  const auto odd = data::range(40).filter(Condition([](Number x) { return x % 2 == 1; }));
  const auto shuffled = odd.shuffle(odd.length(), {.seed = 3, .reshuffle_each_iteration = false});
  EXPECT_EQ(shuffled.describe(), "range(0, 40, 1) | filter | shuffle(all, seed 3, one order)");
  const Strings order = listed(shuffled);
  EXPECT_EQ(sorted(order), sorted(listed(odd)));
  EXPECT_NE(order, listed(odd));
  EXPECT_EQ(order, listed(odd.shuffle(20, {.seed = 3, .reshuffle_each_iteration = false})));
  expect_positions(shuffled, order);
  for (const std::size_t second : {7U, 3U}) {
    std::vector<std::vector<Number>> laps{{0, 1, 2, 3, 4}, {}, {20, 21, 22, 23, 24, 25, 26, 27}};
    for (std::size_t i = 0; i < second; ++i) laps[1].push_back(static_cast<Number>(10 + i));
    const Strings all = listed(laps_of(std::make_shared<int>(0), laps).shuffle(data::unknown_length).repeat(3));
    std::size_t first = 0;
    for (const auto& lap : laps) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
      first += lap.size();
      EXPECT_EQ(sorted(Strings(begin, all.begin() + static_cast<std::ptrdiff_t>(first))), printed_all(lap));
    }
    EXPECT_EQ(all.size(), first);
  }
}

TEST(Shuffles, KeepTheOrderOfTheOneBeforeAShuffleOfOne) {
  const auto one = data::range(10).shuffle(10, {.seed = 1});
  const auto two = data::range(10).shuffle(10, {.seed = 1}).shuffle(1);
  for (int loop = 0; loop < 3; ++loop) EXPECT_EQ(listed(one), listed(two));
}

TEST(Repeats, GoThroughEmptyLapsIfTheirNumberIsGiven) {
  const auto of_sizes = [](const std::vector<Number>& sizes) {
    std::vector<std::vector<Number>> laps;
    for (const Number size : sizes) {
      laps.emplace_back();
      for (Number i = 0; i < size; ++i) laps.back().push_back(i);
    }
    return laps_of(std::make_shared<int>(0), laps).shuffle(10);
  };
  EXPECT_EQ(sorted(listed(of_sizes({0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0}).repeat(12).take(3))), printed_all({0, 0, 1}));
  EXPECT_EQ(listed(of_sizes({1, 0, 2, 10}).repeat().take(3)), printed_all({0})) << "an endless one ends with it";
}

// A function may return a data set that is there already.
TEST(Interleaves, MayReadTheSameDataSetAgain) {
  for (const auto& inner : {data::range(10).shuffle(1), data::range(10).cache(), data::range(10)}) {
    EXPECT_EQ(listed(data::range(1).interleave(Maker([inner](Number) { return inner; }), 3)), counted(10));
    const auto ten = data::range(10).interleave(Maker([inner](Number) { return inner; }), 5);
    EXPECT_EQ(sorted(listed(ten)), sorted(repeated(counted(10), 10)));
    expect_positions(ten, listed(ten));
  }
}

// tf.data returns an empty data set the second time, since the cache has kept nothing.
TEST(Failures, OfACachedElementComeAgain) {
  const auto failing =
      data::from_tensors(Number{1}).map(Change([](Number) -> Number { throw std::runtime_error("one"); }));
  auto iterator = failing.cache().shuffle(10).repeat().open();
  for (int i = 0; i < 3; ++i) EXPECT_THROW(iterator.next(), std::runtime_error);
}

// A buffer for all elements does the work of tf.data's global shuffle.
TEST(Shuffles, OfWholeDataSetsGoOnAtAnyPosition) {
  const auto numbers = data::range(41);
  const auto doubled =
      data::zip(numbers.map(Change([](Number x) { return 2 * x; })), data::range(30)).map(Merge([](Number x, Number y) {
        EXPECT_EQ(x, 2 * y);
        return y;
      }));
  for (const auto& source : {numbers.shard(3, 0).prefetch(4), numbers.shard(5, 4), numbers.repeat(1), numbers.repeat(7),
                             numbers.take(20).prefetch(2), numbers.take(200).repeat(2), numbers.skip(0),
                             numbers.skip(2).repeat(2), numbers.cache().prefetch(2).repeat(2), doubled}) {
    for (const bool reshuffles : {true, false}) {
      const auto shuffled = source.shuffle(largest, {.seed = 42, .reshuffle_each_iteration = reshuffles});
      SCOPED_TRACE(shuffled.describe());
      EXPECT_EQ(shuffled.length(), source.length());
      const Strings order = listed(shuffled);
      EXPECT_EQ(sorted(order), sorted(listed(source)));
      EXPECT_NE(order, listed(source));
      EXPECT_EQ(listed(shuffled) == order, !reshuffles);
      const auto other = source.shuffle(largest, {.seed = 11, .reshuffle_each_iteration = reshuffles});
      EXPECT_NE(listed(other), order);
      EXPECT_EQ(sorted(listed(other)), sorted(order));
      if (!reshuffles) expect_positions(shuffled, order);
    }
  }
  EXPECT_EQ(listed(numbers.skip(-1).shuffle(100)), Strings{});
  EXPECT_EQ(listed(numbers.repeat(0).shuffle(100)), Strings{});
  EXPECT_EQ(listed(numbers.repeat().shuffle(100), 50).size(), 50U) << "an endless one is shuffled in its buffer";
}

TEST(Shuffles, OfBatchesKeepTheRowsOfEachTogether) {
  for (const bool drop : {true, false}) {
    for (const bool reshuffles : {true, false}) {
      const auto batches = data::range(100).batch(7, {.drop_remainder = drop}).prefetch(2);
      const auto shuffled = batches.shuffle(100, {.seed = 42, .reshuffle_each_iteration = reshuffles});
      const Strings laps = listed(shuffled.repeat(2));
      const auto middle = laps.begin() + batches.length();
      EXPECT_EQ(sorted(Strings(laps.begin(), middle)), sorted(listed(batches)));
      EXPECT_EQ(sorted(Strings(middle, laps.end())), sorted(listed(batches)));
      EXPECT_EQ(std::equal(laps.begin(), middle, middle), !reshuffles);
      EXPECT_EQ(listed(shuffled.unbatch()).size(), drop ? 98U : 100U);
      if (!reshuffles) expect_positions(shuffled.unbatch(), listed(shuffled.unbatch()));
    }
  }
}

TEST(Shards, HaveEveryNthElement) {
  for (const Number length : {0, 1, 10}) {
    for (const Number shards : {1, 3, 4, 5, 7, 20}) {
      for (Number index = 0; index < std::min<Number>(shards, 6); ++index) {
        std::vector<Number> expected;
        for (Number i = index; i < length; i += shards) expected.push_back(i);
        const auto sharded = data::range(length).shard(shards, index);
        expect_elements(sharded, printed_all(expected));
        EXPECT_EQ(sharded.length(), static_cast<Number>(expected.size()));
      }
    }
  }
  expect_elements(data::zip(data::range(10), data::range(10, 0, -1)).shard(5, 2), {"(2 8)", "(7 3)"});
  for (const auto& [shards, index] : {std::pair{5, 7}, {5, -3}, {-3, 1}, {0, 1}, {5, 5}}) {
    EXPECT_PRED2(holds, refusal([&, n = shards, i = index] { (void)data::range(10).shard(n, i); }, Code::usage),
                 text("shard(", shards, ", ", index, ") of a data set -> give an index from 0"));
  }
}

TEST(Repeats, HaveAllElementsInEachLap) {
  const auto one = data::from_tensors(Parts(1, row<Number>({1, 2, 3}), 37.5));
  const Strings element{"(1 [1 2 3] 37.5)"};
  for (const int count : {0, 3, 7}) expect_elements(one.repeat(count), repeated(element, count));
  EXPECT_EQ(listed(one.repeat(-1), 17), repeated(element, 17));
  EXPECT_EQ(listed(one.repeat(7).repeat(14)), repeated(element, 98));
  const auto ten = data::range(10);
  expect_elements(ten.repeat(10), repeated(counted(10), 10));
  expect_elements(ten.repeat(0), {});
  expect_elements(data::range(0).repeat(-1), {});
  expect_elements(data::zip(ten.repeat(-1), data::range(100)).map(Merge([](Number x, Number) { return x; })),
                  repeated(counted(10), 10));
}

TEST(Takes, AreTheFirstElementsAndSkipsTheOthers) {
  const auto all = data::from_tensor_slices(std::tuple(std::vector<Number>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const Strings elements = listed(all);
  for (const Number count : {-1, 0, 4, 10, 25}) {
    const auto split = elements.begin() + (count < 0 ? 10 : std::min<Number>(count, 10));
    expect_elements(all.take(count), Strings(elements.begin(), split));
    expect_elements(all.skip(count), Strings(split, elements.end()));
  }
}

TEST(Zips, EndWithTheShortestDataSet) {
  const auto numbers = data::range(1, 5);
  const auto arrays = data::range(12, 16).map(Fill([](Number x) { return Array(TensorShape{2}, x); }));
  const auto fractions = [](std::vector<double> values) { return data::from_tensor_slices(std::move(values)); };
  expect_elements(data::zip(numbers, arrays, fractions({37, 38, 39, 40.5})),
                  {"(1 [12 12] 37)", "(2 [13 13] 38)", "(3 [14 14] 39)", "(4 [15 15] 40.5)"});
  expect_elements(data::zip(numbers, arrays, fractions({1, 2})), {"(1 [12 12] 1)", "(2 [13 13] 2)"});
}

template <class X, class Y>
struct Point {
  X x;
  Y y;
};

}  // namespace
}  // namespace lockstep::test

template <class X, class Y>
struct lockstep::Fields<lockstep::test::Point<X, Y>> {
  static auto of(auto& point) { return std::tie(point.x, point.y); }
};

namespace lockstep::test {
namespace {

TEST(Zips, MayBeNestedAndBecomeStructs) {
  const auto three = data::range(3);
  const auto more = data::range(3, 6);
  const auto nested = data::zip(three, data::zip(more, data::range(2)));
  expect_elements(nested, {"(0 (3 0))", "(1 (4 1))"});
  Strings all;
  for (const auto& point : data::zip(three, more).map([](Number x, Number y) { return Point<Number, Number>{x, y}; }))
    all.push_back(text(point.x, ' ', point.y));
  EXPECT_EQ(all, (Strings{"0 3", "1 4", "2 5"}));
}

// Takes up to `block` elements of each of `cycle` lists in turns. The next list takes the place of one that has ended.
Strings in_turns(std::vector<std::vector<Number>> lists, std::size_t cycle, std::size_t block) {
  std::vector<Number> all;
  std::vector<std::vector<Number>> open(cycle);
  std::vector<bool> is_open(cycle);
  for (std::size_t turn = 0; !lists.empty() || std::ranges::count(is_open, true) > 0; turn = (turn + 1) % cycle) {
    if (!is_open[turn] && !lists.empty()) {
      open[turn] = lists.front();
      lists.erase(lists.begin());
      is_open[turn] = true;
    }
    for (std::size_t i = 0; i < block && is_open[turn]; ++i) {
      is_open[turn] = !open[turn].empty();
      if (!is_open[turn]) continue;
      all.push_back(open[turn].front());
      open[turn].erase(open[turn].begin());
    }
  }
  return printed_all(all);
}

TEST(Interleaves, FollowTheirCycleAndTheirBlock) {
  const Maker copies = [](Number x) { return data::from_tensors(x).repeat(x); };
  for (const std::vector<Number>& sizes :
       {std::vector<Number>{4, 5, 6}, {2, 3}, {}, {0, 0, 0}, {4, 0, 6}, {0, 3, 0, 0, 1}}) {
    std::vector<std::vector<Number>> lists;
    for (int lap = 0; lap < 2; ++lap) {
      for (const Number size : sizes) lists.emplace_back(static_cast<std::size_t>(size), size);
    }
    const auto source = data::from_tensor_slices(sizes).repeat(2);
    for (const auto& [cycle, block] : {std::pair<Number, Number>{1, 1}, {1, 3}, {2, 1}, {2, 3}, {3, 2}, {7, 2}}) {
      const Strings expected = in_turns(lists, static_cast<std::size_t>(cycle), static_cast<std::size_t>(block));
      expect_elements(source.interleave(copies, cycle, block), expected);
      if (expected.size() > 3)
        expect_elements(source.interleave(copies, cycle, block).skip(3), {expected.begin() + 3, expected.end()});
    }
  }
}

TEST(Interleaves, MayHaveOthersAndCachesBeforeThem) {
  const Maker doubled = [](Number x) { return data::from_tensors(x).map(Change([](Number y) { return y + y; })); };
  std::vector<Number> fours;
  for (Number i = 0; i < 100; ++i) fours.push_back(4 * i);
  EXPECT_EQ(listed(data::range(100).interleave(doubled, 5).interleave(doubled, 5)), printed_all(fours));
  const Maker same = [](Number x) { return data::from_tensors(x); };
  expect_elements(data::range(5).cache().interleave(same, 2), counted(5));
  const auto indices =
      data::from_tensors(Number{7}).repeat(3).enumerate().map(Merge([](Number i, Number) { return i; }));
  expect_elements(indices.interleave(same, 2), counted(3));
}

// tf.data goes on behind a failing element; a loop here does not.
TEST(Interleaves, EndWithTheFirstFailure) {
  const Maker same = [](Number x) { return data::from_tensors(x); };
  const Maker failing = [](Number x) {
    if (x == 1) throw std::runtime_error("no data set of 1");
    return data::from_tensors(x);
  };
  const Change failing_change = [](Number x) {
    if (x == 1) throw std::runtime_error("no data set of 1");
    return x;
  };
  for (const auto& [cycle, block] : {std::pair<Number, Number>{1, 3}, {2, 1}, {2, 3}, {7, 2}}) {
    for (const auto& all : {data::range(5).interleave(failing, cycle, block),
                            data::range(5).map(failing_change).interleave(same, cycle, block)}) {
      auto iterator = all.open();
      EXPECT_EQ(iterator.next(), 0);
      for (int i = 0; i < 2; ++i) {
        try {
          iterator.next();
          ADD_FAILURE() << "no exception";
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "no data set of 1");
        }
      }
    }
  }
}

TEST(Caches, KeepElementsThatTheirSourceNoLongerHas) {
  auto count = std::make_shared<Number>(10);
  const auto source =
      data::range(3).flat_map(Maker([count](Number x) { return data::from_tensors(x).repeat(*count); }));
  auto cached = source.cache().repeat(2).open();
  auto uncached = source.repeat(2).open();
  const Strings lap = rest_of(cached, 30);
  EXPECT_EQ(lap, rest_of(uncached, 30));
  *count = 0;
  EXPECT_EQ(rest_of(uncached), Strings{});
  EXPECT_EQ(rest_of(cached), lap);
  EXPECT_EQ(listed(parts().repeat(0).cache()), Strings{});
}

TEST(Caches, MayBeReadByTwoLoopsInTurns) {
  const auto one = data::range(5).cache().map(Change([](Number x) { return x + 1; }));
  const auto two = data::range(5).cache().map(Change([](Number x) { return x + 6; }));
  const auto same = data::range(10).cache();
  for (const auto& [first, second] : {std::pair{one, two}, {same, same}}) {
    auto a = first.open();
    auto b = second.open();
    Strings of_a = rest_of(a, 3);
    Strings of_b = rest_of(b, 2);
    while (of_b.size() < static_cast<std::size_t>(second.length())) {
      for (const std::string& each : rest_of(a, 1)) of_a.push_back(each);
      for (const std::string& each : rest_of(b, 1)) of_b.push_back(each);
    }
    EXPECT_EQ(of_a, listed(first));
    EXPECT_EQ(of_b, listed(second));
    EXPECT_FALSE(a.next());
    EXPECT_FALSE(b.next());
  }
}

TEST(Caches, AreCompleteAfterTheLastElement) {
  const auto cached = data::range(10).shuffle(10).cache();
  auto iterator = cached.open();
  const Strings all = rest_of(iterator, 10);  // It has not looked for the end.
  EXPECT_EQ(listed(cached), all);
  const auto zipped = data::zip(data::range(50).shuffle(50).cache(), data::range(50).shuffle(50).cache());
  EXPECT_EQ(listed(zipped), listed(zipped));
  expect_elements(data::range(10).cache().take(5).repeat(2), repeated(counted(5), 2));
}

// One loop saves its position before the cache is complete or after that; it may go on before another takes over.
TEST(Caches, GoOnAtPositionsOfLoopsThatHaveReadMore) {
  const auto make = [] { return data::range(10).cache().repeat(3); };
  const Strings all = repeated(counted(10), 3);
  for (const std::size_t saved : {0U, 5U, 15U}) {
    for (const std::size_t more : {0U, 3U, 8U}) {
      const auto dataset = make();
      auto first = dataset.open();
      rest_of(first, saved);
      const Bytes position = first.position();
      rest_of(first, more);
      const Strings rest(all.begin() + static_cast<std::ptrdiff_t>(saved), all.end());
      for (const auto& where : {dataset, make()}) {
        auto second = where.open();
        second.seek(position);
        auto third = where.open();
        third.seek(second.position());
        EXPECT_EQ(rest_of(third), rest);
        EXPECT_EQ(rest_of(second), rest);
        EXPECT_EQ(listed(where), all) << "a loop without the position begins at the beginning";
      }
    }
  }
}

// x gives x times x.
Dataset<Array> filled(std::vector<Number> lengths) {
  return data::from_tensor_slices(std::move(lengths)).map(Fill([](Number x) { return Array(TensorShape{x}, x); }));
}

TEST(PaddedBatches, HaveLengthsAndValuesThatAreGiven) {
  const std::vector<Number> lengths{3, 0, 1, 4, 0, 0, 0, 0, 5, 1, 4, 3, 2, 2};
  for (const Number fixed : {Number{-1}, Number{6}}) {
    for (const double value : {0.0, -1.0}) {
      for (const bool drop : {false, true}) {
        Strings expected;
        for (std::size_t first = 0; first + (drop ? 4 : 1) <= lengths.size(); first += 4) {
          const std::size_t end = std::min(lengths.size(), first + 4);
          Number longest = fixed;
          for (std::size_t i = first; i < end; ++i) longest = std::max(longest, lengths[i]);
          Strings rows;
          for (std::size_t i = first; i < end; ++i) {
            Strings elements(static_cast<std::size_t>(longest), text(value));
            std::fill_n(elements.begin(), lengths[i], text(lengths[i]));
            rows.push_back(text('[', join(elements, " "), ']'));
          }
          expected.push_back(text('[', join(rows, " "), ']'));
        }
        expect_elements(
            filled(lengths).padded_batch(4, {.drop_remainder = drop, .lengths = {{fixed}}, .values = {value}}),
            expected);
      }
    }
  }
}

TEST(PaddedBatches, PadEachPartOfATuple) {
  const auto pairs = data::zip(data::range(1, 5), filled({1, 2, 3, 4}));
  expect_elements(pairs.padded_batch(2), {"([1 2] [[1 0] [2 2]])", "([3 4] [[3 3 3 0] [4 4 4 4]])"});
  const auto both = data::zip(filled({1, 2}), filled({1, 2}).map([](const Array& x) { return cast<double>(x); }));
  EXPECT_EQ(listed(both.padded_batch(2, {.values = {-1}})), Strings{"([[1 -1] [2 2]] [[1 -1] [2 2]])"});
  EXPECT_EQ(listed(both.padded_batch(2, {.lengths = {{-1}, {3}}, .values = {7, 0.5}})),
            Strings{"([[1 7] [2 2]] [[1 0.5 0.5] [2 2 0.5]])"});
  const auto with_nothing = data::range(4).map([](Number x) { return std::tuple(x, std::tuple<>()); });
  EXPECT_EQ(listed(with_nothing.padded_batch(2)), (Strings{"([0 1] ())", "([2 3] ())"}));
  const auto small = data::range(5).map([](Number x) { return bf16(static_cast<float>(x)); }).padded_batch(10);
  EXPECT_EQ(cast<float>(*small.open().next()), row({0.F, 1.F, 2.F, 3.F, 4.F}));
}

TEST(PaddedBatches, RefuseLengthsAndValuesThatDoNotFit) {
  using Options = data::PaddingOptions;
  const auto is_refused = [](const auto& dataset, const Options& options, std::string_view words) {
    const auto read = [&] { dataset.padded_batch(4, options).open().next(); };
    EXPECT_PRED2(holds, refusal(read, Code::usage), words);
  };
  const auto arrays = filled({6, 5, 5, 5, 5});
  is_refused(arrays, {.lengths = {{5}}},
             "padded_batch(4, lengths (5,)) has an element of the length 6 -> give the length");
  is_refused(arrays, {.lengths = {{5, 5}}}, "has elements of 1 axes, and lengths for 2");
  is_refused(data::range(10), {.lengths = {{1}}}, "has elements of 0 axes, and lengths for 1");
  is_refused(arrays, {.lengths = {{5}, {5}}}, "2 lists of lengths for elements with 1 numbers or tensors");
  is_refused(arrays, {.lengths = {{-2}}}, "a length below -1");
  is_refused(arrays, {.values = {1, 2}}, "2 values for elements with 1 numbers or tensors");
  is_refused(arrays, {.values = {0.5}}, "the value 0.5 -> give one that the elements' type has");
  is_refused(arrays, {.values = {1e19}}, "the value 1e+19");
  EXPECT_FALSE(data::number_of<std::uint8_t>(-1));
  EXPECT_FALSE(data::number_of<bool>(2));
  EXPECT_EQ(data::number_of<std::uint8_t>(255), 255);
  EXPECT_EQ(data::number_of<Number>(-0x1p63), std::numeric_limits<Number>::min());
  EXPECT_EQ(data::number_of<std::complex<float>>(2), std::complex<float>(2));
}

}  // namespace
}  // namespace lockstep::test
