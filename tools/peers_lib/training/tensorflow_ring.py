# SPDX-License-Identifier: Apache-2.0
"""Lists of gradients as TensorFlow's MultiWorkerMirroredStrategy synchronises them on CPUs: ReplicaContext.all_reduce of
all tensors in a tf.function, by its RING.
"""
import json
import os
import sys

import common

strategy = None


class Ring:
    def __init__(self, rank: int, _ranks: int, counts: list[int]):
        import numpy
        import tensorflow
        self.numpy = numpy
        self.tensors = [tensorflow.constant(common.given(rank, index)(numpy.arange(count)).astype(numpy.float32))
                        for index, count in enumerate(counts)]
        self.results: list = []
        options = tensorflow.distribute.experimental.CommunicationOptions(
            implementation=tensorflow.distribute.experimental.CommunicationImplementation.RING)

        def step(tensors):
            replica = tensorflow.distribute.get_replica_context()
            return replica.all_reduce(tensorflow.distribute.ReduceOp.SUM, tensors, options)

        self.step = tensorflow.function(lambda tensors: strategy.run(step, args=(tensors,)))

    def run(self) -> None:
        self.results = self.step(self.tensors)
        self.results[-1].numpy()

    def wrong(self, ranks: int) -> int:
        found = 0
        for index, tensor in enumerate(self.results):
            places = self.numpy.arange(int(tensor.shape[0]))
            wanted = sum(common.given(rank, index)(places) for rank in range(ranks))
            found += int((tensor.numpy() != wanted).sum())
        return found


def begin(setting: common.Setting) -> None:
    global strategy
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": [f"127.0.0.1:{port}" for port in setting.ports]},
                                          "task": {"type": "worker", "index": setting.rank}})
    import tensorflow
    strategy = tensorflow.distribute.MultiWorkerMirroredStrategy()


def version() -> str:
    import tensorflow
    return f"TensorFlow {tensorflow.__version__} RING"


if __name__ == "__main__":
    sys.exit(common.start(begin, Ring, version))
