"""KHotSelector beside scikit-learn's selectors: what a model makes of the columns they choose.

Each of them gets the same standardised rows and the same k, 5, 10 and 20 % of the columns, and
a support vector machine with its defaults, which none of them knows of, learns from what they
chose. The accuracies are of held-out rows, a quarter, and means over five splits; `all` has all
columns, and `cpu_s` is the processor time of a fit, on one thread. KHotSelector has its defaults,
and the others theirs where they have any for this:

- `f test` and `mutual information`: `SelectKBest`, which judges each column by itself;
- `L1`: `SelectFromModel` of a `LinearSVC` with an L1 penalty and C = 0.1;
- `forest`: `SelectFromModel` of a random forest of 100 trees;
- `RFE`: of a logistic regression, a column at a time, or a tenth of them where they are many.

MNIST is a sample of 5000 pictures of the files in KHOT_DATA_DIR, and left out where that is
not set.
"""

import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import (
    RFE,
    SelectFromModel,
    SelectKBest,
    f_classif,
    mutual_info_classif,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from khot_client.sklearn import KHotSelector
from khot_server.datasets import idx

Data = tuple[NDArray[Any], NDArray[Any]]
SHARES = (0.05, 0.1, 0.2)
MANY = 100  # columns, beyond which RFE takes several at a time
MNIST_ROWS = 5000
SPLITS_SEED = 0  # other options than the defaults were tried with another
ALL = "all"


def selectors(k: int, n: int, seed: int, epochs: int | None) -> dict[str, Any]:
    """Each selector of k of n columns, by its name in the table."""

    def mutual_information(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(mutual_info_classif(x, y, random_state=seed))

    def strongest(model: Any) -> SelectFromModel:
        return SelectFromModel(model, max_features=k, threshold=-np.inf)

    step = 1 if n <= MANY else 0.1
    return {
        "KHotSelector": KHotSelector(n_features_to_select=k, epochs=epochs, random_state=seed),
        "f test": SelectKBest(f_classif, k=k),
        "mutual information": SelectKBest(mutual_information, k=k),
        "L1": strongest(LinearSVC(penalty="l1", dual=False, C=0.1, random_state=seed)),
        "forest": strongest(RandomForestClassifier(random_state=seed)),
        "RFE": RFE(LogisticRegression(), n_features_to_select=k, step=step),
    }


def mnist(data_dir: Path) -> Data:
    """As many pictures of each digit as there are in proportion, of the training files."""
    with tempfile.TemporaryDirectory() as cache:
        images, labels, *_ = idx.read(idx.MNIST, data_dir, Path(cache))
    splitter = StratifiedShuffleSplit(1, train_size=MNIST_ROWS, random_state=0)
    rows, _ = next(splitter.split(images, labels))
    return images[rows].reshape(MNIST_ROWS, -1) / 255, labels[rows].astype(np.int64)


def sources(smoke: bool) -> dict[str, Callable[[], Data]]:
    if smoke:
        return {"wine": lambda: load_wine(return_X_y=True)}
    found: dict[str, Callable[[], Data]] = {
        "wine": lambda: load_wine(return_X_y=True),
        "breast cancer": lambda: load_breast_cancer(return_X_y=True),
        "digits": lambda: load_digits(return_X_y=True),
    }
    if data_dir := os.environ.get("KHOT_DATA_DIR"):
        found[f"MNIST, {MNIST_ROWS} rows"] = lambda: mnist(Path(data_dir))
    return found


def measure(name: str, data: Data, splits: int, epochs: int | None) -> list[dict[str, object]]:
    """A row for each k and selector."""
    x, y = data
    n = x.shape[1]
    sizes = sorted({max(1, round(share * n)) for share in SHARES})
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    splitter = StratifiedShuffleSplit(splits, test_size=0.25, random_state=SPLITS_SEED)
    for seed, (train, test) in enumerate(splitter.split(x, y)):
        scaler = StandardScaler().fit(x[train])
        seen, held = scaler.transform(x[train]), scaler.transform(x[test])
        whole = SVC().fit(seen, y[train]).score(held, y[test])
        for k in sizes:
            found.setdefault((k, ALL), []).append((whole, 0.0))
            for selector_name, selector in selectors(k, n, seed, epochs).items():
                start = time.process_time()
                selector.fit(seen, y[train])
                took_s = time.process_time() - start
                model = SVC().fit(selector.transform(seen), y[train])
                accuracy = model.score(selector.transform(held), y[test])
                found.setdefault((k, selector_name), []).append((accuracy, took_s))
    return [
        {"data": name, "columns": n, "k": k, "selector": selector_name, "splits": splits}
        | summary(measured)
        for (k, selector_name), measured in sorted(found.items(), key=lambda item: item[0][0])
    ]


def summary(measured: list[tuple[float, float]]) -> dict[str, object]:
    accuracies, times = zip(*measured, strict=True)
    deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    return {
        "accuracy": f"{statistics.mean(accuracies):.4f}",
        "deviation": f"{deviation:.4f}",
        "cpu_s": f"{statistics.median(times):.2f}",
    }


def markdown(rows: list[dict[str, object]]) -> str:
    """The accuracies in percent, the greatest of a row in bold."""
    names = [*dict.fromkeys(str(row["selector"]) for row in rows if row["selector"] != ALL)]
    cells: dict[tuple[str, object], Mapping[str, Mapping[str, object]]] = {}
    for row in rows:
        key = (f"{row['data']} ({row['columns']})", row["k"])
        cells[key] = {**cells.get(key, {}), str(row["selector"]): row}
    lines = [
        f"| data (columns) | k | {' | '.join(names)} | {ALL} |",
        f"|---|---|{'---|' * len(names)}---|",
    ]
    for (data, k), found in cells.items():
        percents = {name: f"{100 * float(str(found[name]['accuracy'])):.1f}" for name in found}
        best = max(float(percents[name]) for name in names)
        shown = [
            f"**{text}**" if float(text) == best else text
            for text in (percents[name] for name in names)
        ]
        lines.append(f"| {data} | {k} | {' | '.join(shown)} | {percents[ALL]} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0], table="write the page's table, Markdown")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)  # a choice is needed, no optimum
    warnings.filterwarnings("ignore", "(?s)Features .* are constant", UserWarning)
    warnings.filterwarnings("ignore", "invalid value encountered in divide", RuntimeWarning)
    splits, epochs = (1, 2) if options.smoke else (5, None)
    rows: list[dict[str, object]] = []
    for name, load in sources(options.smoke).items():
        rows += measure(name, load(), splits, epochs)
    harness.report("khot_selector", rows, options.out)
    if options.table:
        options.table.write_text(markdown(rows))


if __name__ == "__main__":
    main()
