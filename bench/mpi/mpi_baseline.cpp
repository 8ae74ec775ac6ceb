// SPDX-License-Identifier: Apache-2.0
#include "bench/mpi/mpi_baseline.hpp"

#include <mpi.h>

#include <limits>

#include "topology/machine/mpi/check.hpp"

namespace lockstep::bench {
namespace {

MPI_Datatype type_of(DataType type) {
  switch (type) {
    case DataType::i8:
      return MPI_INT8_T;
    case DataType::i16:
      return MPI_INT16_T;
    case DataType::i32:
      return MPI_INT32_T;
    case DataType::i64:
      return MPI_INT64_T;
    case DataType::u8:
      return MPI_UINT8_T;
    case DataType::u16:
      return MPI_UINT16_T;
    case DataType::u32:
      return MPI_UINT32_T;
    case DataType::u64:
      return MPI_UINT64_T;
    case DataType::f32:
      return MPI_FLOAT;
    case DataType::f64:
      return MPI_DOUBLE;
    case DataType::c64:
      return MPI_C_FLOAT_COMPLEX;
    case DataType::c128:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::logical_and:
      return MPI_LAND;
    case ReduceOp::logical_or:
      return MPI_LOR;
    case ReduceOp::logical_xor:
      return MPI_LXOR;
    case ReduceOp::bit_and:
      return MPI_BAND;
    case ReduceOp::bit_or:
      return MPI_BOR;
    case ReduceOp::bit_xor:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;
  }
}

// What a call takes.
struct Words {
  Collective collective;
  const void* in;
  void* out;
  int count;  // of a block
  MPI_Datatype type;
  MPI_Op op;
  int root;
  bool is_root;
  bool in_place;
  MPI_Comm comm;
};

void call(const Words& w) {
  const void* const in = w.in_place ? MPI_IN_PLACE : w.in;
  const void* const in_at_root = w.in_place && w.is_root ? MPI_IN_PLACE : w.in;
  int code = MPI_SUCCESS;
  switch (w.collective) {
    case Collective::all_reduce:
      code = MPI_Allreduce(in, w.out, w.count, w.type, w.op, w.comm);
      break;
    case Collective::reduce:
      code = MPI_Reduce(in_at_root, w.out, w.count, w.type, w.op, w.root, w.comm);
      break;
    case Collective::reduce_scatter:
      code = MPI_Reduce_scatter_block(in, w.out, w.count, w.type, w.op, w.comm);
      break;
    case Collective::all_gather:
      code = MPI_Allgather(in, w.count, w.type, w.out, w.count, w.type, w.comm);
      break;
    case Collective::broadcast:
      code = MPI_Bcast(w.out, w.count, w.type, w.root, w.comm);
      break;
    case Collective::gather:
      code = MPI_Gather(in_at_root, w.count, w.type, w.out, w.count, w.type, w.root, w.comm);
      break;
    case Collective::scatter:
      code = MPI_Scatter(w.in, w.count, w.type, w.in_place && w.is_root ? MPI_IN_PLACE : w.out, w.count, w.type, w.root,
                         w.comm);
      break;
    case Collective::all_to_all:
      code = MPI_Alltoall(in, w.count, w.type, w.out, w.count, w.type, w.comm);
      break;
    case Collective::scan:
      code = MPI_Scan(in, w.out, w.count, w.type, w.op, w.comm);
      break;
    case Collective::exscan:
      code = MPI_Exscan(in, w.out, w.count, w.type, w.op, w.comm);
      break;
    default:
      code = MPI_Barrier(w.comm);
  }
  check_mpi(code);
}

}  // namespace

struct MpiBaseline::Parts {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
};

MpiBaseline::MpiBaseline() : parts_(std::make_unique<Parts>()) {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &parts_->comm));
  check_mpi(MPI_Comm_rank(parts_->comm, &parts_->rank));
}

MpiBaseline::~MpiBaseline() {
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0) MPI_Comm_free(&parts_->comm);
}

std::optional<Candidate> MpiBaseline::candidate(const Subject& subject, Buffers& buffers) {
  const MPI_Datatype type = type_of(subject.type);
  const MPI_Op op = op_of(subject.op);
  const bool moves = subject.collective != Collective::barrier;
  if (moves && (type == MPI_DATATYPE_NULL || subject.count > std::numeric_limits<int>::max())) return std::nullopt;
  if (reduces_data(subject.collective) && op == MPI_OP_NULL) return std::nullopt;
  const Words words{.collective = subject.collective,
                    .in = buffers.input_count() > 0 ? buffers.input() : nullptr,
                    .out = buffers.output_count() > 0 ? buffers.output() : nullptr,
                    .count = static_cast<int>(subject.count),
                    .type = type,
                    .op = op,
                    .root = subject.root,
                    .is_root = parts_->rank == subject.root,
                    .in_place = subject.in_place,
                    .comm = parts_->comm};
  return Candidate{"mpi", [words] { call(words); }};
}

}  // namespace lockstep::bench
