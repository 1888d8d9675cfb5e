"""One recorder at a time in a folder: two would number their files alike and record everything twice."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from tools.record.errors import CannotRecord


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder; the lock ends with the process, however it ends. Raises `CannotRecord` if another holds it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CannotRecord(
            f"{folder} is being recorded into by another process: stop it, or take another path"
        ) from None
    else:
        yield
    finally:
        os.close(descriptor)
