"""What can be imported from the package, and in which order: any."""

import subprocess
import sys

EACH_FIRST = """
import importlib, pkgutil, sys
import khot_client

heavy = {"sklearn", "_public", "cli", "__main__"}  # they begin with the whole package
names = {found.name for found in pkgutil.iter_modules(khot_client.__path__)} - heavy
for name in sorted(names):
    for loaded in [known for known in sys.modules if known.partition(".")[0] == "khot_client"]:
        del sys.modules[loaded]
    importlib.import_module(f"khot_client.{name}")
print(len(names), "torch" in names)
"""


def test_every_module_can_be_the_first_that_is_imported():
    command = [sys.executable, "-c", EACH_FIRST]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    count, has_torch = done.stdout.split()
    assert int(count) > 30 and has_torch == "True"
