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
        options = tensorflow.distribute.experimental.CommunicationOptions(
            implementation=tensorflow.distribute.experimental.CommunicationImplementation.RING)

        def reduced():
            replica = tensorflow.distribute.get_replica_context()
            tensors = [tensorflow.identity(tensor) for tensor in self.tensors]  # which gives them a device, as gradients have
            return replica.all_reduce(tensorflow.distribute.ReduceOp.SUM, tensors, options)

        def step():
            with tensorflow.control_dependencies(reduced()):
                return tensorflow.constant(0)

        self.all_results = tensorflow.function(lambda: strategy.run(reduced))
        self.step = tensorflow.function(lambda: strategy.run(step))  # a thousand results would have to come back to Python

    def run(self) -> None:
        self.step().numpy()

    def wrong(self, ranks: int) -> int:
        found = 0
        for index, tensor in enumerate(self.all_results()):
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
