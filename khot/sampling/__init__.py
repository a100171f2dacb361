"""Hard k-hot draws with given inclusion probabilities, one file per design."""

from khot.sampling.tournament_pivotal import tournament_pivotal

__all__ = ["tournament_pivotal"]
