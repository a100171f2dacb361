"""The few forms of PromQL that most panels are made of."""

INSTANCE = 'instance=~"$instance"'
OPERATOR = 'operator=~"$operator"'
# Grafana's: at least four scrapes, and as long as a step of the graph
WINDOW = "$__rate_interval"


def of(name: str, *matchers: str) -> str:
    """The series of a metric, of the chosen servers."""
    return f"{name}{{{', '.join((INSTANCE, *matchers))}}}"


def total(name: str, *matchers: str, by: str = "") -> str:
    """The sum of a gauge."""
    return f"sum{_by(by)}({of(name, *matchers)})"


def worst(name: str, *matchers: str, by: str) -> str:
    """The greatest of a gauge or recorded value among the chosen servers."""
    return f"max{_by(by)}({of(name, *matchers)})"


def rate(name: str, *matchers: str, by: str = "") -> str:
    """How fast a counter grows, a second."""
    return f"sum{_by(by)}(rate({of(name, *matchers)}[{WINDOW}]))"


def increase(name: str, *matchers: str, by: str = "", window: str = WINDOW) -> str:
    """How much a counter has grown in a window."""
    return f"sum{_by(by)}(increase({of(name, *matchers)}[{window}]))"


def mean(name: str, *matchers: str, by: str = "") -> str:
    """The mean of what went into a histogram; of nothing there is none."""
    whole, number = (rate(f"{name}_{part}", *matchers, by=by) for part in ("sum", "count"))
    return f"{whole} / ({number} > 0)"


def quantile(q: float, name: str, *matchers: str, by: str = "") -> str:
    """The q-quantile of what went into a histogram; of nothing there is none."""
    grouped = ", ".join(("le", by)) if by else "le"
    return f"histogram_quantile({q:g}, {rate(f'{name}_bucket', *matchers, by=grouped)}) >= 0"


def heat(name: str, *matchers: str) -> str:
    """How much went into each bucket of a histogram."""
    return increase(f"{name}_bucket", *matchers, by="le")


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""
