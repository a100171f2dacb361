"""Learn how many columns to choose: k is a parameter, and each column has a price.

    khot up &
    python client/examples/learn_k.py

Column i of the table adds w_i times itself to the target, with w = 1, 1/2, 1/4, and so on. So
it explains a share w_i^2 / sum w^2 of the target's variance, and is worth its price if the
penalty is lower than that: which k is right for each penalty is known. Their jobs are one group.
"""

import argparse

import numpy as np

from khot_client import Client, FeatureSelection, FeatureSelectionResult

WEIGHTS = 0.5 ** np.arange(6)
WORTH = WEIGHTS**2 / (WEIGHTS**2).sum()
N, ROWS = 12, 1000
PENALTIES = (0.002, 0.02, 0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", help="host:port; default $KHOT_ADDRESS, or this machine")
    parser.add_argument("--epochs", type=int, default=60)
    given = parser.parse_args()

    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, N))
    y = x[:, : len(WEIGHTS)] @ WEIGHTS
    with Client(given.address) as client:
        data = client.upload(x, y, name="halves")
        spec = FeatureSelection(
            data.id,
            penalty=PENALTIES[0],  # the grid has all of them, but a spec must say how k is found
            objective="regression",
            estimator="pi_st_implicit",
            hidden=(),
            epochs=given.epochs,
            references=False,
            seed=0,
        )
        group = client.submit_group(spec, grid={"penalty": PENALTIES})
        group.wait()
        print("penalty  k found  k right  test r2  columns")
        for job, penalty in zip(group.jobs(), PENALTIES, strict=True):
            result = job.result()
            assert isinstance(result, FeatureSelectionResult)
            found, right = len(result.features), int((penalty < WORTH).sum())
            row = f"{penalty:7}  {found:7}  {right:7}  {result.test['r2']:7.3f} "
            print(row, *result.features)
        client.delete_dataset(data.id)


if __name__ == "__main__":
    main()
