"""One table of all operators and what is promised of each.

A new operator is one row here, of one of three kinds: a relaxation (soft k-hot), a
design (hard k-hot draws) or an estimator (draws with a gradient). The conformance
tests walk the table and check every promise, so a row cannot skip them; the tables
in `khot/README.md` are this one (`python -m khot.registry` prints them), and the
server answers `ListOperators` from it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor

from khot._checks import refuse
from khot.estimators.gumbel_sigmoid import gumbel_sigmoid
from khot.estimators.imle import imle
from khot.estimators.ncpss import ncpss
from khot.estimators.pi_st import pi_st
from khot.estimators.pi_st2 import pi_st2
from khot.estimators.pi_st_implicit import pi_st_implicit
from khot.estimators.reinmax import reinmax
from khot.estimators.score_function import score_function
from khot.estimators.simple import simple
from khot.estimators.softsub import softsub
from khot.estimators.st_gumbel_softmax import st_gumbel_softmax
from khot.estimators.st_topk import st_topk
from khot.relaxations.renorm_sigmoid_topk import renorm_sigmoid_topk
from khot.relaxations.sequential_softmax_topk import sequential_softmax_topk
from khot.relaxations.sigmoid_topk import sigmoid_topk
from khot.relaxations.soft_topk import soft_topk
from khot.relaxations.softmax_topk import softmax_topk
from khot.relaxations.sorted_soft_topk import sorted_soft_topk
from khot.relaxations.sparse_topk import sparse_topk
from khot.sampling.adjusted_pareto import adjusted_pareto
from khot.sampling.brewer import brewer
from khot.sampling.conditional_poisson import conditional_poisson
from khot.sampling.gumbel_topk import gumbel_topk
from khot.sampling.iterated_poisson import iterated_poisson
from khot.sampling.pareto import pareto
from khot.sampling.pivotal import pivotal
from khot.sampling.sampford import sampford
from khot.sampling.systematic import systematic
from khot.sampling.topk import topk
from khot.sampling.tournament_pivotal import tournament_pivotal

SECTIONS = ("Args:", "Returns:", "Raises:", "Gradient:", "Example:", "References:")


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What the rows of all kinds have in common.

    Attributes:
        name: the name of the function, of its file, tests and benchmark.
        function: the operator itself.
        reference: where it is defined.
        cost: of all that it does, in n and k.
        native: has a C kernel for CPU tensors.
        lacks: what a user of it should know it does not have; may be empty.
    """

    kind: ClassVar[str]
    folder: ClassVar[str]  # of khot/
    positional: ClassVar[tuple[str, ...]]
    keywords: ClassVar[tuple[str, ...]]
    headings: ClassVar[Mapping[str, str]]  # of the promises, in the page's table

    name: str
    function: Callable[..., Tensor]
    reference: str
    cost: str
    native: bool
    lacks: str = ""

    def __post_init__(self) -> None:
        who = f"registry row {self.name!r}"
        if self.name != self.function.__name__:
            refuse(who, "name must be the function's name", self.function.__name__)
        kinds = {p.name: p.kind for p in inspect.signature(self.function).parameters.values()}
        keyword = {name for name, kind in kinds.items() if kind == inspect.Parameter.KEYWORD_ONLY}
        named = tuple(name for name in kinds if name not in keyword)
        if named != self.positional or not keyword.issuperset(self.keywords):
            wanted = ", ".join((*self.positional, "*", "...", *self.keywords))
            refuse(who, f"signature must be ({wanted})", str(list(kinds)))
        if unknown := set(getattr(self, "differentiable_in", ())) - set(kinds):
            refuse(who, "differentiable_in must name arguments", str(sorted(unknown)))
        for section in SECTIONS:
            if section not in (self.function.__doc__ or ""):
                refuse(who, f"docstring must have the section {section}", "one without it")
        if not self.reference:
            refuse(who, "reference must say where the operator is defined", "nothing")

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().splitlines()[0]


@dataclass(frozen=True, kw_only=True)
class Relaxation(Operator):
    """A deterministic soft top-k, called `function(x, k, *, ..., dim=-1)`.

    Attributes:
        capped: entries lie in [0, 1] and sum to k, at every k and tau.
        order_preserving: x_i >= x_j implies p_i >= p_j.
        shift_invariant: adding a constant to x changes nothing.
        fractional_k: k may be any number, and differ by row; if not, one whole number
            serves all rows.
        differentiable_in: the arguments with an exact gradient.
        smooth: its gradient is continuous.
        sparse: entries reach 0 and 1, and have no gradient there.
        ranked: has a column for each rank, shape (..., n, k); their sum over the last
            dimension is the soft k-hot that the other promises are about.
        tau_keyword: what it calls its temperature.
    """

    kind = "relaxation"
    folder = "relaxations"
    positional = ("x", "k")
    keywords = ("dim",)
    headings = MappingProxyType(
        {
            "capped": "in the capped simplex",
            "order_preserving": "keeps order",
            "shift_invariant": "shift-invariant",
            "fractional_k": "fractional k",
            "differentiable_in": "exact gradient in",
            "smooth": "smooth",
            "sparse": "sparse",
            "ranked": "a column for each rank",
            "tau_keyword": "temperature",
        }
    )

    capped: bool
    order_preserving: bool
    shift_invariant: bool
    fractional_k: bool
    differentiable_in: tuple[str, ...]
    smooth: bool = True
    sparse: bool = False
    ranked: bool = False
    tau_keyword: str = "tau"

    @property
    def soft(self) -> Callable[..., Tensor]:
        """The function as a soft k-hot of x's shape, whether it ranks or not."""
        if not self.ranked:
            return self.function
        return lambda x, k, **options: self.function(x, k, **options).sum(-1)


@dataclass(frozen=True, kw_only=True)
class Design(Operator):
    """A hard k-hot draw, `function(pi, *, num_samples=None, ..., generator=None, seeds=None)`.

    Or of logits: `function(logits, k, *, ...)`, with pi = sigmoid_topk(logits, k).

    Attributes:
        exact: the inclusion probabilities are pi.
        fixed_size: every draw has k ones; floor(k) or floor(k) + 1 if k is not whole.
        high_entropy: its entropy is near the greatest that pi allows.
        tractable: the probability of a draw can be computed (`khot.KSubset.log_prob`).
        random: two draws may differ.
        whole_k: refuses a k that is not whole.
    """

    kind = "design"
    folder = "sampling"
    positional = ("pi", "k")
    keywords = ("num_samples", "dim", "generator", "seeds")
    headings = MappingProxyType(
        {
            "exact": "inclusion probabilities are pi",
            "fixed_size": "fixed size",
            "high_entropy": "high entropy",
            "tractable": "log p(z)",
            "random": "random",
            "whole_k": "needs a whole k",
        }
    )

    exact: bool
    fixed_size: bool
    high_entropy: bool
    tractable: bool = False
    random: bool = True
    whole_k: bool = False


@dataclass(frozen=True, kw_only=True)
class Estimator(Operator):
    """A draw with a gradient, `function(logits, k, *, num_samples=None, ..., seeds=None)`.

    Attributes:
        law: the design that draws, with probabilities of the estimator's own.
        hard: the value is of zeros and ones; if not, it is relaxed. One with the option
            `hard=` can be both, and this is its default.
        unbiased_of: what the expected gradient is, with the defaults; empty if it is biased.
        order: of the approximation of the gradient of E[loss(z)] whose mean it has; None if
            it has that of none.
        needs_loss: needs the value of the loss, not only its gradient at the draw.
        differentiable_in: the arguments that get a gradient.
        fixed_size: every draw has k ones.
        whole_k: refuses a k that is not whole; if not, and hard, a draw has floor(k) or one
            more. With `hard=True` all do.
        only_k: the one k that it takes; None if it takes others.
    """

    kind = "estimator"
    folder = "estimators"
    positional = ("logits", "k")
    keywords = ("num_samples", "dim", "generator", "seeds")
    headings = MappingProxyType(
        {
            "law": "draws by",
            "hard": "hard",
            "unbiased_of": "unbiased of",
            "order": "order",
            "needs_loss": "needs the loss",
            "differentiable_in": "gradient in",
            "fixed_size": "k ones always",
            "whole_k": "needs a whole k",
            "only_k": "only for k =",
        }
    )

    law: str
    hard: bool
    unbiased_of: str
    order: int | None
    needs_loss: bool
    differentiable_in: tuple[str, ...]
    fixed_size: bool = True
    whole_k: bool = True
    only_k: int | None = None


_NO_TRANSFORMS = "torch.func.vmap and torch.compile(fullgraph=True)"

_ROWS: tuple[Operator, ...] = (
    Relaxation(
        name="sigmoid_topk",
        function=sigmoid_topk,
        reference="Differentiable Top-k, Equation 9",
        capped=True,
        order_preserving=True,
        shift_invariant=True,
        fractional_k=True,
        differentiable_in=("x", "k", "tau"),
        native=True,
        cost="O(n)",
    ),
    Relaxation(
        name="soft_topk",
        function=soft_topk,
        reference="Xie et al. (2020), Section 2",
        capped=True,
        order_preserving=True,
        shift_invariant=True,
        fractional_k=True,
        differentiable_in=("x", "k", "epsilon"),
        tau_keyword="epsilon",
        native=False,
        cost="O(n)",
        lacks="a map of its own: it is sigmoid_topk with tau = epsilon / 2, and uses its kernel",
    ),
    Relaxation(
        name="sorted_soft_topk",
        function=sorted_soft_topk,
        reference="Xie et al. (2020), Appendix B",
        capped=True,
        order_preserving=True,
        shift_invariant=True,
        fractional_k=False,
        differentiable_in=("x", "epsilon"),
        ranked=True,
        tau_keyword="epsilon",
        native=False,
        cost="O(n k^2 + k^3)",
        lacks="a k that differs by row, a gradient in k, and sizes: it has n k entries",
    ),
    Relaxation(
        name="sparse_topk",
        function=sparse_topk,
        reference="Sander et al. (2023)",
        capped=True,
        order_preserving=True,
        shift_invariant=True,
        fractional_k=True,
        differentiable_in=("x", "k", "tau"),
        smooth=False,
        sparse=True,
        native=True,
        cost="O(n)",
        lacks="a gradient for units at 0 or 1, and norms other than p = 2 and 4/3",
    ),
    Relaxation(
        name="renorm_sigmoid_topk",
        function=renorm_sigmoid_topk,
        reference="Pervez et al. (2023)",
        capped=True,
        order_preserving=True,
        shift_invariant=False,
        fractional_k=True,
        differentiable_in=("x", "k", "tau"),
        smooth=False,
        native=False,
        cost="O(n)",
        lacks="the top-k as its limit for small tau: it spreads k over the positive scores",
    ),
    Relaxation(
        name="sequential_softmax_topk",
        function=sequential_softmax_topk,
        reference="Xie and Ermon (2019), Algorithm 2",
        capped=False,
        order_preserving=False,
        shift_invariant=True,
        fractional_k=False,
        differentiable_in=("x", "tau"),
        native=False,
        cost="O(n k)",
        lacks="a cap at 1, a k that differs by row, a gradient in k, and memory below O(n k)",
    ),
    Relaxation(
        name="softmax_topk",
        function=softmax_topk,
        reference="Differentiable Top-k, Section 2.1",
        capped=False,
        order_preserving=True,
        shift_invariant=True,
        fractional_k=True,
        differentiable_in=("x", "k", "tau"),
        native=False,
        cost="O(n)",
        lacks="a cap at 1; for small tau it is k times the top-1, not the top-k",
    ),
    Design(
        name="pivotal",
        function=pivotal,
        reference="Deville and Tillé (1998)",
        exact=True,
        fixed_size=True,
        high_entropy=True,
        native=True,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="conditional_poisson",
        function=conditional_poisson,
        reference="Chen, Dempster and Liu (1994)",
        exact=True,
        fixed_size=True,
        high_entropy=True,
        tractable=True,
        native=False,
        cost="O(k (n - k))",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="tournament_pivotal",
        function=tournament_pivotal,
        reference="Deville and Tillé (1998)",
        exact=True,
        fixed_size=True,
        high_entropy=True,
        native=False,
        cost="O(n log n)",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="pareto",
        function=pareto,
        reference="Rosén (1997)",
        exact=False,
        fixed_size=True,
        high_entropy=True,
        native=False,
        cost="O(n log k)",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="adjusted_pareto",
        function=adjusted_pareto,
        reference="Bondesson, Traat and Lundqvist (2006)",
        exact=False,
        fixed_size=True,
        high_entropy=True,
        native=False,
        cost="O(n log k)",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="systematic",
        function=systematic,
        reference="Madow (1949)",
        exact=True,
        fixed_size=True,
        high_entropy=True,
        native=False,
        cost="O(n log n)",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="sampford",
        function=sampford,
        reference="Sampford (1967)",
        exact=True,
        fixed_size=True,
        high_entropy=True,
        native=False,
        cost="O(n k)",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="brewer",
        function=brewer,
        reference="Brewer (1975)",
        exact=True,
        fixed_size=True,
        high_entropy=True,
        native=False,
        cost="O(n k)",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="gumbel_topk",
        function=gumbel_topk,
        reference="Yates and Grundy (1953)",
        exact=False,
        fixed_size=True,
        high_entropy=False,
        whole_k=True,
        native=False,
        cost="O(n log k)",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="iterated_poisson",
        function=iterated_poisson,
        reference="Pervez, Lippe and Gavves (2023)",
        exact=False,
        fixed_size=False,
        high_entropy=False,
        native=False,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
    Design(
        name="topk",
        function=topk,
        reference="Differentiable Top-k, Section 2",
        exact=False,
        fixed_size=True,
        high_entropy=False,
        random=False,
        whole_k=True,
        native=False,
        cost="O(n log n)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="pi_st",
        function=pi_st,
        reference="Differentiable Top-k, Algorithm 1",
        law="pivotal",
        hard=True,
        unbiased_of="the first-order approximation",
        order=1,
        needs_loss=False,
        differentiable_in=("logits", "k", "tau"),
        native=False,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="pi_st_implicit",
        function=pi_st_implicit,
        reference="Differentiable Top-k, Algorithm 2",
        law="pivotal",
        hard=True,
        unbiased_of="the first-order approximation",
        order=1,
        needs_loss=False,
        differentiable_in=("logits", "k", "tau"),
        fixed_size=False,
        whole_k=False,
        native=False,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="pi_st2",
        function=pi_st2,
        reference="Differentiable Top-k, Algorithm 5",
        law="pivotal",
        hard=True,
        unbiased_of="",
        order=None,
        needs_loss=False,
        differentiable_in=("logits",),
        native=False,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="reinmax",
        function=reinmax,
        reference="Liu et al. (2023)",
        law="pivotal",
        hard=True,
        unbiased_of="the second-order approximation",
        order=2,
        needs_loss=False,
        differentiable_in=("logits",),
        only_k=1,
        native=False,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="st_gumbel_softmax",
        function=st_gumbel_softmax,
        reference="Jang, Gu and Poole (2017)",
        law="gumbel_topk",
        hard=True,
        unbiased_of="",
        order=None,
        needs_loss=False,
        differentiable_in=("logits", "tau"),
        only_k=1,
        native=False,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="simple",
        function=simple,
        reference="SIMPLE, Algorithm 3",
        law="conditional_poisson",
        hard=True,
        unbiased_of="the first-order approximation",
        order=1,
        needs_loss=False,
        differentiable_in=("logits", "tau"),
        native=False,
        cost="O(k (n - k))",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="score_function",
        function=score_function,
        reference="Wijk, Vinuesa and Azizpour (2025)",
        law="conditional_poisson",
        hard=True,
        unbiased_of="the gradient",
        order=None,
        needs_loss=True,
        differentiable_in=("logits", "tau"),
        native=False,
        cost="O(k (n - k))",
        lacks=_NO_TRANSFORMS + ", forward mode, and a law other than the k-subset law",
    ),
    Estimator(
        name="imle",
        function=imle,
        reference="Niepert, Minervini and Franceschi (2021)",
        law="gumbel_topk",
        hard=True,
        unbiased_of="",
        order=None,
        needs_loss=False,
        differentiable_in=("logits",),
        native=False,
        cost="O(n log k)",
        lacks=_NO_TRANSFORMS + ", forward mode, and second derivatives",
    ),
    Estimator(
        name="gumbel_sigmoid",
        function=gumbel_sigmoid,
        reference="Differentiable Top-k, Algorithm 3",
        law="gumbel_topk",
        hard=False,
        unbiased_of="the gradient of the relaxed loss",
        order=None,
        needs_loss=False,
        differentiable_in=("logits", "k", "tau"),
        whole_k=False,
        native=False,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="softsub",
        function=softsub,
        reference="Xie and Ermon (2019)",
        law="gumbel_topk",
        hard=False,
        unbiased_of="the gradient of the relaxed loss",
        order=None,
        needs_loss=False,
        differentiable_in=("logits", "tau"),
        native=False,
        cost="O(n k)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="ncpss",
        function=ncpss,
        reference="Pervez, Lippe and Gavves (2023)",
        law="iterated_poisson",
        hard=True,
        unbiased_of="",
        order=None,
        needs_loss=False,
        differentiable_in=("logits", "k", "tau"),
        fixed_size=False,
        native=False,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
    Estimator(
        name="st_topk",
        function=st_topk,
        reference="Bengio, Léonard and Courville (2013)",
        law="topk",
        hard=True,
        unbiased_of="",
        order=None,
        needs_loss=False,
        differentiable_in=("logits", "k", "tau"),
        native=False,
        cost="O(n)",
        lacks=_NO_TRANSFORMS,
    ),
)


def _table(rows: tuple[Operator, ...]) -> Mapping[str, Operator]:
    table: dict[str, Operator] = {}
    for row in rows:
        if row.name in table:
            refuse("registry", "names must differ", f"{row.name!r} twice")
        table[row.name] = row
    designs = [row.name for row in rows if isinstance(row, Design)]
    for row in rows:
        if isinstance(row, Estimator) and row.law not in designs:
            who = f"registry row {row.name!r}"
            refuse(who, f"law must be one of {', '.join(designs)}", repr(row.law))
    return MappingProxyType(table)


_OPERATORS = _table(_ROWS)
_KINDS = (Relaxation, Design, Estimator)


def operators(kind: str | None = None) -> tuple[Operator, ...]:
    """Return the rows of the registry in their order: all, or those of one kind.

    Raises:
        ValueError: kind is none of relaxation, design and estimator.
    """
    kinds = [row_type.kind for row_type in _KINDS]
    if kind is not None and kind not in kinds:
        refuse("operators", f"kind must be one of {', '.join(kinds)}", repr(kind))
    return tuple(row for row in _OPERATORS.values() if kind in (None, row.kind))


def operator(name: str) -> Operator:
    """Return the row of this name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in _OPERATORS:
        refuse("operator", f"name must be one of {', '.join(_OPERATORS)}", repr(name))
    return _OPERATORS[name]


def properties(row: Operator) -> dict[str, str]:
    """Return what the row promises as text, by the name of the promise."""
    common = {field.name for field in fields(Operator)} - {"native", "cost", "lacks"}
    promised = {f.name: getattr(row, f.name) for f in fields(row) if f.name not in common}
    return {name: _text(value, "true", "false") for name, value in promised.items()}


def _text(value: object, yes: str, no: str) -> str:
    if isinstance(value, bool):
        return yes if value else no
    if value is None:
        return ""
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def markdown() -> str:
    """Return the tables of `khot/README.md`, one for each kind."""
    return "\n\n".join(_markdown(row_type) for row_type in _KINDS)


def _markdown(row_type: type[Operator]) -> str:
    shown = {**row_type.headings, "native": "C kernel", "cost": "cost", "reference": "reference"}
    lines = [(row_type.kind, *shown.values()), ("---",) * (len(shown) + 1)]
    for row in operators(row_type.kind):
        cells = (_text(getattr(row, name), "yes", "no") or "-" for name in shown)
        lines.append((f"`{row.name}`", *cells))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace(" --- ", "---")


if __name__ == "__main__":
    print(markdown())
