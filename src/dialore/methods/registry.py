"""Methods by name, made and described: ours, and those that other packages add by the group `dialore.methods`."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from dialore.errors import InputError, UnknownNameError
from dialore.files import parse_yaml
from dialore.methods.base import Method, OverSources
from dialore.prompts.library import add_prompts
from dialore.sources.registry import setting_of

if TYPE_CHECKING:
    from dialore.prompts.library import Prompt, PromptLibrary

_OWN = {
    "cosmo": "dialore.methods.baselines:Cosmo",
    "dcrag": "dialore.methods.dcrag:Dcrag",
    "edit": "dialore.methods.edit:Edit",
    "edit-questions": "dialore.methods.edit:EditQuestions",
    "full-context": "dialore.methods.baselines:FullContext",
    "lexical": "dialore.methods.baselines:Lexical",
    "msdp": "dialore.methods.msdp:Msdp",
    "msdp-dcrag": "dialore.methods.msdp:MsdpDcrag",
    "msdp-kg": "dialore.methods.msdp:MsdpKg",
    "pplm": "dialore.methods.baselines:Pplm",
    "qp-rag": "dialore.methods.baselines:QpRag",
    "rag": "dialore.methods.baselines:Rag",
    "safari": "dialore.methods.safari:Safari",
    "scg-qp": "dialore.methods.scg_qp:ScgQp",
    "scg-qp-graph": "dialore.methods.scg_qp:ScgQpGraph",
    "search-query": "dialore.methods.scg_qp:SearchQuery",
    "ssdp": "dialore.methods.msdp:Ssdp",
    "t-rag": "dialore.methods.baselines:TRag",
    "vanilla": "dialore.methods.baselines:Vanilla",
    "weave": "dialore.methods.weave:Weave",
}
GROUP = "dialore.methods"

_ATTRIBUTES = "Attributes:\n"


def method_names() -> list[str]:
    """Return the names of all methods, sorted."""
    from dialore.plugins import names_of

    return names_of(GROUP, _OWN)


def method_class(name: str) -> type[Method]:
    """Return the class of a method by name or file, beside whose `prompts` it then asks; InputError for none."""
    if name == "draft-ground":
        raise InputError("the method draft-ground is no more", hint="use weave, which drafts and grounds too")
    if name in _OWN:
        own: type[Method] = pkgutil.resolve_name(_OWN[name])
        return own
    from dialore.plugins import find

    cls: type[Method] = find("method", name, GROUP, _OWN, lambda value: Method in getattr(value, "__mro__", ()))
    find_prompts_of(cls)
    return cls


def find_prompts_of(cls: type) -> None:
    """Have the prompts found that lie beside the module of a method that is not ours."""
    from dialore.plugins import source_of

    if (file := source_of(cls)) is not None:
        add_prompts(file.parent / "prompts")


def method_sources(cls: type[Method]) -> tuple[str, ...]:
    """Return the sources that a method has fields for: those it needs, then those it can do without."""
    return (*cls.required_sources, *getattr(cls, "optional_sources", ()))


def method_options(cls: type[Method]) -> dict[str, dataclasses.Field[Any]]:
    """Return a method's hyper-parameters and switches by name, its sources left out."""
    sources = (*method_sources(cls), *(OverSources.optional_sources if issubclass(cls, OverSources) else ()))
    return {field.name: field for field in dataclasses.fields(cls) if field.name not in sources}  # type: ignore[arg-type]


def create_method(name: str, sources: Mapping[str, object], options: Mapping[str, object] | None = None) -> Method:
    """Make a method of its sources (`graph`, `documents`, ...) and options by name.

    An option's text is read as the field's type ("false", "20"). Raises UnknownNameError for a method or an option that
    there is none of, InputError where a value does not fit, or a source is missing.
    """
    cls = method_class(name)
    missing = [need for need in cls.required_sources if sources.get(need) is None]
    if missing:
        raise InputError(f"method {name} needs the source {missing[0]}", hint=f"set {setting_of(missing[0])}")
    known = method_options(cls)
    values: dict[str, Any] = {}
    for option, field in known.items():
        if _default(field) is dataclasses.MISSING and option not in (options or {}):
            raise InputError(f"method {name} needs its option {option}", hint=f"give it: -o {option}=...")
    for option, value in (options or {}).items():
        if option not in known:
            raise unknown_option(name, option, known)
        values[option] = _read(cls, known[option], value)
    return cls(**{name: sources.get(name) for name in method_sources(cls)}, **values)


def unknown_option(methods: str, option: str, known: Collection[str]) -> InputError:
    """Return the error of an option that no method has."""
    return UnknownNameError(f"option of {methods}", option, known)


def _default(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _read(cls: type[Method], field: dataclasses.Field[Any], value: object) -> object:
    """Return a value as the field's type; text as it stands, else as YAML has it: `null`, `[1, 2]`."""
    holder = next(base for base in cls.__mro__ if field.name in inspect.get_annotations(base))
    annotated, names = SimpleNamespace(__annotations__={"it": field.type}), vars(sys.modules[holder.__module__])
    adapter: TypeAdapter[object] = TypeAdapter(get_type_hints(annotated, names, include_extras=True)["it"])
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        with suppress(ValidationError, InputError):
            if isinstance(value, str):
                return adapter.validate_python(parse_yaml(value, field.name))
        usual = _default(field)
        kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(type(usual))
        wrong = f"option {field.name} of {cls.name}: {value!r} is not {kind or field.type}"
        raise InputError(wrong, hint="" if usual is dataclasses.MISSING else f"default: {usual}") from error


# --- descriptions, for the command and the docs


def describe_method(cls: type[Method], prompts: PromptLibrary) -> dict[str, Any]:
    """Return a method in words, as `dialore methods --json` prints it; `about` says how it differs from its paper."""
    about = (inspect.getdoc(cls) or "").partition(_ATTRIBUTES)[0]
    bases = reversed(inspect.getmro(cls)[:-1])  # options may be inherited
    told = "".join(inspect.cleandoc(base.__doc__ or "").partition(_ATTRIBUTES)[2] + "\n" for base in bases)
    helps = dict(re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", told, re.MULTILINE))
    options: list[dict[str, object]] = []
    for name, option in method_options(cls).items():
        default = "needed" if (usual := _default(option)) is dataclasses.MISSING else usual
        options.append({"name": name, "default": default, "help": " ".join(helps.get(name, "").split())})
    stages: list[dict[str, object]] = []
    for name, versions in method_prompts(cls, prompts).items():
        stage = {"name": name.rpartition("/")[2], "prompt": name, "languages": [prompt.language for prompt in versions]}
        stages.append({**stage, "version": versions[0].front.version, "output": versions[0].front.output})
    return {
        **{name: getattr(cls, name, "") for name in ("name", "paper", "summary", "calls")},
        "about": "\n\n".join(" ".join(paragraph.split()) for paragraph in about.strip().split("\n\n")),
        "required_sources": cls.required_sources,
        "optional_sources": getattr(cls, "optional_sources", ()),
        "options": options,
        "stages": stages,
    }


def method_prompts(cls: type[Method], prompts: PromptLibrary, form: str = "") -> dict[str, list[Prompt]]:
    """Return the prompts that a method names, else its folder's, in every language; UnknownNameError if one lacks."""
    known: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        known.setdefault(prompt.name, []).append(prompt)
    own = (name for name in known if name.startswith(f"{cls.name}/") and "." not in name)
    return {
        name: [prompts.get(name, prompt.language, form) for prompt in known.get(name) or [prompts.get(name, "en")]]
        for name in getattr(cls, "stages", own)
    }
