"""Completes a package that someone wrote: hashes for its files, golden pairs from what the model gives now.

Run by `fleet model pack` and by the training scripts, never by a worker. Takes a directory with weights and
a manifest whose `files` and `golden` may be absent or out of date; leaves it loadable, or as it was and a
`ModelError`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from topics.tensors import Array
from workers.models.errors import ModelError
from workers.models.fields import parse_object
from workers.models.files import MANIFEST, MAX_MANIFEST_BYTES, digest, read_file
from workers.models.golden import Golden, read_golden
from workers.models.load import load_unproven
from workers.models.package import Manifest, parse_manifest
from workers.models.samples import sample_inputs

GOLDEN: Final = "golden.safetensors"
GOLDEN_PAIRS: Final = 4
SEED: Final = 1
LINE_LENGTH: Final = 100  # characters; longer objects stay one field a line


def pack(path: Path, *, factories: Sequence[str] = (), inputs: Mapping[str, Array] | None = None) -> Manifest:
    """Write hashes and golden pairs into the package at `path` and give its manifest; `ModelError` if it
    cannot load.

    The pairs' inputs are `inputs` (by name, [pairs, *shape]), else those of the golden file that is there,
    else random.
    """
    raw = read_file(path, MANIFEST, MAX_MANIFEST_BYTES)
    draft = parse_object(raw, str(path / MANIFEST)).rest()
    named = _named_files(draft)
    without = {key: value for key, value in draft.items() if key != "golden"}
    without["files"] = {name: digest(read_file(path, name)) for name in named if name != _golden_name(draft)}
    manifest = parse_manifest(_dump(without), str(path / MANIFEST))
    model = load_unproven(path, manifest, device="cpu", factories=factories)
    chosen = inputs or _kept_inputs(path, draft, manifest) or sample_inputs(manifest, GOLDEN_PAIRS, SEED)
    chosen = {name: column[: manifest.buckets[-1]] for name, column in chosen.items()}
    golden = Golden(chosen, model.predict(chosen)).to_bytes()
    done = without | {
        "golden": {"file": GOLDEN} | _object(draft, "golden"),
        "files": without["files"] | {_golden_name(draft): digest(golden)},
    }
    packed = _dump(done)
    manifest = parse_manifest(packed, str(path / MANIFEST))
    _replace(path / _golden_name(draft), golden)
    _replace(path / MANIFEST, packed)
    return manifest


def _named_files(draft: Mapping[str, Any]) -> list[str]:
    """Every file the draft speaks of."""
    weights = _object(draft, "backend").get("weights", "weights.safetensors")
    return [str(name) for name in dict.fromkeys([*_object(draft, "files"), weights])]


def _object(draft: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under `key`; nothing if there is none, and what else may be there `parse_manifest`
    refuses."""
    found = draft.get(key)
    return found if isinstance(found, dict) else {}


def _golden_name(draft: Mapping[str, Any]) -> str:
    return str(_object(draft, "golden").get("file", GOLDEN))


def _kept_inputs(path: Path, draft: Mapping[str, Any], manifest: Manifest) -> Mapping[str, Array] | None:
    """The inputs of the golden pairs that are there already, if they still fit."""
    name = _golden_name(draft)
    try:
        return read_golden(path, manifest, name, digest(read_file(path, name))).inputs
    except ModelError:
        return None


def _dump(manifest: Mapping[str, Any]) -> bytes:
    """JSON as a person would write it: lists and small objects on one line. JSON strings hold no raw
    newline, so joining lines changes no value."""

    def joined(match: re.Match[str]) -> str:
        line = re.sub(r"(?<=[\[{])\n\s*|\n\s*(?=[\]}])", "", match[0])
        line = re.sub(r"\n\s*", " ", line)
        return line if len(line) <= LINE_LENGTH else match[0]

    text = json.dumps(manifest, indent=2, ensure_ascii=False)
    for innermost in (r"\[\n[^\[\]{}]*\]", r"\{\n[^{}]*\}"):
        text = re.sub(innermost, joined, text)
    return f"{text}\n".encode()


def _replace(path: Path, data: bytes) -> None:
    """Put `data` where a reader sees either the old file or all of the new one."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(data)
    os.replace(partial, path)
