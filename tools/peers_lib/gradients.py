# SPDX-License-Identifier: Apache-2.0
"""The lists of gradients that training synchronises in each step: the numbers of elements of every tensor (f32), in
the order in which the model's parameters are declared. Shapes come from the architectures, not from a framework.
"""
from .errors import Misuse


def resnet50() -> list[int]:
    """He et al. 2015: 53 convolutions without bias, each with a batch norm's weight and bias; one linear layer."""
    def convolution(taken: int, made: int, side: int) -> list[int]:
        return [made * taken * side * side, made, made]

    counts = convolution(3, 64, 7)
    taken = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            counts += convolution(taken, width, 1) + convolution(width, width, 3) + convolution(width, 4 * width, 1)
            if block == 0:
                counts += convolution(taken, 4 * width, 1)
            taken = 4 * width
    return counts + [1000 * 2048, 1000]


def bert() -> list[int]:
    """Devlin et al. 2018, the base model with its pooler: 12 layers of width 768, 30522 words."""
    width, inner = 768, 3072

    def linear(taken: int, made: int) -> list[int]:
        return [made * taken, made]

    norm = [width, width]
    counts = [30522 * width, 512 * width, 2 * width] + norm
    for _ in range(12):
        counts += linear(width, width) * 4 + norm + linear(width, inner) + linear(inner, width) + norm
    return counts + linear(width, width)


def small() -> list[int]:
    return [256] * 1000


LISTS = {"resnet50": resnet50, "bert": bert, "small": small}


def counts_of(name: str) -> list[int]:
    if name not in LISTS:
        raise Misuse(f"--gradients {name}: there are {', '.join(LISTS)}")
    return LISTS[name]()


def bytes_of(words: str) -> int:
    """Of a list as the peer programs read it, or of a size."""
    if words.isdigit():
        return int(words)
    pairs = (word.partition("x") for word in words.split(","))
    return 4 * sum(int(count) * int(times or 1) for count, _, times in pairs)


def words_of(counts: list[int]) -> str:
    """As the peer programs read them: 64,256x1000."""
    words, at = [], 0
    while at < len(counts):
        end = at
        while end < len(counts) and counts[end] == counts[at]:
            end += 1
        words.append(f"{counts[at]}x{end - at}" if end - at > 1 else str(counts[at]))
        at = end
    return ",".join(words)
