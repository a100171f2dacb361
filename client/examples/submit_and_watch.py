"""Submit a training job, watch it, read what it found and fetch its report.

    khot up &
    python client/examples/submit_and_watch.py

The job is the server's once it has an id: Ctrl-C ends the watching, not the job, and
`client.job(job_id)` is its handle again, in any process.
"""

import argparse
import tempfile
from pathlib import Path

from khot_client import Client, FeatureSelection, FeatureSelectionResult, Progress, StateChanged


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", help="host:port; default $KHOT_ADDRESS, or this machine")
    parser.add_argument("--epochs", type=int, default=30)
    given = parser.parse_args()

    with Client(given.address) as client:
        spec = FeatureSelection("digits", k=10, epochs=given.epochs, seed=0, references=False)
        job = client.submit(spec, labels={"example": "submit_and_watch"})
        print("job", job.id)
        told = -1
        for event in job.watch():  # comes back by itself after a lost connection
            match event:
                case StateChanged():
                    print(event.state)
                case Progress() if (tenth := 10 * event.step // event.total_steps) > told:
                    told = tenth
                    loss = event.metrics.get("loss", float("nan"))
                    print(f"  step {event.step:4} of {event.total_steps}  loss {loss:.3f}")

        result = job.wait()  # it has ended: this returns at once, or raises JobFailed
        assert isinstance(result, FeatureSelectionResult)
        print(f"test accuracy {result.test['accuracy']:.0%} with these 10 of 64 pixels:")
        chosen = set(result.features.tolist())
        for row in range(8):
            print("  ", *("#" if 8 * row + column in chosen else "." for column in range(8)))
        with tempfile.TemporaryDirectory() as folder:
            (report,) = job.download(Path(folder), "report.html")
            print(f"{report.name}: {report.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
