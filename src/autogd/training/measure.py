"""What a run used: memory, versions, processes."""

import platform
import sys
from typing import Any

import torch

import autogd
from autogd.training.distributed import Place

__all__ = ["environment", "peak_memory"]


def peak_memory(device: torch.device) -> int:
    """The peak memory so far, in bytes: of the device, or of the process if the device is the CPU.

    >>> peak_memory(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def environment(place: Place) -> dict[str, Any]:
    """What results can depend on besides the config.

    >>> environment(Place())["processes"]
    1
    """
    return {
        "device": str(place.device),
        "processes": place.world,
        "threads": torch.get_num_threads(),
        "autogd": autogd.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
