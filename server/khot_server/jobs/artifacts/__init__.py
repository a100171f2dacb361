"""What a job leaves: a model, a result, metrics, pictures and a report, as one set of files.

    model.safetensors    for `khot.models.load`
    result.json          all that was found; `result_json` says what is where
    metrics.csv          what was measured in the course of the training
    *.png                pictures
    report.html          all of it to be read, in one file that needs no other

A task hands over what it has made as numpy arrays and plain data (`Made`): nothing here
imports torch, and matplotlib is loaded with the first picture.
"""

from pathlib import Path

from khot_server.jobs.artifacts.files import Contents, publish
from khot_server.jobs.artifacts.history import History
from khot_server.jobs.artifacts.made import (
    Data,
    Effects,
    Examples,
    Made,
    Predicted,
    Reconstructed,
)
from khot_server.jobs.artifacts.provenance import Provenance, provenance
from khot_server.jobs.artifacts.report import report
from khot_server.jobs.artifacts.result_json import result_json
from khot_server.jobs.records import Artifact

__all__ = [
    "Data",
    "Effects",
    "Examples",
    "History",
    "Made",
    "Predicted",
    "Provenance",
    "Reconstructed",
    "provenance",
    "write",
]


def write(directory: Path, made: Made) -> tuple[Artifact, ...]:
    """Make `directory` hold the files of a training, all or none; return them by name.

    Raises:
        OSError: they cannot be written.
    """
    from khot_server.jobs.artifacts.pictures import pictures

    drawn = pictures(made)
    files: dict[str, Contents] = {name: picture.png for name, picture in drawn.items()}
    files |= {
        "model.safetensors": made.save_model,
        "result.json": result_json(made),
        "metrics.csv": made.history.to_csv(),
        "report.html": report(made, drawn),
    }
    return publish(directory, files)
