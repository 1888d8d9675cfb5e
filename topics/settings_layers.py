"""Where settings come from: flags over environment over fleet.toml over defaults.

`Section` and `LayeredSettings` are the bases of every settings class; `load_settings` puts the layers
together and remembers which layer each value came from, so that a mistake names its source. What a mistake
reads like is in `settings_mistakes`. Nothing here knows a particular setting.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError as EnvironmentNotParsed

from topics.errors import SettingsError
from topics.settings_mistakes import KeyPath, one_line, source_of
from topics.settings_secrets import put_secret, secret_files, secret_keys, secret_variable

PREFIX = "FLEET_"
CONFIG_VARIABLE = "FLEET_CONFIG"
DEFAULT_CONFIG = Path("fleet.toml")
OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "FLEET_CACHE_DIR", "FLEET_JAVA"})
"""Variables with our prefix that are not settings: they say where things are before any setting is read."""

# Kubernetes puts variables for every service into each container: FLEET_BROKER_SERVICE_HOST, FLEET_BROKER_PORT=tcp://…
_SERVICE_LINK = re.compile(r"FLEET_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_\w+)")

Layer = tuple[dict[str, Any], dict[KeyPath, str]]
"""Nested values, and for each path in them the source."""


class Section(BaseModel):
    """Base of one table of settings: frozen, unknown keys refused, no NaN or infinity.

    A `ValidationError` shows no input: the whole table stands in it, with its secrets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class LayeredSettings(BaseSettings):
    """Base of a whole settings tree. `load_settings` reads environment and file; the constructor does not."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
    )

    OTHER_SECTIONS: ClassVar[frozenset[str]] = frozenset()
    """Top-level keys that belong to another reader of the same file and environment: skipped, not refused."""

    _sources: dict[KeyPath, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)

    def __eq__(self, other: object) -> bool:
        """Where a value came from does not make it another value."""
        return isinstance(other, type(self)) and self.model_dump() == other.model_dump()


S = TypeVar("S", bound=LayeredSettings)


def load_settings(cls: type[S], *, config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> S:
    """Settings of class `cls` from flags, environment, file and defaults, in falling order of precedence.

    `config` is the file to read; without it $FLEET_CONFIG, else ./fleet.toml if there is one. `overrides` is
    a nested dict of flags; a value of None means that the flag was not given.

    Raises:
        SettingsError: one line with the key, what was found, what was expected and where it came from.
    """
    try:
        return _load(cls, config, overrides or {})
    except RecursionError:
        text = "nests hundreds of tables or lists in each other, expected four at most: look for brackets without end"
        raise SettingsError(f"the settings file, or a FLEET_ variable with JSON, {text}") from None


def _load(cls: type[S], config: Path | None, overrides: Mapping[str, Any]) -> S:
    values: dict[str, Any] = {}
    sources: dict[KeyPath, str] = {}
    for layer_values, layer_sources in (_file(config), _environment(cls), _flags(overrides)):
        _merge(values, layer_values)
        sources.update(layer_sources)
    known = {key: value for key, value in values.items() if key not in cls.OTHER_SECTIONS}
    try:
        settings = cls(**known)
    except ValidationError as err:
        mistake = one_line(cls, err, sources)
    else:
        settings._sources = sources
        return settings
    raise SettingsError(mistake)  # here, so that pydantic's error, which holds all values, is not its context


class Shown(NamedTuple):
    """One setting as a person may see it."""

    key: str
    """Dotted, as in fleet.toml."""
    value: Any
    """Plain JSON types; a secret shows as asterisks."""
    source: str
    """The variable, the file, "flag" or "default"."""


def describe(settings: LayeredSettings) -> list[Shown]:
    """Every setting with its value (secrets masked) and its source, in the order of the classes."""
    dumped = settings.model_dump(mode="json")
    return [Shown(".".join(path), value, source_of(path, settings._sources)) for path, value in _leaves(dumped, ())]


def _file(config: Path | None) -> Layer:
    from_variable = os.environ.get(CONFIG_VARIABLE)
    asked_by = "" if config or not from_variable else f" (named by {CONFIG_VARIABLE})"
    path = config or (Path(from_variable) if from_variable else DEFAULT_CONFIG)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not config and not from_variable:
            return {}, {}
        raise SettingsError(f"settings file {path}{asked_by} does not exist: name another, or none") from None
    except OSError as err:
        raise SettingsError(f"settings file {path}{asked_by} cannot be read: {err.strerror}") from None
    except (ValueError, RecursionError) as err:  # not TOML, not UTF-8, a number or a nesting without end
        why = " ".join(str(err).split())[:200]
        raise SettingsError(f"settings file {path}{asked_by} is not valid TOML: {why}") from None
    return values, {found: str(path) for found, _ in _leaves(values, ())}


def _environment(cls: type[LayeredSettings]) -> Layer:
    variables = {name.upper(): name for name in os.environ if name.upper().startswith(PREFIX)}
    for name in variables:
        _refuse_unknown(cls, name, os.environ[variables[name]])
    files = secret_files(cls, PREFIX, variables)
    values = _values_of_variables(cls, variables, without=[file.variable for file in files])
    sources = {}
    for path, _ in _leaves(values, ()):
        # A whole table may stand in one variable as JSON: the longest prefix that is a variable is meant.
        candidates = (PREFIX + "__".join(path[:length]).upper() for length in range(len(path), 0, -1))
        sources[path] = next((variables[name] for name in candidates if name in variables), "environment")
    for file in files:
        put_secret(values, file, given_by=sources.get(file.key))
        sources[file.key] = file.variable
    return values, sources


def _values_of_variables(
    cls: type[LayeredSettings], variables: Mapping[str, str], *, without: Collection[str]
) -> dict[str, Any]:
    source = EnvSettingsSource(cls)
    hidden = {name.lower() for name in without}
    source.env_vars = {name: value for name, value in source.env_vars.items() if name not in hidden}
    try:
        return source()
    except EnvironmentNotParsed as err:
        mistake = _not_json(variables, err)
    raise SettingsError(mistake)  # here, so that the variable's text is not in its context


def _refuse_unknown(cls: type[LayeredSettings], name: str, value: str) -> None:
    top = name.removeprefix(PREFIX).split("__")[0].lower()
    if top in cls.model_fields or top in cls.OTHER_SECTIONS or name in OTHER_VARIABLES:
        return
    if _SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and "://" in value):
        return
    files = (secret_variable(PREFIX, key) for key in secret_keys(cls))
    close = difflib.get_close_matches(name, [*_variables(cls, PREFIX), *files, *OTHER_VARIABLES], n=1)
    advice = f"did you mean {close[0]}?" if close else "`fleet settings` lists what there is"
    raise SettingsError(f"unknown environment variable {name}: {advice}")


def _variables(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _variables(inner, f"{prefix}{name.upper()}__")
        else:
            yield prefix + name.upper()


def _not_json(variables: Mapping[str, str], err: EnvironmentNotParsed) -> str:
    text = getattr(err.__cause__, "doc", None)
    name = next((actual for actual in variables.values() if os.environ[actual] == text), "a FLEET_ variable")
    return f"{name} holds a list or table and must be JSON: {err.__cause__}"


def _flags(overrides: Mapping[str, Any]) -> Layer:
    values = _without_none(overrides)
    return values, {path: "flag" for path, _ in _leaves(values, ())}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    cleaned = {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    return {key: value for key, value in cleaned.items() if value is not None and value != {}}


def _leaves(values: Mapping[str, Any], at: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*at, key))
        else:
            yield (*at, key), value


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping):
            inner = into.get(key)
            into[key] = dict(inner) if isinstance(inner, Mapping) else {}
            _merge(into[key], value)
        else:
            into[key] = value
