"""Methods by name: ours, and those that other packages add by the entry-point group `dialore.methods`."""

from __future__ import annotations

import dataclasses
import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from dialore.errors import InputError, UnknownNameError
from dialore.sources.registry import option_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dialore.methods.base import Method

_OWN = {
    "cosmo": "dialore.methods.cosmo:Cosmo",
    "dcrag": "dialore.methods.dcrag:Dcrag",
    "draft-ground": "dialore.methods.draft_ground:DraftGround",
    "edit": "dialore.methods.edit:Edit",
    "msdp": "dialore.methods.msdp:Msdp",
    "msdp-dcrag": "dialore.methods.msdp_dcrag:MsdpDcrag",
    "msdp-kg": "dialore.methods.msdp:MsdpKg",
    "pplm": "dialore.methods.pplm:Pplm",
    "qp-rag": "dialore.methods.rag:QpRag",
    "safari": "dialore.methods.safari:Safari",
    "scg-qp": "dialore.methods.scg_qp:ScgQp",
    "scg-qp-graph": "dialore.methods.scg_qp_graph:ScgQpGraph",
    "search-query": "dialore.methods.search_query:SearchQuery",
    "ssdp": "dialore.methods.msdp:Ssdp",
    "t-rag": "dialore.methods.rag:TRag",
    "vanilla": "dialore.methods.vanilla:Vanilla",
}
GROUP = "dialore.methods"


def method_names() -> list[str]:
    """The names of all methods, sorted."""
    return sorted({*_OWN, *(point.name for point in entry_points(group=GROUP))})


def method_class(name: str) -> type[Method]:
    """The class of a method; its module is imported now.

    Raises:
        UnknownNameError: no method is called that.
    """
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        loaded: type[Method] = getattr(importlib.import_module(module), attribute)
        return loaded
    for point in entry_points(group=GROUP):
        if point.name == name:
            added: type[Method] = point.load()
            return added
    raise UnknownNameError("method", name, method_names())


def method_sources(cls: type[Method]) -> tuple[str, ...]:
    """The sources that a method has fields for: those it needs, then those it can do without."""
    return (*cls.needs, *getattr(cls, "takes", ()))


def method_options(cls: type[Method]) -> dict[str, dataclasses.Field[Any]]:
    """A method's hyper-parameters and switches by name, its sources left out."""
    sources = method_sources(cls)
    return {field.name: field for field in dataclasses.fields(cls) if field.name not in sources}  # type: ignore[arg-type]


def create_method(name: str, sources: Mapping[str, object], options: Mapping[str, object] | None = None) -> Method:
    """Make a method.

    Args:
        name: the method's name.
        sources: knowledge sources by name (`graph`, `documents`, ...); those that the method needs must be there.
        options: hyper-parameters and switches by name; text is read as the field's type ("false", "20").

    Raises:
        UnknownNameError: no such method, or it has no such option.
        InputError: an option's value does not fit, or a source is missing.
    """
    cls = method_class(name)
    missing = [need for need in cls.needs if sources.get(need) is None]
    if missing:
        raise InputError(f"method {name} needs a {missing[0]}", mend=f"give one with {option_of(missing[0])}")
    known = method_options(cls)
    values: dict[str, Any] = {}
    for option, value in (options or {}).items():
        if option not in known:
            raise UnknownNameError(f"option of {name}", option, known)
        values[option] = _read(name, known[option], value)
    return cls(**{name: sources.get(name) for name in method_sources(cls)}, **values)


def _read(method: str, field: dataclasses.Field[Any], value: object) -> object:
    """A value as the field's type: that of its default."""
    try:
        return TypeAdapter(type(field.default)).validate_python(value)
    except ValidationError as error:
        kind = type(field.default).__name__
        raise InputError(
            f"option {field.name} of {method}: {value!r} is not a {kind}", mend=f"default: {field.default}"
        ) from error
