"""How good the jobs' defaults are: feature selections on a real server, over many splits.

`digits`, 10 of 64 pixels, with nothing else given: test accuracy of the network and how long each
attempt took; beside it random forests, on the chosen pixels and on those of scikit-learn's
`SelectKBest(f_classif)`. Both choices, and both forests, learn from the training rows of the job.
`synthetic`: how many of the ten columns that decide the class are found, and by `SelectKBest`.
"""

import statistics
import sys
import tempfile
import uuid
import warnings
from pathlib import Path

import harness
import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest, f_classif

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from jobs import ended
from processes import Server

from khot.training import split_rows
from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1 import job_spec_pb2 as spec_pb
from khot_server.datasets import builtin, synthetic
from khot_server.jobs.spec import FeatureSelectionSpec

K = 10


def jobs(server: Server, dataset: str, splits: int, epochs: int | None) -> list[pb.Job]:
    """One for each split, all by defaults, once they have ended."""
    spec = spec_pb.FeatureSelection(dataset=dataset, k=K, epochs=epochs)
    request = pb.SubmitGroupRequest(
        request_id=uuid.uuid4().hex,
        spec=spec_pb.JobSpec(feature_selection=spec),
        grid=[pb.Axis(field="split_seed", values=[str(seed) for seed in range(splits)])],
    )
    group = server.jobs.SubmitGroup(request, timeout=60).group
    return [ended(server, job.id, timeout_s=3600) for job in group.jobs]


def seconds(server: Server, job: pb.Job) -> float:
    """How long its only attempt took, references and pictures included."""
    request = pb.ListAttemptsRequest(job_id=job.id)
    (attempt,) = server.jobs.ListAttempts(request, timeout=60).attempts
    taken = attempt.end_time.ToDatetime() - attempt.start_time.ToDatetime()
    return taken.total_seconds()


def forest(x: np.ndarray, y: np.ndarray, rows: list[np.ndarray], columns: np.ndarray) -> float:
    """Test accuracy of a random forest that sees these columns."""
    learned, _, tested = rows
    model = RandomForestClassifier(300, random_state=0).fit(x[learned][:, columns], y[learned])
    return float(model.score(x[tested][:, columns], y[tested]))


def row(server: Server, dataset: str, splits: int, epochs: int | None) -> dict[str, object]:
    """What the jobs on a data set came to."""
    with tempfile.TemporaryDirectory() as nowhere:
        table = builtin.load(dataset, Path(nowhere), None)
    spec = FeatureSelectionSpec(dataset=dataset, k=K)
    names = [name for name in table.summary.names() if name != table.summary.target]
    x, y = table.matrix(names), table.classes(table.summary.target)[0]
    informative = set(synthetic.informative()) if dataset == "synthetic" else set()
    accuracy, took, ours, theirs, found, best = [], [], [], [], [], []
    for seed, job in enumerate(jobs(server, dataset, splits, epochs)):
        assert job.state == pb.JOB_STATE_SUCCEEDED, job
        result = job.result.feature_selection
        parts = split_rows(
            torch.from_numpy(y),
            seed=seed,
            validation=spec.validation_share,
            test=spec.test_share,
        )
        rows = [part.numpy() for part in parts]
        learned = rows[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pixels that are constant
            chosen = SelectKBest(f_classif, k=K).fit(x[learned], y[learned]).get_support(True)
        accuracy.append(result.test["accuracy"])
        took.append(seconds(server, job))
        ours.append(forest(x, y, rows, np.array(result.features)))
        theirs.append(forest(x, y, rows, chosen))
        found.append(len(informative & set(result.names)))
        best.append(len(informative & {names[i] for i in chosen}))
    return {
        "dataset": dataset,
        "splits": splits,
        "accuracy_percent": 100 * statistics.fmean(accuracy),
        "least_percent": 100 * min(accuracy),
        "forest_percent": 100 * statistics.fmean(ours),
        "forest_kbest_percent": 100 * statistics.fmean(theirs),
        "found": " ".join(map(str, found)) if informative else "",
        "found_kbest": " ".join(map(str, best)) if informative else "",
        "longest_s": max(took),
    }


def main() -> None:
    """Measure on a server of our own, and report."""
    given = harness.arguments(__doc__.splitlines()[0])
    splits, epochs = (2, 2) if given.smoke else (10, None)
    with tempfile.TemporaryDirectory(prefix="khot-") as directory:
        server = Server(Path(directory) / "state", "--warm-attempts", "true", TMPDIR=directory)
        try:
            server.wait_until_serving()
            rows = [row(server, name, splits, epochs) for name in ("digits", "synthetic")]
        finally:
            server.end()
    harness.report("selection", rows, given.out)


if __name__ == "__main__":
    main()
