# SPDX-License-Identifier: Apache-2.0
"""Synchronises lists of gradients as torch's DistributedDataParallel does on CPUs (gloo), for tools/peers: tensors in the
reverse of their order, packed into buckets of 1 MiB and then 25 MiB, each bucket's all-reduce started when it is packed,
then all awaited and unpacked. It runs in torch's environment and says its results as bench/peer/peer_bench.c does:

    python training_torch.py RANKS LIMIT_SECONDS TYPE OP list:COUNTS:SECONDS:VARIANT...
"""
import os
import signal
import sys
import tempfile
import time

import training

BUCKET_BYTES = (1 << 20, 25 << 20)


def buckets_of(counts: list[int]) -> list[list[int]]:
    """Indices of tensors, bucket by bucket, as torch's compute_bucket_assignment_by_size makes them."""
    buckets, now, size = [], [], 0
    for index in reversed(range(len(counts))):
        now.append(index)
        size += 4 * counts[index]
        if size >= BUCKET_BYTES[min(len(buckets), 1)]:
            buckets.append(now)
            now, size = [], 0
    return buckets + [now] if now else buckets


class Synchroniser(training.Synchroniser):
    def __init__(self, rank: int, counts: list[int]):
        import torch
        import torch.distributed
        self.torch, self.distributed = torch, torch.distributed
        self.tensors = [torch.empty(count, dtype=torch.float32) for count in counts]
        self.buckets = buckets_of(counts)
        self.flat = [torch.empty(sum(counts[index] for index in bucket), dtype=torch.float32) for bucket in self.buckets]
        for index, tensor in enumerate(self.tensors):
            tensor.copy_((7 * rank + index + torch.arange(len(tensor))) % 5 + 1)

    def run(self) -> None:
        requests = []
        for bucket, flat in zip(self.buckets, self.flat):
            at = 0
            for index in bucket:
                size = len(self.tensors[index])
                flat[at:at + size].copy_(self.tensors[index])
                at += size
            requests.append(self.distributed.all_reduce(flat, async_op=True))
        for request, bucket, flat in zip(requests, self.buckets, self.flat):
            request.wait()
            at = 0
            for index in bucket:
                size = len(self.tensors[index])
                self.tensors[index].copy_(flat[at:at + size])
                at += size

    def wrong(self, ranks: int) -> int:
        count = 0
        for index, tensor in enumerate(self.tensors):
            places = self.torch.arange(len(tensor)) + index
            wanted = sum((7 * rank + places) % 5 + 1 for rank in range(ranks))
            count += int((tensor != wanted).sum())
            tensor.zero_()
        return count

    def barrier(self) -> None:
        self.distributed.barrier()

    def most(self, values: list[float]) -> list[float]:
        whole = self.torch.tensor(values, dtype=self.torch.float64)
        self.distributed.all_reduce(whole, op=self.distributed.ReduceOp.MAX)
        return whole.tolist()
