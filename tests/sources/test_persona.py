"""The persona and the documents under its sentences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError, UnknownNameError
from dialore.knowledge import Knowledge
from dialore.sources.base import KnowledgeSource
from dialore.sources.persona import PersonaDocuments, PersonaSource, open_persona, read_persona
from tests.data_folder import real_file

if TYPE_CHECKING:
    from pathlib import Path

RETRIEVERS = ["bm25", "dense", "fused"]
PERSONA = {
    "I have two cats at home": ["A cat sleeps up to sixteen hours a day.", "Cats cannot taste sweetness."],
    "I play the violin in an orchestra": ["A violin has four strings.", "Cremona is famous for its violin makers."],
    "I grew up by the sea": [],
}


def dialogue(persona: tuple[str, ...] = (), documents: Any = None, text: str = "hello") -> Dialogue:
    extra = {} if documents is None else {"documents": documents}
    return Dialogue.model_validate({"id": "d1", "turns": [text], "persona": persona, **extra})


OWN = dialogue(tuple(PERSONA), PERSONA)


@pytest.mark.parametrize("retriever", RETRIEVERS)
@pytest.mark.parametrize(
    ("query", "sentence"),
    [("do you have cats", "I have two cats at home"), ("do you play the violin", "I play the violin in an orchestra")],
)
async def test_the_sentence_that_fits_comes_first(retriever, query, sentence):
    found = await PersonaSource(retriever=retriever).search(query, OWN, top=2)
    assert len(found) == 2
    assert found[0].text == sentence
    assert found[0].score > found[1].score
    assert (found[0].kind, found[0].source) == ("persona", "persona")
    assert found[0].documents == PERSONA[sentence]


@pytest.mark.parametrize("retriever", RETRIEVERS)
async def test_chinese_is_ranked_too(retriever):
    chinese = dialogue(("我是一名厨师", "我喜欢看科幻小说", "我的星座是天蝎座"), text="你好")
    found = await PersonaSource(retriever=retriever).search("你平时喜欢看小说吗？", chinese, top=1)
    assert [piece.text for piece in found] == ["我喜欢看科幻小说"]


async def test_sentences_without_a_common_word_are_given_in_their_order():
    found = await PersonaSource(retriever="bm25").search("xylophone", OWN)
    assert [piece.text for piece in found] == list(PERSONA)
    assert {piece.score for piece in found} == {0.0}


async def test_the_files_persona_speaks_only_where_the_dialogue_has_none(tmp_path):
    path = tmp_path / "me.txt"
    path.write_text("I am a baker\n\n I have a dog \n", encoding="utf-8")
    source = open_persona(path)
    assert {piece.text for piece in await source.search("work", dialogue())} == {"I am a baker", "I have a dog"}
    assert {piece.text for piece in await source.search("work", dialogue(("I am a poet",)))} == {"I am a poet"}


async def test_without_persona_or_file_there_is_nothing_and_no_error():
    source = open_persona(None)
    assert await source.search("anything", dialogue()) == []
    assert await PersonaDocuments(source).search("anything", dialogue()) == []


async def test_ids_are_of_the_content():
    one, two = [(await PersonaSource(retriever=name).search("cats", OWN, top=1))[0] for name in ("bm25", "dense")]
    assert one.id == two.id
    assert one.id.startswith("persona:")


@pytest.mark.parametrize("retriever", RETRIEVERS)
async def test_documents_with_and_without_dependency(retriever):
    persona = PersonaSource(retriever=retriever)
    documents = PersonaDocuments(persona)
    everywhere = await documents.search("where do violin makers live", OWN)
    assert len(everywhere) == 4
    assert everywhere[0].text == "Cremona is famous for its violin makers."
    assert everywhere[0].persona == "I play the violin in an orchestra"
    assert (everywhere[0].kind, everywhere[0].source) == ("passage", "documents")

    chosen = await persona.search("tell me about your cats", OWN, top=1)
    under = await documents.search("where do violin makers live", OWN, scope=chosen)
    assert {piece.text for piece in under} == set(PERSONA["I have two cats at home"])


async def test_a_chosen_sentence_without_documents_has_none():
    sea = [piece for piece in await PersonaSource().search("sea", OWN) if piece.text == "I grew up by the sea"]
    assert await PersonaDocuments().search("sea", OWN, scope=sea) == []


async def test_other_knowledge_chosen_before_does_not_narrow_the_documents():
    passage = Knowledge(id="passage:1", kind="passage", text="anything", source="web")
    assert len(await PersonaDocuments().search("cats", OWN, scope=[passage])) == 4


async def test_a_chosen_sentence_of_elsewhere_brings_its_documents_along():
    piece = Knowledge(id="p", kind="persona", text="I swim", source="persona", documents=["Water is wet."])
    found = await PersonaDocuments().search("water", OWN, scope=[piece])
    assert [item.text for item in found] == ["Water is wet."]


async def test_a_file_gives_documents_to_a_dialogues_sentences_that_have_none():
    source = PersonaSource(PERSONA)
    bare = dialogue(("I have two cats at home",))
    found = await PersonaDocuments(source).search("cats", bare)
    assert {piece.text for piece in found} == set(PERSONA["I have two cats at home"])


async def test_a_document_under_two_sentences_comes_once():
    shared = dialogue(("I cook", "I bake"), {"I cook": ["Salt is a mineral."], "I bake": ["Salt is a mineral."]})
    found = await PersonaDocuments().search("salt", shared)
    assert [piece.persona for piece in found] == ["I cook"]


@pytest.mark.parametrize("documents", [["a"], {"I cook": 3}, {"I cook": [1]}, "text"])
async def test_malformed_documents_of_a_dialogue_are_a_source_error(documents):
    bad = dialogue(("I cook",), documents)
    with pytest.raises(SourceError, match="d1"):
        await PersonaDocuments().search("salt", bad)


@pytest.mark.parametrize("name", ["me.json", "me.yaml", "me.yml"])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (["I cook", "I bake"], {"I cook": (), "I bake": ()}),
        ({"I cook": ["Salt."], "I bake": None}, {"I cook": ("Salt.",), "I bake": ()}),
        ({"I cook": "Salt."}, {"I cook": ("Salt.",)}),
    ],
)
def test_files_of_sentences_and_documents(tmp_path: Path, name, data, expected):
    path = tmp_path / name
    path.write_text(json.dumps(data), encoding="utf-8")
    assert read_persona(path) == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("me.txt", "\n \n"),
        ("me.json", "[1, 2]"),
        ("me.json", '{"a": {"b": 1}}'),
        ("me.json", "{"),
        ("me.json", "[]"),
        ("me.yaml", "a: [b"),
        ("me.yaml", "just words"),
    ],
)
def test_bad_files_are_one_clear_line(tmp_path: Path, name, content):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match="a persona file has") as caught:
        open_persona(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_an_unknown_retriever(tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        open_persona(tmp_path / "nobody.txt")
    with pytest.raises(UnknownNameError, match="dense"):
        PersonaSource(retriever="densee")


def test_both_are_knowledge_sources():
    assert isinstance(PersonaSource(), KnowledgeSource)
    assert isinstance(PersonaDocuments(), KnowledgeSource)


async def test_the_default_finds_most_persona_sentences_of_kbp():
    """The figure of the docstring, on the first sixty dialogues, with room for another embedding."""
    import gzip

    with gzip.open(real_file("kbp/dev.json.gz")) as file:
        entries = json.load(file)[:60]
    source, hits, asked = PersonaSource(), 0, 0
    for entry in entries:
        history: list[str] = []
        own = dialogue(tuple(entry["persona"].values()))
        for turn in entry["conversation"]:
            history.append(turn["U"])
            if turn["P-K"]:
                gold = {entry["persona"][key] for key in turn["P-K"][0]}
                hits += (await source.search(" ".join(history[-2:]), own, top=1))[0].text in gold
                asked += 1
            history.append(turn["S"])
    assert asked > 200
    assert hits / asked > 0.55


async def test_white_space_around_a_sentence_parts_it_from_no_documents():
    persona = PersonaSource({"I own a bike.": ["Bikes have two wheels."]})
    given = Dialogue(
        id="d1",
        turns=["What do you drink?"],
        persona=[" I like tea. ", "I own a bike.\n"],
        extra={"documents": {"I like tea. ": ["Tea is a leaf."]}},
    )
    found = await PersonaDocuments(persona).search("tea wheels", given)
    assert {piece.text for piece in found} == {"Tea is a leaf.", "Bikes have two wheels."}
