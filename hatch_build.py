"""Build hook: compile the C kernels into the wheel, or the editable tree.

With a C compiler the wheel is tagged `py3-none-<platform>` and holds the objects;
without one it is `py3-none-any`, and khot runs on torch operations.
"""

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            objects = _load_builder(Path(self.root)).build()
        except OSError as error:
            self.app.display_warning(f"{error}\nkhot: going on without C kernels")
            return
        if not objects:
            self.app.display_warning("khot: no C compiler found; going on without C kernels")
            return
        root = Path(self.root).resolve()
        build_data["artifacts"] += [path.relative_to(root).as_posix() for path in objects]
        if version == "standard":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"


def _load_builder(root: Path) -> ModuleType:
    """`khot/_native/build.py`, without importing khot, which would need torch."""
    path = root / "khot" / "_native" / "build.py"
    spec = importlib.util.spec_from_file_location("khot_native_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
