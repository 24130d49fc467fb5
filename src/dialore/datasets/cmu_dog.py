"""CMU_DoG (Zhou et al., EMNLP 2018): talks about films over sections of their Wikipedia articles."""

from __future__ import annotations

import tarfile
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Gold, Holding, Talk, WholeDialogue
from dialore.datasets.files import Place, archive_of, checked
from dialore.datasets.stream import parse
from dialore.errors import InputError
from dialore.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from dialore.text import Language

Sections = dict[int, list[Gold]]


class _Utterance(BaseModel):
    docIdx: int  # noqa: N815 - as published
    text: str
    uid: str


class _Conversation(BaseModel):
    history: list[_Utterance]
    wikiDocumentIdx: int  # noqa: N815 - as published
    whoSawDoc: list[str]  # noqa: N815 - as published
    rating: int | None = None


class CMUDoG(DataSet):
    """The repository's folder or an archive of it: `Conversations/<split>/*.json` and `WikiData/*.json`.

    `ARCHIVE:valid`, or the split's folder, reads one split. What one user writes in a row is one turn, as the paper
    counts them. The turns of users who saw the document are the references; `knowledge` is the section that they saw
    then, as `{"text", "title": the film, "section"}`: the introduction has one for each of its fields, scenes one each.
    """

    name: ClassVar[str] = "cmu-dog"
    languages: ClassVar[tuple[Language, ...]] = ("en",)
    paper: ClassVar[str] = "CMU_DoG (Zhou et al., EMNLP 2018)"
    licence: ClassVar[str] = "none stated"
    where: ClassVar[str] = "github.com/festvox/datasets-CMU_DoG"
    form: ClassVar[str] = "a folder or .tar.gz with Conversations/<split>/*.json and WikiData/*.json"
    has: ClassVar[tuple[Holding, ...]] = ("knowledge",)

    def read(self, path: Path) -> Iterator[WholeDialogue]:
        """Whole conversations, by file name."""
        form = f"{self.name} is {self.form}"
        films = dict(_film(data, Place(place, 0, "", form)) for place, data in _documents(path, "WikiData/", form))
        pools = {index: tuple(_pool(sections)) for index, (_, sections) in films.items()}
        number = 0
        for number, (said, data) in enumerate(_documents(path, "Conversations/", form), start=1):
            place = Place(said, number, "", form)
            entry = checked(data, _Conversation, place)
            if entry.wikiDocumentIdx not in films:
                raise place.error(f"WikiData has no document {entry.wikiDocumentIdx}", "wikiDocumentIdx")
            title, sections = films[entry.wikiDocumentIdx]
            talk = Talk(
                f"{self.name}-{said.rsplit('/', 1)[-1].removesuffix('.json')}",
                "en",
                topic=title,
                pool=pools[entry.wikiDocumentIdx],
                rating=entry.rating,
            )
            _tell(talk, entry, sections)
            yield from talk.whole()
        if not number:
            raise InputError(f"{path}: no conversation in it", mend=form)


def _tell(talk: Talk, entry: _Conversation, sections: Mapping[int, list[Gold]]) -> None:
    spoken = (utterance for utterance in entry.history if utterance.text.strip())
    for user, group in groupby(spoken, key=lambda utterance: utterance.uid):
        row = list(group)
        text = " ".join(utterance.text.strip() for utterance in row)
        if user in entry.whoSawDoc:
            seen = dict.fromkeys(utterance.docIdx for utterance in row)
            talk.answer(user, text, [piece for index in seen for piece in sections.get(index, [])])
        else:
            talk.say(user, text)


def _film(data: Any, place: Place) -> tuple[int, tuple[str, Sections]]:  # noqa: ANN401 - decoded JSON
    """A film's index, name, and the pieces of its four sections."""
    try:
        first, title = data["0"], str(data["0"]["movieName"])
        sections: Sections = {0: []}
        for field, value in first.items():
            texts = [value] if isinstance(value, str) else value
            text = ("\n" if field == "critical_response" else "; ").join(part.strip() for part in texts)
            if field != "movieName" and text:
                sections[0].append({"text": text, "title": title, "section": field})
        for number in (1, 2, 3):
            sections[number] = [{"text": data[str(number)], "title": title, "section": f"scene {number}"}]
        return int(data["wikiDocumentIdx"]), (title, sections)
    except KeyError as error:
        raise place.error("missing", f"{error.args[0]}") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise place.error(f"not a film's document: {error}") from error


def _pool(sections: Sections) -> Iterator[str]:
    """The sentences of a film's document. What is a word or a name on its own is said in full."""
    for pieces in sections.values():
        for piece in pieces:
            if isinstance(piece, dict):
                said = str(piece["text"])
                short = piece["section"] in {"cast", "director", "genre", "rating", "year"}
                yield from [f"{piece['title']}, {piece['section']}: {said}"] if short else split_lines(said)


def _documents(path: Path, under: str, form: str) -> Iterator[tuple[str, Any]]:
    """Place and content of each JSON file below a folder of the repository, whose path holds `under`, by name."""
    archive = archive_of(path)
    if archive is None:
        yield from _from_folder(path, under, form)
        return
    file, split = archive
    try:
        with tarfile.open(file) as tarred:
            wanted = under if under == "WikiData/" else f"{under}{split.strip('/').rpartition('/')[2]}"
            found = (member for member in tarred if member.isfile() and f"/{wanted}" in f"/{member.name}")
            for member in sorted(found, key=lambda member: member.name):
                content = tarred.extractfile(member)
                if member.name.endswith(".json") and content is not None:
                    place = f"{file}:{member.name}"
                    yield place, parse(content.read(), place, form)
    except FileNotFoundError as error:
        raise InputError(f"no such file: {file}", mend="check the path") from error
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError(f"cannot read {file}: {error}", mend=form) from error


def _from_folder(path: Path, under: str, form: str) -> Iterator[tuple[str, Any]]:
    if not path.is_dir():
        raise InputError(f"no such folder: {path}", mend=form)
    root = next((folder for folder in (path, *path.parents[:2]) if (folder / "WikiData").is_dir()), None)
    if root is None:
        raise InputError(f"{path}: no WikiData folder in it, or up to two folders above it", mend=form)
    start = root / "WikiData" if under == "WikiData/" else path
    for file in sorted(start.rglob("*.json")):
        if f"/{under}" in f"{file.as_posix()}":
            yield str(file), parse(file.read_bytes(), str(file), form)
