"""Upload a CSV file and learn which of its columns predict another.

    khot up &
    python client/examples/select_columns_of_a_csv.py

The file is made here, so that the answer is known: whether a patient gets well depends on
three of twelve columns, and on two of them only together.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np

from khot_client import Client, FeatureSelection, FeatureSelectionResult

TRUE = ("dose", "weight", "marker")
OTHERS = ("age", "height", "pulse", "sodium", "iron", "zinc", "visits", "ward", "month")
TARGET = "well"


def write_patients(path: Path, rows: int = 1000) -> None:
    """A table of so many patients, with a header."""
    values = np.random.default_rng(0).normal(size=(rows, len(TRUE + OTHERS)))
    dose, weight, marker = values[:, :3].T
    well = np.where(dose * weight + marker > 0, "yes", "no")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*TRUE, *OTHERS, TARGET])
        cells = np.char.mod("%.4f", values)
        writer.writerows([*row, end] for row, end in zip(cells, well, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", help="host:port; default $KHOT_ADDRESS, or this machine")
    parser.add_argument("--epochs", type=int, default=40)
    given = parser.parse_args()

    with Client(given.address) as client, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "patients.csv")
        write_patients(path)
        data = client.upload(path)  # parsed and checked on the server, before any job
        print(f"{data.name}: {data.rows} rows, {len(data.columns)} columns")

        spec = FeatureSelection(data.id, k=3, target=TARGET, epochs=given.epochs, seed=0)
        result = client.submit(spec).wait()
        assert isinstance(result, FeatureSelectionResult)
        print("found ", *sorted(result.names))
        print("true  ", *sorted(TRUE))
        for name, test in {"these 3": result.test, **result.references}.items():
            print(f"accuracy with {name:7} {test['accuracy']:.0%}")
        client.delete_dataset(data.id)


if __name__ == "__main__":
    main()
