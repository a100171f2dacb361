"""Nothing acknowledged is lost: real processes are killed at random moments of real trainings."""

import pytest
from kills import SPECS, Town

# In two processes, each with a run of its own that nobody disturbs.
TARGETS = [
    pytest.param(target, marks=pytest.mark.xdist_group(f"kills-{place % 2}"))
    for place, target in enumerate(("attempt", "runner", "all", "api"))
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What specs come to when nobody disturbs them, by name; each is run once."""
    known = {}

    def found(names):
        if new := set(names) - set(known):
            town = Town(tmp_path_factory.mktemp("undisturbed") / "state")
            try:
                for name in sorted(new):
                    town.submit(name, name)
                town.finish()
                known.update((name, town.found(job_id)) for job_id, name in town.submitted.items())
            finally:
                town.close()
        return known

    return found


def kill_and_check(state_dir, undisturbed, target, count):
    town = Town(state_dir)
    try:
        town.kill(target, count)
        town.check(undisturbed(town.submitted.values()))
    finally:
        town.close()
    assert len(town.struck) == count
    hits = [where for where in town.struck if where]
    assert len(hits) >= 0.8 * count, "in the midst of a training"
    assert len(set(hits)) > count / 2, "and at many moments of it"
    return town


@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", TARGETS)
def test_jobs_end_as_undisturbed_ones_do_whatever_is_killed(tmp_path, undisturbed, target):
    kill_and_check(tmp_path / "state", undisturbed, target, 5)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", TARGETS)
def test_jobs_end_as_undisturbed_ones_do_over_thirty_kills(tmp_path, undisturbed, target):
    town = kill_and_check(tmp_path / "state", undisturbed, target, 30)
    assert set(town.submitted.values()) == set(SPECS), "all kinds and estimators occurred"
