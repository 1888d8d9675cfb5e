"""What a mistake in the settings reads like: one line with key, found, expected and source.

Takes pydantic's account of what is wrong, gives a sentence for a person. Never shows a secret.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping
from typing import Any, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

KeyPath = tuple[str, ...]
"""Keys from the top of the settings tree to one value."""

MAX_FOUND_CHARACTERS = 60

_EXPECTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table of settings",
    "model_type": "a table of settings",
    "model_attributes_type": "a table of settings",
    "literal_error": "one of {expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "missing": "a value",
}


class Contradiction(ValueError):
    """Settings that cannot hold together; validators of settings classes raise it.

    `text` names the keys with both values ("drain_s=60 must be below termination_grace_s=45"); `keys` are
    dotted, relative to the class that raises, so that the line can say where each came from.
    """

    def __init__(self, text: str, *keys: str) -> None:
        super().__init__(text)
        self.text = text
        self.keys = keys


def must_be_below(section: BaseModel, lower: str, upper: str) -> None:
    """For validators of settings classes: the value of `lower` is below that of `upper`.

    Raises:
        Contradiction: it is not.
    """
    low, high = getattr(section, lower), getattr(section, upper)
    if low >= high:
        raise Contradiction(f"{lower}={low} must be below {upper}={high}", lower, upper)


def one_line(cls: type[BaseModel], err: ValidationError, sources: Mapping[KeyPath, str]) -> str:
    """The first mistake as a sentence, and how many more there are."""
    mistakes = err.errors(include_url=False)
    line = _sentence(cls, dict(mistakes[0]), sources)
    more = len(mistakes) - 1
    return " ".join(line.split()) + (f" (and {more} more mistake{'s' * (more > 1)})" if more else "")


def source_of(path: KeyPath, sources: Mapping[KeyPath, str]) -> str:
    """Source of the value at `path`, of the table or list it is a part of, or of its first part."""
    for length in range(len(path), 0, -1):
        if source := sources.get(path[:length]):
            return source
    return next((source for found, source in sources.items() if found[: len(path)] == path), "default")


def _sentence(cls: type[BaseModel], mistake: dict[str, Any], sources: Mapping[KeyPath, str]) -> str:
    where = tuple(str(part) for part in mistake["loc"])
    key, origin = _dotted(where), source_of(where, sources)
    if isinstance(cause := mistake.get("ctx", {}).get("error"), Contradiction):
        return _contradiction(where, cause, sources)
    if mistake["type"] == "extra_forbidden":
        return f"unknown setting {key} (from {origin}): {_advice(cls, where)}"
    if mistake["type"] == "missing":
        return f"setting {key} is missing (table from {origin})"
    found = _found(cls, where, mistake["input"])
    return f"setting {key} is {found} (from {origin}), expected {_expected(mistake)}"


def _contradiction(where: KeyPath, cause: Contradiction, sources: Mapping[KeyPath, str]) -> str:
    paths = [(*where, *key.split(".")) for key in cause.keys]
    origins = ", ".join(f"{path[-1]} from {source_of(path, sources)}" for path in paths)
    inside = f"in {_dotted(where)}: " if where else ""
    return f"{inside}{cause.text} ({origins})"


def _dotted(where: KeyPath) -> str:
    """As one would write it: priority.rules[0].lane."""
    names = (part if len(part) <= MAX_FOUND_CHARACTERS else part[: MAX_FOUND_CHARACTERS - 1] + "…" for part in where)
    return "".join(f"[{name}]" if name.isdecimal() else f".{name}" for name in names).removeprefix(".")


def _expected(mistake: Mapping[str, Any]) -> str:
    context = mistake.get("ctx", {})
    if "error" in context:
        return str(context["error"])
    template = _EXPECTED.get(mistake["type"])
    return template.format(**context) if template else str(mistake["msg"]).removeprefix("Input should be ")


def _found(cls: type[BaseModel], where: KeyPath, value: Any) -> str:
    annotation = _at(cls, where)
    if is_secret(annotation):
        return "a secret"
    if _holds_secret(annotation) and not isinstance(value, int | float):
        return "a value that may hold secrets"
    shown = repr(value)
    return shown if len(shown) <= MAX_FOUND_CHARACTERS else shown[: MAX_FOUND_CHARACTERS - 1] + "…"


def _advice(cls: type[BaseModel], where: KeyPath) -> str:
    table = next((member for member in members(_at(cls, where[:-1])) if is_model(member)), None)
    names = list(table.model_fields) if table else []
    close = difflib.get_close_matches(where[-1], names, n=1)
    if close:
        return f"did you mean {_dotted((*where[:-1], close[0]))}?"
    return f"there are {', '.join(names)}" if names else "`fleet settings` lists what there is"


def _at(annotation: Any, where: KeyPath) -> Any:
    """Annotation of the value at `where`; list indices and dict keys lead to the element's type."""
    for part in where:
        inner = None
        for member in members(annotation):
            if is_model(member):
                field = member.model_fields.get(part)
                inner = field.annotation if field else inner
            elif elements := [arg for arg in get_args(member) if arg is not Ellipsis]:
                inner = elements[-1]
        annotation = inner
    return annotation


def members(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Whether a setting of this type is a table of settings."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def is_secret(annotation: Any) -> bool:
    """Whether a setting of this type must not be shown."""
    return SecretStr in members(annotation)


def _holds_secret(annotation: Any) -> bool:
    return any(
        any(is_secret(field.annotation) or _holds_secret(field.annotation) for field in member.model_fields.values())
        for member in members(annotation)
        if is_model(member)
    )
