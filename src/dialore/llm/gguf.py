"""A model in the process: a GGUF file, served by llama.cpp on loopback and asked like any endpoint."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import struct
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from dialore.errors import InputError, WindowError, import_optional
from dialore.llm.endpoint import Endpoint
from dialore.llm.model import Wrapper, estimate_tokens
from dialore.llm.pacing import tell

if TYPE_CHECKING:
    from email.message import Message
    from http.client import HTTPMessage

    from dialore.llm.model import Api, Completion, OnToken, Request

_HUB = "hf:"
_DIGEST = "@sha256:"
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
MAX_BYTES = 500_000_000_000
"""The largest file of weights that is fetched."""
_CONTEXT = 8192
_CERTAIN = 2  # texts have at least half as many tokens as is estimated
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TEMPLATE = "tokenizer.chat_template"
_WORK_BYTES = 300_000_000
"""The memory that llama.cpp takes beside weights and context, measured on models of up to two billion parameters."""


class Gguf(Wrapper):
    """A GGUF file as a language model; closing it ends its server and frees its memory.

    Args:
        place: a file, or `hf:OWNER/REPO/FILE`, which is fetched into the folder once.
        context: tokens of prompt and answer together; None: 8192, or what the model was trained for where that is less.
        slots: how many calls it answers at once, each with its own context.
        threads: of the processor; None: one a core. Too many wait for each other.
        folder: where fetched files are kept.
        api: see `Endpoint`, as for what else is given.

    Raises InputError: no such file, not a GGUF file, too little memory for it, or no chat template; MissingExtraError:
    the extra `gguf` is not installed.
    """

    def __init__(
        self,
        place: str,
        *,
        context: int | None = None,
        slots: int = 1,
        threads: int | None = None,
        folder: Path = Path("models"),
        api: Api = "chat",
        **endpoint: Any,  # noqa: ANN401 - of Endpoint
    ) -> None:
        llama = import_optional("xllamacpp", "a GGUF model", "gguf")
        path = fetch_weights(place.removeprefix(_HUB), folder) if place.startswith(_HUB) else Path(place).expanduser()
        about = read_metadata(path)
        if api == "chat" and not about.get(_TEMPLATE):
            raise InputError(f"{path} has no chat template: it is a base model", hint="set model.api to completions")
        trained = about.get(f"{about.get('general.architecture')}.context_length")
        tokens = context or min(_CONTEXT, trained if isinstance(trained, int) else _CONTEXT)
        _check_memory(path, about, tokens * slots)
        key = secrets.token_urlsafe(16)  # other users of this machine reach loopback, too
        settings = llama.CommonParams()
        settings.model.path, settings.model_alias = str(path), path.name
        settings.hostnames, settings.port, settings.api_keys = ["127.0.0.1"], 0, [key]
        settings.ui = settings.endpoint_slots = False
        settings.n_ctx, settings.n_parallel, settings.verbosity = tokens * slots, slots, 0
        # macOS and Windows tell only how many processors there are, not how many this process may use.
        may_use = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads or may_use
        try:
            self._server = llama.Server(settings)
        except RuntimeError:
            why = f"{path} cannot be loaded: it is damaged, or of a kind that this llama.cpp does not know"
            raise InputError(why, hint="fetch it again, or pip install --upgrade xllamacpp") from None
        address = f"{self._server.listening_address}/v1"
        super().__init__(Endpoint(path.name, address, key, concurrency=slots, api=api, **endpoint))
        self.address, self.runs_here, self._window = "", True, tokens

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        """See `LanguageModel.complete`; raises WindowError without a call if the prompt is certainly too long."""
        estimate = sum(estimate_tokens(message.content) for message in request.messages)
        if estimate > _CERTAIN * self._window:
            message = f"the prompt has about {estimate:,} tokens, {self.name} takes {self._window:,}"
            raise WindowError(message, hint="shorten the dialogue, or raise model.window")
        return await self._model.complete(request, on_token)

    async def close(self) -> None:
        """End the server."""
        await super().close()
        self._server = None


# --- the file


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what a GGUF file says of itself, without its lists; raise InputError where it is no such file."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", hint="name gguf:PATH or gguf:hf:OWNER/REPO/FILE")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(f"{path} is no GGUF file", hint="models of other forms run as hf:NAME")
        try:
            version, _, pairs = struct.unpack("<IQQ", file.read(20))
            if version not in {2, 3}:
                raise InputError(f"{path} is a GGUF file of version {version}, not 2 or 3", hint="convert it again")
            return {_text(file): _value(file) for _ in range(pairs)}
        except (struct.error, KeyError, UnicodeDecodeError, OverflowError, MemoryError):
            raise InputError(f"{path} is damaged", hint="fetch it again") from None


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    data = file.read(min(length, 1 << 24))
    if len(data) < length:
        raise struct.error
    return data.decode("utf-8", "replace")


def _value(file: BinaryIO) -> Any:  # noqa: ANN401
    (kind,) = struct.unpack("<I", file.read(4))
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        form = f"<{_SCALARS[kind]}"
        return struct.unpack(form, file.read(struct.calcsize(form)))[0]
    inner, count = struct.unpack("<IQ", file.read(12))
    if inner != _STRING:
        file.seek(count * struct.calcsize(f"<{_SCALARS[inner]}"), os.SEEK_CUR)
        return None
    for _ in range(count):
        (length,) = struct.unpack("<Q", file.read(8))
        file.seek(length, os.SEEK_CUR)
    return None


def _check_memory(path: Path, about: dict[str, Any], context: int) -> None:
    """Raise InputError where the machine has less memory left than weights and context take (known on Linux only)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return
    kind = about.get("general.architecture", "")
    heads, layers = about.get(f"{kind}.attention.head_count") or 1, about.get(f"{kind}.block_count") or 0
    width = (about.get(f"{kind}.embedding_length") or 0) // heads
    shared = about.get(f"{kind}.attention.head_count_kv") or heads
    needed = path.stat().st_size + context * layers * shared * width * 4 + _WORK_BYTES
    if needed > free:
        short = f"{path.name} needs some {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free"
        raise InputError(short, hint=f"take a smaller model, or a smaller context than {context:,}: lower model.window")


def fetch_weights(name: str, folder: Path) -> Path:
    """Return a file of Hugging Face's, `OWNER/REPO/FILE` or `OWNER/REPO/FILE@sha256:DIGEST`, fetched once.

    The file is compared with the SHA-256 that the name gives, or else with the one that the hub states.

    Raises:
        InputError: the name is malformed, or the file cannot be fetched, is too large, incomplete or another one.
    """
    name, _, digest = name.partition(_DIGEST)
    if digest and not _SHA256.fullmatch(digest):
        raise InputError(f"{digest!r} is no SHA-256", hint=f"name gguf:hf:OWNER/REPO/FILE.gguf{_DIGEST}64_HEX_DIGITS")
    parts = name.split("/")
    if len(parts) < 3 or not all(part.strip(".") for part in parts):
        raise InputError(f"{_HUB}{name} names no file", hint="name gguf:hf:OWNER/REPO/FILE.gguf")
    owner, repository, *inside = parts
    target = folder.joinpath(*parts)
    if target.is_file():
        if digest:
            _check_digest(name, hash_file(target), digest)
        return target
    base = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{base}/{quote(f'{owner}/{repository}')}/resolve/main/{quote('/'.join(inside))}"
    token = os.environ.get("HF_TOKEN", "")
    request = urllib.request.Request(url)  # noqa: S310 - the hub's address, or the user's
    if token:
        # The hub redirects to other hosts, which must not see the token.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    hub = _HubHeaders()
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.build_opener(hub).open(request, timeout=30) as answer, partial.open("wb") as out:
            size = _stated_size(hub.first or answer.headers, answer.headers)
            _check_size(name, size, target.parent)
            tell(f"fetching {name}, {(size or 0) / 1e6:,.0f} MB, once")
            received, actual = _copy_limited(name, answer, out)
        if size is not None and received != size:
            problem = f"cannot fetch {name}: {received:,} of {size:,} bytes came"
            raise InputError(problem, hint="run the command again")
        digest = digest or _stated_digest(hub.first or answer.headers)
        if digest:
            _check_digest(name, actual, digest)
        partial.replace(target)
    except OSError as error:
        why = f"cannot fetch {name}: {getattr(error, 'reason', None) or error}"
        hint = "check the name and the network, or fetch the file by other means and name gguf:PATH"
        raise InputError(why, hint=hint) from None
    finally:
        partial.unlink(missing_ok=True)
    return target


class _HubHeaders(urllib.request.HTTPRedirectHandler):
    """Follows redirects and keeps the headers of the first, which state size and checksum of a large file."""

    def __init__(self) -> None:
        self.first: Message | None = None

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """See `HTTPRedirectHandler`; refuses to go from https to another scheme."""
        if req.type == "https" and not newurl.startswith("https:"):
            raise urllib.error.URLError("it redirects to an address without encryption")
        self.first = self.first or headers
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _stated_size(hub: Message, answer: Message) -> int | None:
    """Return the size of a file in bytes, as its hub or the answer states it."""
    for value in (hub.get("X-Linked-Size"), answer.get("Content-Length")):
        if value and value.isdecimal():
            return int(value)
    return None


def _stated_digest(hub: Message) -> str:
    """Return the SHA-256 that a hub states of a file, or an empty string."""
    for name in ("X-Linked-ETag", "ETag"):
        digest = hub.get(name, "").removeprefix("W/").strip('"')
        if _SHA256.fullmatch(digest):
            return digest
    return ""


def _check_size(name: str, size: int | None, folder: Path) -> None:
    if size is None:
        return
    if size > MAX_BYTES:
        problem = f"{name} has {size:,} bytes, more than the limit of {MAX_BYTES:,}"
        raise InputError(problem, hint="fetch the file by other means and name gguf:PATH")
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(f"{name} has {size:,} bytes, and {free:,} are free in {folder}", hint="make room on the disk")


def _copy_limited(name: str, answer: IO[bytes], out: IO[bytes]) -> tuple[int, str]:
    """Copy an answer to a file; return its size and SHA-256. Raises InputError at the limit of size."""
    checksum = hashlib.sha256()
    received = 0
    while chunk := answer.read(1 << 20):
        received += len(chunk)
        _check_size(name, received if received > MAX_BYTES else None, Path())
        checksum.update(chunk)
        out.write(chunk)
    return received, checksum.hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_digest(name: str, found: str, expected: str) -> None:
    if found != expected.lower():
        problem = f"{name} is another file: its SHA-256 is {found}, not {expected.lower()}"
        raise InputError(problem, hint="it is not used; fetch it again, or correct the checksum")
