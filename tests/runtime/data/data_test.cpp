// SPDX-License-Identifier: Apache-2.0
// Pipelines: TensorFlow's elements in its order, positions that can be saved anywhere, sources, and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

#include "tests/runtime/data/pipelines.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

struct Golden {
  std::string pipeline;
  std::vector<std::string> elements;
};

// Splits elements at blanks that are in no brackets.
std::vector<std::string> elements_of(const std::string& line) {
  std::vector<std::string> all;
  int depth = 0;
  bool is_new = true;
  for (const char letter : line) {
    if (letter == '[' || letter == '(') ++depth;
    if (letter == ']' || letter == ')') --depth;
    if (letter == ' ' && depth == 0) {
      is_new = true;
    } else {
      if (std::exchange(is_new, false)) all.emplace_back();
      all.back() += letter;
    }
  }
  return all;
}

std::vector<Golden> goldens() {
  std::ifstream file(std::string(SOURCE_ROOT) + "/tests/runtime/data/pipelines.txt");
  std::vector<Golden> all;
  for (std::string line; std::getline(file, line);) {
    const std::size_t arrow = line.find(" =>");
    if (line.starts_with('#') || arrow == std::string::npos) continue;
    all.push_back({line.substr(0, arrow), elements_of(line.substr(arrow + 3))});
  }
  return all;
}

TEST(Pipelines, HaveTheElementsOfTensorFlow) {
  const std::vector<Golden> all = goldens();
  EXPECT_GE(all.size(), 60U);
  for (const Golden& golden : all) {
    SCOPED_TRACE(golden.pipeline);
    const auto check = [&](const auto& data) {
      auto iterator = data.open();
      EXPECT_EQ(rest_of(iterator), golden.elements);
      EXPECT_FALSE(iterator.next()) << "it stays at the end";
      const std::int64_t length = data.length();
      const auto has = [&](std::string_view verb) { return golden.pipeline.find(verb) != std::string::npos; };
      const bool may_be_unknown = has("filter") || has("flat_map") || has("interleave") || has("unbatch");
      if (!may_be_unknown || length != data::unknown_length) {
        EXPECT_EQ(length, static_cast<std::int64_t>(golden.elements.size()));
      }
      expect_positions(data, golden.elements);
    };
    std::visit(check, pipeline_of(golden.pipeline));
  }
}

// Stages of all kinds in any order, with shuffles among them.
std::string drawn_pipeline(std::mt19937& random) {
  const auto below = [&](unsigned limit) { return static_cast<unsigned>(random() % limit); };
  std::string line = text("range ", below(25));
  bool has_arrays = false;
  for (unsigned left = below(6); left > 0; --left) {
    const std::vector<std::string> any = {text("take ", below(20)),
                                          text("skip ", below(8)),
                                          text("repeat ", below(3)),
                                          text("shard 2 ", below(2)),
                                          text("shuffle ", 1 + below(30), ' ', below(100)),
                                          "cache",
                                          text("prefetch ", 1 + below(3)),
                                          text("map negate")};
    const std::vector<std::string> numbers = {text("batch ", 1 + below(5)), "filter even", "flat_map upto",
                                              text("interleave ", 1 + below(3), ' ', 1 + below(3)), "concatenate 4"};
    const std::size_t choice = below(static_cast<unsigned>(any.size() + (has_arrays ? 1 : numbers.size())));
    const std::string stage = choice < any.size() ? any[choice] : has_arrays ? "unbatch" : numbers[choice - any.size()];
    // A map that negates makes ranges empty, and unbatch makes arrays without axes.
    if (stage == "map negate" && line.find("negate") != std::string::npos) continue;
    if (stage == "unbatch" && line.find("unbatch") != std::string::npos) continue;
    has_arrays = has_arrays || stage.starts_with("batch");
    line += " | " + stage;
  }
  return line;
}

TEST(Pipelines, GoOnAtAnyPosition) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const std::string line = drawn_pipeline(random);
    SCOPED_TRACE(line);
    const auto check = [&]<class E>(const Dataset<E>& data) {
      auto iterator = data.open();
      const Bytes beginning = iterator.position();
      const std::vector<std::string> elements = rest_of(iterator, 60);
      for (std::size_t read = 0; read <= elements.size(); ++read) {
        iterator.seek(beginning);  // An iterator of its own would have another order.
        rest_of(iterator, read);
        // As in another process: nothing is cached there.
        auto other = std::get<Dataset<E>>(pipeline_of(line)).open();
        other.seek(iterator.position());
        EXPECT_EQ(rest_of(other, 60 - read),
                  std::vector(elements.begin() + static_cast<std::ptrdiff_t>(read), elements.end()));
        if (HasFailure()) return;
      }
    };
    std::visit(check, pipeline_of(line));
    if (HasFailure()) return;
  }
}

TEST(Pipelines, RefusePositionsOfOthers) {
  const auto numbers = data::range(10);
  auto iterator = numbers.shuffle(3, {.seed = 1}).open();
  auto shorter = data::range(9).shuffle(3, {.seed = 1}).open();
  EXPECT_PRED2(holds, refusal([&] { shorter.seek(iterator.position()); }, Code::usage),
               "a position of another pipeline than range(0, 9, 1) | shuffle(3, seed 1)");
  Bytes cut = iterator.position();
  for (std::size_t size = 0; size < cut.size(); ++size) {
    refusal([&] { iterator.seek(std::span(cut).first(size)); }, Code::bad_message);
  }
  for (std::size_t i = 0; i < cut.size(); ++i) {
    Bytes other = cut;
    other[i] ^= std::byte{0x40};
    refusal([&] { iterator.seek(other); }, Code::bad_message);
  }
}

// Bytes that are sealed anew reach the stages. Each is another position or refused, and a refusal changes nothing.
TEST(Pipelines, RefusePositionsThatMakeNoSense) {
  const auto source = data::range(12).filter([](Number x) { return x != 5; });
  const auto check = [](const auto& data) {
    SCOPED_TRACE(data.describe());
    auto iterator = data.open();
    rest_of(iterator, 3);
    const Bytes position = iterator.position();
    const std::vector<std::string> rest = rest_of(iterator);
    constexpr std::size_t head = sizeof(std::uint64_t);
    Reader sealed(position);
    sealed.get<std::uint64_t>();
    const Bytes body = sealed.get_bytes();
    for (std::size_t i = head; i < body.size(); ++i) {
      for (const std::byte flip : {std::byte{1}, std::byte{0x80}}) {
        Bytes other = body;
        other[i] ^= flip;
        Writer writer;
        writer.put(hash(other)).put(std::span<const std::byte>(other));
        iterator.seek(position);
        try {
          iterator.seek(writer.take());
          rest_of(iterator, 30);
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == Code::bad_message || error.code() == Code::usage) << error.what();
          EXPECT_EQ(rest_of(iterator), rest) << "it stays at its place";
        }
      }
    }
  };
  check(source.shuffle(4, {.seed = 1}));
  check(source.batch(2).shuffle(3, {.seed = 1}).unbatch());
  check(data::range(12).shuffle(4, {.seed = 1}).repeat(2));
  check(data::range(12).shuffle(20, {.seed = 1}).skip(1).take(9));
  check(data::range(4).interleave([](Number x) { return data::range(x + 2); }, 2));
  check(data::zip(data::range(9).cache(), data::range(9).shard(2, 1).concatenate(data::range(3))));
}

std::vector<std::int64_t> all_of(const Dataset<std::int64_t>& data) {
  std::vector<std::int64_t> all;
  for (const std::int64_t each : data) all.push_back(each);
  return all;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> all) {
  std::ranges::sort(all);
  return all;
}

// With numbered rows and without, with a buffer for all rows and for few.
TEST(Shuffles, HaveAllElementsInAnOrderOfTheirSeed) {
  for (const bool is_indexed : {true, false}) {
    for (const std::int64_t buffer : {1, 7, 100, 1000}) {
      const auto source = is_indexed ? data::range(100) : data::range(100).filter([](std::int64_t) { return true; });
      const auto shuffled = source.shuffle(buffer, {.seed = 5});
      const auto first = all_of(shuffled);
      EXPECT_EQ(sorted(first), all_of(source));
      EXPECT_EQ(first == all_of(source), buffer == 1) << buffer;
      EXPECT_EQ(first == all_of(shuffled), buffer == 1) << "another loop has another order";
      EXPECT_EQ(all_of(source.shuffle(buffer, {.seed = 5})), first) << "the program's next run has the same one";
      for (std::size_t i = 0; i < first.size(); ++i)
        EXPECT_LT(first[i], static_cast<std::int64_t>(i) + buffer) << "no element comes before it is in the buffer";
      const auto same = source.shuffle(buffer, {.seed = 5, .reshuffle_each_iteration = false});
      EXPECT_EQ(all_of(same), all_of(same));
      const auto laps = all_of(source.shuffle(buffer, {.seed = 5}).repeat(2));
      EXPECT_EQ(std::equal(laps.begin(), laps.begin() + 100, laps.begin() + 100), buffer == 1);
      EXPECT_EQ(sorted({laps.begin() + 100, laps.end()}), all_of(source)) << "each lap has all elements";
    }
  }
  EXPECT_NE(all_of(data::range(100).shuffle(100)), all_of(data::range(100).shuffle(100))) << "seeds of their own";
}

// Counts how often each element comes at each place, over many seeds: chi-squared, 25 degrees of freedom.
TEST(Shuffles, AreFair) {
  for (const std::int64_t buffer : {6, 10}) {
    constexpr int seeds = 6000;
    std::vector<int> counts(36);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const auto all = all_of(data::range(6).shuffle(buffer, {.seed = seed}));
      for (std::size_t i = 0; i < 6; ++i) ++counts[i * 6 + static_cast<std::size_t>(all[i])];
    }
    double chi_squared = 0;
    for (const int count : counts) chi_squared += (count - seeds / 6.0) * (count - seeds / 6.0) / (seeds / 6.0);
    EXPECT_LT(chi_squared, 52.6) << "a fair shuffle exceeds it once in 1000 times; seeds are fixed";
  }
}

// Seeds that a pipeline has drawn are in its positions.
TEST(Shuffles, GoOnInAnotherProcessWithoutASeed) {
  const auto make = [] {
    return data::range(6)
        .shuffle(6)
        .flat_map([](Number x) { return data::range(x).shuffle(9).cache(); })
        .concatenate(data::range(20).shuffle(5))
        .cache()
        .shuffle(7)
        .repeat(2);
  };
  auto first = make().open();
  for (const std::size_t number : {3U, 20U, 22U}) {
    rest_of(first, number);
    auto second = make().open();
    second.seek(first.position());
    auto third = make().open();
    third.seek(second.position());
    const auto expected = rest_of(second);
    EXPECT_EQ(rest_of(third), expected);
    auto copy = make().open();
    copy.seek(first.position());
    EXPECT_EQ(rest_of(copy, 10), std::vector(expected.begin(), expected.begin() + 10));
  }
  auto last = make().open();
  last.seek(first.position());
  EXPECT_EQ(rest_of(last), rest_of(first));
}

TEST(Shuffles, BelongToThePipelineThatTheyAreIn) {
  const auto all = data::range(100).shuffle(100, {.reshuffle_each_iteration = false});
  std::vector<std::int64_t> parts = all_of(all.take(80));
  const auto test = all_of(all.skip(80));
  parts.insert(parts.end(), test.begin(), test.end());
  EXPECT_EQ(sorted(parts), all_of(data::range(100))) << "a data set that is split has each element once";
  int equal = 0;
  for (const auto& [a, b] : data::zip(data::range(100).shuffle(100), data::range(100).shuffle(100))) equal += a == b;
  EXPECT_LT(equal, 20) << "two shuffles have two seeds";
  const auto seeded = data::range(100).shuffle(100, {.seed = 3});
  EXPECT_NE(all_of(seeded.take(50)), all_of(seeded.take(50))) << "each loop has another order, whatever is behind it";
}

// The authors' known answers of Philox 4x32-10.
TEST(Randoms, AreThoseOfPhilox) {
  EXPECT_EQ(data::random_bits({0, 0}, 0), 0xe169c58d6627e8d5U);
  constexpr std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(data::random_bits({ones, ones}, ones), 0x41c83b0e408f276dU);
  EXPECT_EQ(data::random_bits({0x299f31d0a4093822U, 0x0370734413198a2eU}, 0x85a308d3243f6a88U), 0x94fdccebd16cfe09U);
}

TEST(Sources, GiveSlicesWithoutCopies) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(data::from_tensor_slices(values).length(), 6);
  const Tensor<float> matrix({3, 2}, std::span<const float>(values));
  const auto rows = data::from_tensor_slices(std::pair(matrix, std::vector<int>{7, 8, 9}));
  auto iterator = rows.open();
  EXPECT_EQ(iterator.next(), std::pair(row({1.F, 2.F}), 7));
  EXPECT_EQ(iterator.next(), std::pair(row({3.F, 4.F}), 8));
  auto batches = rows.batch(2).open();
  EXPECT_EQ(batches.next(), std::pair(Tensor<float>({2, 2}, {1, 2, 3, 4}), row({7, 8})));
  std::vector<float> own{1, 2, 3};
  const auto spanned = data::from_tensor_slices(std::span(own));
  own[1] = 9;
  auto values_of_span = spanned.skip(1).open();
  EXPECT_EQ(values_of_span.next(), 9.F) << "the memory is the program's";
  const auto spanned_rows = data::from_tensor_slices(TensorSpan<const float>(TensorShape{3, 1}, own.data()));
  EXPECT_EQ(spanned_rows.shuffle(3).batch(3).open().next()->shape(), (TensorShape{3, 1}));
  const auto mapped = std::make_shared<std::vector<float>>(own);
  auto shared = std::make_optional(SharedTensor<float>(TensorShape{3}, {mapped, mapped->data()}));
  const auto kept = data::from_tensor_slices(std::pair(*shared, std::vector<int>{7, 8, 9}));
  shared.reset();
  (*mapped)[2] = 5;
  EXPECT_EQ(kept.skip(2).open().next(), std::pair(Tensor<float>(5.F), 9)) << "the memory is the owner's";
  EXPECT_EQ(mapped.use_count(), 2) << "the data set keeps it";
  EXPECT_PRED2(holds, refusal([] { data::from_tensor_slices(Tensor<float>(1.F)); }, Code::usage), "of a scalar");
  EXPECT_PRED2(holds, refusal([&] { data::from_tensor_slices(std::pair(matrix, std::vector<int>{7})); }, Code::usage),
               "of 3 and of 1 rows");
}

// Rows are requested from memory some rows early: fewer than those, rows of no elements, and rows of many pages.
TEST(Sources, GatherRowsOfAnySize) {
  for (const std::int64_t elements : {0, 2, 784, 5000}) {
    constexpr std::int64_t number = 7;
    Tensor<float> rows({number, elements});
    std::iota(rows.begin(), rows.end(), 0.F);
    const auto pairs = data::from_tensor_slices(std::pair(rows, std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
    const auto [drawn, numbers] = pairs.shuffle(3, {.seed = 1}).batch(number).open().next().value();
    EXPECT_FALSE(std::ranges::is_sorted(numbers));
    for (std::int64_t i = 0; i < number; ++i)
      EXPECT_TRUE(std::ranges::equal(drawn.rows(i, 1), rows.rows(numbers[static_cast<std::size_t>(i)], 1))) << elements;
  }
}

template <class X, class Y>
struct Example {
  X x;
  Y y;
};

}  // namespace
}  // namespace lockstep::test

template <class X, class Y>
struct lockstep::Fields<lockstep::test::Example<X, Y>> {
  static auto of(auto& example) { return std::tie(example.x, example.y); }
};

namespace lockstep::test {
namespace {

TEST(Sources, MayBeStructsOfFields) {
  using One = Example<float, std::int64_t>;
  const auto batches = data::range(5).map([](std::int64_t i) { return One{static_cast<float>(i) / 2, i}; }).batch(3);
  auto iterator = batches.open();
  const auto first = iterator.next();
  EXPECT_EQ(first->x, row({0.F, 0.5F, 1.F}));
  EXPECT_EQ(first->y, row<std::int64_t>({0, 1, 2}));
}

TEST(Sources, MayBeFunctionsThatBeginAnew) {
  const auto numbers = data::from_function([i = 0]() mutable { return i < 3 ? std::optional(i++) : std::nullopt; });
  for (int lap = 0; lap < 2; ++lap) {
    std::vector<int> all;
    for (const int each : numbers) all.push_back(each);
    EXPECT_EQ(all, (std::vector{0, 1, 2}));
  }
  auto iterator = numbers.open();
  iterator.next();
  auto other = numbers.open();
  other.seek(iterator.position());
  EXPECT_EQ(other.next(), 1);
}

TEST(Iterators, ReadNothingBeforeTheyAreAsked) {
  int calls = 0;
  const auto numbers = data::range(100).map([&](std::int64_t x) {
    ++calls;
    return x;
  });
  auto iterator = numbers.open();
  EXPECT_EQ(calls, 0);
  iterator.next();
  EXPECT_LE(calls, 2) << "the first read is short";
}

TEST(Iterators, KeepTheMemoryOfBatches) {
  const auto batches = data::range(64)
                           .map([](std::int64_t x) { return Tensor<float>(TensorShape{100}, static_cast<float>(x)); })
                           .batch(8);
  auto iterator = batches.open();
  Tensor<float> batch;
  std::set<const float*> places;
  for (float first = 0; iterator.next(batch); first += 8) {
    EXPECT_EQ(batch[0], first);
    EXPECT_EQ(batch[batch.size() - 1], first + 7);
    places.insert(batch.data());
  }
  EXPECT_LE(places.size(), 2U) << "one is read while the other is used";
}

// The elements before it are read, by every stage.
TEST(Failures, ComeAfterTheElementsBeforeThem) {
  const auto failing = data::range(100).map([](std::int64_t x) {
    if (x == 41) throw std::runtime_error("no row 41");
    return x;
  });
  const auto read_until_failure = [](const auto& dataset) {
    std::size_t number = 0;
    EXPECT_THROW(
        {
          for ([[maybe_unused]] const auto& each : dataset) ++number;
        },
        std::runtime_error);
    return number;
  };
  EXPECT_EQ(read_until_failure(failing), 41U);
  EXPECT_EQ(read_until_failure(failing.filter([](std::int64_t x) { return x >= 0; })), 41U);
  EXPECT_EQ(read_until_failure(failing.batch(4)), 10U) << "the batch with it fails";
  EXPECT_EQ(read_until_failure(failing.batch(4).unbatch()), 40U);
  EXPECT_EQ(read_until_failure(failing.prefetch(3)), 41U);
  EXPECT_EQ(read_until_failure(failing.cache()), 41U);
  EXPECT_EQ(read_until_failure(failing.enumerate()), 41U);
  EXPECT_EQ(read_until_failure(data::zip(data::range(100), failing)), 41U);
  auto iterator = failing.open();
  rest_of(iterator, 41);
  const Bytes before = iterator.position();
  for (int i = 0; i < 2; ++i) EXPECT_THROW(iterator.next(), std::runtime_error) << "it does not go on behind it";
  auto other = failing.open();
  other.seek(before);
  EXPECT_THROW(other.next(), std::runtime_error);
  iterator.seek(failing.open().position());
  EXPECT_EQ(iterator.next(), 0);
  // One column has its row, and the other does not.
  const auto mixed = data::range(4).map(
      [](Number x) { return std::tuple(Array(TensorShape{1}, x), x == 0 ? Array(x) : Array(TensorShape{x}, x)); });
  auto pairs = mixed.padded_batch(4).open();
  refusal([&] { pairs.next(); }, Code::usage);
}

TEST(Iterators, MayBeReplaced) {
  const auto make = [](Number end) { return data::range(end).map([](Number x) { return x; }).prefetch(4).open(); };
  auto iterator = make(100'000);
  iterator.next();
  iterator = make(5);
  EXPECT_EQ(rest_of(iterator).size(), 5U);
}

TEST(Stages, KnowTheirLengths) {
  constexpr Number most = std::numeric_limits<Number>::max();
  const auto endless = data::range(3).repeat();
  EXPECT_EQ(endless.enumerate(-2).batch(32).length(), (most - 1) / 32 + 1);
  EXPECT_EQ(data::range(10).batch(most).length(), 1);
  EXPECT_EQ(data::range(10).shard(most, 0).length(), 1);
  EXPECT_EQ(endless.enumerate().repeat(2).length(), data::infinite);
  EXPECT_EQ(data::range(5).filter([](Number) { return true; }).repeat().length(), data::infinite);
  EXPECT_EQ(all_of(data::range(0).repeat(most)).size(), 0U);
  EXPECT_EQ(std::get<0>(*data::range(3).enumerate(-1).open().next()), -1);
  EXPECT_EQ(all_of(data::range(-most, most, most / 2)).back(), most - 2);
}

TEST(Stages, RefuseWrongNumbers) {
  const auto ten = data::range(10);
  const auto is_refused = [](const std::function<void()>& call, std::string_view words) {
    EXPECT_PRED2(holds, refusal(call, Code::usage), words);
  };
  is_refused([&] { (void)ten.batch(0); }, "batch(0) of a data set -> give 1 or more");
  is_refused([&] { (void)ten.padded_batch(-1); }, "padded_batch(-1)");
  is_refused([&] { (void)ten.shuffle(0); }, "shuffle(0)");
  is_refused([&] { (void)ten.take(-2); }, "take(-2)");
  is_refused([&] { (void)ten.skip(-2); }, "skip(-2)");
  is_refused([&] { (void)ten.repeat(-2); }, "repeat(-2)");
  is_refused([&] { (void)ten.shard(3, 3); }, "shard(3, 3)");
  is_refused([&] { (void)ten.prefetch(0); }, "prefetch(0)");
  is_refused([&] { (void)data::range(0, 5, 0); }, "has the step 0");
  is_refused([&] { (void)ten.interleave([](std::int64_t x) { return data::range(x); }, 0); }, "interleave(0, 1)");
  const auto ragged = ten.map([](std::int64_t x) { return Tensor<float>(TensorShape{x}); });
  is_refused([&] { ragged.batch(4).open().next(); },
             "range(0, 10, 1) | map | batch(4) has elements of different shapes: (0,) and (1,)");
  const auto mixed = ten.map([](std::int64_t x) { return x == 0 ? Tensor<float>() : Tensor<float>(TensorShape{x}); });
  is_refused([&] { mixed.padded_batch(4).open().next(); }, "has elements of 0 and of 1 axes");
  is_refused([&] { mixed.unbatch().open().next(); }, "unbatch() takes tensors with the same number of rows");
}

TEST(Stages, AreDescribed) {
  const auto pipeline = data::zip(data::range(3), data::range(4).cache()).shuffle(2).batch(2, {.drop_remainder = true});
  EXPECT_EQ(pipeline.describe(), "zip(range(0, 3, 1), range(0, 4, 1) | cache) | shuffle(2) | batch(2, drop_remainder)");
  EXPECT_EQ(data::range(3).repeat().length(), data::infinite);
  EXPECT_EQ(data::range(3).filter([](std::int64_t) { return true; }).length(), data::unknown_length);
}

TEST(Caches, ReadTheirSourceOnce) {
  int calls = 0;
  const auto cached = data::range(10).map([&](std::int64_t x) { return ++calls, x; }).cache();
  auto unfinished = cached.open();
  unfinished.next();
  calls = 0;
  EXPECT_EQ(all_of(cached), all_of(data::range(10)));
  EXPECT_EQ(calls, 10);
  EXPECT_EQ(all_of(cached.repeat(3)).size(), 30U);
  EXPECT_EQ(calls, 10);
}

// A thread reads ahead, but no more than it may.
TEST(Prefetches, ReadAheadAndEnd) {
  std::atomic<int> calls = 0;
  const auto numbers = data::range(100).map([&](std::int64_t x) { return ++calls, x; }).prefetch(4);
  {
    auto iterator = numbers.open();
    EXPECT_EQ(iterator.next(), 0);
    for (int i = 0; i < 2000 && calls < 5; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_GE(calls, 5);
    EXPECT_LE(calls, 2 + 4 + 1) << "two that were asked for, four ahead, and one that waits for space";
  }
  EXPECT_EQ(all_of(numbers), all_of(data::range(100)));
}

}  // namespace
}  // namespace lockstep::test
