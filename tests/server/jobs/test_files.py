"""Which checkpoint files may go."""

from khot_server.jobs.files import checkpoint_name, remove_older


def test_only_older_checkpoints_are_removed(tmp_path):
    old = [checkpoint_name(1, 999), checkpoint_name(2, 5), checkpoint_name(1, 7) + ".tmp"]
    kept = [checkpoint_name(2, 10), checkpoint_name(2, 11), checkpoint_name(2, 12) + ".tmp"]
    for name in (*old, *kept, "result.json"):
        (tmp_path / name).touch()
    remove_older(tmp_path / checkpoint_name(2, 10))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([*kept, "result.json"])
