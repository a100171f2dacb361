"""Renormalised sigmoids, forward and backward, as a multiple of softmax's.

One thread; the rows of `relaxation_cost`.
"""

import relaxation_cost

import khot

if __name__ == "__main__":
    relaxation_cost.main(
        "renorm_sigmoid_topk", __doc__, {"renorm_sigmoid_topk": khot.renorm_sigmoid_topk}
    )
