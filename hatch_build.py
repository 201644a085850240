"""Compile the C passes into every install from source that has a C compiler (docs/speed.md).

The wheel is then for this platform. Without a compiler it is a pure one, for any machine: torch's operations serve.
AUTOGD_NATIVE=0 in the environment skips compiling; AUTOGD_NATIVE=1 makes a failure to compile an error.
"""

import os
import platform
import runpy
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILER = Path("src", "autogd", "engine", "library.py")


class CustomBuildHook(BuildHookInterface):
    """Compiles before the files are collected."""

    folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; into the source tree for an editable install, else into the wheel alone."""
        asked = os.environ.get("AUTOGD_NATIVE", "")
        if self.target_name != "wheel" or asked == "0":
            return
        names = runpy.run_path(str(Path(self.root, COMPILER)))
        target = names["LIBRARY"]
        if version != "editable":
            self.folder = tempfile.mkdtemp(prefix="autogd")
            target = Path(self.folder, target.name)
        if trouble := names["compile_passes"](target=target):
            if asked:
                raise RuntimeError(f"AUTOGD_NATIVE={asked}: the C passes were not compiled. {trouble}")
            self.app.display_warning(f"installing without the C passes: {trouble}")
        elif version != "editable":
            place = names["LIBRARY"].relative_to(Path(self.root, "src"))
            build_data["force_include"][str(target)] = str(place)
            build_data.update(pure_python=False, tag=f"py3-none-{_platform()}")  # ctypes loads it: any Python 3 will do

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled outside of the source tree."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _platform() -> str:
    """The platform's tag; of a Python for two processors, the one that was compiled for."""
    name = sysconfig.get_platform().replace("universal2", platform.machine())
    return name.replace("-", "_").replace(".", "_")
