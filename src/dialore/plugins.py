"""Lookup by name: our own, what other packages add by entry points, and files of the user's.

A name that ends in `.py` is such a file, `mine.py:Mine` one of several in it. It is imported, and so runs: name only
files whose code you trust. Whatever fails to load is an InputError of its own, and hides nothing else.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any, TypeVar

from dialore.errors import DialoreError, InputError, UnknownNameError, first_line

log = logging.getLogger(__name__)
T = TypeVar("T")
_WRITE = {
    "metric": "write a function make(name, context) that returns one",
    "method": "write a subclass of dialore.methods.base.Method",
    "data set": "write a subclass of dialore.datasets.base.DataSet",
}
"""The content that a file needs, by the kind of thing."""


def names_of(group: str, own: Iterable[str] = ()) -> list[str]:
    """Return the names of our own and of the group's entry points, sorted; those that cannot be loaded, too."""
    return sorted({*own, *(point.name for point in _entry_points(group, tuple(sys.path)))})


@functools.lru_cache
def _entry_points(group: str, _path: tuple[str, ...]) -> EntryPoints:
    """Return a group's entry points; once for each `sys.path`, for every installed package is read for it."""
    return entry_points(group=group)


def file_of(name: str) -> Path | None:
    """Return the file that a name stands for; None where it is no such name."""
    file, _, wanted = name.partition(".py:")
    return Path(f"{file}.py") if wanted else Path(name) if name.endswith(".py") else None


def source_of(kind: type) -> Path | None:
    """Return the file of others' code that defines a class; None for ours, and for one that was typed in."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return None if file is None or kind.__module__.startswith("dialore.") else Path(file)


def find(kind: str, name: str, group: str, own: Mapping[str, str], fits: Callable[[object], bool]) -> Any:  # noqa: ANN401
    """Return what a name stands for, or the one thing that `fits` in the file of that name, imported now.

    It is to be of that `kind`, in words: of our `own`, each as `module:name`, or of the group of entry points that
    others add it by. Raises UnknownNameError where nothing is called so, InputError where it cannot be loaded, or the
    file has none or several.
    """
    if file := file_of(name):
        module, wanted = _module(kind, file), name.partition(".py:")[2]
        candidates = {
            attribute: value
            for attribute, value in vars(module).items()
            if attribute == wanted
            or (not wanted and getattr(value, "__module__", "") == module.__name__ and fits(value))
        }
        if len(candidates) == 1:
            return candidates.popitem()[1]
        hint = f"name one: {name}:{min(candidates)}" if candidates else _WRITE[kind]
        raise InputError(f"{name} has {len(candidates) or 'no'} {kind}{'s' * (len(candidates) > 1)}", hint=hint)
    for point in [EntryPoint(name, own[name], group)] if name in own else _entry_points(group, tuple(sys.path)):
        if point.name == name:
            return try_load(kind, name, point.load, f"{point.value} of {point.dist.name if point.dist else 'dialore'}")
    raise UnknownNameError(kind, name, names_of(group, own))


def loadable(names: Iterable[str], load: Callable[[str], T]) -> Iterator[T]:
    """Yield what can be loaded of several names; what cannot is logged."""
    for name in names:
        try:
            yield load(name)
        except DialoreError as error:
            log.warning("left out: %s", error)


def _module(kind: str, path: Path) -> Any:  # noqa: ANN401
    name = f"file:{path.resolve()}"
    if name not in sys.modules:
        if not path.is_file():
            raise InputError(f"no such file: {path}", hint=f"name a {kind}, or a Python file that has one")
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type] # the name ends in .py
        sys.modules[name] = module  # dataclasses look their own up
        try:
            try_load(kind, str(path), lambda: spec.loader.exec_module(module), str(path))  # type: ignore[union-attr]
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def try_load(kind: str, name: str, load: Callable[[], T], where: str) -> T:
    """Return what `load` gives; raise InputError, which names it and `where`, for any exception in others' code."""
    try:
        return load()
    except DialoreError:
        raise
    except Exception as error:
        message = f"{kind} {name} cannot be loaded: {type(error).__name__}: {first_line(error)}"
        raise InputError(message, hint=f"mend {where}") from error
