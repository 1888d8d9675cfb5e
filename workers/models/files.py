"""The bytes of a package's files: read once, hashed, and only then believed.

Takes a package directory, a file name and the sha256 its manifest promises; gives the very bytes that were
hashed, so that nothing can change between the check and the use. Never reads outside the directory.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from workers.models.errors import ModelError, one_line

MANIFEST: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 1 << 20  # a manifest is a page of text; more is a mistake or an attack


def digest(data: bytes) -> str:
    """sha256 in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def is_plain_name(name: str) -> bool:
    """Whether `name` is a file name and nothing else: no folder, no drive, no dot in front, no control
    characters."""
    return bool(name) and name.isprintable() and not name.startswith(".") and not set(name) & set('/\\:"')


def read_file(directory: Path, name: str, limit_bytes: int | None = None) -> bytes:
    """All bytes of a file that lies in `directory`, also after its links are followed; `ModelError`
    otherwise.

    A link that stays inside is fine: Kubernetes mounts a ConfigMap that way. One that leads out is refused.
    """
    root = directory.resolve()
    path = root / name
    if not is_plain_name(name):
        raise ModelError(f'{directory}: file name "{name}" is refused; expected a plain name in the package')
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root):
            raise ModelError(f"{path} leads outside its package, to {real}; put the file itself there")
        if not real.is_file():
            raise ModelError(f"{path} is not a regular file; put the file itself there")
        size = real.stat().st_size
        if limit_bytes is not None and size > limit_bytes:
            raise ModelError(f"{path} has {size} bytes, expected at most {limit_bytes}")
        return real.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"{path} is missing; a package holds {MANIFEST} and every file it names") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise ModelError(f"{path} cannot be read: {one_line(error)}") from error


def read_verified(directory: Path, name: str, sha256: str) -> bytes:
    """The bytes of a file whose sha256 is `sha256`; `ModelError` for any other content."""
    data = read_file(directory, name)
    found = digest(data)
    if found != sha256:
        raise ModelError(
            f"{directory / name} has sha256 {found[:12]}…, {MANIFEST} says {sha256[:12]}…; "
            "copy the file again, or run `fleet model pack` if you changed it on purpose"
        )
    return data
