"""Secrets from files: `FLEET_KAFKA__SASL_PASSWORD_FILE=/run/secrets/kafka` in place of the secret itself.

Beside `settings_layers`, which asks for the values. Every setting of type `SecretStr` has such a variable. A mistake
names the variable and the path, never what is in the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from topics.errors import SettingsError
from topics.settings_mistakes import KeyPath, is_model, is_secret, members

SUFFIX = "_FILE"


class SecretFile(NamedTuple):
    """A variable that names a file with a secret."""

    key: KeyPath
    variable: str
    path: str


def secret_keys(model: type[BaseModel], at: KeyPath = ()) -> Iterator[KeyPath]:
    """Where a settings tree holds secrets."""
    for name, field in model.model_fields.items():
        if is_secret(field.annotation):
            yield (*at, name)
        for member in members(field.annotation):
            if is_model(member):
                yield from secret_keys(member, (*at, name))


def secret_variable(prefix: str, key: KeyPath) -> str:
    """The variable that names the file of the secret at `key`."""
    return prefix + "__".join(key).upper() + SUFFIX


def secret_files(model: type[BaseModel], prefix: str, variables: Mapping[str, str]) -> list[SecretFile]:
    """The secrets that the environment gives by file; `variables` are its names in capitals → as they are."""
    wanted = [(key, variables.get(secret_variable(prefix, key))) for key in secret_keys(model)]
    return [SecretFile(key, name, path) for key, name in wanted if name and (path := os.environ[name])]


def put_secret(into: dict[str, Any], file: SecretFile, given_by: str | None) -> None:
    """Read the file and put its text, without the line end, into a layer's nested values.

    Raises:
        SettingsError: the secret is given twice (`given_by` is the other variable), or the file cannot be used.
    """
    if given_by:
        raise SettingsError(f"{file.variable} and {given_by} both give {'.'.join(file.key)}: unset one of them")
    *tables, last = file.key
    for table in tables:
        into = into.setdefault(table, {})
    into[last] = _read(file)


def _read(file: SecretFile) -> str:
    try:
        text = Path(file.path).read_text(encoding="utf-8").rstrip("\r\n")
        problem = "" if text else "is empty"
    except OSError as err:
        problem = f"cannot be read: {err.strerror}"
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    if problem:  # outside the except clause: an error's context would hold bytes of the secret
        raise SettingsError(f"secret file {file.path} (named by {file.variable}) {problem}")
    return text
