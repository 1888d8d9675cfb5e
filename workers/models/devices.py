"""What torch is, and which GPUs it sees: for `fleet doctor`."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Devices:
    """torch's version, the CUDA version that it was built for (None: a CPU build), and the GPUs' names."""

    torch: str
    cuda: str | None
    gpus: tuple[str, ...]


def devices() -> Devices:
    """As they are now; a driver that does not fit shows as no GPU."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = tuple(torch.cuda.get_device_name(number) for number in range(count))
    return Devices(torch.__version__, torch.version.cuda, names)
