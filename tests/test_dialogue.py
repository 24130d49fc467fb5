"""Dialogues are read from every documented form, and every malformed one is named by place and field."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from dialore.dialogue import Dialogue, Utterance, dialogue_from, parse_dialogues, read_dialogues
from dialore.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {"id": "d1", "turns": [{"speaker": "user", "text": "I burnt my toast."}]}
OTHER = {"id": "d2", "turns": [{"speaker": "Ann", "text": "Hi"}, {"speaker": "Bo", "text": "Hello there"}]}


def dump(*entries: object) -> str:
    return "\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n"


def failure(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_dialogues(path)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.__class__ is InputError
    return text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.json", json.dumps([GOOD, OTHER], indent=2)),
        ("lines.jsonl", dump(GOOD, OTHER)),
        ("blank_lines.jsonl", "\n" + dump(GOOD) + "\n  \n" + dump(OTHER)),
        ("no_last_newline.jsonl", dump(GOOD, OTHER).rstrip()),
        ("windows.jsonl", dump(GOOD, OTHER).replace("\n", "\r\n")),
        ("bom.jsonl", "\ufeff" + dump(GOOD, OTHER)),
        ("bom.json", "\ufeff" + json.dumps([GOOD, OTHER])),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_every_form_gives_the_same_dialogues(tmp_path: Path, name: str, content: str, packed: bool) -> None:
    data = content.encode()
    path = tmp_path / (name + ".gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert [dialogue.id for dialogue in read_dialogues(path)] == ["d1", "d2"]
    assert read_dialogues(path)[1].texts == ("Hi", "Hello there")


def test_one_object_is_one_dialogue(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(GOOD, indent=1), encoding="utf-8")
    assert read_dialogues(path) == [Dialogue.model_validate(GOOD)]


def test_line_separators_inside_a_text_do_not_end_its_line(tmp_path: Path) -> None:
    text = "one\u2028two\u0085three\x0cfour"
    path = tmp_path / "separators.jsonl"
    path.write_text(dump({"id": "a", "turns": [text]}, GOOD), encoding="utf-8")
    assert read_dialogues(path)[0].last.text == text


def test_ids_are_derived_from_the_turns_whatever_the_file_is_called(tmp_path: Path) -> None:
    lines = dump({"turns": ["hi"]}, {"id": "own", "turns": ["hi"]}, {"turns": ["ho"]}, {"turns": ["hi"]})
    ids = []
    for name in ("valid.part.jsonl", "x.test.jsonl"):
        (tmp_path / name).write_text(lines, encoding="utf-8")
        ids.append([dialogue.id for dialogue in read_dialogues(tmp_path / name)])
    assert ids[0] == ids[1] == [Dialogue("hi").id, "own", Dialogue("ho").id, f"{Dialogue('hi').id}-2"]


@pytest.mark.parametrize(
    ("turns", "speakers"),
    [
        (["a"], ["user"]),
        (["a", "b"], ["system", "user"]),
        (["a", "b", "c"], ["user", "system", "user"]),
        ([{"speaker": "Ann", "text": "a"}, "b"], ["Ann", "user"]),
    ],
)
def test_bare_turns_alternate_and_end_with_the_user(turns: list[object], speakers: list[str]) -> None:
    dialogue = Dialogue.model_validate({"id": "x", "turns": turns})
    assert [turn.speaker for turn in dialogue.turns] == speakers


def test_unknown_keys_are_kept_in_extra_beside_what_was_there() -> None:
    dialogue = Dialogue.model_validate({**GOOD, "split": "valid", "extra": {"seen": 1}, "emotion": [2]})
    assert dialogue.extra == {"seen": 1, "split": "valid", "emotion": [2]}
    again = Dialogue.model_validate(json.loads(dialogue.model_dump_json()))
    assert again == dialogue


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["How was the film?"], "en"),
        (["你昨天看电影了吗？"], "zh"),
        (["我喜欢 Beyonce 的歌"], "zh"),
        (["The word 茶 means tea, and that is all the Chinese I know so far."], "en"),
        (["Café déjà vu"], "en"),
        (["12345 ?!"], "en"),
    ],
)
def test_language_is_found_from_the_turns(texts: list[str], language: str) -> None:
    assert Dialogue.model_validate({"id": "x", "turns": texts}).language == language


def test_a_given_language_wins_and_null_is_not_given() -> None:
    assert Dialogue.model_validate({**GOOD, "language": "zh"}).language == "zh"
    assert Dialogue.model_validate({**GOOD, "language": None}).language == "en"


@pytest.mark.parametrize(
    ("speakers", "responder"),
    [
        (["user"], "system"),
        (["system"], "user"),
        (["Ann"], "system"),
        (["Ann", "Bo"], "Ann"),
        (["Ann", "Bo", "Bo"], "Ann"),
        (["Ann", "Cy", "Bo"], "Cy"),
        (["user", "system", "user"], "system"),
    ],
)
def test_the_responder_is_the_other_side_of_the_last_turn(speakers: list[str], responder: str) -> None:
    turns = tuple(Utterance(speaker=speaker, text=f"text {place}") for place, speaker in enumerate(speakers))
    dialogue = Dialogue(id="x", language="en", turns=turns)
    assert dialogue.last is turns[-1]
    assert dialogue.responder == responder


def test_history_is_one_utterance_a_line_and_edges_are_trimmed() -> None:
    assert Dialogue.model_validate({"id": "x", "turns": [" a ", "b\n"]}).history == "a\nb"


MALFORMED = [
    ({**GOOD, "turns": []}, "turns"),
    ({"id": "x"}, "turns"),
    ({**GOOD, "turns": "hello"}, "turns"),
    ({**GOOD, "turns": None}, "turns"),
    ({**GOOD, "turns": [{"speaker": "user"}]}, "turns[0].text"),
    ({**GOOD, "turns": ["fine", {"text": "who?"}]}, "turns[1].speaker"),
    ({**GOOD, "turns": [{"speaker": "", "text": "hi"}]}, "turns[0].speaker"),
    ({**GOOD, "turns": [{"speaker": "user", "text": "  "}]}, "turns[0].text"),
    ({**GOOD, "turns": ["  "]}, "turns[0].text"),
    ({**GOOD, "turns": [{"speaker": "user", "text": 7}]}, "turns[0].text"),
    ({**GOOD, "turns": [7]}, "turns[0]"),
    ({**GOOD, "language": "xx"}, "language"),
    ({**GOOD, "id": [7]}, "id"),
    ({**GOOD, "id": ""}, "id"),
    ({**GOOD, "persona": 5}, "persona"),
    ({**GOOD, "persona": ["I like tea", 5]}, "persona[1]"),
    ({**GOOD, "knowledge": [5]}, "knowledge[0]"),
    ({**GOOD, "topic": ["tea"]}, "topic"),
    ({**GOOD, "reference": 3}, "reference"),
    ({**GOOD, "extra": ["seen"]}, "extra"),
]


@pytest.mark.parametrize(("entry", "field"), MALFORMED, ids=[f"{n}-{field}" for n, (_, field) in enumerate(MALFORMED)])
def test_a_malformed_entry_is_named_by_place_and_field(tmp_path: Path, entry: object, field: str) -> None:
    lines = tmp_path / "bad.jsonl"
    lines.write_text(json.dumps({**GOOD, "id": "first"}) + "\n\n" + json.dumps(entry) + "\n", encoding="utf-8")
    assert failure(lines).startswith("bad.jsonl, line 3: ")
    assert f"field {field}" in failure(lines)
    listed = tmp_path / "bad.json"
    listed.write_text(json.dumps([{**GOOD, "id": "first"}, entry]), encoding="utf-8")
    assert failure(listed).startswith("bad.json, entry 2: ")
    assert f"field {field}" in failure(listed)


@pytest.mark.parametrize(
    ("entry", "kind"), [("text", "a string"), (5, "a number"), (None, "null"), ([], "a list"), (True, "a boolean")]
)
def test_an_entry_that_is_no_object_says_what_it_is(tmp_path: Path, entry: object, kind: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(dump(GOOD, entry), encoding="utf-8")
    assert f"line 2: expected a dialogue object, found {kind}" in failure(path)


def test_broken_json_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(dump(GOOD) + '{"id": "d2", "turns": [\n', encoding="utf-8")
    assert failure(path).startswith("bad.jsonl, line 2: not valid JSON")


def test_a_broken_document_is_named_by_the_line_that_breaks_it(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([GOOD, OTHER], indent=1).replace('"id": "d2"', '"id" "d2"'), encoding="utf-8")
    line = next(n for n, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1) if '"id" "d2"' in text)
    assert failure(path).startswith(f"bad.json, line {line}: not valid JSON")


def test_a_repeated_id_names_both_places(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    path.write_text(dump(GOOD, OTHER, GOOD), encoding="utf-8")
    text = failure(path)
    assert text.startswith("twice.jsonl, line 3: field id: 'd1'")
    assert "line 1" in text


def test_several_faults_are_counted_and_parsing_goes_on_after_each() -> None:
    text = dump({"id": "a"}, GOOD, 5, {"id": "b"}, OTHER)
    entries = list(parse_dialogues(text, name="mixed.jsonl"))
    assert [isinstance(entry, InputError) for entry in entries] == [True, False, True, True, False]


def test_the_number_of_further_faults_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text(dump({"id": "a"}, GOOD, 5, {"id": "b"}), encoding="utf-8")
    assert "(and 2 more)" in failure(path)


@pytest.mark.parametrize(("content", "said"), [("", "empty"), (" \n\n", "empty"), ("\ufeff", "empty"), ("[]", "empty")])
def test_a_file_without_dialogues_is_an_error(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "none.json"
    path.write_text(content, encoding="utf-8")
    assert said in failure(path)
    assert "none.json" in failure(path)


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    latin = tmp_path / "latin.json"
    latin.write_bytes(json.dumps(GOOD).encode().replace(b"burnt", b"br\xfbl\xe9"))
    assert "not UTF-8" in failure(latin)
    short = tmp_path / "short.jsonl.gz"
    short.write_bytes(gzip.compress(dump(*({**GOOD, "id": str(n)} for n in range(500))).encode())[:-200])
    assert "short.jsonl.gz" in failure(short)
    plain = tmp_path / "plain.jsonl.gz"
    plain.write_text(dump(GOOD), encoding="utf-8")
    assert "plain.jsonl.gz" in failure(plain)
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(gzip.compress(b"x" * 5000)[:14] + b"\xff\xff\xff\xff")
    assert "torn.jsonl.gz" in failure(torn)
    assert "no such file" in failure(tmp_path / "missing.json")
    assert "cannot read" in failure(tmp_path)


def test_deeply_nested_json_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 200_000, encoding="utf-8")
    assert "deep.json" in failure(path)


def test_a_decoded_object_takes_the_default_id_only_where_it_has_none() -> None:
    assert dialogue_from({"turns": ["hi"]}, place="request", default_id="r-1").id == "r-1"
    with pytest.raises(InputError, match="request: field turns"):
        dialogue_from({}, place="request", default_id="r-1")
