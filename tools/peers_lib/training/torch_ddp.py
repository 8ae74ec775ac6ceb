# SPDX-License-Identifier: Apache-2.0
"""Lists of gradients as torch's DistributedDataParallel synchronises them on CPUs (gloo): tensors in the reverse of
their order, packed into buckets of 1 MiB and then 25 MiB, each bucket's all-reduce started as soon as it is packed, then
all awaited and unpacked. DistributedDataParallel itself does this within a backward pass, whose work is not wanted here.
"""
import sys

import common

BUCKET_BYTES = (1 << 20, 25 << 20)


def buckets_of(counts: list[int]) -> list[list[int]]:
    """Indices of tensors, bucket by bucket; a bucket is full when it has reached its size."""
    buckets, now, size = [], [], 0
    for index in reversed(range(len(counts))):
        now.append(index)
        size += 4 * counts[index]
        if size >= BUCKET_BYTES[min(len(buckets), 1)]:
            buckets.append(now)
            now, size = [], 0
    return buckets + [now] if now else buckets


class Buckets:
    def __init__(self, rank: int, _ranks: int, counts: list[int]):
        import torch
        import torch.distributed
        self.torch, self.distributed = torch, torch.distributed
        self.tensors = [common.given(rank, index)(torch.arange(count)).to(torch.float32) for index, count in enumerate(counts)]
        self.buckets = []
        for indices in buckets_of(counts):
            flat = torch.empty(sum(counts[index] for index in indices), dtype=torch.float32)
            parts = flat.split([counts[index] for index in indices])
            self.buckets.append((flat, list(parts), [self.tensors[index] for index in indices]))

    def run(self) -> None:
        requests = []
        for flat, parts, tensors in self.buckets:
            self.torch._foreach_copy_(parts, tensors)
            requests.append(self.distributed.all_reduce(flat, async_op=True))
        for request, (_, parts, tensors) in zip(requests, self.buckets):
            request.wait()
            self.torch._foreach_copy_(tensors, parts)

    def wrong(self, ranks: int) -> int:
        found = 0
        for index, tensor in enumerate(self.tensors):
            places = self.torch.arange(len(tensor))
            found += int((tensor != sum(common.given(rank, index)(places) for rank in range(ranks))).sum())
            tensor.zero_()
        return found


def begin(setting: common.Setting) -> None:
    import torch.distributed
    torch.set_num_threads(1)  # ranks have the cores
    torch.distributed.init_process_group("gloo", init_method=f"file://{setting.folder}/meeting", rank=setting.rank,
                                         world_size=setting.ranks)


def version() -> str:
    import torch
    return f"torch {torch.__version__} gloo"


if __name__ == "__main__":
    sys.exit(common.start(begin, Buckets, version))
