"""From arguments and environment to a language model: the one place that knows where models come from."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from dialore.errors import InputError, ModelError, UnknownNameError
from dialore.llm.client import ModelClient
from dialore.llm.http import HttpClient, redact_url, run_blocking
from dialore.llm.model import Api, LanguageModel
from dialore.trained import PREFIX, open_trained

log = logging.getLogger(__name__)

OLLAMA = "http://127.0.0.1:11434/v1"
OPENAI = "https://api.openai.com/v1"
LOCAL, GGUF = "hf:", "gguf:"
"""Prefixes of the names of models that are run here."""
_HOSTS = "DIALORE_KEY_HOSTS"
"""The variable that names hosts, with commas between them, to which keys of the environment may be sent."""
_BATCH = 8  # requests that a model of Hugging Face answers together, where nothing is said
_PROBE_SECONDS = 0.2


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
    extra_body: Mapping[str, object] | None = None,
    thinking: int | None = None,
    context: int | None = None,
    slots: int | None = None,
    threads: int | None = None,
    folder: Path = Path("models"),
    key_env: str = "",
    named_by: str = "",
) -> ModelClient | None:
    """Return the language model that arguments and environment name, ready to use.

    Arguments win, then `DIALORE_MODEL`, `DIALORE_BASE_URL` and `DIALORE_API_KEY`, then the `OPENAI_*` names, then an
    Ollama on this machine. Where no model is named, the endpoint is asked for its list. A model called
    `gguf:FILE` is run here by llama.cpp (see `Gguf`, which has `context`, `slots`, `threads` and `folder`),
    `hf:NAME_OR_PATH` by transformers; `trained:FOLDER` is one of `dialore train stages`; `cache` is a cache file; the
    other arguments are `Endpoint`'s.

    A key of the environment goes to the host that it was set for: `OPENAI_API_KEY` to OpenAI or `OPENAI_BASE_URL`,
    `DIALORE_API_KEY` to `DIALORE_BASE_URL`, or, without that, to the address that the arguments name; either also to
    the hosts of `DIALORE_KEY_HOSTS`, with commas between them. Where a file names the address (`named_by`), that is
    no leave to send a key there, nor is its `key_env`, the variable that holds the key.

    None where nothing names a model and no Ollama answers. Raises InputError for a bad address, key or cache file, an
    API that is not known, and several models to choose from; ModelError where an endpoint cannot say which it has.
    """
    if api not in get_args(Api):
        raise UnknownNameError("API", api, get_args(Api))
    named, address, key = find(model, base_url, api_key, key_env=key_env, named_by=named_by)
    asked: dict[str, Any] = {"timeout": timeout, "retries": retries, "thinking": thinking, "extra_body": extra_body}
    name, target = named, named.partition(":")[2]
    if name.startswith(LOCAL):
        from dialore.llm.local import LocalModel

        if extra_body:
            raise InputError(f"{name} runs here and takes no extra_body", hint="leave it out")
        return _with_cache(LocalModel(target, api=api, batch=slots or _BATCH), cache, f"{LOCAL} {api}")
    if name.startswith(GGUF):
        from dialore.llm.gguf import Gguf

        gguf = Gguf(target, context=context, slots=slots or 1, threads=threads, folder=folder, api=api, **asked)
        return _with_cache(gguf, cache, f"{GGUF} {target} {api}")
    if name.startswith(PREFIX):
        return ModelClient(open_trained(target, "stages"))
    if address is None:
        names = ollama_models()
        if not (name or names):
            return None
        if not names:
            raise InputError(
                f"no endpoint is known for the model {name!r}", hint="set DIALORE_BASE_URL or model.base_url"
            )
        name = name or names[0]
        if name not in names and (name := f"{name}:latest") not in names:
            raise UnknownNameError("model of the Ollama on this machine", named, names)
        address, key = OLLAMA, None
        log.info("using Ollama's %s at %s", name, OLLAMA)

    from dialore.llm.endpoint import Endpoint

    endpoint = Endpoint(name or _only_model(address, key), address, key, concurrency=concurrency, api=api, **asked)
    also = f" {json.dumps(extra_body, sort_keys=True)}" if extra_body else ""
    return _with_cache(endpoint, cache, f"{endpoint.address} {api}{also}")


def find(
    model: str | None, base_url: str | None, api_key: str | None, *, key_env: str = "", named_by: str = ""
) -> tuple[str, str | None, str | None]:
    """Return model (empty: none), address and key by arguments and environment; InputError for a missing key."""
    ours, theirs = _environment("DIALORE_BASE_URL"), _environment("OPENAI_BASE_URL")
    url = base_url or ours or theirs or (OPENAI if _environment("OPENAI_API_KEY") else None)
    name = model or _environment("DIALORE_MODEL") or _environment("OPENAI_MODEL") or ""
    if api_key or url is None:
        return name, url, api_key
    mine = None if named_by else url
    bound = {"DIALORE_API_KEY": [ours or mine], "OPENAI_API_KEY": [OPENAI, theirs]}
    if key_env:
        bound = {key_env: [mine]}
        if not _environment(key_env):
            raise InputError(f"the environment has no {key_env}", hint=f"export {key_env}=...")
    allowed = (_environment(_HOSTS) or "").split(",")
    for variable, places in bound.items():
        if not (key := _environment(variable)):
            continue
        if _host(url) in {_host(address) for address in (*places, *allowed) if address}:
            return name, url, key
        unsent = f"{variable} is not sent to {redact_url(url)}" + (f", which {named_by} names" if named_by else "")
        hint = f"set model.api_key, or DIALORE_API_KEY for it, or export {_HOSTS}={_host(url)}"
        if key_env:
            raise InputError(unsent, hint=hint)
        log.log(logging.WARNING if named_by else logging.INFO, "%s (%s)", unsent, hint)
    return name, url, None


def _host(place: str) -> str:
    """Return the host and port of a URL, or of such alone."""
    try:
        parts = urlsplit(place.strip() if "//" in place else f"//{place.strip()}")
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    return f"{parts.hostname or ''}{port}"


def _environment(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None


def _list_models(base_url: str, api_key: str | None) -> list[str]:
    """Return the models that an endpoint offers; empty if nothing answers; raise ModelError for another answer."""
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
    """Return the models of an Ollama; empty where nothing listens, which a bare connection finds out fast."""
    parts = urlsplit(OLLAMA)
    try:
        with closing(socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_PROBE_SECONDS)):
            pass
    except OSError:
        return []
    return _list_models(OLLAMA, None)


def _only_model(base_url: str, api_key: str | None) -> str:
    names = _list_models(base_url, api_key)
    if len(names) == 1:
        return names[0]
    hint = "set DIALORE_MODEL or model.model" + (f" to one of: {', '.join(names[:12])}" if names else "")
    raise InputError(f"{redact_url(base_url)} does not say which model to use", hint=hint)


def _with_cache(model: LanguageModel, path: str | Path | None, address: str) -> ModelClient:
    if path is None:
        return ModelClient(model)
    from dialore.llm.cache import CompletionCache

    cache = CompletionCache(path, model.name, address=address)
    cache.open()
    return ModelClient(model, cache=cache)
