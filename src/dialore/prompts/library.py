"""Finding, parsing, rendering and hashing prompt files."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

import jinja2
import jinja2.nodes
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer
from pydantic import BaseModel, ConfigDict, ValidationError

from dialore.errors import InputError, UnknownNameError, describe, first_line
from dialore.files import parse_yaml, read_text
from dialore.llm.model import Message, Request, Role, Sampling, Steering
from dialore.prompts.history import Block, break_marks, on_one_line
from dialore.text import LANGUAGES, Language, check_language

if TYPE_CHECKING:
    from jinja2.runtime import Context

T = TypeVar("T")

_FRONT = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", re.DOTALL)
_ROLE = re.compile(r"^<!-- (system|user|assistant|continuation|steering|pattern) -->\n", re.MULTILINE)
_ROLES = frozenset(get_args(Role))
_CONTINUATION = "continuation"
_STEERING = "steering"
_PATTERN = "pattern"
"""A section that is the user's message and the continuation alike."""
_NAME = re.compile(r"^[a-z0-9-]+/[a-z0-9-]+(\.[a-z]+)?$")
_REFUSED = {"attr", "batch", "center", "format", "indent", "map", "pprint", "slice", "urlize", "wordwrap", "xmlattr"}
"""Filters that reach into objects, or make much text of little."""
_METHODS = frozenset({"items", "keys", "values", "get"})


class _Sandbox(SandboxedEnvironment):
    """Templates that see their variables and nothing else: a prompt file from elsewhere runs nothing.

    Attributes are data alone, methods those of a mapping, loops run over data, and nothing multiplies a text.
    """

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        """Parse a template so that its loops and concatenations are counted."""
        template: jinja2.nodes.Template = _Counting().visit(super()._parse(source, name, filename))
        template.set_environment(self)
        return template

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Return whether a template may read an attribute."""
        return not attr.startswith("_") and (not callable(value) or (isinstance(obj, dict) and attr in _METHODS))

    def is_safe_callable(self, obj: object) -> bool:
        """Return whether a template may call something: the methods of a mapping."""
        return isinstance(getattr(obj, "__self__", None), dict) and getattr(obj, "__name__", "") in _METHODS

    def getattr(self, obj: object, attribute: str) -> object:
        """Return an attribute or item, its texts on one line."""
        return _on_lines(_measured(super().getattr(obj, attribute)))

    def getitem(self, obj: object, argument: object) -> object:
        """Return an item or attribute, its texts on one line."""
        return _on_lines(_measured(super().getitem(obj, argument)))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Return the sum, or the result of plain formatting; nothing else is allowed."""
        if operator == "+":
            _measure(left, right)
            return left + right  # type: ignore[operator]
        if operator == "%" and isinstance(left, str) and not _WIDTH.search(left):
            _measure(left, right)
            return left % right
        raise jinja2.exceptions.SecurityError(f"{operator!r} is not allowed in a prompt")


MAX_CHARS = 8_000_000
"""The longest text that a prompt may render to, and the most that one expression of it may handle."""
_ITEM = 16
"""Characters that an item of a list counts beside its text."""
_SPENT: ContextVar[list[int]] = ContextVar("_SPENT")
"""Characters that the current render has written and looped over so far."""


def _measure(*values: object) -> int:
    """Return the size of values in characters, nested ones included; raise SecurityError beyond the limit."""
    size = 0
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        size += _ITEM + len(value) if isinstance(value, str) else _ITEM
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value
        if size > MAX_CHARS:
            raise _too_long()
    return size


def _too_long() -> jinja2.exceptions.SecurityError:
    return jinja2.exceptions.SecurityError(f"the prompt makes more than {MAX_CHARS:,} characters")


def _measured(value: T) -> T:
    _measure(value)
    return value


def _spend(size: int) -> None:
    spent = _SPENT.get(None)
    if spent is None:
        return
    spent[0] += size
    if spent[0] > MAX_CHARS:
        raise _too_long()


def _written(value: T) -> T:
    """Return a value that is written to the prompt, counted."""
    _spend(_measure(value))
    return value


def _loop_items(value: Iterable[object], characters: int) -> list[object]:
    """Return the items of a loop, counted with the characters of the template that each of them repeats."""
    items = list(value)
    _spend(len(items) * (1 + characters))
    return items


def _text(value: object) -> str:
    _measure(value)
    return str(value)


def _replace(text: object, old: object, new: object, count: int | None = None) -> str:
    """Replace the occurrences of a text, as Jinja's `replace` does, within the limit."""
    whole, sought, replacement = _text(text), _text(old), _text(new)
    times = whole.count(sought) if count is None else min(count, whole.count(sought))
    if times * len(replacement) > MAX_CHARS:
        raise _too_long()
    return whole.replace(sought, replacement, -1 if count is None else count)


def _join(values: Iterable[object], separator: object = "", attribute: str | None = None) -> str:
    """Join texts, as Jinja's `join` does, within the limit."""
    items = list(values)
    if attribute is not None:
        items = [_ENVIRONMENT.getitem(item, attribute) for item in items]
    between = _text(separator)
    if len(items) * len(between) > MAX_CHARS:
        raise _too_long()
    _measure(items)
    return between.join(map(_text, items))


def _bounded(function: Callable[..., object]) -> Callable[..., object]:
    """Return a filter that refuses values, and results, beyond the limit."""

    @functools.wraps(function)
    def bounded(*arguments: object, **options: object) -> object:
        _measure(*(value for value in (*arguments, *options.values()) if isinstance(value, _SIZED)))
        return _measured(function(*arguments, **options))

    return bounded


_SIZED = (str, dict, list, tuple)


class _Counting(NodeTransformer):
    """Makes the growth of a template countable: `~` becomes `+` of texts, and each loop is counted."""

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Node:  # noqa: N802 - the name of the node
        self.generic_visit(node)
        whole: jinja2.nodes.Expr = _filtered(node.nodes[0], "_text")
        for part in node.nodes[1:]:
            whole = jinja2.nodes.Add(whole, _filtered(part, "_text"), lineno=node.lineno)
        return whole

    def visit_For(self, node: jinja2.nodes.For) -> jinja2.nodes.Node:  # noqa: N802 - the name of the node
        self.generic_visit(node)
        characters = 0
        for part in node.body:
            datas = [part] if isinstance(part, jinja2.nodes.TemplateData) else part.find_all(jinja2.nodes.TemplateData)
            characters += sum(len(data.data) for data in datas)
        node.iter = _filtered(node.iter, "_loop_items", jinja2.nodes.Const(characters, lineno=node.lineno))
        return node


def _filtered(node: jinja2.nodes.Node, name: str, *arguments: jinja2.nodes.Expr) -> jinja2.nodes.Filter:
    return jinja2.nodes.Filter(
        cast("jinja2.nodes.Expr", node), name, list(arguments), [], None, None, lineno=node.lineno
    )


def _on_lines(value: Any) -> Any:  # noqa: ANN401 - a variable may be anything
    """Return a variable with each text in it on one line and without fences: none can pass for a part of the prompt."""
    if isinstance(value, str):
        is_ours = isinstance(value, Block) or not value.strip()
        if is_ours or (_BREAK.search(value) is None and break_marks(value) == value):
            return value
        return on_one_line(value)
    if type(value) in {list, tuple}:
        return [_on_lines(item) for item in value]
    return {_on_lines(key): _on_lines(item) for key, item in value.items()} if isinstance(value, dict) else value


_BREAK = re.compile(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_WIDTH = re.compile(r"%[^sd%]|%$")
_ENVIRONMENT = _Sandbox(
    loader=jinja2.DictLoader({}),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_written,
)
_ENVIRONMENT.globals.clear()
_ENVIRONMENT.filters = {
    name: _bounded(function) for name, function in _ENVIRONMENT.filters.items() if name not in _REFUSED
}
_ENVIRONMENT.filters |= {"replace": _replace, "join": _join, "_text": _text, "_loop_items": _loop_items}


@cache
def _compile(section: str) -> jinja2.Template:
    """Return the template of a section: each agent has a library of its own, and compiling takes milliseconds."""
    return _ENVIRONMENT.from_string(section)


def _render(template: jinja2.Template, variables: Mapping[str, object]) -> str:
    token = _SPENT.set([0])
    try:
        return template.render(variables)
    finally:
        _SPENT.reset(token)


class FrontMatter(BaseModel):
    """The head of a prompt file: its version, what it asks the model to output, and how to sample.

    With `history: messages` the history stands before the file's last message as messages of its own; that which is
    answered is the variable `last_turn`. Without it the history is the variable `history`, a transcript, with
    `numbered` of numbered turns (see `render_history`). `stop` holds further stop strings for where the prompt's
    continuation is sent in place of its messages.
    """

    model_config = ConfigDict(extra="forbid")

    version: int
    output: str
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    history: Literal["transcript", "messages", "numbered"] = "transcript"


@dataclass(frozen=True)
class Prompt:
    """A prompt file: its name, `<method>/<stage>`, its language, its whole text, and where it lies."""

    name: str
    language: Language
    text: str
    path: Path

    @cached_property
    def _split(self) -> tuple[FrontMatter, list[tuple[str, str]]]:
        """The front matter, and each section's role and text."""
        match = _FRONT.match(self.text.replace("\r\n", "\n"))
        if match is None:
            lacking = f"prompt {self.path}: no front matter"
            raise InputError(lacking, hint="begin the file with ---, version, output, ---")
        try:
            front = FrontMatter.model_validate(parse_yaml(match[1], f"prompt {self.path}"))
        except ValidationError as error:
            raise InputError(
                f"prompt {self.path}: {describe(error)}", hint="begin it with version and output"
            ) from error
        pieces = _ROLE.split(match[2])
        if not set(pieces[1::2]) - {_CONTINUATION, _STEERING} or pieces[0].strip():
            lacking = f"prompt {self.path}: no message"
            raise InputError(lacking, hint="start each with a line <!-- system --> or <!-- user -->")
        sections: list[tuple[str, str]] = []
        for role, body in zip(pieces[1::2], pieces[2::2], strict=True):
            roles = ("user", _CONTINUATION) if role == _PATTERN else (role,)
            sections += [(name, body) for name in roles]
        return front, sections

    @cached_property
    def _sections(self) -> list[tuple[str, jinja2.Template]]:
        try:
            return [(role, _compile(body.strip("\n"))) for role, body in self._split[1]]
        except jinja2.TemplateSyntaxError as error:
            raise InputError(f"prompt {self.path}: {' '.join(str(error).split())}") from error

    @property
    def front(self) -> FrontMatter:
        """The front matter; raises InputError where it is malformed."""
        return self._split[0]

    @cached_property
    def instructions(self) -> str:
        """Its own words, without what is filled in."""
        tokens = (token for _, body in self._split[1] for token in _ENVIRONMENT.lex(body))
        return " ".join(text for _, kind, text in tokens if kind == "data")

    @cached_property
    def hash(self) -> str:
        """A hash of the whole file, kept in traces and runs."""
        return hashlib.blake2b(self.text.encode(), digest_size=6).hexdigest()

    @cached_property
    def reference(self) -> str:
        """Name, language, version and hash: `dcrag/query-production.en v1 1a2b3c4d5e6f`."""
        return f"{self.name}.{self.language} v{self.front.version} {self.hash}"

    def render(self, variables: Mapping[str, object], label: str = "", history: Sequence[Message] = ()) -> Request:
        """Return the request with the variables filled in; raise InputError where one is missing or rendering fails.

        The messages of `history` stand before the prompt's last one. A section `<!-- steering -->` renders to YAML.
        """
        given = {name: _on_lines(value) for name, value in variables.items()}
        try:
            filled = [(role, _render(template, given)) for role, template in self._sections]
        except jinja2.UndefinedError as error:
            known = ", ".join(sorted(variables))
            raise InputError(f"prompt {self.path}: {error.message}", hint=f"it is given: {known}") from error
        except InputError:  # its head is malformed, which is said
            raise
        except Exception as error:
            # A template may divide by zero, or add a number to a text.
            raise InputError(f"prompt {self.path}: {first_line(error)}") from error
        # Text to be continued keeps its last space or line break: some formats end in one.
        continuation = next((text for role, text in filled if role == _CONTINUATION), None)
        steering = next((self._steering(text) for role, text in filled if role == _STEERING), None)
        messages = [Message(role=role, content=text.strip()) for role, text in filled if role in _ROLES]  # type: ignore[arg-type]
        return Request(
            messages=(*messages[:-1], *history, *messages[-1:]),
            sampling=self.front.sampling,
            continuation=continuation,
            continuation_stop=self.front.stop,
            steering=steering,
            label=label,
            prompt=self.reference,
        )

    def _steering(self, text: str) -> Steering:
        try:
            return Steering.model_validate(parse_yaml(text, f"prompt {self.path}: steering"))
        except ValidationError as error:
            raise InputError(f"prompt {self.path}: steering: {describe(error)}") from error


_BESIDE: list[Path] = []
"""Folders of prompts beside the modules of methods that are not ours."""


def add_prompts(folder: Path) -> None:
    """Have every library find the prompts of a folder, too, laid out as ours; one that is not there adds nothing."""
    if folder.is_dir() and folder not in _BESIDE:
        _BESIDE.append(folder)


class PromptLibrary:
    """The package's prompts, each of which a file of the same name in a folder of the user's overrides.

    The folder is laid out as the package's, `<method>/<stage>.<language>.md`; one that does not exist is an InputError.
    A file is read once: what is changed in it afterwards is seen by a library made anew.
    """

    def __init__(self, overrides: Path | None = None) -> None:
        if overrides is not None and not overrides.is_dir():
            raise InputError(f"no such prompt folder: {overrides}", hint="export one with `dialore prompts --export`")
        own = Path(str(resources.files("dialore") / "prompts"))
        if overrides is not None and not any(overrides.glob("*/*.*.md")):
            hint = "a prompt is METHOD/STAGE.LANGUAGE.md; export ours with `dialore prompts --export`"
            raise InputError(f"no prompt in the folder {overrides}", hint=hint)
        for path in overrides.glob("*/*.*.md") if overrides is not None else ():
            known = {file.name.partition(".")[0] for file in (own / path.parent.name).glob("*.md")}
            if known and path.name.partition(".")[0] not in known:
                raise UnknownNameError(f"prompt of {path.parent.name}: {path}", path.name.partition(".")[0], known)
        self._folders = [own] if overrides is None else [overrides, own]
        self._read: dict[tuple[str, Language], Prompt] = {}

    def get(self, name: str, language: Language, form: str = "") -> Prompt:
        """Return the prompt of that name and language; raise UnknownNameError where there is none.

        A form, as `paper` of `<method>/<stage>.paper.<language>.md`, is taken where there is a file of it. What is
        there in English alone serves every language: it is told the dialogue's, as `language`.
        """
        names = [f"{name}.{form}", name] if form else [name]
        chosen = next(
            (match for candidate in names for of in (language, "en") if (match := self._find(candidate, of))), None
        )
        if chosen is None:
            known = {prompt.name for prompt in self if prompt.language == language}
            methods = {prompt.partition("/")[0] for prompt in known}
            if not _NAME.match(name) or name.partition("/")[0] in methods:
                raise UnknownNameError("prompt", name, known)
            looked = ", ".join(map(str, (*self._folders[:-1], *_BESIDE))) or "no folder beside the package's"
            hint = (
                f"it is to be {name}.{language}.md in `prompts` beside the method's module, or in the folder of"
                f" prompts; looked in: {looked}"
            )
            raise InputError(f"unknown prompt: {name!r}", hint=hint)
        return chosen

    def _find(self, name: str, language: Language) -> Prompt | None:
        if (name, language) not in self._read:
            paths = [folder / f"{name}.{language}.md" for folder in (*self._folders, *_BESIDE) if _NAME.match(name)]
            path = next((path for path in paths if path.is_file()), None)
            if path is None:
                return None  # a method that is loaded later may bring it
            self._read[name, language] = Prompt(name, language, read_text(path), path)
        return self._read[name, language]

    def __iter__(self) -> Iterator[Prompt]:
        """Yield every prompt by name and language, overridden ones as they are overridden."""
        files: dict[tuple[str, str], Path] = {}
        for folder in (*_BESIDE[::-1], *self._folders[::-1]):
            for path in folder.glob("*/*.md"):
                stage, _, language = path.stem.rpartition(".")
                if language in LANGUAGES:
                    files[f"{path.parent.name}/{stage}", language] = path
        for name, language in sorted(files):
            yield self.get(name, check_language(language))
