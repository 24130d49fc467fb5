"""A process that reads files: one that never ends, or that takes all memory, ends with it and with nothing else."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from multiprocessing.spawn import get_executable
from pathlib import Path
from typing import IO

from dialore.errors import DialoreError, InputError
from dialore.retrieval.chunking import Paragraph, Reject, Section, Unreadable
from dialore.retrieval.groups import RefusedGroups
from dialore.retrieval.loaders.formats import BY_LINE, FileFormat
from dialore.retrieval.loaders.reading import read_sections
from dialore.text import storable

SECONDS, MEMORY, CHARACTERS = 120.0, 2_000_000_000, 50_000_000
_READY = b"ready\n"
_START = """
import json, sys
sys.path[:], limits = json.loads(sys.argv[1])
from dialore.retrieval.loaders.reader import serve
serve(*limits)
"""


class Reader(AbstractContextManager["Reader"]):
    """Reads files in a process of its own, begun with the first one; for use by one thread at a time.

    Args:
        seconds: that a file may take; for formats of lines, one of them.
        memory: bytes that the process may have, where the system can limit that.
        characters: of text that a file may have, but one of lines.
        ocr: whether scanned pages are read by the extra `ocr`.
        include_hidden: whether what Office files hide is read, too: sheets, rows, columns, slides, shapes, text.
    """

    def __init__(
        self,
        *,
        seconds: float = SECONDS,
        memory: int = MEMORY,
        characters: int = CHARACTERS,
        ocr: bool = False,
        include_hidden: bool = False,
    ) -> None:
        self.seconds, self.memory, self.characters, self.ocr = seconds, memory, characters, ocr
        self.include_hidden = include_hidden
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it is at; another one is begun for the next file."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):  # what was not written yet
                process.communicate()

    def read(self, path: Path, file_format: FileFormat) -> Iterator[tuple[str, str]]:
        """Yield a `section` and it as JSON, or a `reject` or `notice` and `where: why`; raises Unreadable."""
        process = self._begun()
        try:
            assert process.stdin is not None
            with suppress(OSError):  # it has ended, and so do its messages
                process.stdin.write(json.dumps([str(path), file_format]).encode() + b"\n")
                process.stdin.flush()
            until = time.monotonic() + self.seconds
            while (message := self._message(process, until))[0] != "end":
                yield message
                if file_format in BY_LINE:
                    until = time.monotonic() + self.seconds
        except Unreadable:
            raise
        except BaseException:
            self.close()  # it may be in the middle of the file
            raise

    def _begun(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            limits = self.seconds, self.memory, self.characters, self.ocr, self.include_hidden
            self._process = subprocess.Popen(  # noqa: S603 - this Python
                [get_executable() or sys.executable, "-P", "-c", _START, json.dumps([_import_path(), limits])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Threads of a numerical library reserve memory for each processor.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUTF8": "1"},
            )
            self._messages = queue.SimpleQueue()
            stdout, self._process.stdout = self._process.stdout, None
            threading.Thread(target=_pass_on, args=(stdout, self._messages), daemon=True).start()
            if self._messages.get() != _READY:
                raise InputError("the process that reads files ends as it begins", hint="is this Python whole?")
        return self._process

    def _message(self, process: subprocess.Popen[bytes], until: float) -> tuple[str, str]:
        """Return the next message; raises Unreadable where it says so, or none comes in time."""
        try:
            line = self._messages.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            self.close()
            raise Unreadable(f"reading it takes longer than {self.seconds:g} seconds") from None
        kind, _, text = line.decode().rstrip("\n").partition(" ")
        if not kind:
            self.close()
            why = "it is damaged, or needs too much memory"
            raise Unreadable(f"the process that read it ended ({process.returncode}): {why}")
        if kind == "failed":
            self.close()
        if kind == "refused":
            raise RefusedGroups(text)
        if kind in {"end", "failed"} and text:
            raise Unreadable(text)
        return kind, text


def _import_path() -> list[str]:
    """Return `sys.path` without the folder that Python prepends: that of the script, or the current one.

    A script called yaml.py would otherwise be imported instead of the library, and start again in the process that
    reads files.
    """
    if sys.flags.safe_path:
        return sys.path
    main = sys.modules.get("__main__")
    is_script = getattr(main, "__spec__", None) is None
    script = getattr(main, "__file__", None) if is_script else None
    prepended = os.path.realpath(Path(script).parent if script else ".")
    if prepended == os.path.realpath(Path(__file__).parents[3]):  # Dialore is imported from there
        return sys.path
    for position, entry in enumerate(sys.path):
        if os.path.realpath(entry) == prepended:
            return sys.path[:position] + sys.path[position + 1 :]
    return sys.path


def section_of(text: str) -> Section:
    """Return a section from the text of its message."""
    paragraphs, *fields = json.loads(text)
    return Section([Paragraph(*paragraph) for paragraph in paragraphs], *fields)


def _pass_on(stream: IO[bytes], messages: queue.SimpleQueue[bytes]) -> None:
    with stream:
        for line in stream:
            messages.put(line)
    messages.put(b"")


# --- in the process


def serve(seconds: float, memory: int, characters: int, ocr: bool, include_hidden: bool) -> None:
    """Read the files that standard input names, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ImportError, OSError, ValueError):  # where the system has no such limit, that of time is left
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no message
    wanted: queue.SimpleQueue[tuple[str, FileFormat]] = queue.SimpleQueue()

    def await_files() -> None:
        for line in sys.stdin.buffer:
            wanted.put(json.loads(line))
        os._exit(0)  # at once, whatever is being read

    def say(kind: str, text: str) -> None:
        out.write(f"{kind} {storable(text)}\n".encode())

    threading.Thread(target=await_files, daemon=True).start()
    out.write(_READY)
    out.flush()
    while True:
        path, file_format = wanted.get()
        _limit_time(seconds)
        try:
            characters_left = sys.maxsize if file_format in BY_LINE else characters
            why = _say_sections(
                Path(path), file_format, say, seconds, characters_left, ocr=ocr, include_hidden=include_hidden
            )
            kind = "end"
        except RefusedGroups as error:
            kind, why = "refused", str(error)
        except (Unreadable, DialoreError) as error:
            kind, why = "end", str(error)
        except OSError as error:
            kind, why = "end", error.strerror or str(error)
        except MemoryError:
            kind, why = "failed", f"reading it takes more than {memory:,} bytes of memory"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a file brings about, the others are read
            kind, why = "end", f"{type(error).__name__}: {error}"[:300]
        say(kind, " ".join(why.split()))
        out.flush()
        _limit_time(0)


def _say_sections(
    path: Path,
    file_format: FileFormat,
    say: Callable[[str, str], None],
    seconds: float,
    most: int,
    *,
    ocr: bool,
    include_hidden: bool,
) -> str:
    """Say what is in a file; returns why it cannot be read, or nothing."""

    def told(kind: str) -> Reject:
        return lambda where, why: say(kind, " ".join(f"{where}: {why}".removeprefix(": ").split()))

    characters = 0
    sections = read_sections(path, file_format, told("reject"), told("notice"), ocr=ocr, include_hidden=include_hidden)
    for section in sections:
        _limit_time(seconds)
        fields = [section.paragraphs, section.title, section.url, section.metadata, section.line]
        text = json.dumps(fields, ensure_ascii=False)
        if any(not paragraph.text.isspace() and paragraph.text for paragraph in section.paragraphs):
            characters += len(text)
            if characters > most:
                return f"it has more than {most:,} characters of text"
            say("section", text)
    return "" if characters else "no text in it"


def _limit_time(seconds: float) -> None:
    """End the process once its parent has ended, as a library may hold all other threads."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds and 2 * seconds + 5)
