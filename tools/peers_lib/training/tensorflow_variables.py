# SPDX-License-Identifier: Apache-2.0
"""One step of many variables under TensorFlow's MultiWorkerMirroredStrategy on CPUs, as its optimizers do it: all
gradients are summed by one ReplicaContext.all_reduce with its RING, then each variable is changed, in a tf.function.
"""
import sys

import common
import tensorflow_ring


class Variables:
    def __init__(self, rank: int, _ranks: int, counts: list[int]):
        import numpy
        import tensorflow
        self.numpy, self.rank, self.steps = numpy, rank, 0
        strategy = tensorflow_ring.strategy
        options = tensorflow.distribute.experimental.CommunicationOptions(
            implementation=tensorflow.distribute.experimental.CommunicationImplementation.RING)
        gradients = [tensorflow.constant(numpy.full(count, rank + 1, numpy.float32)) for count in counts]
        with strategy.scope():
            self.variables = [tensorflow.Variable(tensorflow.zeros(count)) for count in counts]

        def step():
            replica = tensorflow.distribute.get_replica_context()
            sums = replica.all_reduce(tensorflow.distribute.ReduceOp.SUM, [tensorflow.identity(each) for each in gradients], options)
            changes = [each.assign_sub(change, read_value=False) for each, change in zip(self.variables, sums)]
            with tensorflow.control_dependencies([each for each in changes if each is not None]):
                return tensorflow.constant(0)

        self.step = tensorflow.function(lambda: strategy.run(step))

    def run(self) -> None:
        self.step().numpy()
        self.steps += 1

    def wrong(self, ranks: int) -> int:
        wanted = -self.steps * ranks * (ranks + 1) / 2
        return sum(int((each.numpy() != wanted).sum()) for each in self.variables)


if __name__ == "__main__":
    sys.exit(common.start(tensorflow_ring.begin, Variables, tensorflow_ring.version))
