/* SPDX-License-Identifier: Apache-2.0
 * How tools/peers measures one operation of any library, so that all are measured by the same loop: who the members
 * are and how they wait for each other, what is called, and the program that goes through a list of jobs. Plain C11
 * that needs nothing but MPI's messages; peer_bench.c puts MPI's collectives under it, peer_bench_lockstep.cpp ours. */
#ifndef LOCKSTEP_BENCH_PEER_PROTOCOL_H
#define LOCKSTEP_BENCH_PEER_PROTOCOL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum PeerCollective {
  PEER_ALL_REDUCE,
  PEER_REDUCE,
  PEER_REDUCE_SCATTER,
  PEER_ALL_GATHER,
  PEER_BROADCAST,
  PEER_GATHER,
  PEER_SCATTER,
  PEER_ALL_TO_ALL,
  PEER_SCAN,
  PEER_EXSCAN,
  PEER_BARRIER,
  PEER_FLOOR, /* no collective: every member copies its data from `in` to `out` */
  PEER_LIST,  /* an all-reduce of many tensors, each in an allocation of its own */
  PEER_COLLECTIVES
};

enum PeerType { PEER_F32, PEER_F64, PEER_I32, PEER_I64, PEER_TYPES };
enum PeerOp { PEER_SUM, PEER_PROD, PEER_MIN, PEER_MAX, PEER_OPS };

/* What a library is asked to do, again and again, on the same memory. The root is member 0. Broadcast and the tensors
 * of a list are in place; everything else goes from `in` to `out`. */
struct PeerCall {
  enum PeerCollective collective;
  enum PeerType type;
  enum PeerOp op;
  size_t element; /* bytes of one */
  size_t count;   /* elements of a block, or of the whole where there are no blocks */
  void* in;
  void* out;
  size_t tensors; /* of a list */
  void** tensor;
  const size_t* tensor_count;
};

/* One way to do it. `begin` gets the variant's words and returns 0, or a sentence why it cannot; `end` undoes it. */
struct PeerLibrary {
  void* self;
  const char* (*begin)(void* self, const struct PeerCall* call, const char* variant);
  void (*run)(void* self);
  void (*end)(void* self);
};

/* To be called between MPI_Init and MPI_Finalize. Words: LIMIT_SECONDS TYPE OP JOB..., where a job is
 * COLLECTIVE:SIZE:SECONDS:VARIANT; the size is in bytes as nccl-tests counts them, or, of a list, the numbers of
 * elements as 9408,64,256x1000. Member 0 writes one line for each job. Returns the exit code. */
int peer_main(int argc, char** argv, const struct PeerLibrary* library);

#ifdef __cplusplus
}
#endif

#endif
