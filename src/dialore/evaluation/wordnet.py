"""WordNet's synonyms, read by nltk from where its files lie: nltk's data, `DIALORE_WORDNET`, or Debian's package."""

from __future__ import annotations

import functools
import io
import os
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "DIALORE_WORDNET"
DEBIAN = Path("/usr/share/wordnet")
"""Where Debian's package `wordnet-base` puts the files."""
ABSENT = (
    "no WordNet on this machine (Debian's wordnet-base, nltk's wordnet, or a folder that DIALORE_WORDNET names): "
    "meteor-exact-stem does without"
)
_PARTS = ("noun", "verb", "adj", "adv")
_FILES = tuple(name.format(part) for part in _PARTS for name in ("data.{}", "index.{}", "{}.exc"))
_DAMAGE = (OSError, ValueError, LookupError, AssertionError, StopIteration, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, slots=True)
class _Lemma:
    text: str

    def name(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class _Synset:
    """All synonyms of a word as if they were one set: METEOR asks for no more than their names."""

    of_word: tuple[_Lemma, ...]

    def lemmas(self) -> tuple[_Lemma, ...]:
        return self.of_word


class Synonyms:
    """The synonyms of words, each word looked up once; nltk's METEOR takes it for its WordNet.

    Attributes:
        reader: nltk's reader of the files.
        version: WordNet's, as its files say it.
    """

    def __init__(self, reader: Any, place: str) -> None:  # noqa: ANN401 - the library is untyped
        self.reader = reader
        self.version = str(reader.get_version() or "")
        self._place = place
        self.synsets = functools.lru_cache(maxsize=65536)(self._synsets)

    def _synsets(self, word: str) -> tuple[_Synset, ...]:
        """One set of all single-word lemmas of the word's synsets; none where it has no synset.

        Raises:
            InputError: the files are damaged.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = [lemma.name() for synset in self.reader.synsets(word) for lemma in synset.lemmas()]
        except (*_DAMAGE, UserWarning, _wordnet_error()) as error:
            raise InputError(f"WordNet of {self._place} is damaged at {word!r}", mend="install it again") from error
        names = tuple(_Lemma(name) for name in dict.fromkeys(found) if "_" not in name)
        return (_Synset(names),) if names else ()


def find_synonyms() -> Synonyms | str:
    """The synonyms of the first WordNet that there is, or why there are none.

    nltk's own data come first, then the folder that `DIALORE_WORDNET` names, then Debian's.

    Raises:
        MissingExtraError: nltk is not installed.
    """
    return _find(os.environ.get(VARIABLE, "").strip())


@functools.lru_cache(maxsize=4)
def _find(named: str) -> Synonyms | str:
    wrong = []
    for place, root in _places(named):
        try:
            return Synonyms(_open(root), place)
        except InputError as error:
            wrong.append(f"WordNet of {place} {error.message}")
        except (*_DAMAGE, _wordnet_error()) as error:
            wrong.append(f"WordNet of {place} cannot be read: {type(error).__name__}")
    return "; ".join(wrong) or ABSENT


def _places(named: str) -> Iterator[tuple[str, Any]]:
    """Where WordNet may lie, in order; what a user named is not passed over in silence."""
    try:
        import nltk.data
    except ImportError:
        raise MissingExtraError("METEOR", "evaluation") from None
    for inner in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
        try:
            yield "nltk's data", nltk.data.find(inner)
        except (LookupError, OSError, zipfile.BadZipFile):
            continue
    if named:
        yield VARIABLE, Path(named).expanduser()
    elif DEBIAN.is_dir():
        yield "Debian's package", DEBIAN


def _open(root: Any) -> Any:  # noqa: ANN401 - the library is untyped
    """The reader of a folder, nltk's.

    Raises:
        InputError: it is no folder, lacks a file, or a file is cut short or changed.
    """
    if isinstance(root, Path):
        root = root / "dict" if (root / "dict").is_dir() else root
        if not root.is_dir():
            raise InputError("is no folder")
    files = {name: text for name in _FILES if (text := _read(root, name)) is not None}
    if missing := [name for name in _FILES if name not in files]:
        raise InputError(f"lacks {', '.join(missing)}")
    if damaged := [name for name, text in files.items() if name.startswith("data.") and not _is_whole(text)]:
        raise InputError(f"is damaged: {', '.join(damaged)}")
    # Debian leaves this list out, and synonyms do not need it: each lexicographer's file is called by its number.
    files["lexnames"] = "".join(f"{number:02d}\t{number:02d}\t0\n" for number in range(100)).encode()
    with warnings.catch_warnings():
        # It warns of languages beside English, which METEOR does not ask for.
        warnings.simplefilter("ignore")
        return _reader()(files)


def _read(root: Any, name: str) -> bytes | None:  # noqa: ANN401 - the library is untyped
    """A file of a folder, or of a place that nltk found; None where it is not there."""
    if isinstance(root, Path):
        return (root / name).read_bytes() if (root / name).is_file() else None
    try:
        path = root.join(name)
    except (OSError, LookupError):
        return None
    with path.open() as stream:
        return bytes(stream.read())


def _is_whole(text: bytes) -> bool:
    """Whether a file of synsets is as it was made: each line begins with its own place in bytes, so the last tells."""
    place = text.rfind(b"\n", 0, -1) + 1
    return text.endswith(b"\n") and text[place : place + 8] == b"%08d" % place


@functools.lru_cache(maxsize=1)
def _reader() -> Any:  # noqa: ANN401 - the library is untyped
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.data import PathPointer, SeekableUnicodeStreamReader

    class Memory(PathPointer):  # type: ignore[misc]
        """Files in memory: none stays open, and nltk's list of the folders that it may read stays as it is."""

        def __init__(self, files: dict[str, bytes], name: str = "") -> None:
            self._files, self._name = files, name

        def join(self, fileid: str) -> Memory:
            return Memory(self._files, fileid)

        def file_size(self) -> int:
            return len(self._files[self._name])

        def open(self, encoding: str | None = None) -> Any:  # noqa: ANN401 - the library is untyped
            return SeekableUnicodeStreamReader(io.BytesIO(self._files[self._name]), encoding)

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        """nltk's, of such files."""

        def __init__(self, files: dict[str, bytes]) -> None:
            super().__init__(Memory(files), None)

        def open(self, file: str) -> Any:  # noqa: ANN401 - the library is untyped
            return self.root.join(file).open(self._ENCODING)

        def map_wn(self, version: str = "wordnet") -> None:
            """No mapping to WordNet 3.0: only other languages want it, and it wants a file that Debian leaves out."""

    return Reader


def _wordnet_error() -> type[Exception]:
    from nltk.corpus.reader.wordnet import WordNetError

    error: type[Exception] = WordNetError
    return error
