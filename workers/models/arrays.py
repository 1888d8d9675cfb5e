"""numpy views of torch memory, for every dtype a tensor on the wire may have.

On the hot path once per batch and tensor; nothing is copied. torch and numpy share memory directly except
for bfloat16, which numpy only knows through ml_dtypes: there the same bytes are looked at as int16 on the
way.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from topics.tensors import DTYPES, Array

TORCH_DTYPES: Final[dict[str, torch.dtype]] = {name: getattr(torch, name) for name in DTYPES}
_NAMES: Final = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def array_of(tensor: Tensor) -> Array:
    """The memory of a CPU tensor as an array of the same dtype and shape."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.dtype(ml_dtypes.bfloat16))
    array: Array = tensor.numpy()
    return array


def dtype_name(dtype: torch.dtype) -> str:
    """Our name of a torch dtype, torch's own for those that cannot travel."""
    return _NAMES.get(dtype, str(dtype))
