// SPDX-License-Identifier: Apache-2.0
// Copies by every set of vector instructions: every length about the widths of vectors and lines, from and to places
// that are aligned to nothing.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <numeric>

#include "collectives/kernels/copy.hpp"
#include "tests/collectives/kernels/kernels_data.hpp"

namespace lockstep {
namespace {

using test::Bytes;
using test::Place;

class Copies : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }

 private:
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

TEST_P(Copies, MoveTheirBytesAndNoOthers) {
  std::vector<std::size_t> lengths(700);
  std::iota(lengths.begin(), lengths.end(), 0U);
  lengths.insert(lengths.end(), {4095, 4096, 4097, 65536, 100'001});
  for (const std::size_t bytes : lengths) {
    Bytes values(bytes);
    for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
    for (const auto& [from, to] : {std::pair{0U, 0U}, {0U, 1U}, {1U, 0U}, {3U, 61U}, {32U, 16U}, {63U, 63U}}) {
      for (const bool streams : {false, true}) {
        Place source(bytes, from);
        Place target(bytes, to);
        source.fill(values);
        target.spoil();
        (streams ? stream_bytes : copy_bytes)(target.data(), source.data(), bytes);
        ASSERT_TRUE(target.holds(values) && target.is_guarded() && source.holds(values))
            << bytes << " bytes, " << from << " to " << to << (streams ? ", streamed" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Copies, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& each) { return std::string(hwy::TargetName(each.param)); });

}  // namespace
}  // namespace lockstep
