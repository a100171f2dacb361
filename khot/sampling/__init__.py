"""Hard k-hot draws with given inclusion probabilities, one file per design."""

from khot.sampling._draw import precise
from khot.sampling.adjusted_pareto import adjusted_pareto
from khot.sampling.brewer import brewer
from khot.sampling.conditional_poisson import conditional_poisson
from khot.sampling.gumbel_topk import gumbel_topk
from khot.sampling.iterated_poisson import iterated_poisson
from khot.sampling.log_prob import log_prob
from khot.sampling.pareto import pareto
from khot.sampling.pivotal import pivotal
from khot.sampling.sampford import sampford
from khot.sampling.systematic import systematic
from khot.sampling.topk import topk
from khot.sampling.tournament_pivotal import tournament_pivotal

__all__ = [
    "adjusted_pareto",
    "brewer",
    "conditional_poisson",
    "gumbel_topk",
    "iterated_poisson",
    "log_prob",
    "pareto",
    "pivotal",
    "precise",
    "sampford",
    "systematic",
    "topk",
    "tournament_pivotal",
]
