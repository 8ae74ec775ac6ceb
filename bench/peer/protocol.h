/* SPDX-License-Identifier: Apache-2.0
 * How tools/peers measures one operation of any library, so that all are measured by the same loop: who the members
 * are and how they wait for each other, what is called, and the program that goes through a list of jobs. Plain C11
 * that needs nothing but MPI and the system; peer_bench.c puts MPI's collectives under it, peer_bench_lockstep.cpp
 * ours. */
#ifndef LOCKSTEP_BENCH_PEER_PROTOCOL_H
#define LOCKSTEP_BENCH_PEER_PROTOCOL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum PeerCollective {
  peer_all_reduce,
  peer_reduce,
  peer_reduce_scatter,
  peer_all_gather,
  peer_broadcast,
  peer_gather,
  peer_scatter,
  peer_all_to_all,
  peer_scan,
  peer_exscan,
  peer_barrier,
  peer_all_gather_v, /* of these five, blocks differ from their mean by half of it (peer_count) */
  peer_gather_v,
  peer_scatter_v,
  peer_reduce_scatter_v,
  peer_all_to_all_v,
  peer_sendrecv, /* to the next member, from the one before; in a ring */
  peer_halo,     /* with the four neighbours of a periodic grid of two dimensions; a block for each */
  peer_floor,    /* no collective: every member copies its data from `in` to `out` */
  peer_list,     /* an all-reduce of many tensors, each in an allocation of its own */
  peer_collectives
};

enum PeerType { peer_f32, peer_f64, peer_i32, peer_i64, peer_types };
enum PeerOp { peer_sum, peer_prod, peer_min, peer_max, peer_ops };

enum { peer_neighbours = 4 };

/* Holds the counts and offsets of blocks, in elements, one for each member. */
struct PeerBlocks {
  int* counts;
  int* offsets;
};

/* What a library is asked to do, again and again, on the same memory. The root is member 0. Broadcast and the tensors
 * of a list are in place; everything else goes from `in` to `out`. */
struct PeerCall {
  enum PeerCollective collective;
  enum PeerType type;
  enum PeerOp op;
  size_t element; /* bytes of one */
  size_t count;   /* elements of a block (the mean of unequal ones), or of the whole where there are no blocks */
  void* in;
  void* out;
  size_t tensors; /* of a list */
  void** tensor;
  const size_t* tensor_count;
  int rank;
  int size;                /* members */
  struct PeerBlocks gives; /* of unequal forms: the blocks of `in`; of gathers, this member's is its whole input */
  struct PeerBlocks takes; /* the blocks of `out`; of scatters, this member's is its whole output */
  int extents[2];          /* of the grid, whose last dimension varies fastest with the rank */
};

/* Returns the neighbour to which block `block` of a halo goes: lower and upper of dimension 0, then of dimension 1.
 * Block `block` of `out` comes from the neighbour opposite, which sent its own block `block`. */
int peer_neighbour(const struct PeerCall* call, int rank, int block);
int peer_opposite(int block);

/* One way to do it. `begin` gets the variant's words and returns 0, or a sentence why it cannot; `end` undoes it.
 * `memory`, where there is one, gives the memory for `in` or `out` that a variant asks for, until the job is over; 0:
 * ordinary memory does. All members ask alike. */
struct PeerLibrary {
  void* self;
  void* (*memory)(void* self, size_t bytes, const char* variant);
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
