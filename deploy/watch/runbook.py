"""The runbook: a line for each alert, in the page of this folder."""

from watch.alerts import ALERTS
from watch.dashboards import DASHBOARDS
from watch.rules import Alert

BEGIN, END = "<!-- runbook -->", "<!-- /runbook -->"
_TITLES = {page.uid: page.title for page in DASHBOARDS}


def table() -> str:
    """Return the table."""
    lines = ["| alert | when | what users see | panel | what to do |", "|---|---|---|---|---|"]
    return "\n".join((*lines, *map(_line, ALERTS)))


def put_into(page: str) -> str:
    """Return the page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _line(alert: Alert) -> str:
    expr = alert.expr.replace("|", "\\|")
    lasting = "" if alert.for_ == "0m" else f" for {alert.for_}"
    cells = (
        f'<a id="{alert.anchor}"></a>**{alert.name}**, {alert.severity}',
        f"`{expr}`{lasting}",
        alert.symptom,
        f"{_TITLES[alert.dashboard]}: {alert.panel}",
        alert.action,
    )
    return f"| {' | '.join(cells)} |"
