"""Responses made elsewhere, read into a run, which is then scored, judged, annotated and reported like any other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeGuard

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from dialore.datasets import data_set
from dialore.datasets.base import Gold
from dialore.datasets.files import Place, json_entries
from dialore.dialogue import Dialogue, as_name, as_several, conversation_of
from dialore.errors import InputError, describe
from dialore.evaluation.meta import read_knowledge
from dialore.experiments.config import DatasetConfig
from dialore.experiments.run import load_dialogues
from dialore.experiments.store import FILE, Job, RunStore, System
from dialore.response import Response

_FORM = (
    'responses are JSONL of {"id", "text", "system"?, "knowledge"?}, a log of ParlAI\'s worlds, generations of the '
    "few-shot bot, or samples of lm-eval"
)
_IDS, _TEXTS = ("id", "dialogue_id"), ("text", "response", "prediction", "output", "generation")
_ELSEWHERE = "elsewhere"
_SHOWN = 6
_GIVEN = TypeAdapter(Annotated[list[Gold], BeforeValidator(lambda given: as_several(given or []))])
"""Knowledge that a response was given: texts or objects, or one of them alone."""
_Key: TypeAlias = "tuple[Any, ...]"  # the keys that tell the dialogue of a response; see `_finder`


class _Answer(NamedTuple):
    """A response of a file: where it stands, the key of its dialogue, who made it, and what it is."""

    place: Place
    key: _Key
    system: str
    response: Response


def import_responses(
    folder: Path, files: Sequence[tuple[str, Path]], config: DatasetConfig | None
) -> dict[str, dict[str, Any]]:
    """Read files of responses into a run's folder, made if need be, in place of those of systems of the same name.

    Files come with the names of their systems; where one is empty, entries or the file name it. Without a `config` the
    dialogues are those of the run. Gives by system how many `responses` it has, how many of them are `empty` (they say
    nothing, and are scored as such), and the `missing` dialogues' ids.
    """
    if config is None and not (folder / FILE).is_file():
        raise InputError(f"which dialogues do they answer? {folder} is no run yet", hint="name their file by --data")
    answers = [answer for name, path in files for answer in _read(path, name)]
    with RunStore.resumed(folder) as store:
        facts: dict[str, Any] = {"imported": [*store.facts().get("imported", []), *(str(path) for _, path in files)]}
        if config is None:
            config = DatasetConfig.model_validate(store.facts()["config"]["dataset"])
            dialogues = [store.dialogue(position) for position in range(store.size)]
        else:
            dialogues = list(load_dialogues(config))
        if not store.size:
            about = "Responses that were made elsewhere."
            facts |= {"name": folder.name, "about": about, "config": {"dataset": config.model_dump(mode="json")}}
        placed = _place_responses(answers, dialogues, config)
        models = {title: next(iter(mine.values())).model for title, mine in placed.items()}
        systems = [System(number, title, title, {}, model) for number, (title, model) in enumerate(models.items())]
        numbers = store.set_up(facts, systems, dialogues)
        for system in systems:
            for position, response in placed[system.title].items():
                named = {"id": dialogues[position].id, "method": system.title}
                store.add(Job(position, numbers[system.number]), response.model_copy(update=named))
        return {
            title: {
                "responses": len(mine),
                "empty": sum(not response.text for response in mine.values()),
                "missing": [dialogue.id for position, dialogue in enumerate(dialogues) if position not in mine],
            }
            for title, mine in placed.items()
        }


def _place_responses(
    answers: Sequence[_Answer], dialogues: Sequence[Dialogue], config: DatasetConfig
) -> dict[str, dict[int, Response]]:
    """Return the responses by system and by position of their dialogues; raise as `import_responses`."""
    find = _finder(answers, dialogues, config)
    placed: dict[str, dict[int, Response]] = defaultdict(dict)
    unknown = []
    for answer in answers:
        taken = placed[answer.system]
        among = find(answer.key)
        free = next((position for position in among if position not in taken), None)
        if free is not None:
            taken[free] = answer.response
        elif among:
            twice = f"{answer.system!r} has answered dialogue {dialogues[among[0]].id!r} before"
            raise InputError(f"{answer.place.where}: {twice}", hint="keep one, or tell systems apart by a key `system`")
        elif answer.key[0] not in {"turn", "pair"}:  # of generations some answer turns that are no reference
            unknown.append(answer)
    if unknown := unknown or [answer for answer in answers if not placed[answer.system]]:
        first = unknown[0]
        kind, value = first.key[:2]
        ids = [dialogue.id for dialogue in dialogues]
        near = get_close_matches(str(value), ids, n=1) if kind == "id" else []
        hint = f"did you mean {near[0]!r}?" if near else f"ids here are like {ids[0]!r}" if ids else "there is none"
        problem = f"{first.place.where}: no dialogue of the data has the {kind} {value!r}"
        problem += f"; so it is with {len(unknown)} of {len(answers)} responses"
        raise InputError(problem, hint=f"{hint}; name the data set, cut, limit and seed that they were made with")
    return placed


def _finder(
    answers: Sequence[_Answer], dialogues: Sequence[Dialogue], config: DatasetConfig
) -> Callable[[_Key], list[int]]:
    """Return what gives the positions of the dialogues that a key may mean; of several alike, in order.

    Keys are `("id", id)`, `("number", position)`, `("latest turn", turn, references)`, and of generated dialogues
    `("turn", number, turn)` and `("pair", number, pair)`.
    """
    positions: dict[_Key, list[int]] = defaultdict(list)
    generated = {answer.place.where: answer.key[1] + 1 for answer in answers if answer.key[0] in {"turn", "pair"}}
    wholes = [dialogue.id for dialogue in data_set(config.name).read(config.path)] if generated else []
    for where, count in generated.items():
        if count != len(wholes):
            problem = f"{where}: generations for {count} dialogues, and {config.path} has {len(wholes)}"
            raise InputError(problem, hint="name the file that they were made of")
    numbers = {identifier: number for number, identifier in enumerate(wholes)}
    for position, dialogue in enumerate(dialogues):
        number = numbers.get(conversation_of(dialogue.id))
        replies = sum(turn.speaker == dialogue.responder for turn in dialogue.turns)
        for key in (
            ("id", dialogue.id),
            ("number", position),
            ("latest turn", _letters(dialogue.last.text)),
            ("reference", _letters(dialogue.reference or "")),
            ("turn", number, len(dialogue.turns)),
            ("pair", number, replies, len(dialogue.turns) % 2),
        ):
            positions[key].append(position)

    def find(key: _Key) -> list[int]:
        match key:
            case ("latest turn", turn, references):
                last = positions.get(("latest turn", _letters(turn)), [])
                keys = [("reference", _letters(reference)) for reference in references]
                named = [row for key in keys for row in positions.get(key, [])]
                return [row for row in named if row in last] or named or ([] if references else last)
            case ("pair", _, _):  # the reply of the second speaker; of the first where there is no other
                return positions.get((*key, 1)) or positions.get((*key, 0), [])
        return positions.get(key, [])

    return find


def _letters(text: str) -> str:
    """Return a text's letters and digits alone, as tokenisers leave them."""
    return re.sub(r"[\W_]+", "", text.casefold())


# --- the forms of files


def _read(path: Path, name: str) -> Iterator[_Answer]:
    """Yield the responses of a file, each entry of the form that it shows."""
    usual = name or path.name.partition(".")[0]
    for place, entry in json_entries(path, _FORM):
        match entry:
            case {"generation": [*dialogues]}:  # the few-shot bot's; the dialogues are those of the data
                for number, dialogue in enumerate(dialogues):
                    for key, text in _read_generated(place, number, dialogue):
                        yield _answer(place, key, usual, text)
            case {"dialog": [*parleys]}:  # ParlAI's `--world-logs`: acts of the teacher, with labels, and of the model
                for key, text in _read_world_log(place, parleys):
                    yield _answer(place, key, usual, text)
            case {"doc_id": int(number)}:  # lm-eval's `--log_samples`
                yield _sample_of(place, number, entry, usual)
            case dict() if not entry or {*_IDS, *_TEXTS} & entry.keys() or not all(map(_is_text, entry.values())):
                yield _plain(place, entry, name, usual)
            case dict():  # {id: text}
                yield from (_answer(place, ("id", identifier), usual, text) for identifier, text in entry.items())
            case _:
                raise place.error("no object")


def _sample_of(place: Place, number: int, entry: Mapping[str, Any], usual: str) -> _Answer:
    """Return a sample of lm-eval: the first of its texts, where there are several."""
    text = entry.get("filtered_resps") or entry.get("resps")
    while isinstance(text, list) and text:
        text = text[0]
    if not _is_text(text) or not entry.keys() & {"filtered_resps", "resps"}:
        raise place.error("no generated text", "filtered_resps")
    doc = entry.get("doc")
    named = ("id", as_name(doc["id"])) if isinstance(doc, dict) and "id" in doc else ("number", number)
    kept = entry.get("filter") or "none"
    return _answer(place, named, usual if kept == "none" else f"{usual} ({kept})", text)


def _is_text(value: object) -> TypeGuard[str | None]:
    return value is None or isinstance(value, str)


def _answer(place: Place, key: _Key, system: str, text: str | None, **fields: Any) -> _Answer:  # noqa: ANN401
    return _Answer(place, key, system, Response(text=(text or "").strip(), **{"model": _ELSEWHERE, **fields}))


def _plain(place: Place, entry: dict[str, Any], name: str, usual: str) -> _Answer:
    """Return an entry of id and text, or a response as Dialore writes it, whose trace and knowledge are kept."""
    identifier = as_name(next((entry[key] for key in _IDS if entry.get(key) is not None), None))
    texts = [entry[key] for key in _TEXTS if key in entry]
    text = next((text for text in texts if text is not None), None)
    if not isinstance(identifier, str) or not texts or not _is_text(text):
        keys = [*entry]
        more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        raise place.error(f"an id and a text are wanted, and it has {', '.join(keys[:_SHOWN]) or 'nothing'}{more}")
    key, system = ("id", identifier), name or str(entry.get("system") or entry.get("method") or usual)
    try:
        if {"method", "status"} <= entry.keys():
            whole = Response.model_validate(entry)
            return _Answer(place, key, system, whole.model_copy(update={"model": whole.model or _ELSEWHERE}))
        pieces = [read_knowledge(item) for item in _GIVEN.validate_python(entry.get("knowledge"))]
    except ValidationError as error:
        raise place.error(describe(error)) from error
    except InputError as error:
        raise place.error(error.message, "knowledge") from error
    return _answer(place, key, system, text, knowledge=pieces, model=str(entry.get("model") or _ELSEWHERE))


def _read_world_log(place: Place, parleys: Sequence[Any]) -> Iterator[tuple[_Key, str]]:
    """Yield what a model said in an episode of a ParlAI world: the teacher's turn and labels tell what it answered."""
    for number, parley in enumerate(parleys):
        match parley:
            case [{"text": str(asked)} as act, {"text": str(text)}]:
                labels = act.get("eval_labels") or act.get("labels")
                labels = [label for label in labels if isinstance(label, str)] if isinstance(labels, list) else []
                yield ("latest turn", asked.strip().rpartition("\n")[2], labels), text
            case _:
                raise place.error("no pair of acts with texts", f"dialog[{number}]")


def _read_generated(place: Place, number: int, entry: Any) -> Iterator[tuple[_Key, str]]:  # noqa: ANN401
    """Yield what the few-shot bot generated for a dialogue: of each pair of turns a reply, or both turns."""
    pairs = entry.get("dialogue") if isinstance(entry, dict) else None
    if not isinstance(pairs, list):
        raise place.error("no list of pairs", f"generation[{number}].dialogue")
    for pair, texts in enumerate(pairs):
        match texts:
            case [str(reply)]:
                yield ("pair", number, pair), reply
            case [str(first), str(second)]:
                yield ("turn", number, 2 * pair), first
                yield ("turn", number, 2 * pair + 1), second
            case _:
                raise place.error("no reply, nor a pair", f"generation[{number}].dialogue[{pair}]")
