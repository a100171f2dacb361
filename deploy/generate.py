"""Write the dashboards, the rules and the runbook: `python deploy/generate.py [--check]`.

With `--check` nothing is written; the exit status is 1 if a file is not what it should be.
"""

import argparse
import json
import sys
from pathlib import Path

from watch import recording, runbook
from watch.alerts import ALERTS
from watch.dashboards import DASHBOARDS
from watch.rules import file_of

HERE = Path(__file__).parent


def files() -> dict[Path, str]:
    """Return the text of every file that is made from `watch`."""
    pages = {page.uid: page for page in DASHBOARDS}
    records = {
        name: [record.yaml() for record in group] for name, group in recording.GROUPS.items()
    }
    alerts = [alert.yaml(pages[alert.dashboard].panel_path(alert.panel)) for alert in ALERTS]
    page = HERE / "README.md"
    return {
        HERE / "prometheus/rules/recording.yml": file_of(records),
        HERE / "prometheus/rules/alerts.yml": file_of({"khot": alerts}),
        page: runbook.put_into(page.read_text()),
    } | {
        HERE / f"grafana/dashboards/{page.uid}.json": json.dumps(page.json(), indent=2) + "\n"
        for page in DASHBOARDS
    }


def main() -> int:
    """Write the files, or say which are not what they should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    made = files()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    stale += set(HERE.glob("grafana/dashboards/*.json")) - made.keys()
    for path in stale:
        print(f"{path.relative_to(HERE)}: must be what deploy/generate.py makes")
        if not check and path in made:
            path.write_text(made[path])
        elif not check:
            path.unlink()
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
