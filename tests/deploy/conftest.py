"""Makes what `deploy` is generated from importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy"))
