"""Errors: a small hierarchy in which each error says what was wrong and how to mend it."""

from __future__ import annotations

import copyreg
import difflib
import importlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class DialoreError(Exception):
    """Any error that Dialore raises on purpose.

    Messages and hints name settings by their dotted names (`model.window`). The command line adds the options.

    Args:
        message: What went wrong, in one line.
        hint: What the user can do about it, in one line; may be empty.
    """

    query: str | None = None
    """The query that a source had sent, where that is another one than the source was asked."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __reduce__(self) -> tuple[object, ...]:
        # How to make it anew in another process, whatever its class is made of.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(DialoreError):
    """Bad input: a malformed file, an unknown name, an impossible setting. The command line exits with 2."""


class UnknownNameError(InputError):
    """A name that nothing has, with the nearest names that something does."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
        super().__init__(f"unknown {kind}: {name!r}", hint=hint)


def check_type(name: str, value: object, kinds: type | tuple[type, ...], form: str) -> None:
    """Raise InputError where an argument is of another type than these; `form` says what fits."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise InputError(f"{name} cannot be {value!r:.80}", hint=form)


def as_path(name: str, value: object) -> Path:
    """Return a path that may be given as text; raise InputError for anything else."""
    check_type(name, value, (str, Path), 'give a path: "runs/try"')
    return Path(value)  # type: ignore[arg-type]


class GraphError(InputError):
    """A graph file that is missing, cut short, of another version, or not a graph."""


class SourceError(DialoreError):
    """A source of knowledge could not be asked: an engine that is down, an index that is damaged, a page refused."""


class MissingExtraError(InputError):
    """A feature whose optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency", hint=install(extra))


def install(extra: str) -> str:
    """Return the command that installs an extra, from where Dialore itself was installed."""
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    told = None
    with suppress(metadata.PackageNotFoundError):  # run from its sources
        told = metadata.distribution("dialore").read_text("direct_url.json")
    if told is None:  # from an index
        return f"pip install 'dialore[{extra}]'"
    origin = json.loads(told)
    if (folder := origin.get("dir_info")) is not None:
        path = url2pathname(urlsplit(origin["url"]).path)
        return f"pip install {'-e ' if folder.get('editable') else ''}'{path}[{extra}]'"
    scheme = f"{vcs['vcs']}+" if (vcs := origin.get("vcs_info")) else ""
    return f"pip install 'dialore[{extra}] @ {scheme}{origin['url']}'"


def import_optional(module: str, feature: str, extra: str) -> Any:  # noqa: ANN401 - a library may be untyped
    """Import a module of an optional dependency; raises MissingExtraError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(feature, extra) from None


class ModelError(DialoreError):
    """A language model or its endpoint failed; nothing usable came back.

    Args:
        message: what went wrong.
        hint: what to do about it.
        retryable: whether asking again may help.
        retry_after: seconds that the server asked to wait, if it did.
        status: the HTTP status, if there was one.
        configuration: whether no request can succeed until the user changes something (key, model, address).
        refused: whether the model declined to answer, by its own word or by its server's content filter.
    """

    said = ""  # all that the server said, with its code and the parameter that it names
    parameter = ""  # that parameter
    tries = 1  # how often it was asked

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
        configuration: bool = False,
        refused: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retryable, self.retry_after, self.status = retryable, retry_after, status
        self.configuration, self.refused = configuration, refused


class ModelTimeoutError(ModelError):
    """The server sent no data within the timeout."""


class LoadingError(ModelError):
    """The server is still loading its model. The call can be repeated later."""


class WindowError(ModelError):
    """A prompt that is longer than the model's window."""


class NotRecordedError(ModelError):
    """A request that a recording being replayed does not hold."""


class AnswerError(DialoreError):
    """A language model's answer is none: see `dialore.methods.cleaning`."""


class BudgetError(DialoreError):
    """The token or cost budget of a run is spent; what is finished is kept."""


class StageError(DialoreError):
    """A stage of a method could not be finished for a dialogue, because of the error underneath."""

    def __init__(self, stage: str, dialogue_id: str, cause: DialoreError) -> None:
        super().__init__(f"stage {stage} of dialogue {dialogue_id}: {cause.message}", hint=cause.hint)
        self.stage, self.dialogue_id, self.cause = stage, dialogue_id, cause


def is_fatal(error: DialoreError) -> bool:
    """Return whether an error would recur for every dialogue: wrong input or configuration, a spent budget."""
    return isinstance(error, InputError | BudgetError) or (isinstance(error, ModelError) and error.configuration)


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes or contexts, each once.

    `raise cause from error` while `error` was caused by `cause` makes a cycle, so a plain loop over `__cause__` may
    never end.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def first_line(error: Exception) -> str:
    """Return what a library's error says first; its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def describe(error: ValidationError) -> str:
    """Return a validation error as one line: each field's path and what is wrong with it."""
    problems = []
    issues = error.errors(include_url=False, include_context=False)
    for problem in issues:
        steps = problem["loc"]
        if problem["type"] == "too_short" and any(other["loc"][:-1][: len(steps)] == steps for other in issues):
            continue  # it is empty for what is wrong with its parts
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in steps).lstrip(".")
        path = " ".join(path.split())
        message = "it is empty" if problem["type"] == "too_short" else problem["msg"].removeprefix("Value error, ")
        problems.append(f"field {path}: {message}" if path else message)
    return "; ".join(problems)
