"""From arguments and environment to a language model: the one place that knows where models come from."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlsplit

from dialore.errors import InputError, ModelError, UnknownNameError
from dialore.llm.http import HttpClient, run_blocking, shown_url
from dialore.llm.model import Api

if TYPE_CHECKING:
    from pathlib import Path

    from dialore.llm.model import LanguageModel

log = logging.getLogger(__name__)

OLLAMA = "http://127.0.0.1:11434/v1"
OPENAI = "https://api.openai.com/v1"
LOCAL = "hf:"
"""What the name of a model run here begins with."""
_PROBE_SECONDS = 0.2


@dataclass(frozen=True)
class Found:
    """The model that is meant and where it is; None for what is not set."""

    model: str | None
    base_url: str | None
    api_key: str | None

    def __repr__(self) -> str:
        return f"Found(model={self.model!r}, base_url={shown_url(self.base_url or '')!r})"


def connect(
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    *,
    timeout: float = 120.0,
    retries: int = 4,
    concurrency: int = 64,
    cache: str | Path | None = None,
    api: Api = "chat",
) -> LanguageModel | None:
    """The language model that arguments and environment name, ready to use.

    Arguments win, then `DIALORE_MODEL`, `DIALORE_BASE_URL` and `DIALORE_API_KEY`, then the `OPENAI_*` names, then an
    Ollama on this machine. `OPENAI_API_KEY` is sent only to OpenAI or to the endpoint of `OPENAI_BASE_URL`, never to
    one that was named otherwise. Where no model is named, the endpoint is asked for its list. A model called
    `hf:NAME_OR_PATH` is one of Hugging Face's, run here; `cache` is a cache file; the other arguments are `Endpoint`'s.

    Returns:
        The model, or None if nothing names one and no Ollama answers.

    Raises:
        InputError: a bad address, key or cache file, an API that is not known, or several models to choose from.
        ModelError: the endpoint cannot say which models it has.
    """
    if api not in get_args(Api):
        raise UnknownNameError("API", api, get_args(Api))
    found = find(model, base_url, api_key)
    if found.model is not None and found.model.startswith(LOCAL):
        from dialore.llm.local import LocalModel

        return _with_cache(LocalModel(found.model.removeprefix(LOCAL), api=api), cache, f"{LOCAL} {api}")
    if found.base_url is None:
        names = ollama_models()
        if not names:
            if found.model is None:
                return None
            raise InputError(
                f"no endpoint is known for the model {found.model!r}", mend="set DIALORE_BASE_URL or --base-url"
            )
        found = Found(_pick_local(found.model, names), OLLAMA, None)
        log.info("using Ollama's %s at %s", found.model, OLLAMA)
    address = found.base_url or ""
    name = found.model or _only_model(address, found.api_key)

    from dialore.llm.endpoint import Endpoint

    endpoint = Endpoint(
        name, address, found.api_key, timeout=timeout, retries=retries, concurrency=concurrency, api=api
    )
    return _with_cache(endpoint, cache, f"{endpoint.http.where} {api}")


def find(model: str | None, base_url: str | None, api_key: str | None) -> Found:
    """What arguments and environment say, before anything is asked."""
    own_url = base_url or _environment("DIALORE_BASE_URL")
    their_url, their_key = _environment("OPENAI_BASE_URL"), _environment("OPENAI_API_KEY")
    url = own_url or their_url or (OPENAI if their_key else None)
    key = api_key or _environment("DIALORE_API_KEY")
    if not key and their_key and url is not None:
        if url == their_url or urlsplit(url).hostname == urlsplit(OPENAI).hostname:
            key = their_key
        else:
            log.info("OPENAI_API_KEY is not sent to %s: set DIALORE_API_KEY for it", shown_url(url))
    return Found(model or _environment("DIALORE_MODEL") or _environment("OPENAI_MODEL"), url, key)


def _environment(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None


def _list_models(base_url: str, api_key: str | None) -> list[str]:
    """The names of the models that an endpoint offers; empty if nothing answers there.

    Raises:
        ModelError: something answers, but not with a list.
    """
    from dialore.llm.endpoint import list_models

    async def ask() -> list[str]:
        async with HttpClient(base_url, api_key).once() as http:
            return await list_models(http)

    try:
        return run_blocking(ask())
    except ModelError as error:
        if error.status is None and not error.configuration:
            return []
        raise


def ollama_models() -> list[str]:
    """The models of an Ollama; empty where nothing listens, which a bare connection finds out fast."""
    parts = urlsplit(OLLAMA)
    try:
        with closing(socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_PROBE_SECONDS)):
            pass
    except OSError:
        return []
    return _list_models(OLLAMA, None)


def _pick_local(wanted: str | None, names: list[str]) -> str:
    if wanted is None:
        return names[0]
    for name in (wanted, f"{wanted}:latest"):
        if name in names:
            return name
    raise UnknownNameError("model of the Ollama on this machine", wanted, names)


def _only_model(base_url: str, api_key: str | None) -> str:
    names = _list_models(base_url, api_key)
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    mend = f"set DIALORE_MODEL or --model to one of: {shown}" if names else "set DIALORE_MODEL or --model"
    raise InputError(f"{shown_url(base_url)} does not say which model to use", mend=mend)


def _with_cache(model: LanguageModel, path: str | Path | None, address: str) -> LanguageModel:
    if path is None:
        return model
    from dialore.llm.cache import Cached

    cached = Cached(model, path, address=address)
    cached.open()
    return cached
