"""The allow-list: names in a manifest that may build a module.

A package is data. It may pick one of the factories that the operator put on the list, and nothing else on
this machine: "mlp" is always there, others ("package.module:function") only if settings `model.factories`
name them. Runs at load.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from torch import nn

from workers.models.errors import ModelError, one_line
from workers.models.mlp import mlp
from workers.models.package import Manifest

Factory = Callable[..., nn.Module]
"""Called with the manifest's inputs and outputs (tuples of TensorSpec) and its arguments by name."""

BUILT_IN: Final[Mapping[str, Factory]] = {"mlp": mlp}


def find_factory(name: str, allowed: Sequence[str]) -> Factory:
    """The factory called `name`; `ModelError` unless it is built in or one of `allowed`."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name not in allowed:
        known = ", ".join([*BUILT_IN, *allowed])
        raise ModelError(
            f'factory "{name}" is not allowed here, expected one of {known}; '
            "if you trust its code, add it to model.factories"
        )
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ModelError(f'factory "{name}" is no "package.module:function"; correct model.factories')
    try:
        found = getattr(importlib.import_module(module_name), attribute, None)
    except Exception as error:  # a user's module may raise anything when imported
        raise ModelError(f'factory "{name}" cannot be imported: {one_line(error)}; install it here') from error
    if not callable(found):
        raise ModelError(f'factory "{name}": {module_name} has no function {attribute}')
    factory: Factory = found
    return factory


def build(manifest: Manifest, allowed: Sequence[str]) -> nn.Module:
    """The module that the manifest describes, its weights not yet loaded; `ModelError` if it cannot be
    built."""
    name, arguments = manifest.backend.factory, manifest.backend.arguments
    factory = find_factory(name, allowed)
    try:
        inspect.signature(factory).bind(manifest.inputs, manifest.outputs, **arguments)
    except (TypeError, ValueError) as error:
        raise ModelError(f'factory "{name}" does not take the manifest\'s arguments: {error}') from error
    try:
        module: Any = factory(manifest.inputs, manifest.outputs, **arguments)
    except ModelError:
        raise
    except Exception as error:  # a user's factory may raise anything
        raise ModelError(f'factory "{name}" failed: {one_line(error)}; arguments {dict(arguments)}') from error
    if not isinstance(module, nn.Module):
        raise ModelError(f'factory "{name}" gave a {type(module).__name__}, expected a torch.nn.Module')
    return module
