"""The table of metrics in `deploy/README.md`: `python -m khot_server.metrics.page` writes it.

With `--check` it only says whether the page has the table of `definitions`.
"""

import argparse
import sys
from pathlib import Path

from khot_server.metrics.definitions import DEFINITIONS

PAGE = Path(__file__).parents[3] / "deploy" / "README.md"
BEGIN, END = "<!-- metrics -->", "<!-- /metrics -->"


def markdown() -> str:
    """Return the table."""
    lines = ["| name | type | labels | what it tells |", "|---|---|---|---|"]
    for row in DEFINITIONS:
        lines.append(f"| `{row.name}` | {row.kind} | {', '.join(row.labels)} | {row.text} |")
    return "\n".join(lines)


def with_table(page: str) -> str:
    """Return the page with the table between its markers.

    Raises:
        ValueError: it does not have both markers, once each and in order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in after:
        raise ValueError(f"page: must have {BEGIN} and then {END}, once each; got another")
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


def main() -> None:
    """Write the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it differs")
    given = parser.parse_args()
    old = PAGE.read_text()
    new = with_table(old)
    if not given.check:
        PAGE.write_text(new)
    elif new != old:
        module = "python -m khot_server.metrics.page"
        sys.exit(f"{PAGE}: must have the table that `{module}` writes; got another")


if __name__ == "__main__":
    main()
