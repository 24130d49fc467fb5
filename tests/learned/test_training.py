"""Training the small parts: they learn, they are the same twice, they serve the method, and bad input is refused."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dialore.datasets import data_set, split_dialogues
from dialore.errors import InputError, MissingExtraError
from dialore.methods.safari import Safari
from dialore.methods.stages import StageContext
from dialore.sources.persona import PersonaSource
from dialore.trained import _CLASSES, ROLES, check_writable, open_trained, read_card, write_trained
from tests.learned.conftest import entries

pytest.importorskip("lightgbm")

from dialore.learned.examples import read_examples, refuse_leaks
from dialore.learned.features import lead
from dialore.learned.planner import train_planner


def quiet(*_):
    """No progress is shown."""


def histories(path):
    return split_dialogues(data_set("kbp").read(path), cut="all")


def persona_of(dialogue):
    return dialogue.extra["documents"]


def test_the_planner_plans_dialogues_that_it_has_not_seen(small, trained):
    planner = open_trained(str(trained / "planner"), "planner")
    dialogues = histories(small / "dev.json")
    plans = []
    for dialogue in dialogues:
        found = planner.probabilities(dialogue, persona_of(dialogue))
        assert sum(found.values()) == pytest.approx(1)
        plans.append(planner.choose(found))
    right = [plan == tuple(dialogue.sources) for plan, dialogue in zip(plans, dialogues, strict=True)]
    assert np.mean(right) > 0.9


def test_a_planner_of_the_context_alone_reads_nothing_else(small, tmp_path):
    """SAFARI, Equation 1: the plan is of c alone."""
    examples = read_examples("kbp", small / "train.json")
    train_planner(examples, quiet, context=True).save(tmp_path / "planner", examples)
    planner = open_trained(str(tmp_path / "planner"), "planner")
    right = []
    for dialogue in histories(small / "dev.json"):
        found = planner.probabilities(dialogue, persona_of(dialogue))
        assert found == planner.probabilities(dialogue, {}) == planner.probabilities(dialogue, {"我是电工": ["电笔"]})
        right.append(planner.choose(found) == tuple(dialogue.sources))
    assert np.mean(right) > 0.9


def test_without_a_persona_nothing_is_planned(small, trained):
    planner = open_trained(str(trained / "planner"), "planner")
    assert planner.choose(planner.probabilities(histories(small / "dev.json")[0], {})) == ()


def test_the_ranker_finds_sentence_and_document_with_and_without_dependency(small, trained):
    ranker = open_trained(str(trained / "ranker"), "ranker")
    right = {"sentence": [], "document": [], "among all": []}
    for dialogue in histories(small / "dev.json"):
        if len(dialogue.sources) < 2:
            continue
        persona, last = persona_of(dialogue), dialogue.turns[-1].text
        sentence, document = (item["text"] for item in dialogue.knowledge)
        shares = ranker.sentences(last, dialogue, persona)
        assert shares.sum() == pytest.approx(1)
        right["sentence"].append(list(persona)[int(shares.argmax())] == sentence)
        for name, query, texts in (
            ("document", last, persona[sentence]),
            ("among all", f"{last} {sentence}", [text for under in persona.values() for text in under]),
        ):
            right[name].append(texts[int(ranker.documents(query, dialogue, texts).argmax())] == document)
    assert {name: np.mean(hits) > 0.9 for name, hits in right.items()} == dict.fromkeys(right, True)


def test_the_same_seed_gives_the_same_files(small, trained, tmp_path):
    examples = read_examples("kbp", small / "train.json")
    train_planner(examples, quiet).save(tmp_path / "again", examples)
    for name in ("arrays.npz", "asked.npz", "classes.txt", "model.json", "README.md"):
        assert (tmp_path / "again" / name).read_bytes() == (trained / "planner" / name).read_bytes()


def test_the_card_says_data_settings_seed_and_figures(trained):
    card = read_card(trained / "ranker")
    assert (card["kind"], card["seed"], card["data"]["dataset"], card["data"]["dialogues"]) == ("ranker", 0, "kbp", 60)
    assert len(card["data"]["sha256"]) == 64
    assert set(card["measured"]["documents"]) == {"mean", "low", "high"}
    assert "cross-validation" in (trained / "ranker" / "README.md").read_text(encoding="utf-8")


def test_the_lead_of_a_row_is_over_the_best_of_the_others():
    assert lead(np.array([[3.0], [1.0], [3.0]])).ravel().tolist() == [0.0, -2.0, 0.0]
    assert lead(np.array([[5.0], [2.0]])).ravel().tolist() == [3.0, -3.0]
    assert lead(np.array([[7.0]])).ravel().tolist() == [0.0]


def test_safari_plans_and_ranks_with_trained_parts_without_a_call(small, trained):
    method = Safari(planning=f"trained:{trained / 'planner'}", retriever=f"trained:{trained / 'ranker'}")
    dialogue = next(one for one in histories(small / "dev.json") if len(one.sources) == 2)
    stages = StageContext(SimpleNamespace(name="none"), "safari", dialogue)
    grounding = asyncio.run(method.ground(dialogue, stages))
    assert grounding.plan == ["persona", "documents"]
    assert [piece.text for piece in grounding.knowledge] == [item["text"] for item in dialogue.knowledge]
    planned = next(traced for traced in stages.trace if traced.stage == "planning")
    assert planned.output["probabilities"]["persona, documents"] > 0.5


def test_trained_parts_are_used_without_training_libraries(small, trained):
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from dialore.datasets import data_set, split_dialogues\n"
        "from dialore.sources.persona import PersonaSource\n"
        "from dialore.trained import load_trained\n"
        "assert not any(name.startswith('dialore.learned') for name in sys.modules)\n"
        f"one = split_dialogues(data_set('kbp').read(Path({str(small / 'dev.json')!r})))[0]\n"
        f"source = PersonaSource(retriever={'trained:' + str(trained / 'ranker')!r})\n"
        "assert asyncio.run(source.search(one.turns[-1].text, one))\n"
        f"load_trained({str(trained / 'planner')!r}, 'planner').probabilities(one, source.of(one))\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()\n"
        "assert not any(name.startswith('dialore.training') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_extra_the_remedy_is_named(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    for name in [name for name in sys.modules if name.startswith("dialore.learned")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=r"\[learn\]"):
        open_trained(str(trained / "planner"), "planner")


def test_each_kind_of_model_has_a_class_and_a_role():
    kinds = [kind for kinds in ROLES.values() for kind in kinds]
    assert sorted(kinds) == sorted(_CLASSES)
    for target in _CLASSES.values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


def changed(small, tmp_path, change):
    data = json.loads((small / "train.json").read_text(encoding="utf-8"))
    path = tmp_path / "train.json"
    path.write_text(json.dumps(change(data), ensure_ascii=False), encoding="utf-8")
    return path


def test_one_class_only_is_refused(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps(entries(12, 3, plans=(2,)), ensure_ascii=False), encoding="utf-8")
    with pytest.raises(InputError, match="nothing to learn: PERSONA, DOCUMENTS 60 times"):
        train_planner(read_examples("kbp", path), quiet)


def test_too_few_dialogues_are_refused(small, tmp_path):
    with pytest.raises(InputError, match="3 dialogues cannot be divided"):
        read_examples("kbp", changed(small, tmp_path, lambda data: data[:3]))


def test_a_persona_without_documents_is_refused(small, tmp_path):
    def bare(data):
        data[4]["persona_kg"] = {label: {} for label in data[4]["persona"]}
        data[4]["conversation"] = [{"U": "你好", "S": "你好", "P-K": []}]
        return data

    with pytest.raises(InputError, match=r"dialogue dialogue-[0-9a-f]+@1 has no persona with documents"):
        read_examples("kbp", changed(small, tmp_path, bare))


def test_a_data_set_without_plans_is_refused(small):
    with pytest.raises(InputError, match="dailydialog has no persona and no plan and no knowledge to learn from"):
        read_examples("dailydialog", small / "train.json")


def test_a_dialogue_in_both_files_is_refused(small, tmp_path):
    dev = json.loads((small / "dev.json").read_text(encoding="utf-8"))
    train = read_examples("kbp", changed(small, tmp_path, lambda data: [*data, dev[7]]))
    with pytest.raises(InputError, match=r"dialogue dialogue-[0-9a-f]+ of the held-out file is in the training file"):
        refuse_leaks(train, small / "dev.json")


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no trained model: No such file or directory: model\.json"):
        PersonaSource(retriever=f"trained:{tmp_path}")


def test_a_model_of_another_kind_is_refused(trained):
    with pytest.raises(InputError, match="is a trained planner, not a ranker"):
        open_trained(str(trained / "planner"), "ranker")
    with pytest.raises(InputError, match="is a trained ranker, not a planner"):
        Safari(planning=f"trained:{trained / 'ranker'}")


def test_damaged_weights_are_refused(trained, tmp_path):
    folder = tmp_path / "cut"
    folder.mkdir()
    for path in (trained / "ranker").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "sentences.txt").write_bytes((folder / "sentences.txt").read_bytes()[:-100])
    with pytest.raises(InputError, match=r"sentences\.txt is not the file that the model was saved with"):
        open_trained(str(folder), "ranker")
    (folder / "sentences.txt").unlink()
    with pytest.raises(InputError, match=r"sentences\.txt is missing"):
        open_trained(str(folder), "ranker")


def test_a_write_that_breaks_off_leaves_no_model(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    card = {
        "kind": "ranker",
        "use": "-",
        "settings": {},
        "seed": 0,
        "data": {"dataset": "-", "responses": 1, "sha256": "-"},
        "measured": {},
    }
    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.write_text", full)
        with pytest.raises(InputError, match="cannot write the model: No space left on device"):
            write_trained(tmp_path / "model", card, lambda folder: (folder / "one.txt").write_bytes(b"1"))
    assert not list(tmp_path.iterdir())


def test_what_is_no_model_is_not_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="is there, and no trained model"):
        check_writable(tmp_path)
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "mine"
