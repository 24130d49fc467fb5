"""When a piece is of use: order, bounds, calibration, and what the history has said."""

import json
from pathlib import Path

import numpy as np
import pytest

from dialore.datasets import data_set, split_dialogues
from dialore.datasets.base import gold_text
from dialore.dialogue import Dialogue
from dialore.knowledge import Fact, Knowledge, Passage, stable_id
from dialore.methods.usefulness import FEATURES, THRESHOLD, already_said, features_of, probabilities_of_use
from dialore.retrieval.reranking import load_reranker
from tests.data_folder import real_file

ASKED = Path(__file__).parent / "usefulness" / "asked.jsonl"


WIZARD = "wizard_of_wikipedia/valid.json.gz"


def passage(text, source="documents"):
    return Knowledge.of_passage(Passage(text), source)


def persona(text, *under):
    identifier = stable_id("persona", text)
    return Knowledge(id=identifier, kind="persona", text=text, source="persona", documents=list(under))


def fact(*triple):
    return Knowledge.of_fact(Fact(*triple), f"{triple[0]} {triple[2]}", 0.0)


HOURS = "The bakery by the harbour opens at six in the morning and is closed on Mondays."
PIECES = {
    "documents": (
        [passage(HOURS), passage("Tram 28 climbs from Graça through Alfama."), passage("Cells divide.")],
        "en",
    ),
    "web": ([passage(HOURS, "web"), passage("Tram 28 climbs.", "web"), passage("Cells divide.", "web")], "en"),
    "persona": (
        [persona("I run a bakery by the harbour.", HOURS), persona("I like jazz."), persona("I am tall.")],
        "en",
    ),
    "graph": ([fact("bakery", "HasProperty", "open early in the morning"), fact("cell", "IsA", "unit of life")], "en"),
    "chinese": ([passage("面包店早上六点开门，周一休息。"), passage("金毛是大型犬。"), passage("细胞会分裂。")], "zh"),
    "chinese persona": ([persona("我开了一家面包店。"), persona("我喜欢爵士乐。"), persona("我个子很高。")], "zh"),
}
ASKS = {
    "en": ("opening hours of the bakery at the harbour", "When does your bakery at the harbour open in the morning?"),
    "zh": ("面包店几点开门", "你开的面包店早上几点开门？"),
}


@pytest.mark.parametrize("name", PIECES)
def test_what_answers_is_likelier_than_the_rest(name):
    pieces, language = PIECES[name]
    query, turn = ASKS[language]
    found = probabilities_of_use(pieces, query, Dialogue(turn, language=language))
    assert all(0 <= one <= 1 for one in found)
    assert found[0] > max(found[1:])


@pytest.mark.parametrize("name", ["documents", "web", "persona", "chinese", "chinese persona"])
def test_the_threshold_parts_what_answers_from_what_a_search_hands_over(name):
    pieces, language = PIECES[name]
    query, turn = ASKS[language]
    threshold = THRESHOLD["persona" if "persona" in name else "documents"]
    found = probabilities_of_use(pieces, query, Dialogue(turn, language=language))
    assert [one >= threshold for one in found] == [True, False, False]
    asked_else = probabilities_of_use(pieces[1:], query, Dialogue(turn, language=language))
    assert max(asked_else) < threshold, "nothing that answers: nothing is kept"


def test_order_does_not_count_and_kinds_are_apart():
    (documents, _), (persona_pieces, _) = PIECES["documents"], PIECES["persona"]
    query, turn = ASKS["en"]
    dialogue = Dialogue(turn)
    apart = probabilities_of_use(documents, query, dialogue) + probabilities_of_use(persona_pieces, query, dialogue)
    mixed = probabilities_of_use([*persona_pieces, *documents][::-1], query, dialogue)
    assert mixed[::-1] == apart[3:] + apart[:3]


def test_nothing_found_and_texts_without_words():
    assert probabilities_of_use([], "anything", Dialogue("Hi!")) == []
    assert features_of([], "anything", Dialogue("Hi!")).shape == (0, len(FEATURES))
    found = probabilities_of_use([passage("…"), passage("!?")], "", Dialogue("？！"))
    assert all(0 <= one < THRESHOLD["documents"] for one in found)


def test_what_the_history_has_said_is_told_apart():
    tower = passage("The Eiffel Tower is 330 metres high.")
    history = ["How high is the Eiffel Tower?", "The Eiffel Tower is 330 metres high, antennas included.", "Wow!"]
    assert already_said([tower], Dialogue(history))[0]
    assert not already_said([tower], Dialogue(history[:1]))[0], "asked is not said"
    assert not already_said([tower], Dialogue([history[0], "The Eiffel Tower is 300 metres high."]))[0], (
        "another number"
    )
    assert already_said([passage("我 喜欢 打 羽毛球")], Dialogue(["你喜欢什么运动？", "我喜欢打羽毛球。", "真的吗？"]))[
        0
    ]
    assert not already_said([passage("我 喜欢 打 羽毛球")], Dialogue(["你喜欢打什么球？"]))[0]


def test_probabilities_hold_for_a_data_set_that_no_model_was_fitted_on():
    dialogues = split_dialogues(data_set("wizard-of-wikipedia").read(real_file(WIZARD)), where=["knowledge"], limit=90)
    pool = list(dict.fromkeys(gold_text(item) for dialogue in dialogues for item in dialogue.knowledge))
    found = []
    for dialogue in dialogues:
        best = load_reranker("fused").rerank(dialogue.last.text, pool, 10)
        pieces = [passage(pool[at]) for at, _ in best]
        gold = {gold_text(item) for item in dialogue.knowledge}
        chances = probabilities_of_use(pieces, dialogue.last.text, dialogue)
        found += [(chance, piece.text in gold) for chance, piece in zip(chances, pieces, strict=True)]
    assert calibration_error(*map(np.array, zip(*found, strict=True))) < 0.05


def calibration_error(probabilities, useful):
    """ECE over ten bins of equal size."""
    parts = np.array_split(np.argsort(probabilities, kind="stable"), 10)
    return sum(abs(probabilities[part].mean() - useful[part].mean()) * len(part) for part in parts) / len(useful)


def labelled():
    """Persona sentences of our own labelled turns: the probability of each, and whether it is of use."""
    for line in ASKED.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        pieces = [persona(sentence, under) for sentence, under in entry["persona"].items()]
        for turn in entry["turns"]:
            dialogue = Dialogue(turn["history"], language=entry["language"])
            found = probabilities_of_use(pieces, turn["query"], dialogue)
            yield from ((one, at in turn["persona"]) for at, one in enumerate(found))


def test_probabilities_are_calibrated():
    probabilities, useful = map(np.array, zip(*labelled(), strict=True))
    assert calibration_error(probabilities, useful) < 0.06
    kept = probabilities >= THRESHOLD["persona"]
    assert useful[kept].mean() > 0.7
    assert kept[useful].mean() > 0.75


def test_what_is_called_said_is_said():
    """Sixty pairs of real dialogues, labelled before they were looked at by the code; precision counts most."""
    labels = [json.loads(line) for line in (ASKED.parent / "said.jsonl").read_text(encoding="utf-8").splitlines()]
    found = []
    for name, path in (("wizard-of-wikipedia", WIZARD), ("kbp", "kbp/train.json.gz")):
        dialogues = list(data_set(name).read(real_file(path)))
        # The labels name a dialogue by its position in the file.
        labelled_name = {dialogue.id: f"{name}-{number}" for number, dialogue in enumerate(dialogues, start=1)}
        pieces, by_id = {}, {}
        for history in split_dialogues(dialogues, cut="all"):
            dialogue_id, _, turn = history.id.partition("@")
            dialogue_name = labelled_name[dialogue_id]
            known = pieces.setdefault(dialogue_name, {})
            known |= {(piece := passage(gold_text(item))).id: piece for item in history.knowledge}
            by_id[f"{dialogue_name}@{turn}"] = history
        for label in (one for one in labels if one["data"] == name):
            piece = pieces[label["id"].partition("@")[0]][label["piece"]]
            found.append((already_said([piece], by_id[label["id"]])[0], bool(label["said"])))
    right = sum(said and labelled_so for said, labelled_so in found)
    assert len(found) == 60
    assert right / sum(said for said, _ in found) >= 0.8
    assert right / sum(labelled_so for _, labelled_so in found) >= 0.5


def test_the_likelier_of_two_queries_counts():
    pieces = [passage("The last ferry leaves at ten."), passage("Bees dance to show where flowers are.")]
    dialogue = Dialogue(["How do bees find flowers?", "They dance.", "When does the last ferry leave?"])
    whole, last = " ".join(dialogue.texts), dialogue.last.text
    each = [probabilities_of_use(pieces, query, dialogue) for query in (whole, last)]
    assert probabilities_of_use(pieces, whole, dialogue, last) == [max(pair) for pair in zip(*each, strict=True)]
    assert each[0] != each[1]
