"""Sequential softmax, forward and backward, as a multiple of one softmax.

One thread; the rows of `relaxation_cost`.
"""

import relaxation_cost

import khot

SIZES = ((1, 8, 2), (128, 784, 50), (16, 1000, 500))

if __name__ == "__main__":
    relaxation_cost.main(
        "sequential_softmax_topk",
        __doc__,
        {"sequential_softmax_topk": khot.sequential_softmax_topk},
        sizes=SIZES,
        rounds=3,
    )
