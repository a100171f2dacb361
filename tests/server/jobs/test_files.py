"""Which checkpoint files may go, and which come after each other."""

import subprocess
import sys

from khot_server.jobs.files import checkpoint_name, checkpoints_until, log_name, remove_older


def test_older_checkpoints_but_one_are_removed(tmp_path):
    old = [checkpoint_name(1, 999), checkpoint_name(2, 5) + ".tmp", checkpoint_name(1, 7)]
    kept = [checkpoint_name(2, 9), checkpoint_name(2, 10), checkpoint_name(2, 11)]
    kept += [checkpoint_name(2, 12) + ".tmp", log_name(1), "artifacts"]
    for name in (*old, *kept):
        (tmp_path / name).touch()
    remove_older(tmp_path / checkpoint_name(2, 10))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(kept)


def test_checkpoints_come_newest_first_and_none_that_is_unfinished_or_later(tmp_path):
    names = [checkpoint_name(1, 999), checkpoint_name(2, 5), checkpoint_name(2, 10)]
    for name in (*names, checkpoint_name(2, 7) + ".tmp", checkpoint_name(2, 11), "lock"):
        (tmp_path / name).touch()
    found = checkpoints_until(tmp_path / checkpoint_name(2, 10))
    assert [path.name for path in found] == names[::-1]


ALONE = """
import sys
from pathlib import Path
from khot_server.jobs.files import be_alone_in
be_alone_in(Path(sys.argv[1]))
print("alone", flush=True)
sys.stdin.read()
"""


def test_two_processes_are_never_alone_in_one_directory(tmp_path):
    def start():
        command = [sys.executable, "-c", ALONE, str(tmp_path / "job")]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start() as first:
        assert first.stdout.readline() == "alone\n"
        with start() as second:
            first.kill()  # which lets go of nothing by itself
            first.wait()
            assert second.stdout.readline() == "alone\n"
            with start() as third:
                third.stdin.close()
                try:
                    third.wait(1.0)
                    raise AssertionError("it did not wait")
                except subprocess.TimeoutExpired:
                    second.stdin.close()
                assert third.wait(60) == 0
