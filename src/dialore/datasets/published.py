"""Data sets from their published homes: where each is fetched from, and where its files lie once they are here."""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from dialore.datasets.files import archive_of, read_member, reading
from dialore.datasets.registry import data_set
from dialore.errors import InputError, UnknownNameError
from dialore.files import cache_folder

_CHUNK = 1 << 18
_SECONDS = 60
_ENDING = re.compile(r"(?:\.[a-z]{1,16}){1,4}$")


@dataclass(frozen=True, slots=True)
class _Remote:
    """A published file: its address, the member that is wanted of an archive, and its SHA-256; both may be empty."""

    url: str
    member: str = ""
    sha256: str = ""


def remote(address: str, sums: Mapping[str, str]) -> _Remote:
    """Return the file of an address, `URL` or `URL:MEMBER`; `hf:OWNER/NAME/FILE` is one of the Hugging Face Hub.

    `sums` has the SHA-256 of files by the ends of their addresses. Raises InputError for what is none.
    """
    if address.startswith("hf:"):
        owner, name, file = (*address.removeprefix("hf:").split("/", 2), "", "")[:3]
        address = f"https://huggingface.co/datasets/{owner}/{name}/resolve/main/{file}"
    scheme, _, rest = address.partition("://")
    if scheme not in {"http", "https"} or not rest:
        raise InputError(f"{address} is no address", hint="say https://... or hf:OWNER/NAME/FILE")
    archive, member = archive_of(PurePosixPath(rest)) or (rest, "")
    url = f"{scheme}://{archive}"
    return _Remote(url, member, next((checksum for file, checksum in sums.items() if url.endswith(file)), ""))


def published_sets() -> dict[str, dict[str, Any]]:
    """Return what is known of data sets that can be fetched; `licence` and `note` of those without a reader."""
    text = (resources.files("dialore") / "data" / "published.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def remotes(name: str) -> dict[str, _Remote]:
    """Return the published files of a data set by split; raise UnknownNameError for one that cannot be fetched."""
    known = published_sets()
    if name not in known:
        raise UnknownNameError("data set that can be fetched", name, known)
    entry = known[name]
    return {split: remote(entry["base"] + file, entry.get("sha256", {})) for split, file in entry["splits"].items()}


def data_file(name: str, split: str = "") -> Path:
    """Return the file of a data set where none is named: that of the package, or one that `dialore data get` fetched.

    Raises:
        InputError: there is none, or there are several and `split` names none of them.
    """
    bundled = data_set(name).bundled
    if "" in bundled:
        return bundled[""]
    fetched = sorted(path for path in _folder(name).glob("*.*") if path.suffix != ".part")
    here = dict(bundled) or {path.name.partition(".")[0]: path for path in fetched}
    if not split and len(here) == 1:
        return next(iter(here.values()))
    if split not in here:
        ways = [f"fetch it with `dialore data get {name}`"] if name in published_sets() and (split or not here) else []
        ways += [f"name one of {', '.join(here)} as the split"] if here else []
        which = f"the split {split!r} of {name} is not here" if split else f"which file of {name} is not said"
        raise InputError(which, hint=", or ".join([*ways, "name its file"]))
    return here[split]


def fetch(
    name: str, split: str, remote: _Remote, target: Path | None, on_step: Callable[[str, int, int | None], None]
) -> tuple[Path, str]:
    """Fetch a data set's file, into the cache where no target is named; gives its path and the SHA-256 of what came.

    An archive is kept for its other members.

    Raises:
        InputError: it cannot be fetched, is not the published one, or cannot be written.
    """
    ending = _ENDING.search(remote.member or remote.url)
    path = target or _folder(name) / f"{split}{ending[0] if ending else '.data'}"
    came = _folder(name) / "fetched" / PurePosixPath(remote.url).name
    try:
        came.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not came.exists():
            _download(remote.url, came, lambda done, total: on_step(f"{name} {split}, KB", done >> 10, total >> 10))
        with came.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != (remote.sha256 or digest):
            came.unlink()
            problem = f"{remote.url} is not the file that was published: its SHA-256 is {digest}, not {remote.sha256}"
            raise InputError(problem, hint="it is not kept; ask again, or name another address")
        if remote.member:
            whole = path.with_name(f"{path.name}.part")
            with reading(came, "delete it, and ask again"):
                whole.write_bytes(read_member(came, remote.member).getvalue())
            whole.replace(path)
        else:
            shutil.move(came, path)
    except OSError as error:
        raise InputError(f"cannot write {error.filename or path}: {error.strerror or error}") from error
    return path, digest


def _folder(name: str) -> Path:
    return cache_folder() / "data" / name


def _download(url: str, target: Path, on_step: Callable[[int, int], None]) -> None:
    """Fetch a file whole; one that was broken off goes on where it is still the same at its home (HTTP `If-Range`)."""
    part, mark = (target.with_name(f"{target.name}.{end}") for end in ("part", "etag"))
    headers = {"User-Agent": "dialore"}
    done = part.stat().st_size if part.exists() and mark.exists() else 0
    if done:
        headers |= {"Range": f"bytes={done}-", "If-Range": mark.read_text("utf-8")}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_SECONDS) as answer:  # noqa: S310 - addresses of ours or the user's
            done = done if answer.status == http.HTTPStatus.PARTIAL_CONTENT else 0
            total = done + int(answer.headers.get("Content-Length") or 0)
            mark.unlink(missing_ok=True)
            if tag := answer.headers.get("ETag") or answer.headers.get("Last-Modified"):
                mark.write_text(tag, "utf-8")
            with part.open("ab" if done else "wb") as file:
                while data := answer.read(_CHUNK):
                    file.write(data)
                    done += len(data)
                    on_step(done, max(done, total))
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # whole already, but never checked
            part.unlink()
            _download(url, target, on_step)
            return
        raise InputError(f"{url} answers {error.code} {error.reason}", hint="name another address") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        reason = getattr(error, "reason", "") or str(error) or type(error).__name__
        raise InputError(f"cannot fetch {url}: {reason}", hint="the same command goes on where it stopped") from error
    if done < total:
        problem = f"{url} broke off after {done:,} of {total:,} bytes"
        raise InputError(problem, hint="the same command goes on where it stopped")
    mark.unlink(missing_ok=True)
    part.replace(target)
