// SPDX-License-Identifier: Apache-2.0
#include "bench/onednn.hpp"

#include <dnnl.h>
#include <omp.h>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {

using train::compute::ProductOperand;
using train::compute::ProductShape;
using train::compute::ProductTarget;

std::string onednn_version() {
  const dnnl_version_t* const version = dnnl_version();
  return text("oneDNN ", version->major, '.', version->minor, '.', version->patch);
}

void use_one_onednn_thread() { omp_set_num_threads(1); }

void onednn_product(const ProductShape& shape, const ProductOperand<float>& left, const ProductOperand<float>& right,
                    const ProductTarget<float>& target) {
  const auto number = [](std::size_t value) { return static_cast<dnnl_dim_t>(value); };
  const dnnl_status_t status =
      dnnl_sgemm(left.is_transposed ? 'T' : 'N', right.is_transposed ? 'T' : 'N', number(shape.rows),
                 number(shape.columns), number(shape.depth), 1, left.data, number(left.stride), right.data,
                 number(right.stride), 0, target.data, number(target.stride));
  if (status != dnnl_success)
    throw Error(Code::internal, text("oneDNN refuses a product: status ", static_cast<int>(status)));
}

}  // namespace lockstep::bench
