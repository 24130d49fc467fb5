"""What comes from outside (files, an endpoint's answers) is read or is one clear error, never a traceback."""

from __future__ import annotations

import gzip
import json
import time
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dialore.datasets import data_set, data_set_names
from dialore.dialogue import Dialogue, parse_dialogues, read_dialogues
from dialore.errors import InputError, ModelError
from dialore.llm.capabilities import ServerCapabilities
from dialore.llm.endpoint import Reader
from dialore.llm.http import HttpClient, _retry_after, error_detail, load_json, one_line
from dialore.response import Response
from dialore.retrieval.chunking import Chunking, Unreadable
from dialore.retrieval.graph.facts import FILE_FORMATS as FACT_FORMATS
from dialore.retrieval.graph.facts import Rejects, read_facts
from dialore.retrieval.loaders.formats import FILE_FORMATS
from dialore.retrieval.loaders.reading import read_sections
from dialore.settings import read_settings
from dialore.sources.persona import read_persona
from dialore.text import storable
from tests.llm.models import ask

MANY = settings(max_examples=700, deadline=None, suppress_health_check=list(HealthCheck))
FEWER = settings(MANY, max_examples=400)
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)  # halves of characters, too
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**40), float("nan"), float("inf")])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def shaped(*names: str) -> st.SearchStrategy[dict[str, object]]:
    """An object with some of these names, each with anything below it."""
    return st.dictionaries(st.sampled_from(names) | TEXT, JSON, max_size=6)


TURNS = st.lists(TEXT | shaped("speaker", "text"), max_size=4)
DIALOGUES = st.builds(
    lambda fields, turns: {**fields, "turns": turns},
    shaped("id", "language", "topic", "persona", "reference", "knowledge", "sources", "extra"),
    TURNS | JSON,
)


@MANY
@given(DIALOGUES)
def test_any_dialogue_is_read_and_can_be_written_again_or_is_refused(data):
    for entry in parse_dialogues(json.dumps(data), name="any.jsonl"):
        if isinstance(entry, Dialogue):
            assert Dialogue.model_validate_json(entry.model_dump_json()).id == entry.id
        else:
            assert isinstance(entry, InputError)
            assert "\n" not in str(entry)
            str(entry).encode()


@MANY
@given(st.data())
def test_any_entry_of_any_data_set_is_read_or_refused(tmp_path_factory, data):
    name = data.draw(st.sampled_from(data_set_names()))
    keys = (
        "dialogue",
        "dialog",
        "turns",
        "messages",
        "conversation",
        "content",
        "meta",
        "id",
        "query",
        "persona",
        "KB",
    )
    entry = data.draw(shaped(*keys) | DIALOGUES | JSON)
    path = tmp_path_factory.getbasetemp() / f"{name}.json"
    path.write_text(json.dumps([entry]), "utf-8")
    try:
        read = list(data_set(name).read(path))
    except InputError as error:
        str(error).encode()
    else:
        for dialogue in read:
            dialogue.model_dump_json()


CELLS = TEXT | st.sampled_from(
    ["tea", "IsA", "/r/IsA", "/c/en/tea", "/c/zh/茶", "nan", "1e999", "{}", '{"weight": NaN}']
)
LINES = st.lists(st.lists(CELLS, max_size=6).map("\t".join), max_size=5).map("\n".join)
OBJECTS = st.lists(shaped("head", "relation", "tail", "weight", "provenance") | JSON, max_size=4)
FACTS = LINES | OBJECTS.map(lambda entries: "\n".join(map(json.dumps, entries)))
ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])


def encoded(text: str, encoding: str) -> bytes:
    return text.encode(encoding, "surrogatepass" if encoding.startswith("utf") else "replace")


@MANY
@given(FACTS.flatmap(lambda text: ENCODINGS.map(lambda how: encoded(text, how))) | st.binary(max_size=60), st.data())
def test_any_file_of_facts_is_read_or_refused(tmp_path_factory, content, data):
    path = tmp_path_factory.getbasetemp() / data.draw(st.sampled_from(["f.tsv", "f.csv", "f.jsonl", "f.gz", "f"]))
    path.write_bytes(content)
    chosen = data.draw(st.sampled_from([None, *FACT_FORMATS]))
    try:
        for fact in read_facts(path, file_format=chosen, rejects=data.draw(st.sampled_from([None, Rejects()]))):
            json.dumps([fact.head, fact.relation, fact.tail, fact.weight], allow_nan=False, ensure_ascii=False).encode()
    except InputError as error:
        assert "\n" not in str(error).strip()  # noqa: PT017 - most files are none
        str(error).encode()


PASSAGES = st.lists(shaped("text", "title", "url", "contents") | JSON, max_size=4)
TEXTS = TEXT | PASSAGES.map(lambda entries: "\n".join(map(json.dumps, entries)))
MARKUP = st.lists(
    TEXT | st.sampled_from(["<p>", "</table>", "<dl><dt>", "<!--", "# ", "---\n", "```", "| a |", "&#xd800;", "[x]("])
)


@MANY
@given(
    (TEXTS | MARKUP.map("".join)).flatmap(lambda text: ENCODINGS.map(lambda how: encoded(text, how)))
    | st.binary(max_size=60),
    st.sampled_from(FILE_FORMATS),
    st.sampled_from(["", ".gz"]),
)
@example(b'{"text": "tea", "": null}', "jsonl", "")
def test_any_document_is_read_or_refused(tmp_path_factory, content, form, packed):
    path = tmp_path_factory.getbasetemp() / f"document{packed}"
    path.write_bytes(gzip.compress(content) if packed and content[:1] != b"x" else content)
    rejects = []
    try:
        for section in read_sections(path, form, lambda place, reason: rejects.append(f"{place}: {reason}")):
            for passage in Chunking().split(section, "file"):
                assert passage.id
                location = (passage.title, passage.url, passage.file, passage.page)
                json.dumps([passage.text, *location], ensure_ascii=False).encode()
    except Unreadable as error:
        rejects.append(str(error))
    storable("".join(rejects)).encode()


PERSONAS = (TEXT | JSON.map(json.dumps)).flatmap(lambda text: ENCODINGS.map(lambda how: encoded(text, how)))


@FEWER
@given(PERSONAS | st.binary(max_size=60), st.sampled_from(["p.txt", "p.yaml", "p.json", "p.json.gz"]))
def test_any_persona_or_settings_are_read_or_refused(tmp_path_factory, content, name):
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    for read in (read_persona, read_settings):
        try:
            read(path)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017 - most files are none
            str(error).encode()


ANSWERS = st.builds(
    lambda body, choice, said: {**body, "choices": [{**choice, **said}]},
    shaped("model", "usage", "error"),
    shaped("finish_reason", "text", "message", "delta"),
    st.builds(lambda inner: {"message": inner}, shaped("content", "refusal", "role")) | st.just({}),
)


@MANY
@given(ANSWERS | shaped("choices", "usage", "model", "error") | JSON, st.sampled_from(["message", "delta"]))
def test_any_answer_of_an_endpoint_is_a_completion_or_a_model_error(payload, part):
    http = SimpleNamespace(where="http://h/v1", key="a-secret-key")
    reader = Reader(ask(), http, ServerCapabilities())
    try:
        reader.take(load_json(json.dumps(payload), "h"), part)
        completion = reader.completion()
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most answers are none
        Response(status="failed", error=str(error)).model_dump_json()
    else:
        completion.model_dump_json()
        Response(text=completion.text, usage=completion.usage).model_dump_json().encode()


@MANY
@given(JSON, st.sampled_from([400, 401, 404, 429, 500, 777]), TEXT | st.sampled_from(["5", "nan", "-1", "1e400"]))
def test_any_refusal_is_one_line(body, status, wait):
    http = HttpClient("http://h/v1", "a-secret-key")
    response = SimpleNamespace(status=status, headers={"Retry-After": wait}, url="http://h/v1/x")
    error = http.status_error(response, json.dumps(body).encode())
    assert "\n" not in str(error)
    str(error).encode()
    one_line(error_detail(body)[0]).encode()


@MANY
@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_a_model_error(data):
    try:
        load_json(data, "h")
    except ModelError as error:
        str(error).encode()


@pytest.mark.parametrize(
    "value", ["Sun, 06 Nov 1994 08:49:37 +99999999", "Sun, 06 Nov 0001 00:00:00 +2359", "x", "inf", "Sun, 99 Nov"]
)
def test_an_absurd_date_to_come_again_is_none(value):
    assert _retry_after({"Retry-After": value}) in {None, 0.0}


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ('"mood": NaN', None),
        ('"mood": [1, -Infinity]', [1, None]),
        (f'"mood": {10**200}', None),
        ('"mood": 1e999', None),
        (r'"mood": {"deep": "\ud83d"}', {"deep": "\ufffd"}),
    ],
)
def test_what_could_not_be_written_again_is_null_where_nobody_reads_it(tmp_path, field, words):
    text = '{"id": "x", "turns": ["a"], "reference": "b", ' + field + "}"
    (dialogue,) = parse_dialogues(text, name="x.jsonl")
    path = tmp_path / "x.jsonl"
    path.write_text(text, "utf-8")
    (whole,) = data_set("jsonl").read(path)
    assert dialogue.extra["mood"] == whole.answers[0].extra["mood"] == words
    json.dumps(dialogue.extra, allow_nan=False).encode()


def test_where_such_a_number_is_wanted_it_is_missing():
    (error,) = parse_dialogues('{"id": "x", "turns": NaN}', name="x.jsonl")
    assert "field turns: Field required" in str(error)


def test_one_is_taken_for_several_a_number_for_a_name_and_null_for_what_is_not_said():
    text = (
        '{"id": 7, "turns": ["a"], "knowledge": "Tea is a drink.", "persona": "I run.", "topic": null, "sources": null}'
    )
    (dialogue,) = parse_dialogues(text, name="x.jsonl")
    assert (dialogue.id, dialogue.knowledge, dialogue.persona) == ("7", ("Tea is a drink.",), ("I run.",))
    assert not {"topic", "sources"} & dialogue.model_fields_set
    assert [each.id for each in parse_dialogues('[{"id": 7.0, "turns": ["a"]}]', name="x.json")] == ["7"]
    (error,) = parse_dialogues('{"id": true, "turns": ["a"]}', name="x.jsonl")
    assert "field id" in str(error)


def test_an_utterance_of_megabytes_is_refused_at_once():
    text = json.dumps({"turns": ["word " * 2_000_000]})
    begun = time.process_time()
    text.replace("word", "of").split(" ")  # linear, and what any machine has time for
    least, begun = time.process_time() - begun, time.process_time()
    (error,) = parse_dialogues(text, name="x.jsonl")
    assert "10,000,000 characters is too long" in str(error)
    assert time.process_time() - begun < 10 * least


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_marked_text_is_read_in_its_encoding(tmp_path, encoding):
    path = tmp_path / "talk.jsonl"
    path.write_text('{"id": "x", "turns": ["Café 好"]}\n', encoding)
    assert read_dialogues(path)[0].last.text == "Café 好"
    (whole,) = data_set("jsonl").read(path)
    assert whole.texts == ("Café 好",)
