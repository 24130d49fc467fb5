"""Responses made elsewhere, read into a run, which is then scored, judged, annotated and reported like any other."""

from __future__ import annotations

import csv
import itertools
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeGuard

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from dialore.datasets import data_set
from dialore.datasets.base import Gold
from dialore.datasets.files import Place, json_entries, open_text, parse
from dialore.dialogue import Dialogue, as_name, as_several, conversation_of
from dialore.errors import InputError, describe
from dialore.evaluation.meta import read_knowledge
from dialore.experiments.config import DatasetConfig
from dialore.experiments.run import load_dialogues
from dialore.experiments.store import FILE, Job, RunStore, System
from dialore.files import storable
from dialore.llm.thoughts import strip_thoughts
from dialore.response import Response

_FORM = (
    'responses are JSONL, CSV or TSV of {"id", "text", "system"?, "knowledge"?}, or files of OpenAI\'s or vLLM\'s '
    "batches, deepeval, RAGAS, Inspect, FlashRAG, MTRAG, ParlAI's world logs, the few-shot bot or lm-eval"
)
_IDS = ("custom_id", "id", "dialogue_id", "task_id", "sample_id", "question_id", "qid")
_TEXTS = (
    *("text", "response", "prediction", "predictions", "output", "outputs", "generation", "generations"),
    *("answer", "actual_output", "completion", "generated_text", "pred", "choices"),
)
_NESTED_TEXTS = (
    *("body", "choices", "message", "content", "output", "outputs", "completion", "pred", "text", "output_text"),
    "generated_text",
)
_QUESTIONS = ("input", "user_input", "question", "query", "prompt")
_CONTAINERS = frozenset({"samples", "test_cases", "results", "responses"})
_CONTEXTS = ("retrieved_contexts", "retrieval_context", "contexts")
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_ELSEWHERE = "elsewhere"
_SHOWN = 6
_GIVEN = TypeAdapter(Annotated[list[Gold], BeforeValidator(lambda given: as_several(given or []))])
"""Knowledge that a response was given: texts or objects, or one of them alone."""
_Key: TypeAlias = "tuple[Any, ...]"  # the keys that tell the dialogue of a response; see `_finder`
_Slot: TypeAlias = tuple[int, int]  # a dialogue's position and a repetition


class _Answer(NamedTuple):
    """A response of a file: where it stands, the key of its dialogue, who made it, and what it is.

    Several generations for one dialogue are repetitions. `has_thoughts` is true if thoughts were removed from the text.
    """

    place: Place
    key: _Key
    system: str
    response: Response
    repetition: int = 0
    has_thoughts: bool = False


def import_responses(
    folder: Path, files: Sequence[tuple[str, Path]], config: DatasetConfig | None, *, text_key: str = ""
) -> dict[str, dict[str, Any]]:
    """Read files of responses into a run's folder, made if need be, in place of those of systems of the same name.

    Files come with the names of their systems; where one is empty, entries or the file name it. Without a `config` the
    dialogues are those of the run. Gives by system how many `responses` it has, how many of them are `empty` (they say
    nothing, and are scored as such), from how many `thoughts` were removed, and the `missing` dialogues' ids.

    Args:
        folder: The run's folder.
        files: Files with the names of their systems.
        config: The data set whose dialogues are answered.
        text_key: Key of the response text in each entry, such as `prediction` or `output.pred`. Required if several of
            the known keys hold different texts.
    """
    if config is None and not (folder / FILE).is_file():
        raise InputError(
            f"which dialogues do they answer? {folder} is no run yet", hint="name their file: dataset.path"
        )
    answers = [answer for name, path in files for answer in _read(path, name, text_key)]
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
        models = {title: next(iter(mine.values())).response.model for title, mine in placed.items()}
        systems = [System(number, title, title, {}, model) for number, (title, model) in enumerate(models.items())]
        numbers = store.set_up(facts, systems, dialogues)
        for system in systems:
            for (position, repetition), answer in placed[system.title].items():
                named = {"id": dialogues[position].id, "method": system.title}
                job = Job(position, numbers[system.number], repetition)
                store.add(job, answer.response.model_copy(update=named))
        return {title: _count(mine, dialogues) for title, mine in placed.items()}


def _count(placed: Mapping[_Slot, _Answer], dialogues: Sequence[Dialogue]) -> dict[str, Any]:
    """Return the counts that are reported of one system's responses."""
    answered = {position for position, _ in placed}
    answers = placed.values()
    return {
        "responses": len(placed),
        "empty": sum(not answer.response.text and answer.response.status == "ok" for answer in answers),
        "failed": sum(answer.response.status == "failed" for answer in answers),
        "thoughts": sum(answer.has_thoughts for answer in answers),
        "missing": [dialogue.id for position, dialogue in enumerate(dialogues) if position not in answered],
    }


def _place_responses(
    answers: Sequence[_Answer], dialogues: Sequence[Dialogue], config: DatasetConfig
) -> dict[str, dict[_Slot, _Answer]]:
    """Return the answers by system, and by position of their dialogues and repetition; raise as `import_responses`."""
    find = _finder(answers, dialogues, config)
    placed: dict[str, dict[_Slot, _Answer]] = defaultdict(dict)
    unknown = []
    for answer in answers:
        taken = placed[answer.system]
        among = find(answer.key)
        slots = [(position, answer.repetition) for position in among]
        free = next((slot for slot in slots if slot not in taken), None)
        if free is not None:
            taken[free] = answer
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


def _read(path: Path, name: str, text_key: str = "") -> Iterator[_Answer]:
    """Yield the responses of a file, each entry of the form that it shows."""
    usual = name or path.name.partition(".")[0]
    for place, entry in _with_rows(_entries(path)):
        match entry:
            case dict() if (container := _container(entry)) is not None:  # a log of Inspect, test cases of deepeval
                yield from _read_container(place, container, entry[container], name, usual, text_key)
            case {"generation": [*dialogues]} if _find(entry, _IDS) is None:  # the few-shot bot's
                for key, text in _read_generations(place, dialogues):
                    yield _answer(place, key, usual, text)
            case {"dialog": [*parleys]}:  # ParlAI's `--world-logs`: acts of the teacher, with labels, and of the model
                for key, text in _read_world_log(place, parleys):
                    yield _answer(place, key, usual, text)
            case {"doc_id": int(number)}:  # lm-eval's `--log_samples`
                yield _sample_of(place, number, entry, usual)
            case dict() if isinstance(entry, _Row) or _is_response(entry):
                yield from _plain(place, entry, name, usual, text_key)
            case dict():  # {id: text}
                yield from (_answer(place, ("id", identifier), usual, text) for identifier, text in entry.items())
            case _:
                raise place.error("no object")


def _entries(path: Path) -> Iterator[tuple[Place, Any]]:
    """Yield the entries of a JSON or JSONL file, or the rows of a CSV or TSV file."""
    if path.suffix.lower() == ".eval":
        return _read_eval_log(path)
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    separator = _SEPARATORS.get(suffix.lower())
    return json_entries(path, _FORM) if separator is None else _table_rows(path, separator)


def _read_eval_log(path: Path) -> Iterator[tuple[Place, Any]]:
    """Yield the samples of a log of Inspect in its binary form: a zip with a JSON file for each sample."""
    hint = f"convert it: `inspect log convert {path} --to json --output-dir DIR`"
    count = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if not member.startswith("samples/") or not member.endswith(".json"):
                    continue
                where = f"{path}, {member}"
                sample = parse(archive.read(member), where, _FORM)
                yield Place(where, count, "", _FORM), {"samples": [sample]}
                count += 1
    except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
        raise InputError(f"{path}: no log of Inspect that can be read: {error}", hint=hint) from error
    if not count:
        raise InputError(f"{path}: the log has no samples", hint=_FORM)


class _Row(dict[str, Any]):
    """An entry of a file whose entries all have the same keys, which are therefore no ids of dialogues."""


def _with_rows(entries: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """Yield the entries; those of a file with several entries of the same keys as rows."""
    entries = iter(entries)
    first_two = list(itertools.islice(entries, 2))
    objects = [entry for _, entry in first_two if isinstance(entry, dict)]
    has_rows = len(objects) == 2 and len(objects[0]) > 1 and objects[0].keys() == objects[1].keys()
    for place, entry in itertools.chain(first_two, entries):
        yield place, _Row(entry) if has_rows and isinstance(entry, dict) else entry


def _table_rows(path: Path, separator: str) -> Iterator[tuple[Place, Any]]:
    """Yield the rows of a CSV or TSV file with a header."""
    with open_text(path, form=_FORM) as text:
        header = text.readline()
        if separator == "," and "," not in header:
            separator = next((other for other in ";\t" if other in header), ",")
        names = next(csv.reader([header], delimiter=separator), [])
        if not names:
            raise InputError(f"{path}: the file has no header", hint=_FORM)
        rows = csv.DictReader(text, names, delimiter=separator, strict=True)
        number = 0
        try:
            for number, row in enumerate(rows, start=1):
                place = Place(f"{path}, line {rows.line_num + 1}", number, "", _FORM)
                if None in row:
                    raise place.error(f"more cells than the {len(names)} of the header")
                yield place, _Row(storable(row))
        except csv.Error as error:
            raise InputError(f"{path}, line {rows.line_num + 1}: {error}", hint=_FORM) from error
        if not number:
            raise InputError(f"{path}: no rows below the header", hint=_FORM)


def _find(entry: Mapping[str, Any], names: Iterable[str]) -> Any:  # noqa: ANN401
    """Return the value of the first of the names that an entry has; None without one. Case does not matter."""
    by_name = {_normalised(key): value for key, value in entry.items() if value is not None}
    return next((by_name[name] for name in names if name in by_name), None)


def _normalised(key: str) -> str:
    snake_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key.strip())
    return re.sub(r"[\s-]+", "_", snake_case).lower()


def _is_response(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry is a response, and not a mapping of ids to texts."""
    names = set(map(_normalised, entry))
    return not entry or bool(names & {*_IDS, *_TEXTS}) or not all(map(_is_text, entry.values()))


def _container(entry: Mapping[str, Any]) -> str | None:
    """Return the key of the list of responses that an entry consists of; None if it is a response itself."""
    for key, value in entry.items():
        if _normalised(key) in _CONTAINERS and isinstance(value, list) and any(isinstance(i, dict) for i in value):
            return key
    return None


def _read_container(
    place: Place, key: str, samples: Sequence[Any], name: str, usual: str, text_key: str
) -> Iterator[_Answer]:
    """Yield the responses of a list in an entry; epochs of Inspect are repetitions."""
    for number, sample in enumerate(samples):
        if not isinstance(sample, dict):
            raise place.error("no object", f"{key}[{number}]")
        at = place._replace(where=f"{place.where}, {key}[{number}]")
        epoch = sample.get("epoch")
        offset = epoch - 1 if isinstance(epoch, int) and epoch > 0 else 0
        for answer in _plain(at, sample, name, usual, text_key):
            yield answer._replace(repetition=answer.repetition + offset)


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
    text = (text or "").strip()
    answer = strip_thoughts(text).strip()
    response = Response(text=answer, **{"model": _ELSEWHERE, **fields})
    return _Answer(place, key, system, response, has_thoughts=_letters(answer) != _letters(text))


def _plain(place: Place, entry: dict[str, Any], name: str, usual: str, text_key: str) -> Iterator[_Answer]:
    """Yield the responses of an entry of id and text, or a response as Dialore writes it, with trace and knowledge."""
    identifier = as_name(_find(entry, _IDS))
    question = _find(entry, _QUESTIONS)
    if not isinstance(identifier, str) and not isinstance(question, str):
        raise place.error(f"no id of a dialogue: rename its key to `id`; {_keys_of(entry)}")
    key: _Key = ("id", identifier) if isinstance(identifier, str) else ("latest turn", question, [])
    system = name or str(_find(entry, ("system", "method")) or usual)
    try:
        if {"method", "status"} <= entry.keys() and not text_key:
            whole = Response.model_validate(entry)
            yield _Answer(place, key, system, whole.model_copy(update={"model": whole.model or _ELSEWHERE}))
            return
        given = _find(entry, ("knowledge",)) or _find_contexts(entry)
        knowledge = [read_knowledge(item) for item in _GIVEN.validate_python(given)]
    except ValidationError as error:
        raise place.error(describe(error)) from error
    except InputError as error:
        raise place.error(error.message, "knowledge") from error
    model = str(_find(entry, ("model",)) or _ELSEWHERE)
    if failure := _failure(entry):
        failed = _answer(place, key, system, "", knowledge=knowledge, model=model, status="failed", error=failure)
        yield failed
        return
    for repetition, text in enumerate(_generations(place, entry, text_key)):
        answer = _answer(place, key, system, text, knowledge=knowledge, model=model)
        yield answer._replace(repetition=repetition)


def _find_contexts(entry: Mapping[str, Any]) -> list[str] | None:
    """Return the passages that other tools record beside a response, if they are texts."""
    contexts = _find(entry, _CONTEXTS)
    if not isinstance(contexts, list) or not all(isinstance(text, str) for text in contexts):
        return None
    return contexts


def _failure(entry: Mapping[str, Any]) -> str:
    """Return why a request of a batch, or a sample, failed; empty if it did not."""
    error = _find(entry, ("error",))
    if isinstance(error, dict):
        error = error.get("message") or json.dumps(error, ensure_ascii=False)
    if error:
        return str(error)
    response = _find(entry, ("response",))
    status = response.get("status_code") if isinstance(response, dict) else None
    return f"status {status}" if isinstance(status, int) and status >= 400 else ""


def _generations(place: Place, entry: Mapping[str, Any], text_key: str) -> list[str]:
    """Return the texts of an entry: one, or several generations.

    Raises InputError if there is none, or if several known keys hold different texts.
    """
    if text_key:
        value: Any = entry
        for part in [text_key] if text_key in entry else text_key.split("."):
            value = _find(value, [_normalised(part)]) if isinstance(value, dict) else None
        texts = _nested_texts(value)
        if texts is None:
            raise place.error(f"no text under the key {text_key!r}; {_keys_of(entry)}")
        return texts
    texts_by_key = {}
    for key, value in entry.items():
        if _normalised(key) in _TEXTS and (texts := _nested_texts(value)) is not None:
            texts_by_key[key] = texts
    if not texts_by_key:
        has_null = any(_normalised(key) in _TEXTS and value is None for key, value in entry.items())
        if has_null:
            return [""]
        raise place.error(f"no text of a response: name its key (text_key); {_keys_of(entry)}")
    if len({tuple(texts) for texts in texts_by_key.values()}) > 1:
        keys = ", ".join(f"`{key}`" for key in texts_by_key)
        problem = f"{place.where}: {keys} hold different texts"
        raise InputError(problem, hint="name the key that holds the response (text_key)")
    return next(iter(texts_by_key.values()))


def _nested_texts(value: Any) -> list[str] | None:  # noqa: ANN401
    """Return the texts that a value of a known key holds, as other tools nest them; None without any."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        if value and all(isinstance(part, dict) and part.get("type") for part in value):
            return _joined_parts(value)
        texts = [_nested_texts(item) for item in value]
        return [text for some in texts if some is not None for text in some] or None
    if not isinstance(value, dict):
        return None
    # A message without content, as of a model that only thought, says nothing.
    if "content" in value and value["content"] is None and "role" in value:
        return [""]
    nested = (_nested_texts(value.get(name)) for name in _NESTED_TEXTS)
    return next((texts for texts in nested if texts is not None), None)


def _joined_parts(parts: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """Return the text of typed content parts, or of the messages among the items of OpenAI's Responses API."""
    shown = [part for part in parts if part["type"] in {"text", "output_text", "message"}]
    texts = [text for part in shown for text in _nested_texts(part) or ()]
    return ["".join(texts)] if texts else None


def _keys_of(entry: Mapping[str, Any]) -> str:
    """Return an entry's keys in words."""
    keys = [*entry]
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"the entry has {', '.join(map(repr, keys[:_SHOWN])) or 'no keys'}{more}"


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


def _read_generations(place: Place, dialogues: Sequence[Any]) -> Iterator[tuple[_Key, str]]:
    """Yield what the few-shot bot generated for all dialogues."""
    for number, dialogue in enumerate(dialogues):
        yield from _read_generated(place, number, dialogue)


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
