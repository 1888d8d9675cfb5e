"""Fetch a model package before the worker starts: MODEL_URL, a .tar.gz with hash MODEL_SHA256, into MODEL_FOLDER."""

import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request

TIMEOUT_S = 60


def fetch(url: str, sha256: str, folder: str) -> None:
    """Download, compare, unpack. Raises SystemExit with one line."""
    headers = {"Authorization": os.environ["MODEL_AUTHORIZATION"]} if "MODEL_AUTHORIZATION" in os.environ else {}
    with tempfile.TemporaryFile() as file:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S) as answer:
                shutil.copyfileobj(answer, file)
        except (urllib.error.URLError, OSError, ValueError) as error:
            sys.exit(f"error: {url} cannot be fetched: {error}")
        file.seek(0)
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256.lower():
            sys.exit(f"error: {url} has SHA-256 {found}, expected {sha256}: correct model.download.sha256 or the file")
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:gz") as archive:
                archive.extractall(folder, filter="data")
        except tarfile.TarError as error:
            sys.exit(f"error: {url} is not a .tar.gz that can be unpacked: {error}")
    if not os.path.exists(os.path.join(folder, "manifest.json")):
        sys.exit(f"error: {url} has no manifest.json at its root, found {sorted(os.listdir(folder))[:5]}")


if __name__ == "__main__":
    fetch(os.environ["MODEL_URL"], os.environ["MODEL_SHA256"], os.environ["MODEL_FOLDER"])
