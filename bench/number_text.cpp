// SPDX-License-Identifier: Apache-2.0
// Chooses decimals by the size of a number, so that it keeps about three significant digits.
#include "bench/number_text.hpp"

#include <cmath>

#include "topology/base/text.hpp"

namespace lockstep::bench::number_text {

std::string number(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  return with_decimals(value, size < 10 ? 3 : size < 1000 ? 2 : size < 100000 ? 1 : 0);
}

std::string ratio(double value) {
  if (!std::isfinite(value)) return "-";
  return with_decimals(value, value < 0.1 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0);
}

std::string percent(double value) {
  if (!std::isfinite(value)) return "-";
  return with_decimals(value, std::abs(value) < 10 ? 1 : 0);
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "-";
  if (std::abs(value) >= 999.5) return with_decimals(value, 0);
  return with_digits(value, 3);
}

std::string counted(std::size_t count, std::string_view one) { return text(count, ' ', one, count == 1 ? "" : "s"); }

std::string yes_or_no(bool yes) { return yes ? "yes" : "no"; }

}  // namespace lockstep::bench::number_text
