# SPDX-License-Identifier: Apache-2.0
"""Rates of torch's DataLoader over a TensorDataset, without workers: row by row as it comes, and with a sampler of
batches, so that the data set is indexed once for each batch. Its shuffle is one of all rows.
"""
import sys

import data_rates
from data_rates import BATCH, ROW_BYTES, ROW_ELEMENTS, ROWS, Read, Row

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

ALL = torch.get_num_threads()


def opened(loader: DataLoader, threads: int = 0):
    def open_() -> Read:
        torch.set_num_threads(threads or ALL)
        batches = iter(loader)
        return lambda number: sum(next(batches)[0].shape[0] for _ in range(number))

    return open_


def of_shuffle() -> Row:
    rows = TensorDataset(torch.ones(ROWS, ROW_ELEMENTS))
    sampler = BatchSampler(RandomSampler(rows), BATCH, drop_last=False)
    batches = DataLoader(rows, batch_size=None, sampler=sampler)
    return Row(ROWS, {"plain": opened(DataLoader(rows, batch_size=BATCH, shuffle=True)),
                      "one thread": opened(DataLoader(rows, batch_size=BATCH, shuffle=True), 1),
                      "sampler of batches": opened(batches),
                      "sampler of batches, one thread": opened(batches, 1)}, ROW_BYTES)


def version() -> str:
    return f"torch {torch.__version__}"


if __name__ == "__main__":
    sys.exit(data_rates.start(version, {"shuffle": of_shuffle}))
