"""The manifest of a model package: what the model takes, gives, and is made of.

Read by the worker at start, by `fleet model` and by the demo; needs no torch. Takes a package directory,
gives a frozen `Manifest`, raises `ModelError` with one line for every mistake. Never opens the weights: that
is `load`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from topics.errors import InputError
from topics.tensors import DTYPES, MAX_RANK, Array, TensorSpec, to_row
from workers.models.errors import ModelError
from workers.models.fields import Fields, parse_object, shown
from workers.models.files import MANIFEST, MAX_MANIFEST_BYTES, digest, is_plain_name, read_file

FORMAT: Final = 1
ACTION: Final = "action"  # the first output; all others travel as extras
MAX_BUCKET: Final = 65_536  # rows; far above any batch a fleet forms, below what a typing mistake allocates
MAX_BUCKETS: Final = 256  # each is warmed up at every start
MAX_ROW_VALUES: Final = 1 << 26  # numbers in one row of one tensor: a 4096 × 4096 RGBA image
COMPUTE: Final = ("float32", "float64", "float16", "bfloat16")
DEFAULT_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Backend:
    """How the package becomes a model: `factory` builds the module from `arguments`, `weights` fills it."""

    kind: str
    factory: str
    arguments: Mapping[str, Any]
    weights: str


@dataclass(frozen=True, slots=True)
class GoldenFile:
    """A few inputs with the outputs they must give; floats within `atol + rtol · |expected|`, all else
    exactly."""

    file: str
    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """All a worker knows about its model before it loads the weights.

    `inputs` and `outputs` are without the batch axis; the first output is "action", the others are extras.
    `buckets` are the batch sizes the model runs at, ascending: a batch is padded up to the next one.
    `compute` is the dtype of the arithmetic inside, None for what the factory builds. `fallback` is given to states
    that expire: "zeros", or numbers in the shape of the action; None without. `digest` is the sha256 of
    manifest.json, and through the hashes in it of the whole package.
    """

    name: str
    version: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    buckets: tuple[int, ...]
    compute: str | None
    finite: bool
    allow_nan: bool
    fallback: Any
    backend: Backend
    golden: GoldenFile | None
    files: Mapping[str, str]
    environment: str | None
    training: Mapping[str, Any]
    digest: str

    def fallback_action(self) -> Array | None:
        """The fallback in the action's dtype and shape, read-only; None without.

        Raises `InputError` if it is no such action.
        """
        if self.fallback is None:
            return None
        action = self.outputs[0]
        found = np.zeros(action.shape, action.numpy) if self.fallback == "zeros" else to_row(self.fallback, action)
        if self.finite and not np.isfinite(found.astype(np.float64)).all():
            raise InputError(f"{action.name} holds more than a finite number in {action.dtype}")
        found.flags.writeable = False
        return found

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


def read_manifest(path: Path) -> Manifest:
    """The manifest of the package directory `path`; `ModelError` if there is none or it says something
    impossible."""
    if not path.is_dir():
        found = "a file" if path.is_file() else "nothing"
        raise ModelError(f"model package {path}: found {found}, expected a directory with {MANIFEST}")
    raw = read_file(path, MANIFEST, MAX_MANIFEST_BYTES)
    return parse_manifest(raw, str(path / MANIFEST))


def parse_manifest(raw: bytes, where: str) -> Manifest:
    """The manifest in `raw`; `where` begins every error."""
    fields = parse_object(raw, where)
    written = fields.whole("format")
    if written != FORMAT:
        raise fields.wrong("format", written, f"{FORMAT}; a newer fleet wrote this package")
    manifest = Manifest(
        name=_name(fields, "name"),
        version=_name(fields, "version"),
        inputs=_tensors(fields, "inputs"),
        outputs=_tensors(fields, "outputs"),
        buckets=_buckets(fields),
        compute=_compute(fields),
        finite=fields.flag("finite", True),
        allow_nan=fields.flag("allow_nan", False),
        fallback=fields.any("fallback", None),
        files=_files(fields),
        backend=_backend(fields.inner("backend")),
        golden=_golden(fields),
        environment=fields.text("environment", "") or None,
        training=fields.mapping("training", {}),
        digest=digest(raw),
    )
    fields.end()
    if manifest.outputs[0].name != ACTION:
        raise fields.wrong("outputs", manifest.outputs[0].name, f'"{ACTION}" as the name of the first one')
    _check_fallback(fields, manifest)
    _require_listed(fields, manifest)
    return manifest


def _name(fields: Fields, key: str) -> str:
    found = fields.text(key)
    if not _NAME.fullmatch(found):
        raise fields.wrong(key, found, "1–100 letters, digits, dots, dashes or underscores")
    return found


def _tensors(fields: Fields, key: str) -> tuple[TensorSpec, ...]:
    specs = tuple(_tensor(Fields(item, f"{fields.path(key)}[{i}]")) for i, item in enumerate(fields.items(key)))
    names = [spec.name for spec in specs]
    if not specs or len(set(names)) < len(names):
        raise fields.wrong(key, names, "at least one tensor, each with a name of its own")
    return specs


def _tensor(fields: Fields) -> TensorSpec:
    spec = TensorSpec(_name(fields, "name"), fields.text("dtype"), _shape(fields))
    fields.end()
    if spec.dtype not in DTYPES:
        raise fields.wrong("dtype", spec.dtype, f"one of {', '.join(DTYPES)}")
    if spec.count > MAX_ROW_VALUES:
        raise fields.wrong("shape", list(spec.shape), f"at most {MAX_ROW_VALUES} numbers in a row")
    return spec


def _shape(fields: Fields) -> tuple[int, ...]:
    found = fields.items("shape")
    if len(found) > MAX_RANK or not all(type(size) is int and size > 0 for size in found):
        raise fields.wrong("shape", found, f"up to {MAX_RANK} whole numbers > 0, without the batch axis")
    return tuple(found)


def _buckets(fields: Fields) -> tuple[int, ...]:
    found = fields.items("buckets", list(DEFAULT_BUCKETS))
    whole = bool(found) and all(type(size) is int and 0 < size <= MAX_BUCKET for size in found)
    if not whole or sorted(set(found)) != found or len(found) > MAX_BUCKETS:
        raise fields.wrong("buckets", found, f"up to {MAX_BUCKETS} ascending batch sizes between 1 and {MAX_BUCKET}")
    return tuple(found)


def _compute(fields: Fields) -> str | None:
    found = fields.text("compute", "") or None
    if found is not None and found not in COMPUTE:
        raise fields.wrong("compute", found, f"one of {', '.join(COMPUTE)}, or no such key")
    return found


def _check_fallback(fields: Fields, manifest: Manifest) -> None:
    try:
        manifest.fallback_action()
    except InputError as error:
        expected = f'"zeros" or an action {manifest.outputs[0]} ({error})'
        raise fields.wrong("fallback", manifest.fallback, expected) from error


def _files(fields: Fields) -> dict[str, str]:
    found = fields.mapping("files")
    for name, sha256 in found.items():
        if not is_plain_name(name) or name == MANIFEST:
            raise fields.wrong("files", name, "plain names of files in the package directory")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise fields.wrong(f"files.{name}", sha256, "a sha256 in 64 lower-case hex digits")
    return found


def _backend(fields: Fields) -> Backend:
    backend = Backend(
        kind=fields.text("kind"),
        factory=fields.text("factory"),
        arguments=fields.mapping("arguments", {}),
        weights=fields.text("weights", "weights.safetensors"),
    )
    fields.end()
    return backend


def _golden(fields: Fields) -> GoldenFile | None:
    found = fields.mapping("golden", {})
    if not found:
        return None
    inner = Fields(found, fields.path("golden"))
    golden = GoldenFile(inner.text("file"), inner.number("rtol", 1e-4), inner.number("atol", 1e-5))
    inner.end()
    return golden


def _require_listed(fields: Fields, manifest: Manifest) -> None:
    """Every file the manifest uses has its hash in `files`."""
    used = [manifest.backend.weights] + ([manifest.golden.file] if manifest.golden else [])
    for name in used:
        if name not in manifest.files:
            missing = f"the sha256 of {shown(name)} as well (`fleet model pack`)"
            raise fields.wrong("files", sorted(manifest.files), missing)
