"""Responses made elsewhere, read into a run, which is then scored, judged, annotated and reported like any other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from dialore.datasets import data_set
from dialore.datasets.files import Place, json_entries
from dialore.dialogue import Dialogue, describe
from dialore.errors import InputError
from dialore.evaluation.meta import given_knowledge
from dialore.experiments.config import DatasetConfig
from dialore.experiments.run import load_dialogues
from dialore.experiments.store import Job, RunStore, System
from dialore.response import Response

_FORM = (
    'responses are JSONL of {"id", "text", "system"?, "knowledge"?}, a log of ParlAI\'s worlds, generations of the '
    "few-shot bot, or samples of lm-eval"
)
_IDS, _TEXTS = ("id", "dialogue_id"), ("text", "response", "prediction", "output", "generation")
_ELSEWHERE = "elsewhere"


class _Answer(NamedTuple):
    """A response of a file: where it stands, what finds its dialogue (see `_Places`), who made it, and what it is."""

    place: Place
    key: object
    system: str
    response: Response


@dataclass(slots=True)
class Imported:
    """What was imported of a system: how many responses, how many of them empty, and the dialogues without one."""

    responses: int = 0
    empty: int = 0
    missing: list[str] = field(default_factory=list)


def import_responses(
    folder: Path, files: Sequence[tuple[str, Path]], config: DatasetConfig | None
) -> dict[str, Imported]:
    """Read files of responses into a run's folder, made if need be; gives what came of each system.

    A response without text is kept as a failed one: it is counted, and never scored. One that the run has already of a
    system of that name is replaced.

    Args:
        folder: where the run is kept. One that is there keeps what it has.
        files: the files, each with the name of its system; where that is empty, entries or the file name it.
        config: the dialogues that are answered; those of the run where None.

    Raises:
        InputError: a file is of no known form, or a response answers no dialogue or one that has been answered.
    """
    if config is None and not (folder / "run.sqlite").is_file():
        raise InputError(f"which dialogues do they answer? {folder} is no run yet", mend="name their file by --data")
    answers = [answer for name, path in files for answer in _read(path, name)]
    with RunStore.resumed(folder) as store:
        known = [store.dialogue(position) for position in range(store.size)]
        dialogues = known if config is None else list(load_dialogues(config))
        placed = _placed(answers, dialogues, _wholes(answers, config, store))
        models = {title: next(iter(mine.values())).response.by for title, mine in placed.items()}
        systems = [System(number, title, title, {}, model) for number, (title, model) in enumerate(models.items())]
        facts: dict[str, Any] = {"imported": [*store.facts().get("imported", []), *(str(path) for _, path in files)]}
        if not store.size and config is not None:
            about = "Responses that were made elsewhere."
            facts |= {"name": folder.name, "about": about, "config": {"dataset": config.model_dump(mode="json")}}
        numbers = store.set_up(facts, systems, dialogues)
        found: dict[str, Imported] = {}
        for system in systems:
            mine = placed[system.title]
            for position, answer in mine.items():
                response = answer.response.model_copy(update={"id": dialogues[position].id, "method": system.title})
                store.add(Job(position, numbers[system.number]), response)
            empty = sum(answer.response.status == "failed" for answer in mine.values())
            missing = [dialogue.id for position, dialogue in enumerate(dialogues) if position not in mine]
            found[system.title] = Imported(len(mine), empty, missing)
        return found


def _wholes(answers: Sequence[_Answer], config: DatasetConfig | None, store: RunStore) -> list[str]:
    """The ids of the data set's whole dialogues, where answers go by them; there must be as many as in their files."""
    generated = {answer.place.where: answer.key[1] + 1 for answer in answers if isinstance(answer.key, tuple)}
    if not generated:
        return []
    config = config or DatasetConfig.model_validate(store.facts()["config"]["dataset"])
    wholes = [dialogue.id for dialogue in data_set(config.name).read(config.path)]
    for where, count in generated.items():
        if count != len(wholes):
            problem = f"{where}: generations for {count} dialogues, and {config.path} has {len(wholes)}"
            raise InputError(problem, mend="name the file that they were made of")
    return wholes


def _placed(
    answers: Sequence[_Answer], dialogues: Sequence[Dialogue], wholes: Sequence[str]
) -> dict[str, dict[int, _Answer]]:
    """The answers by system and by the position of the dialogue that they answer; raises as `import_responses`."""
    places = _Places(dialogues, wholes)
    placed: dict[str, dict[int, _Answer]] = defaultdict(dict)
    unknown = []
    for answer in answers:
        taken = placed[answer.system]
        among = places.of(answer.key)
        free = [position for position in among if position not in taken]
        if free:
            taken[free[0]] = answer
        elif among:
            first = taken[among[0]].place.where
            twice = f"{answer.system!r} has answered dialogue {dialogues[among[0]].id!r} at {first} already"
            raise InputError(f"{answer.place.where}: {twice}", mend="keep one, or tell systems apart by a key `system`")
        elif not isinstance(answer.key, tuple):  # of generations some answer turns that are no reference
            unknown.append(answer)
    empty = [system for system, mine in placed.items() if not mine]
    if empty and not unknown:
        raise InputError(f"no response of {empty[0]!r} answers a dialogue of the data", mend="try --cut all")
    if unknown:
        key = unknown[0].key
        said = f"id {key!r}" if isinstance(key, str) else "its turns" if isinstance(key, _Said) else f"number {key}"
        near = get_close_matches(str(key), [dialogue.id for dialogue in dialogues], n=1)
        mend = f"did you mean {near[0]}?" if near else f"ids here are like {dialogues[0].id!r}" if dialogues else ""
        raise InputError(
            f"{unknown[0].place.where}: no dialogue of the data has {said}; so it is with {len(unknown)} of "
            f"{len(answers)} responses",
            mend=f"{mend}; name the data set, cut, limit and seed that they were made with",
        )
    return placed


@dataclass(frozen=True, slots=True)
class _Said:
    """What a log says of a dialogue: its latest turn, and its references."""

    turn: str
    references: tuple[str, ...]


class _Places:
    """Finds dialogues: by id; by number; by what is said in them; by whole dialogue and turn, or pair of turns.

    `wholes` has the ids of the data set's whole dialogues, where the last is asked for.
    """

    def __init__(self, dialogues: Sequence[Dialogue], wholes: Sequence[str]) -> None:
        self._found: dict[object, list[int]] = defaultdict(list)
        self._pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
        whole = {identifier: number for number, identifier in enumerate(wholes)}
        for position, dialogue in enumerate(dialogues):
            number = whole.get(dialogue.id.rpartition("@")[0], whole.get(dialogue.id, -1))
            keys: list[object] = [dialogue.id, position, ("turn", number, len(dialogue.turns))]
            keys += [("last", _letters(dialogue.last.text)), ("reference", _letters(dialogue.reference or ""))]
            for key in keys:
                self._found[key].append(position)
            replies = sum(turn.speaker == dialogue.responder for turn in dialogue.turns)
            self._pairs[number, replies].insert(0 if len(dialogue.turns) % 2 else 1, position)

    def of(self, key: object) -> list[int]:
        """The positions that a key may mean, in order; where several are alike, they are answered in order."""
        get = self._found.get
        match key:
            case _Said(turn=turn, references=references):
                last = get(("last", _letters(turn)), [])
                named = [place for each in references for place in get(("reference", _letters(each)), [])]
                return [place for place in named if place in last] or named or ([] if references else last)
            case ("pair", int(whole), int(pair)):  # after so many replies; either speaker's, first of the second's
                return self._pairs.get((whole, pair), [])[:1]
        return get(key, [])


def _letters(text: str) -> str:
    """A text's letters and digits alone, as tokenisers leave them."""
    return re.sub(r"[\W_]+", "", text.casefold())


# --- the forms of files


def _read(path: Path, name: str) -> Iterator[_Answer]:
    """The responses of a file, of the form that each entry has."""
    usual = name or path.name.partition(".")[0]
    whole = 0
    for place, entry in json_entries(path, _FORM):
        if not isinstance(entry, dict):
            raise place.error("no object")
        if isinstance(entry.get("generation"), list):
            for each in entry["generation"]:
                yield from _of_few_shot_bot(place, each, whole, usual)
                whole += 1
        elif isinstance(entry.get("dialog"), list):
            yield from _of_parlai(place, entry["dialog"], usual)
        elif "doc_id" in entry:
            yield _of_lm_eval(place, entry, usual)
        else:
            yield _plain(place, entry, name, usual)


def _answer(place: Place, key: object, system: str, text: str, **fields: Any) -> _Answer:  # noqa: ANN401 - a response's
    fields = {"by": _ELSEWHERE, **fields}
    if not text.strip():
        fields |= {"status": "failed", "error": f"{place.where}: the text is empty"}
    return _Answer(place, key, system, Response(text=text.strip(), **fields))


def _plain(place: Place, entry: dict[str, Any], name: str, usual: str) -> _Answer:
    """An entry of id and text, or a response as Dialore writes it, whose trace and knowledge are kept."""
    key = next((entry[key] for key in _IDS if key in entry), None)
    text = next((entry[key] for key in _TEXTS if key in entry), None)
    if not isinstance(key, str | int) or not isinstance(text, str):
        raise place.error(f"an id and a text are wanted, and it has {', '.join(map(str, entry)) or 'nothing'}")
    system = name or str(entry.get("system") or entry.get("method") or usual)
    try:
        if {"method", "status"} <= entry.keys():
            whole = Response.model_validate(entry)
            return _Answer(place, str(key), system, whole.model_copy(update={"by": whole.by or _ELSEWHERE}))
        pieces = [given_knowledge(item) for item in entry.get("knowledge") or ()]
    except (ValidationError, TypeError) as error:
        raise place.error(describe(error) if isinstance(error, ValidationError) else "no list", "knowledge") from error
    return _answer(place, str(key), system, text, knowledge=pieces, by=str(entry.get("model") or _ELSEWHERE))


def _of_parlai(place: Place, parleys: list[Any], system: str) -> Iterator[_Answer]:
    """An episode of a world's log (`--world-logs`): pairs of a teacher's act, with its labels, and the model's."""
    for number, parley in enumerate(parleys):
        match parley:
            case [{"text": str(asked)} as teacher, {"text": str(text)}]:
                labels = teacher.get("eval_labels") or teacher.get("labels") or ()
                said = _Said(asked.rstrip().rpartition("\n")[2], tuple(filter(None, map(str, labels))))
                yield _answer(place, said, system, text)
            case _:
                raise place.error("no pair of acts with texts", f"dialog[{number}]")


def _of_few_shot_bot(place: Place, entry: Any, whole: int, system: str) -> Iterator[_Answer]:  # noqa: ANN401 - JSON
    """A dialogue of generations: for each pair of turns a reply, or both turns; the dialogues are those of the data."""
    for pair, texts in enumerate(entry.get("dialogue") or () if isinstance(entry, dict) else ()):
        match texts:
            case [str(reply)]:
                yield _answer(place, ("pair", whole, pair), system, reply)
            case [str(first), str(second)]:
                if pair:  # the first turn answers nothing
                    yield _answer(place, ("turn", whole, 2 * pair), system, first)
                yield _answer(place, ("turn", whole, 2 * pair + 1), system, second)
            case _:
                raise place.error("no reply, nor a pair", f"generation[{whole}].dialogue[{pair}]")


def _of_lm_eval(place: Place, entry: dict[str, Any], system: str) -> _Answer:
    """A sample of lm-eval's log (`--log_samples`): its document's `id`, else its number, is the dialogue's."""
    match entry:
        case {"filtered_resps": [str(text), *_]} | {"filtered_resps": [[str(text), *_], *_]}:
            pass
        case {"resps": [[str(text), *_], *_]}:
            pass
        case _:
            raise place.error("no generated text", "filtered_resps")
    named = entry.get("doc") or {}
    key = str(named["id"]) if isinstance(named, dict) and "id" in named else entry["doc_id"]
    kept = entry.get("filter") or "none"
    return _answer(place, key, system if kept == "none" else f"{system} ({kept})", text)
