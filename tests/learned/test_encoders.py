"""Encoders: trained on the spot, exported, used without torch with the same outputs; what is damaged is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from dialore.errors import InputError
from dialore.methods.safari import query_of
from dialore.retrieval.encoders import OnnxCrossEncoder
from dialore.retrieval.reranking import load_reranker
from dialore.text import close_gaps
from dialore.trained import open_trained, read_card
from dialore.training.trainer import Job, Tuning

for needed in ("torch", "sentence_transformers", "datasets", "onnx", "onnxruntime"):
    pytest.importorskip(needed, reason="the finetune extra is not installed")

from dialore.learned.examples import read_examples  # noqa: E402
from dialore.learned.index import pieces_of  # noqa: E402
from dialore.training.encoders import make_rows, train_encoder  # noqa: E402

KINDS = {"dual": "dual", "nli": "nli-cross"}
TUNING = Tuning(epochs=1, batch=16, rate=1e-3, length=48)


@pytest.fixture(scope="module")
def splits(small):
    return [read_examples("kbp", small / f"{split}.json") for split in ("train", "dev")]


@pytest.fixture(scope="module")
def models(splits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    for name, kind in KINDS.items():
        train_encoder(kind, Job("scratch", folder / name, TUNING), *splits)
    return folder


def test_a_hard_negative_is_of_the_same_dialogue_and_not_gold(splits):
    known = {close_gaps(text) for one in splits[1].dialogues for text in pieces_of(one)}
    rows = make_rows("dual", splits[1])
    assert len(rows) == sum(map(len, splits[1].gold))
    for _, positive, negative in rows:
        assert positive != negative
        assert {positive, negative} <= known


def test_a_dual_encoder_and_its_export_give_the_same_vectors(models):
    from sentence_transformers import SentenceTransformer

    from dialore.retrieval.encoders import OnnxEmbedder

    texts = ["听说你和西安有关系吗", "大雁塔是唐代修建的", "猫的食物是鱼"]
    exact = SentenceTransformer(str(models / "dual")).encode(texts, normalize_embeddings=True)
    vectors = OnnxEmbedder(models / "dual", longest=48).encode(texts)
    assert (exact * vectors).sum(1).min() > 0.99


def test_a_cross_encoder_and_its_export_give_the_same_logits(models):
    name = "nli"
    import torch
    from sentence_transformers import CrossEncoder

    pairs = [("西安的小吃是什么", "西安的小吃是肉夹馍"), ("你好呀", "我是电工"), ("猫的寿命", "猫的寿命是十五年")]
    exact = CrossEncoder(str(models / name)).predict(pairs, activation_fn=torch.nn.Identity())
    found = OnnxCrossEncoder(models / name, 48).logits(pairs)
    np.testing.assert_allclose(found, exact, atol=0.15)
    texts = [text for _, text in pairs]
    logits = OnnxCrossEncoder(models / name, 256).logits([("西安", text) for text in texts])
    ranked = load_reranker(f"onnx:{models / name}").rerank("西安", texts, 2)
    assert [place for place, _ in ranked] == np.argsort(-logits, kind="stable")[:2].tolist()


def test_they_rank_and_tell_entailment_without_torch(models, small):
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from dialore.datasets import data_set, split_dialogues\n"
        "from dialore.trained import open_trained\n"
        f"one = split_dialogues(data_set('kbp').read(Path({str(small / 'dev.json')!r})))[0]\n"
        f"ranker = open_trained({str(models / 'dual')!r}, 'ranker')\n"
        "assert len(ranker.sentences(one.turns[-1].text, one, one.extra['documents'])) == 3\n"
        f"nli = open_trained({'trained:' + str(models / 'nli')!r}, 'entailment')\n"
        "assert len(nli.entails([('a', 'b')] * 2)) == 2\n"
        "assert not {'torch', 'transformers', 'sentence_transformers'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_dpr_reads_the_whole_context_and_compares_first_tokens_by_their_dot_product(splits, small, tmp_path):
    """SAFARI, Appendix C: (context, used piece) and (context, unrelated piece); Karpukhin et al.: sim = E_Q E_P."""
    from sentence_transformers import SentenceTransformer

    rows = make_rows("dual", splits[1], whole=True)
    at = next(place for place, one in enumerate(splits[1].dialogues) if len(one.turns) == 5 and one.knowledge)
    one = splits[1].dialogues[at]
    said = [turn.text for turn in one.turns]
    sides = ["用户：", "系统：", "用户：", "系统：", "用户："]
    context = " ".join(f"{side}{text}" for side, text in zip(sides, said, strict=True))
    # As the release's retriever is asked: the context with its speakers, its line breaks as spaces, no piece beside it.
    assert {query for query, text, _ in rows if text in splits[1].gold[at]} >= {close_gaps(f"{context} ")}
    train_encoder("dual", Job("scratch", tmp_path / "dpr", TUNING), *splits, whole=True, dot=True)
    assert read_card(tmp_path / "dpr")["settings"].items() >= {"whole": True, "dot": True}.items()
    assert "`-o turns=0`" in read_card(tmp_path / "dpr")["use"]
    whole, texts = (
        SentenceTransformer(str(tmp_path / "dpr"), device="cpu"),
        [close_gaps(text) for text in pieces_of(one)],
    )
    assert (whole[1].pooling_mode, whole.similarity_fn_name) == ("cls", "dot")
    query = query_of(one, 0)
    wanted = whole.encode(texts) @ whole.encode([close_gaps(query)])[0]
    found = open_trained(str(tmp_path / "dpr"), "ranker").documents(query, one, texts)
    assert np.corrcoef(wanted, found)[0, 1] > 0.95
    assert not np.allclose(np.linalg.norm(whole.encode(texts), axis=1), 1, atol=0.1)


def test_the_card_and_the_losses_are_written_and_weights_are_safetensors(models):
    for name, kind in KINDS.items():
        card = read_card(models / name)
        assert (card["kind"], card["settings"]["base"]) == (kind, "scratch")
        assert {"model.onnx", "model.safetensors", "tokenizer.json"} <= card["files"].keys()
        assert card["loss"]["parameters"] > 0
        assert (models / name / "loss.csv").read_text().startswith("epoch,train,dev")
        assert not [path for path in (models / name).rglob("*") if path.suffix in {".bin", ".pt", ".pkl"}]


def test_another_kind_and_damaged_weights_are_refused(models, tmp_path):
    with pytest.raises(InputError, match="is a trained dual, not a nli"):
        open_trained(f"trained:{models / 'dual'}", "entailment")
    shutil.copytree(models / "dual", tmp_path / "dual")
    (tmp_path / "dual" / "model.onnx").write_bytes((models / "dual" / "model.onnx").read_bytes()[:-1])
    with pytest.raises(InputError, match=r"model\.onnx is not the file that the model was saved with"):
        open_trained(str(tmp_path / "dual"), "ranker")


def test_pickled_weights_are_refused(splits, tmp_path):
    import torch
    import transformers

    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    config.save_pretrained(tmp_path / "base")
    torch.save(transformers.BertModel(config).state_dict(), tmp_path / "base" / "pytorch_model.bin")
    with pytest.raises(InputError, match="cannot train"):
        train_encoder("dual", Job(str(tmp_path / "base"), tmp_path / "out", TUNING), *splits)
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_it_wrote(small, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from dialore.cli.app import app

    out = tmp_path / "model"
    options = ["--set", "kind=dual", "--base", "scratch", "--set", "epochs=1", "--json"]
    done = CliRunner().invoke(app, ["train", "retriever", "kbp", "--data", str(small), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output[done.output.index("{") :])["kind"] == "dual"


def wizards(folder, split, first, count):
    """Dialogues in Wizard of Wikipedia's form, whose knowledge says what the turn before asks."""
    kinds = [("lions", "savanna"), ("whales", "ocean"), ("owls", "forest"), ("camels", "desert")]
    made = []
    for number in range(first, first + count):
        talk = [kinds[(number + step) % 4] for step in range(3)]
        made.append(
            {
                "meta": [[f"{animal.title()} live in the {place}."] for animal, place in talk],
                "dialogue": [[f"Where do {a} live, {number}?", f"In the {p}, I think."] for a, p in talk],
            }
        )
    path = folder / f"{split}.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    return path


def test_without_personas_topic_and_history_find_their_knowledge(tmp_path):
    """MSDP, Appendix F.2; by the query that `msdp` asks with `retrieved=true`."""
    paths = [wizards(tmp_path, "train", 0, 24), wizards(tmp_path, "dev", 100, 12)]
    dev = read_examples("wizard-of-wikipedia", paths[1], needs=("knowledge",))
    rows = make_rows("dual", dev)
    assert len(rows) == 36
    query, positive, negative = rows[1]
    turns = dev.dialogues[1].texts
    assert len(turns) == 3
    assert (query, positive) == (" ".join(turns), dev.gold[1][0])
    assert negative in {text for gold in dev.gold[:3] for text in gold} - {positive}
    from typer.testing import CliRunner

    from dialore.cli.app import app

    out = tmp_path / "model"
    options = ["--set", "kind=dual", "--base", "scratch", "--set", "epochs=1", "--json"]
    done = CliRunner().invoke(
        app, ["train", "retriever", "wizard-of-wikipedia", "--data", str(tmp_path), "--out", str(out), *options]
    )
    assert done.exit_code == 0, done.output
    assert read_card(out)["data"]["responses"] == 72
