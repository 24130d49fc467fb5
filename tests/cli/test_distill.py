"""`dialore distill` and `dialore train decision`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from dialore.llm.distilled import read_rows, write_lines
from dialore.llm.local import LocalModel
from dialore.training.generators import stage_targets
from tests.learned.test_decision import pairs, write
from tests.learned.test_stages import dcrag_rows
from tests.llm.test_seq2seq import _t5, _tokenizer

pytest.importorskip("lightgbm")

FINETUNED = Path(__file__).parents[2] / "examples/scg-qp/table-1-finetuned.yaml"
STAGES = ("query-production", "topic-planning", "cross-revision", "fact-selection")


def test_the_command_trains_and_refuses_leaks(tmp_path, call):
    write(tmp_path / "train.json", pairs(20, 1))
    done = call("train", "decision", "wizard-of-internet", "--data", str(tmp_path), "--out", "model", "--json")
    assert json.loads(done.out)["kind"] == "decision"
    assert "Decides on `search`" in call("models", "model").out
    write(tmp_path / "dev.json", pairs(20, 1))
    again = call("train", "decision", "wizard-of-internet", "--data", str(tmp_path), "--out", "model")
    assert "is in the training file, too" in again.complaint


def test_a_run_is_distilled_and_again_from_its_folder(call, url, talks):
    model = ("--base-url", url, "--model", "capable")
    done = call("distill", "dcrag", "--dataset", "jsonl", "--data", talks, *model, "--out", "rows.jsonl", "--json")
    said = json.loads(done.out)
    assert set(said["rows"]) <= {f"dcrag/{stage}" for stage in STAGES}
    assert said["rows"]["dcrag/query-production"] == 3
    again = call("distill", "dcrag", "--from", "runs/distill-dcrag-jsonl", "--out", "again.jsonl")
    assert again.code == 0
    assert Path("again.jsonl").read_bytes() == Path("rows.jsonl").read_bytes()
    resumed = call("distill", "dcrag", "--dataset", "jsonl", "--data", talks, *model, "--out", "rows.jsonl")
    assert "0 answered, 0 failed, 3 were there" in resumed.err


def test_contexts_and_fit_questions_are_a_file_of_coq(call, url, talks):
    texts = [f"Many people keep bees in the town of {name}." for name in ("Leeds", "Bath", "York", "Hull")]
    talks.write_text("".join(json.dumps({"headline": text}) + "\n" for text in texts), "utf-8")
    what = (
        "distill",
        "edit-questions",
        "--coq",
        "-o",
        "prompt_variant=coq",
        "--dataset",
        "coq-contexts",
        "--data",
        talks,
    )
    done = call(*what, "--base-url", url, "--model", "capable", "--out", "coq")
    assert done.code == 0, done.err
    assert [len(Path(f"coq/{name}.jsonl").read_text("utf-8").splitlines()) for name in ("train", "dev", "test")] == [
        2,
        1,
        1,
    ]
    assert "dialogues" in call("data", "show", "--stats", "coq", "coq/train.jsonl").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dcrg", "--from", "x"), "did you mean dcrag"),
        (("dcrag", "--from", "nowhere.jsonl"), "no such file: nowhere.jsonl"),
        (("dcrag", "--from", "x", "--dataset", "everyday"), "--from takes the answers of a finished run"),
        (("dcrag", "--coq", "--from", "x"), "--coq is of questions"),
        (("dcrag",), "needs --dataset"),
    ],
)
def test_mistakes_are_one_line(call, arguments, message):
    assert message in call("distill", *arguments, "--out", "rows.jsonl").complaint


@pytest.mark.filterwarnings("ignore")
def test_sequence_models_are_trained_listed_and_used(call, url, talks, tmp_path):
    for needed in ("torch", "transformers", "accelerate"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'dialore[finetune]'")
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(tmp_path / "base")
    _t5(len(tokenizer)).save_pretrained(tmp_path / "base")
    write_lines(tmp_path / "rows.jsonl", [row.model_dump() for row in dcrag_rows()])
    for folder, train, dev in (
        ("woi", pairs(8, 1), pairs(4, 2)),
        ("coq", [{"context": "Bees.", "questions": ["Why?"]}], [{"context": "Tea.", "questions": ["How?"]}]),
    ):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "train.json", train)
        write(tmp_path / folder / "dev.json", dev)
    small = ("--base", tmp_path / "base", "--set", "epochs=1", "--set", "length=64", "--out")
    done = [
        call("train", "stages", tmp_path / "rows.jsonl", *small, "models/stages"),
        call("train", "query", "wizard-of-internet", "--data", tmp_path / "woi", *small, "models/query"),
        call("train", "question", "coq", "--data", tmp_path / "coq", *small, "models/question", "--json"),
    ]
    assert [each.code for each in done] == [0, 0, 0], [each.err for each in done]
    assert json.loads(done[2].out)["data"]["dataset"] == "coq"
    kinds = [one["kind"] for one in json.loads(call("models", "models", "--json").out)]
    assert kinds == ["query", "question", "stages"]
    asked = call(
        *("respond", talks, "-M", "edit-questions", "-o", "trained=true", "--base-url", url, "--model", "capable"),
        *("--set", "model.stages.question-generation=hf:models/question", "--trace", "trace.jsonl"),
    )
    assert asked.code == 0, asked.err
    assert json.loads(Path("trace.jsonl").read_text("utf-8").splitlines()[0])["trace"][0]["model"] == "models/question"
    refused = call("train", "query", "kbp", "--data", tmp_path / "woi", *small, "models/none")
    assert refused.code == 2


@pytest.mark.filterwarnings("ignore")
def test_scg_qps_finetuned_row_is_made_and_run_by_the_commands_of_its_file(call, url, tmp_path):
    """SCG-QP, Sections 3.1 and A.2: a model each, which reads in use what it was trained on, and samples (P .9, .7)."""
    for needed in ("torch", "transformers", "accelerate"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'dialore[finetune]'")
    shown = yaml.safe_load(FINETUNED.read_text("utf-8"))["data"]["commands"]
    entries = pairs(30, 1)
    for entry in entries:
        entry["KB"] = [[f"The {query} is long."] if (query := " ".join(some)) else [] for some in entry["query"]]
    for split in ("train", "test"):
        (tmp_path / "data/wizard_of_internet").mkdir(parents=True, exist_ok=True)
        write(tmp_path / f"data/wizard_of_internet/{split}.jsonl", entries)
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(tmp_path / "base")
    _t5(len(tokenizer)).save_pretrained(tmp_path / "base")
    ours = {
        "google/flan-t5-large": f"{tmp_path / 'base'} --set epochs=1 --set length=256",
        "hf:allenai/cosmo-xl": "rehearsal",
    }
    for printed in shown:
        line = printed.removeprefix("dialore ")
        for theirs, small in ours.items():
            line = line.replace(theirs, small)
        told = line.startswith("distill scg-qp/query") * f" --base-url {url} --model capable"
        done = call(*shlex.split(line + told))
        assert done.code == 0, (line, done.err)
    measured = call("models", "trained:models/scg-qp-query", "--rows", "data/scg-qp-query.jsonl", "--json")
    assert measured.code == 0, measured.err
    (result,) = json.loads(measured.out)
    queries = read_rows(tmp_path / "data/scg-qp-query.jsonl")
    assert result["outputs"] == sum(row.split == "valid" for row in queries)
    assert all(0 <= score <= 1 for score in result["scores"].values())
    rows = read_rows(tmp_path / "data/scg-qp-topic.jsonl")
    assert {row.task for row in rows} == {"scg-qp/topic-tracking.paper.en"}
    (train, held), card = stage_targets(tmp_path / "data/scg-qp-topic.jsonl", whole=True)
    assert card["whole"]
    config = yaml.safe_load(FINETUNED.read_text("utf-8"))
    config["systems"] = [each for each in config["systems"] if each["name"] == "Ours (Finetuned)"]
    config["systems"][0]["options"]["reranker"] = "fused"
    config["systems"][0]["stages"]["scg-qp/commonsense-directive"] = "rehearsal"
    config["dataset"] |= {"path": "data/wizard_of_internet/train.jsonl", "where": ["searched"], "limit": None}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(config), "utf-8")
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        complete = LocalModel.complete

        async def kept(self, request, on_token=None):
            asked.append(request)
            return await complete(self, request, on_token)

        patch.setattr(LocalModel, "complete", kept)
        ran = call(
            "run",
            "small.yaml",
            "--set",
            "sources.search=corpus:data/woi.index",
            "--base-url",
            url,
            "--model",
            "capable",
        )
    # It samples without a seed, and may by chance write nothing: that is a failed response, which is no fault here.
    assert ran.code == 0 or "answered with an empty text" in ran.err, ran.err
    topics = [each for each in asked if each.prompt.startswith("scg-qp/topic-tracking.paper.en")]
    assert {each.continuation for each in topics} == {one.parts[0][0] for one in (*train, *held)}
    sampled = {(each.sampling.temperature, each.sampling.top_p, each.sampling.max_tokens) for each in asked}
    assert sampled == {(0.7, 0.9, 40)}
