"""CMU_DoG (Zhou et al., EMNLP 2018): talks about films over sections of their Wikipedia articles."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from dialore.datasets.base import DataSet, Entry, Gold, Talk, stated_id
from dialore.datasets.files import Place, archive_of, count_unused, parse, reading, validate, without_nulls
from dialore.errors import InputError
from dialore.text import split_lines

Sections = dict[int, list[Gold]]


_WIKI = "/WikiData/"


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

    name = "cmu-dog"
    languages = ("en",)
    paper = "CMU_DoG (Zhou et al., EMNLP 2018)"
    licence = "none stated"
    where = "github.com/festvox/datasets-CMU_DoG"
    form = "a folder or .tar.gz with Conversations/<split>/*.json and WikiData/*.json"
    has = ("knowledge",)

    def entries(self, path: Path) -> Iterator[Entry]:
        """Whole conversations, by file name."""
        form = self.published
        files = _files(path, form)
        films = dict(_film(parse(files[name], name, form), Place(name, 0, "", form)) for name in files if _WIKI in name)
        pools = {index: tuple(_sentences(sections)) for index, (_, sections) in films.items()}
        number = 0
        for number, name in enumerate((name for name in files if _WIKI not in name), start=1):
            place = Place(name, number, "", form)
            data = parse(files[name], name, form)
            count_unused(data, _Conversation, self.report.unused_keys)
            entry = validate(data, _Conversation, place)
            if entry.wikiDocumentIdx not in films:
                raise place.error(f"WikiData has no document {entry.wikiDocumentIdx}", "wikiDocumentIdx")
            title, sections = films[entry.wikiDocumentIdx]
            identifier = stated_id(self.name, name.rsplit("/", 1)[-1].removesuffix(".json"))
            pool = pools[entry.wikiDocumentIdx]
            talk = Talk(identifier, "en", topic=title, pool=pool, rating=entry.rating)
            _tell(talk, entry, sections)
            yield from talk.whole()
        if not number:
            raise InputError(f"{path}: no conversation in it", hint=form)


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
    """Return a film's index, name, and the pieces of its four sections."""
    data = cast("dict[str, Any]", without_nulls(data))
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


def _sentences(sections: Sections) -> Iterator[str]:
    """Yield the sentences of a film's document. What is a word or a name on its own is said in full."""
    for pieces in sections.values():
        for piece in pieces:
            if isinstance(piece, dict):
                text = str(piece["text"])
                short = piece["section"] in {"cast", "director", "genre", "rating", "year"}
                yield from [f"{piece['title']}, {piece['section']}: {text}"] if short else split_lines(text)


def _files(path: Path, form: str) -> dict[str, bytes]:
    """Return the JSON files of films and of the wanted conversations, by name, in order."""
    with reading(path, form):
        archive = archive_of(path)
        if archive is None:
            if not path.is_dir():
                raise InputError(f"no such folder: {path}", hint=form)
            root = next((folder for folder in (path, *path.parents[:2]) if (folder / "WikiData").is_dir()), None)
            if root is None:
                raise InputError(f"{path}: no WikiData folder in it, or up to two folders above it", hint=form)
            films = sorted((root / "WikiData").rglob("*.json"))
            talks = sorted(talk for talk in path.rglob("*.json") if "/Conversations/" in talk.as_posix())
            return {file.as_posix(): file.read_bytes() for file in (*films, *talks)}
        file, split = archive
        wanted = f"/Conversations/{split.strip('/').rpartition('/')[2]}"
        contents = {}
        with tarfile.open(file) as tarred:
            for member in tarred:
                inside = _WIKI in f"/{member.name}" or wanted in f"/{member.name}"
                content = tarred.extractfile(member) if inside and member.name.endswith(".json") else None
                if content is not None:
                    contents[f"{file}:/{member.name}"] = content.read()
        return dict(sorted(contents.items()))
