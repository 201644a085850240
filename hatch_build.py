"""Where there is a C compiler, an editable install has the passes in C as well (docs/speed.md).

A wheel is made without them, for any machine; with AUTOGD_NATIVE=1 in the environment, with them, for this one alone.
"""

import os
import runpy
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """Compiles before the files are gathered; an install without a compiler goes on without."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """What hatchling calls before a build."""
        wanted = os.environ.get("AUTOGD_NATIVE", "0") not in ("", "0")
        if self.target_name != "wheel" or not (wanted or version == "editable"):
            return
        names = runpy.run_path(os.path.join(self.root, "src", "autogd", "engine", "library.py"))
        trouble = names["compile_passes"]()
        if trouble and wanted:
            raise RuntimeError(f"AUTOGD_NATIVE: {trouble}")
        if trouble:
            self.app.display_warning(f"without the passes in C: {trouble}")
        elif version != "editable":
            build_data.update(pure_python=False, infer_tag=True)
            build_data["artifacts"].append("src/autogd/engine/passes.library")
