// SPDX-License-Identifier: Apache-2.0
//
// Sends bytes from rank 0 to the last rank and prints how fast: `traffic BYTES [TIMES]`.
// Plain MPI and nothing of Lockstep, so that it measures the network of tools/cluster alone.
// The time ends when the last rank's answer is back; it is no latency benchmark.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr long long largest_message_bytes = 16 << 20;

void send_all(std::vector<char>& buffer, long long size_bytes, int peer) {
  for (long long sent = 0; sent < size_bytes; sent += largest_message_bytes) {
    const auto part = static_cast<int>(std::min(largest_message_bytes, size_bytes - sent));
    MPI_Send(buffer.data(), part, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
  }
}

void receive_all(std::vector<char>& buffer, long long size_bytes, int peer) {
  for (long long got = 0; got < size_bytes; got += largest_message_bytes) {
    const auto part = static_cast<int>(std::min(largest_message_bytes, size_bytes - got));
    MPI_Recv(buffer.data(), part, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const long long size_bytes = argc > 1 ? std::atoll(argv[1]) : 0;
  const int times = argc > 2 ? std::atoi(argv[2]) : 1;
  if (size < 2 || size_bytes < 1 || times < 1) {
    if (rank == 0) std::fprintf(stderr, "usage: mpirun -np 2 traffic BYTES [TIMES]\n");
    MPI_Finalize();
    return 1;
  }
  const int last = size - 1;
  std::vector<char> buffer(static_cast<std::size_t>(std::min(largest_message_bytes, size_bytes)), 'x');
  char answer = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start_s = MPI_Wtime();
  for (int time = 0; time < times; ++time) {
    if (rank == 0) {
      send_all(buffer, size_bytes, last);
      MPI_Recv(&answer, 1, MPI_BYTE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == last) {
      receive_all(buffer, size_bytes, 0);
      MPI_Send(&answer, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
  }
  const double spent_s = MPI_Wtime() - start_s;
  if (rank == 0) {
    const double sent_bytes = static_cast<double>(size_bytes) * times;
    const double rate = sent_bytes / spent_s / 1e6;
    std::printf("%.0f bytes in %.6f s: %.2f MB/s\n", sent_bytes, spent_s, rate);
  }
  MPI_Finalize();
  return 0;
}
