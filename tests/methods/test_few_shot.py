"""The base of samples: what is kept, what is fit, what is selected, and what happens to damaged files."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import numpy as np
import pytest

from dialore.cli.samples import build, compare
from dialore.dialogue import Dialogue
from dialore.errors import InputError, SourceError
from dialore.knowledge import Fact
from dialore.llm.perplexity import LocalLikelihood
from dialore.methods.few_shot import (
    Sample,
    SampleDatabase,
    align_samples,
    build_samples,
    context_text,
    filter_marks,
    is_fit,
    overlaps,
    samples_of,
    topic_of,
    turns_by_side,
)
from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph.writing import build_graph
from dialore.sources.graph import open_graph
from dialore.sources.registry import KINDS
from tests.data_folder import real_file
from tests.llm.tiny_causal import make_tiny_causal, needs_torch
from tests.methods.sample_fixture import histories

SAMPLES = list(samples_of(histories()))


def make(folder, samples=SAMPLES, **settings):
    build_samples(samples, folder / "x.samples", load_embedder(), **settings)
    return SampleDatabase(folder / "x.samples")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    made = make(
        tmp_path_factory.mktemp("samples"),
        perplexities={s.id: -ord(s.topic[0]) % 97 for s in SAMPLES},
        perplexity_by="x",
    )
    yield made
    made.close()


def asked(*turns, topic=None, **fields):
    return Dialogue.model_validate({"id": "q", "turns": list(turns), "topic": topic, **fields})


# --- overlap and fitness


@pytest.mark.parametrize(
    ("knowledge", "response", "language", "share"),
    [
        ("Tea is old.", "Tea is old", "en", 1.0),
        ("Tea is old.", "I know that tea is OLD!", "en", 3 / 6),
        ("Tea is old.", "Nice weather today", "en", 0.0),
        ("Tea is old.", "", "en", 0.0),
        ("绿茶很健康", "是的，绿茶很健康！", "zh", 5 / 7),  # by characters, punctuation aside
        ("我们喝 Coffee", "喝coffee", "zh", 1.0),
    ],
)
def test_overlap_is_the_share_of_the_response_that_stands_in_the_knowledge(knowledge, response, language, share):
    assert overlaps(knowledge, response, language)[0] == pytest.approx(share)


def test_overlap_by_rows_of_words():
    knowledge, response = "the tea is old and the sea is warm", "the sea is warm but the tea"
    assert overlaps(knowledge, response, "en")[0] == pytest.approx(6 / 7)
    assert overlaps(knowledge, response, "en", run=3)[0] == pytest.approx(4 / 7)
    assert overlaps(knowledge, response, "en", run=5)[0] == 0
    assert overlaps(knowledge, "but the sea is warm", "en", run=4)[0] == pytest.approx(4 / 5)  # a row at the end counts


def test_fit_is_what_names_its_topic_shortly_without_brackets_or_pointing_back():
    fit = {sample.id.split("@")[0]: is_fit(sample) for sample in SAMPLES}
    assert fit == {
        "en0": True, "en1": True, "en2": True, "en3": False, "en4": False, "en5": True, "en6": True, "en7": True,
        "zh0": True, "zh1": True, "zh2": False,
    }  # fmt: skip
    long = Sample("x", "en", "", SAMPLES[0].turns, " ".join(["word"] * 21), "")
    assert not is_fit(long)
    assert is_fit(Sample("x", "en", "", SAMPLES[0].turns, "Itching has many causes.", ""))


# --- samples


def test_a_sample_has_the_sides_of_the_dialogue_and_its_texts_on_one_line():
    turns = [
        {"speaker": "Ann", "text": "Hi"},
        {"speaker": "Bo", "text": "Hey\nyou"},
        {"speaker": "Ann", "text": "Tea?"},
    ]
    fields = {"knowledge": [{"text": "Tea is old."}, {"head": "tea", "relation": "IsA", "tail": "drink"}]}
    dialogue = Dialogue.model_validate({"id": "d@3", "turns": turns, "reference": "Yes,\n please.", **fields})
    sample = Sample.of_dialogue(dialogue)
    assert [(turn.side, turn.text) for turn in sample.turns] == [
        ("user", "Hi."),  # the released code ends English turns
        ("system", "Hey you."),
        ("user", "Tea?"),
    ]
    assert sample.knowledge == "Tea is old. (tea, IsA, drink)"
    assert sample.response == "Yes, please."
    assert sample.last_turn == "Tea?"


def test_what_knew_nothing_is_no_sample():
    turns = {"turns": ["Hi"], "reference": "Hey"}
    nothing = [{}, {"knowledge": ["  "]}, {"knowledge": ["no_passages_used"]}]
    assert list(samples_of(Dialogue.model_validate({"id": "d", **turns, **fields}) for fields in nothing)) == []


def test_the_topic_is_the_dialogues_own_else_the_query_that_was_searched():
    assert topic_of(asked("Hi", topic="Tea\n time")) == "Tea time"
    assert topic_of(asked("Hi", query="green tea")) == "green tea"
    assert topic_of(asked("Hi", query=["x"])) == ""
    gold = asked("Hi", topic="Tea", knowledge=["A text.", {"text": "Green tea is old.", "title": "Green tea"}])
    assert [topic_of(gold, which) for which in ("chosen", "checked", "none")] == ["Tea", "Green tea", ""]
    assert topic_of(asked("Hi", topic="Tea"), "checked") == "Tea"
    searched = asked("Hi", query="tea leaves", knowledge=[{"text": "Tea.", "title": "A shop"}])
    assert topic_of(searched, "checked") == "tea leaves"
    assert Sample.of_dialogue(gold.model_copy(update={"reference": "Yes."})).topic == "Green tea"
    turns = turns_by_side(asked("a?", "b", "c!"))
    assert context_text("Tea", turns, 2) == "( Tea ) b. c!"
    assert context_text("", turns[:1], 3) == "a?"
    assert turns_by_side(asked("你好"))[0].text == "你好"


# --- selection


def test_query_based_selection_finds_the_like_and_scores_by_dot_product(base):
    dialogue = asked("I would love some pizza.", topic="Pizza")
    found = base.nearest(dialogue, 3)
    assert {sample.topic for sample, _ in found[:2]} == {"Pizza"}
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    embedder = load_embedder()
    query = embedder.encode(["( Pizza ) I would love some pizza."])[0]
    for sample, score in found:
        text = context_text(sample.topic, sample.turns, 3)
        assert score == pytest.approx(float(embedder.encode([text])[0] @ query), abs=1e-3)


def test_without_topics_neither_side_is_encoded_with_one(base):
    dialogue = asked("Tell me something about it.", topic="Kyoto")
    assert base.nearest(dialogue, 1)[0][0].topic == "Kyoto"
    without = base.nearest(dialogue, 1, topic="none")
    assert without == base.nearest(asked("Tell me something about it."), 1)
    ((sample, score),) = without
    embedder = load_embedder()
    bare = embedder.encode([context_text("", sample.turns, 3)])[0]
    assert score == pytest.approx(float(embedder.encode(["Tell me something about it."])[0] @ bare), abs=1e-4)


def test_samples_of_a_known_topic_are_not_filtered_and_few(base):
    found = base.nearest(asked("Do you drink tea?", topic="tea"), 6)
    assert {sample.id: is_fit(sample) for sample, _ in found} == {"en2@1": True, "en3@2": False}


def test_an_unrelated_dialogue_of_the_same_number_excludes_nothing(base):
    # Two files number their dialogues alike: the turns tell that this is no dialogue of the database.
    unrelated = asked("Do you drink tea?", topic="Tea").model_copy(update={"id": "en2@9"})
    assert {sample.id for sample, _ in base.nearest(unrelated, 6)} == {"en2@1", "en3@2"}
    greeting = asked("Hello there!").model_copy(update={"id": "en0@1"})
    orders = [[s.id for s in base.sampled(asked(text), 20, seed=5)] for text in ("Hello there!", "What is new?")]
    assert orders[0] == orders[1] == [sample.id for sample in base.sampled(greeting, 20, seed=5)]


@pytest.mark.parametrize("identifier", ["en3@2", "other@1"])
def test_a_dialogue_of_the_database_gets_none_of_its_own_samples_whatever_its_id(base, identifier):
    own = next(history for history in histories() if history.id == "en3@2")
    longer = own.model_copy(update={"id": identifier})
    assert "en3@2" not in {sample.id for sample in base.sampled(longer, 20)}
    assert "en3@2" not in {sample.id for sample, _ in base.nearest(longer, 20, fit=False)}


def test_one_turn_alone_is_told_from_a_greeting_by_the_id(base):
    question = asked("I drink tea all day long.")
    assert "en2@1" in {sample.id for sample in base.sampled(question, 20)}
    own = question.model_copy(update={"id": "en2@1"})
    assert "en2@1" not in {sample.id for sample in base.sampled(own, 20)}


def test_for_an_unknown_topic_each_fit_sample_is_of_another(base):
    found = [sample for sample, _ in base.nearest(asked("I like to cook.", topic="Soup"), 50)]
    assert len(found) == 5
    assert len({sample.topic for sample in found}) == 5
    assert all(is_fit(sample) for sample in found)
    assert len(base.nearest(asked("I like to cook."), 50)) == 6


def test_the_formula_alone_takes_the_nearest_of_all(base):
    unfiltered = [score for _, score in base.nearest(asked("Do you drink tea?", topic="Tea"), 50, fit=False)]
    assert len(unfiltered) == 8
    assert unfiltered == sorted(unfiltered, reverse=True)
    assert base.nearest(asked("Do you drink tea?"), 0) == []


def test_where_nothing_is_fit_all_may_stand_in(tmp_path):
    only = make(tmp_path, [sample for sample in SAMPLES if not is_fit(sample)])
    assert [sample.id for sample, _ in only.nearest(asked("Hi", topic="Soup"), 5)] == ["en3@2", "en4@1"]
    only.close()


@pytest.mark.parametrize(
    ("topic", "knowledge", "marks"),
    [
        ("Tea", "Tea is old.", 3),
        ("Tea", "Green tea is old.", 2),  # letter by letter
        ("Tea", "Tea (thé) is old.", 2),
        ("Tea", "It is Tea.", 1),
        ("Italy", "Italy is a country.", 1),  # "It" is looked for, not the word
        ("word", " ".join(["word"] * 20), 3),
        ("word", " ".join(["word"] * 21), 1),
    ],
)
def test_the_released_filters(topic, knowledge, marks):
    assert filter_marks(Sample("x", "en", topic, SAMPLES[0].turns, knowledge, "")) == marks


def test_the_released_selection_takes_the_least_similar_where_the_topic_is_unknown(base):
    soup = asked("I like to cook.", topic="Soup")
    found = base.released(soup, 3)
    scores = {s.id: score for s, score in base.nearest(soup, 50, fit=False, topic="checked")}
    allowed = {s.id for s in SAMPLES if s.language == "en" and filter_marks(s) == 3}
    kept = {}
    for identifier in sorted(allowed, key=scores.get):  # upwards, one of each topic
        kept.setdefault(next(s.topic for s in SAMPLES if s.id == identifier), identifier)
    assert [sample.id for sample, _ in found] == [*kept.values()][:3]
    assert [score for _, score in found] == sorted(score for _, score in found)
    assert found[0][1] < base.nearest(soup, 1)[0][1]


def test_the_released_selection_of_a_known_topic_filters_unseen_sets_alone(base):
    bike = asked("My bike is gone.", topic="Bicycle")
    # "A bicycle lock" does not name "Bicycle", and 1817 stands in brackets: unseen sets know no such topic.
    assert {sample.topic for sample, _ in base.released(bike, 4)} != {"Bicycle"}
    seen = base.released(bike, 4, seen=True)
    assert {sample.id for sample, _ in seen} == {"en4@1", "en5@1"}
    query = load_embedder().encode(["( Bicycle ) My bike is gone."])[0]
    for sample, score in seen:  # its seen set encodes the query's topic, and no sample's
        bare = load_embedder().encode([context_text("", sample.turns, 3)])[0]
        assert score == pytest.approx(float(bare @ query), abs=1e-3)
    assert seen[0][1] >= seen[1][1]


def test_responses_that_hold_most_of_their_knowledge(tmp_path):
    turns, known = SAMPLES[0].turns, "one two three four five six seven eight nine ten eleven twelve"
    of = lambda name, text: Sample(name, "en", "x", turns, known, text)  # noqa: E731
    whole = of("whole@1", "well one two three four five six seven eight nine ten eleven")  # 11 of 12 of either
    part = of("part@1", "one two three four five six seven so it goes")  # 7 of 10, 7 of 12 of the knowledge
    base = make(tmp_path, [whole, part])
    assert {s.id for s in base.sampled(asked("Hi"), 9, 0, (0.6, 0.95))} == {"whole@1", "part@1"}
    assert [s.id for s in base.sampled(asked("Hi"), 9, 0, (0.6, 0.95), covered=0.8)] == ["whole@1"]
    base.close()
    base = make(tmp_path, [whole, part], overlap_run=10)  # the released code's rows of ten
    assert [s.id for s in base.sampled(asked("Hi"), 9, 0, (0.6, 0.95))] == ["whole@1"]
    base.close()


def test_vectors_keep_their_lengths_for_a_dot_product(tmp_path):
    class Long:
        name, dimension, fingerprint = "dot:x", 2, "x"

        def encode(self, texts):
            return np.array([[3.0, 4.0] if "tea" in text.lower() else [5.0, 0.0] for text in texts], np.float32)

    build_samples(SAMPLES[:3], tmp_path / "x.samples", Long())
    with open_samples_closing(tmp_path) as base:
        base.embedder = Long()
        assert [(s.id, score) for s, score in base.nearest(asked("Tea?"), 1, fit=False)] == [("en2@1", 25.0)]


def test_samples_are_of_the_dialogues_language(base):
    assert {sample.language for sample, _ in base.nearest(asked("你喜欢喝茶吗？"), 10)} == {"zh"}
    assert {sample.language for sample in base.sampled(asked("你好"), 10)} == {"zh"}
    assert {sample.language for sample in base.clearest(asked("你好"), 10)} == {"zh"}
    assert {sample.language for sample in base.sampled(asked("你好"), 10, answered=False)} == {"zh"}


@pytest.mark.parametrize("select", ["nearest", "clearest", "sampled"])
def test_a_dialogue_never_gets_samples_of_its_own(base, select):
    own = asked("I drink tea all day long.", topic="Tea").model_copy(update={"id": "en2@7"})
    other = own.model_copy(update={"id": "en22@1"})

    def ids(dialogue):
        every = {"topic": "none", "fit": False} if select == "nearest" else {}
        samples = getattr(base, select)(dialogue, 8, **every)
        return {(found[0] if isinstance(found, tuple) else found).id for found in samples}

    assert "en2@1" not in ids(own)
    assert "en2@1" in ids(other)


def test_random_samples_have_the_overlap_that_is_wanted_and_are_the_same_for_all(base):
    first, second = asked("Hi"), asked("Good morning", topic="Tea")
    grounded = base.sampled(first, 20, 0, (0.6, 0.9))
    assert 0 < len(grounded) < 8
    assert all(0.6 <= overlaps(s.knowledge, s.response, "en")[0] <= 0.9 for s in grounded)
    outside = {s.id for s in SAMPLES if s.language == "en"} - {s.id for s in grounded}
    assert all(not 0.6 <= overlaps(s.knowledge, s.response, "en")[0] <= 0.9 for s in SAMPLES if s.id in outside)
    assert base.sampled(second, 20, 0, (0.6, 0.9)) == grounded
    orders = {tuple(s.id for s in base.sampled(first, 4, seed)) for seed in range(6)}
    assert len(orders) > 1
    assert base.sampled(first, 4, 3) == base.sampled(first, 4, 3)


def test_perplexity_based_selection_takes_the_lowest(base, tmp_path):
    found = [sample.topic[0] for sample in base.clearest(asked("Hi"), 8)]
    assert found == sorted(found, key=lambda letter: -ord(letter) % 97)
    assert not all(is_fit(sample) for sample in base.clearest(asked("Hi"), 6))
    without = make(tmp_path)
    with pytest.raises(InputError, match="--perplexity"):
        without.clearest(asked("Hi"))
    without.close()


def test_an_unknown_language_has_no_samples(tmp_path):
    only = make(tmp_path, [sample for sample in SAMPLES if sample.language == "en"])
    chinese = asked("你好")
    assert only.nearest(chinese) == []
    assert only.sampled(chinese, 3) == []
    only.close()


def test_rows_beyond_the_first_look_are_found_when_many_are_the_dialogues_own(tmp_path):
    many = [Sample(f"own@{n}", "en", "Tea", SAMPLES[2].turns, f"Tea is old {n}.", "Yes.") for n in range(60)]
    base = make(tmp_path, [*many, SAMPLES[0]])
    found = base.nearest(asked("I drink tea all day long.", topic="Tea").model_copy(update={"id": "own"}), 3)
    assert [sample.id for sample, _ in found] == ["en0@2"]
    base.close()


# --- the files


def test_what_is_built_says_what_it_is(base):
    assert len(base) == len(SAMPLES)
    assert base.meta.languages == {"en": 8, "zh": 3}
    assert (base.meta.samples, base.meta.fit, base.meta.grounded) == (11, 8, grounded())
    assert sorted(map(base.sample, range(len(base))), key=str) == sorted(SAMPLES, key=str)


def grounded():
    return sum(0.6 <= overlaps(sample.knowledge, sample.response, sample.language)[0] <= 0.9 for sample in SAMPLES)


def rewrite(path, **changed):
    """Write a database again with other parts."""
    with path.open("rb") as file, np.load(file) as archive:
        parts = {**archive, **changed}
    with path.open("wb") as file:
        np.savez(file, **parts)


def as_bytes(text):
    return np.frombuffer(text.encode(), np.uint8)


@pytest.mark.parametrize(
    ("harm", "wanted"),
    [
        (lambda path: path.write_text("{}"), "no sample database"),
        (lambda path: path.write_bytes(path.read_bytes()[:2000]), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"Margherita", b"Napoletana")), "damaged"),
        (lambda path: rewrite(path, lines=as_bytes("[]")), "do not fit"),
        (lambda path: rewrite(path, overlaps=np.zeros(3, np.float32)), "do not fit"),
        (lambda path: rewrite(path, meta=as_bytes("{}")), "no sample database"),
        (lambda path: rewrite(path, meta=as_bytes(old_meta(path))), "version 1"),
    ],
)
def test_a_damaged_base_is_one_clear_error(tmp_path, harm, wanted):
    make(tmp_path).close()
    harm(tmp_path / "x.samples")
    with pytest.raises(InputError, match=wanted) as caught:
        SampleDatabase(tmp_path / "x.samples").sampled(Dialogue(id="d", turns=["Hi"]), 2)
    assert "\n" not in str(caught.value)


def old_meta(path):
    return SampleDatabase(path).meta.model_copy(update={"version": 1}).model_dump_json()


def test_a_damaged_line_is_an_error_of_the_source(tmp_path):
    make(tmp_path).close()
    rewrite(tmp_path / "x.samples", lines=as_bytes("\n".join("#" for _ in SAMPLES)))
    with open_samples_closing(tmp_path) as base, pytest.raises(SourceError, match="cannot be read"):
        base.sample(0)


def open_samples_closing(folder):
    from contextlib import closing

    return closing(SampleDatabase(folder / "x.samples"))


def test_another_embedder_is_refused(tmp_path, monkeypatch):
    make(tmp_path).close()
    monkeypatch.setattr(
        "dialore.retrieval.embedding.load_embedder", lambda spec: SimpleNamespace(fingerprint="another")
    )
    with pytest.raises(InputError, match="another version of the embedder static"):
        SampleDatabase(tmp_path / "x.samples").nearest(asked("Hi"), 1)


def test_an_old_base_stays_until_the_new_one_is_whole(tmp_path):
    make(tmp_path).close()

    class Failing:
        name, dimension, fingerprint = "static", 8, "x"

        def encode(self, texts):
            raise InputError("no")

    with pytest.raises(InputError, match="no"):
        build_samples(SAMPLES, tmp_path / "x.samples", Failing())
    assert [path.name for path in tmp_path.iterdir()] == ["x.samples"]
    with open_samples_closing(tmp_path) as base:
        assert len(base) == len(SAMPLES)
    build_samples(SAMPLES[:2], tmp_path / "x.samples", load_embedder())
    with open_samples_closing(tmp_path) as base:
        assert len(base) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.samples"]


def test_what_is_no_base_is_not_overwritten(tmp_path):
    (tmp_path / "x.samples").mkdir()
    (tmp_path / "x.samples" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is no sample database"):
        make(tmp_path)
    assert (tmp_path / "x.samples" / "thesis.txt").read_text() == "mine"
    with pytest.raises(InputError, match="no sample has any knowledge"):
        make(tmp_path / "y", [])


def test_it_opens_as_a_source(tmp_path):
    make(tmp_path).close()
    opened = KINDS["samples"].open([str(tmp_path / "x.samples")])
    assert opened.name == "x.samples"
    opened.close()


# --- building from files


def write(path, dialogues):
    path.write_text("".join(json.dumps(each) + "\n" for each in dialogues), encoding="utf-8")
    return path


def test_a_base_of_a_dialogue_file(tmp_path, capsys):
    rows = [json.loads(each.model_dump_json()) for each in histories()]
    file = write(tmp_path / "own.jsonl", rows)
    build(tmp_path / "x.samples", [file], json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["samples"], told["fit"]) == (11, 8)
    with open_samples_closing(tmp_path) as base:
        assert {base.sample(row).response for row in range(11)} == {each.reference for each in histories()}
        assert {base.sample(row).topic for row in range(11)} == {each.topic for each in histories()}
        assert base.meta.languages == {"en": 8, "zh": 3}
        found = base.nearest(asked("I love pizza", topic="Pizza"), 2)
        assert [sample.topic for sample, _ in found] == ["Pizza", "Pizza"]


def test_the_commands_take_their_options(tmp_path):
    from typer.testing import CliRunner

    from dialore.cli.app import app

    file = write(tmp_path / "own.jsonl", [json.loads(each.model_dump_json()) for each in histories()])
    base, run = str(tmp_path / "x.samples"), CliRunner().invoke
    built = run(
        app, ["samples", "build", base, str(file), "--turns", "1", "--overlap-run", "2", "--limit", "5", "--json"]
    )
    assert built.exit_code == 0, built.output
    assert json.loads(built.stdout)["samples"] == 5
    told = SampleDatabase(base).meta
    assert (told.turns, told.overlap_run, told.samples) == (1, 2, 5)


def test_a_file_without_knowledge_builds_nothing(tmp_path):
    file = write(tmp_path / "own.jsonl", [{"turns": ["Hi", "Hey"], "reference": "Yes"}])
    with pytest.raises(InputError, match="no reply comes with its knowledge"):
        build(tmp_path / "x.samples", [file], json=True)
    assert not (tmp_path / "x.samples").exists()


@needs_torch
async def test_perplexities_are_of_the_prompt_of_each_sample(tmp_path, monkeypatch):
    perplexities: dict[str, float] = {}
    score = LocalLikelihood.score

    async def noted(self, pairs, on_step=None):
        scored = await score(self, pairs, on_step)
        perplexities.update({pair.text: each.perplexity for pair, each in zip(pairs, scored, strict=True)})
        return scored

    monkeypatch.setattr(LocalLikelihood, "score", noted)
    make_tiny_causal(tmp_path / "model", positions=1000)
    file = write(tmp_path / "own.jsonl", [json.loads(each.model_dump_json()) for each in histories()])
    await asyncio.to_thread(build, tmp_path / "x.samples", [file], perplexity=f"hf:{tmp_path / 'model'}", json=True)
    assert len(perplexities) == 11
    tea = "( I drink tea all day long. ) Tea => Green tea and black tea are made from the leaves of one plant."
    assert tea in perplexities
    with open_samples_closing(tmp_path) as base:
        assert base.meta.perplexity_by == f"hf:{tmp_path / 'model'}"
        clearest = min((prompt for prompt in perplexities if prompt.isascii()), key=lambda each: perplexities[each])
        assert base.clearest(asked("Hi"), 1)[0].knowledge == clearest.partition("=> ")[2]


# --- comparison


def test_the_share_of_rows_of_words_and_of_topics_that_a_base_has(tmp_path, capsys):
    """Brown et al.'s n-grams, as of MSDP's Section 3.1: 3 of 5 rows of four words, 1 of 2 topics."""
    made = make(tmp_path, [Sample("d@1", "en", "Tea", SAMPLES[0].turns, "Tea is made of the leaves of a plant.", "")])
    made.close()
    other = [
        {"id": "a", "topic": "tea", "turns": ["Tea?"], "knowledge": ["tea is made of leaves"], "reference": "Yes."},
        {
            "id": "b",
            "topic": "Sea",
            "turns": ["Sea?"],
            "knowledge": ["the leaves of a plant. Yes"],
            "reference": "Yes.",
        },
        {"id": "c", "topic": "Sea", "turns": ["Sea!"], "knowledge": ["too short"], "reference": "Yes."},
    ]
    found = made.compare([Dialogue.model_validate(each) for each in other], grams=4)
    assert found == {
        "rows": 5,
        "rows known": 0.6,
        "pieces": 3,
        "pieces known": 2 / 3,
        "topics": 2,
        "topics known": 0.5,
    }
    compare(tmp_path / "x.samples", [write(tmp_path / "own.jsonl", other)], grams=4)
    told = "has 60.00% of 5 rows of 4 words, parts of 66.67% of 3 pieces of knowledge, and 50.00% of 2 topics"
    assert told in " ".join(capsys.readouterr().err.split())


# --- alignment with a graph


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "small.graph"
    facts = [
        Fact("sore throat", "CausesDesire", "drink warm tea"),
        Fact("honey", "UsedFor", "sore throat"),
        Fact("honey", "RelatedTo", "bee"),
        Fact("sore throat", "RelatedTo", "throat"),
        Fact("感冒", "CausesDesire", "喝水"),
    ]
    build_graph(facts, path, name="small", embedder=load_embedder())
    return path


@pytest.fixture(scope="module")
def graph(graph_file):
    opened = open_graph(graph_file)
    yield opened
    opened.close()


def test_alignment_takes_the_facts_that_hard_matching_finds_the_nearest_first(graph):
    dialogue = asked("I have a sore throat.", reference="Honey helps a sore throat. A bee told me.")
    (sample,) = align_samples([dialogue], graph, load_embedder())
    assert sample.knowledge == "(honey, UsedFor, sore throat); (sore throat, RelatedTo, throat)"
    said_before = asked("Honey for my sore throat?", reference="Yes, honey is good for it.")
    (sample,) = align_samples([said_before], graph, load_embedder(), top=1)
    assert sample.knowledge == "(honey, UsedFor, sore throat)"
    unanswered = asked("I have a sore throat.")
    unrelated = asked("I have a sore throat.", reference="Look, a bee!")
    assert list(align_samples([unanswered, unrelated], graph, load_embedder())) == []
    (chinese,) = align_samples([asked("我感冒了。", reference="那就喝水吧。")], graph, load_embedder())
    assert chinese.knowledge == "(感冒, CausesDesire, 喝水)"


def test_a_base_aligned_with_a_graph_from_dialogues_without_knowledge(tmp_path, graph_file, capsys):
    file = write(
        tmp_path / "own.jsonl",
        [
            {"id": "a", "turns": ["Hi.", "How are you?", "I have a sore throat.", "Drink warm tea then."]},
            {"id": "b", "turns": ["I have a sore throat.", "Take honey."]},
            {"id": "c", "turns": ["Nothing.", "To see here."]},
        ],
    )
    build(
        tmp_path / "x.samples",
        [file],
        align_graph=str(graph_file),
        json=True,
    )
    with open_samples_closing(tmp_path) as base:
        found = {base.sample(row).id: base.sample(row).knowledge for row in range(len(base))}
        assert base.meta.graph == "small"
        assert base.meta.fit == len(base)
    assert found == {
        "a@3": "(sore throat, CausesDesire, drink warm tea)",
        "b@1": "(honey, UsedFor, sore throat)",
    }


# --- real data


def test_wizard_of_wikipedia(tmp_path, capsys):
    file = real_file("wizard_of_wikipedia/valid.json.gz")
    build(tmp_path / "x.samples", [file], dataset="wizard-of-wikipedia", limit=800, json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["samples"] > 500
    assert 0.15 < told["grounded"] / told["samples"] < 0.4
    with open_samples_closing(tmp_path) as base:
        found = base.nearest(asked("I love pizza, do you?"), 10)
        assert sum("pizza" in f"{sample.last_turn} {sample.knowledge}".lower() for sample, _ in found) >= 2
