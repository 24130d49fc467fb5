"""`dialore import` and `dialore score FILE`: responses of other tools become a run that every command works on."""

from __future__ import annotations

import json
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialore.errors import InputError
from dialore.experiments.import_responses import _read
from dialore.experiments.store import RunStore

KEYS = [
    *("id", "dialogue_id", "text", "response", "prediction", "system", "method", "status", "model", "knowledge", "doc"),
    *("doc_id", "filtered_resps", "resps", "filter", "dialog", "dialogue", "generation", "labels", "eval_labels"),
]
PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(0, 1) | st.text(max_size=4)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
)

DIALOGUES = [
    {"id": f"d{number}", "turns": [f"Tell me of {name}."], "reference": f"I like {name} a lot.", "knowledge": [fact]}
    for number, (name, fact) in enumerate(
        {"tea": "Tea is a drink.", "bread": "Bread is baked.", "rain": "Rain falls.", "jazz": "Jazz swings."}.items()
    )
]


def lines(path, entries):
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in entries), "utf-8")
    return path


@pytest.fixture
def data(tmp_path):
    return lines(tmp_path / "dialogues.jsonl", DIALOGUES)


def texts(folder="runs/mine"):
    with RunStore.open(folder) as store:
        systems = {system.number: system.title for system in store.systems()}
        return {(systems[job.system], dialogue.id): response.text for job, dialogue, response in store.responses()}


@pytest.fixture(autouse=True)
def in_folders(monkeypatch):
    """RunStore.open takes what a test names."""
    opened = RunStore.open.__func__
    monkeypatch.setattr(RunStore, "open", classmethod(lambda cls, folder: opened(cls, Path(folder))))


def scores(call, *arguments):
    done = call("score", *arguments, "--json")
    assert done.code == 0, done.err
    return {each["name"]: {name: one["value"] for name, one in each["scores"].items()} for each in json.loads(done.out)}


def test_a_file_of_ids_and_texts_is_scored_in_one_command(call, data, tmp_path):
    mine = lines(tmp_path / "mine.jsonl", [{"id": each["id"], "text": each["reference"]} for each in DIALOGUES])
    done = call("score", mine, "--data", data, "-x", "f1", "--json")
    assert "mine: 4 responses" in done.err
    assert [(each["name"], each["scores"]["f1"]["value"]) for each in json.loads(done.out)] == [("mine", 1.0)]
    assert scores(call, "runs/mine", "-x", "f1") == {"mine": {"f1": 1.0}}
    # Read anew, what changed is measured anew.
    lines(mine, [{"id": each["id"], "text": "No idea."} for each in DIALOGUES])
    assert scores(call, mine, "--data", data, "-x", "f1") == {"mine": {"f1": 0.0}}


def test_several_systems_in_one_file_and_in_several_with_what_they_were_given(call, data, tmp_path):
    both = [
        {"dialogue_id": each["id"], "response": text, "system": name, "knowledge": given}
        for each in DIALOGUES
        for name, text, given in (
            ("good", each["knowledge"][0], [{"text": each["knowledge"][0]}, "Water is wet."]),
            ("bad", "Hm.", []),
        )
    ]
    lines(tmp_path / "both.jsonl", both)
    own = [{"id": each["id"], "prediction": "Yes."} for each in DIALOGUES]
    lines(tmp_path / "out.jsonl", own)
    done = call("import", "both.jsonl", "bart=out.jsonl", "--data", data, "--out", "runs/mine", "--json")
    assert done.code == 0
    assert done.lines[0]["systems"]["bart"] == {
        "responses": 4,
        "empty": 0,
        "missing": [],
        "failed": 0,
        "thoughts": 0,
    }
    found = scores(call, "runs/mine", "-x", "kf1", "-x", "knowledge-copy")
    assert list(found) == ["good", "bad", "bart"]
    assert found["good"] == {"kf1": 1.0, "knowledge-copy": 1.0}
    assert found["bad"]["knowledge-copy"] is None


def test_what_is_missing_is_said_and_what_is_empty_is_an_answer_that_says_nothing(call, data, tmp_path):
    lines(tmp_path / "mine.jsonl", [{"id": "d0", "text": "I like tea a lot."}, {"id": "d2", "text": " "}])
    done = call("import", "mine.jsonl", "--data", data)
    assert "mine: 2 responses; 1 without text, which are scored as answers that say nothing; 2 dialogues" in done.err
    assert scores(call, "runs/mine", "-x", "f1", "-x", "distinct-1") == {"mine": {"f1": 0.5, "distinct-1": 100.0}}
    assert call("score", "runs/mine", "-x", "f1", "-x", "distinct-1").out.split()[-2:] == ["1", "%"]
    assert call("report", "runs/mine", "--markdown").code == 0


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (
            [{"id": "d0", "text": "a"}, {"id": "dx", "text": "b"}],
            "entry 2: no dialogue of the data has the id 'dx'; so it is",
        ),
        ([{"id": "d0", "text": "a"}, {"id": "d0", "text": "b"}], "'mine' has answered dialogue 'd0' before (keep one"),
        ([{"id": "d0", "said": "a"}], "(text_key); the entry has 'id', 'said'"),
        ([{"text": "a"}], "rename its key to `id`"),
        ([{"id": "d0", "text": 3}], "text_key"),
        ([{"id": "d0", "text": "a", "knowledge": 3}], "Input should be a valid list"),
        ([{"id": "d0", "text": "a", "knowledge": [{"title": "Tea"}]}], "field knowledge: knowledge without text"),
        ([{"id": "d0", "text": "a", "knowledge": [["b"]]}], "field [0]"),
        ([{"id": None, **dict.fromkeys("abcdefghij", 1)}], "'id', 'a', 'b', 'c', 'd', 'e' and 5 more"),
        ([{"id": "d0", "method": "x", "status": "good", "text": "a"}], "entry 1: field status: Input should be"),
        ([{"dialog": [[{"text": "hi"}]]}], "field dialog[0]: no pair of acts with texts"),
        ([{"generation": [{"dialogue": 3}]}], "field generation[0].dialogue: no list of pairs"),
        ([{"generation": [{"dialogue": [[]]}]}], "field generation[0].dialogue[0]: no reply, nor a pair"),
        ([{"doc_id": 0, "filtered_resps": [[-1.2, True]]}], "field filtered_resps: no generated text"),
        ([{"doc_id": 7, "filtered_resps": ["a"]}], "no dialogue of the data has the number 7"),
        ([], "the file is empty"),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_no_run(call, data, tmp_path, entries, words):
    lines(tmp_path / "mine.jsonl", entries)
    assert words in call("import", "mine.jsonl", "--data", data).complaint
    assert not (tmp_path / "runs" / "mine").exists()


def test_forms_that_other_tools_write_are_read_alike(call, data, tmp_path):
    fact = DIALOGUES[0]["knowledge"][0]
    forms = {"text": fact, "list": [fact], "object": {"page_content": fact}, "nulls": [None, fact, ""]}
    for name, form in forms.items():
        lines(tmp_path / f"{name}.jsonl", [{"id": "d0", "text": "Tea is a drink.", "knowledge": form}])
    files = [f"{name}.jsonl" for name in forms]
    assert call("import", *files, "--data", data, "--out", "runs/mine").code == 0
    assert {found["knowledge-copy"] for found in scores(call, "runs/mine", "-x", "knowledge-copy").values()} == {1.0}
    numbered = lines(tmp_path / "numbered.jsonl", [{**each, "id": n} for n, each in enumerate(DIALOGUES)])
    Path("ids.jsonl").write_text('{"id": 0, "text": null}\n{"id": 1.0, "text": "b"}\n', "utf-8")
    Path("whole.json").write_text('{"0": "a", "3": null}', "utf-8")
    samples = [{"doc_id": 0, "filtered_resps": [None]}, {"doc_id": 1, "resps": [["b"]], "perplexity": float("nan")}]
    lines(tmp_path / "lm.jsonl", samples)
    assert call("import", "ids.jsonl", "whole.json", "lm.jsonl", "--data", numbered, "--out", "runs/two").code == 0
    whole = {("ids", "0"): "", ("ids", "1"): "b", ("whole", "0"): "a", ("whole", "3"): ""}
    assert texts("runs/two") == whole | {("lm", "0"): "", ("lm", "1"): "b"}


def chat(text):
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}


TOOLS = {
    "openai": lambda n, q, t: {"id": f"b{n}", "custom_id": f"d{n}", "response": {"status_code": 200, "body": chat(t)}},
    "openai-responses": lambda n, q, t: {
        "custom_id": f"d{n}",
        "response": {
            "body": {
                "output": [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": t}]}]
            }
        },
    },
    "vllm": lambda n, q, t: {"id": f"d{n}", "prompt": q, "outputs": [{"text": t}]},
    "deepeval": lambda n, q, t: {"input": q, "actual_output": t, "expected_output": "x", "retrieval_context": ["c"]},
    "deepeval-camel": lambda n, q, t: {"name": "test", "input": q, "actualOutput": t},
    "ragas-old": lambda n, q, t: {"question": q, "answer": t, "contexts": ["c"], "ground_truth": "x"},
    "ragas": lambda n, q, t: {"user_input": q, "response": t, "retrieved_contexts": ["c"], "reference": "x"},
    "flashrag": lambda n, q, t: {"id": f"d{n}", "question": q, "golden_answers": ["x"], "output": {"pred": t, "em": 0}},
    "mtrag": lambda n, q, t: {"task_id": f"d{n}", "contexts": [{"text": "c"}], "predictions": [{"text": t}]},
    "capitals": lambda n, q, t: {"ID": f"d{n}", "Response": t},
}


@pytest.mark.parametrize("tool", TOOLS)
def test_responses_of_other_tools_are_read(call, data, tmp_path, tool):
    made = [TOOLS[tool](n, f"Tell me of {name}.", f"{name} it is") for n, name in enumerate(["tea", "bread"])]
    lines(tmp_path / "mine.jsonl", made)
    assert call("import", "mine.jsonl", "--data", data).code == 0
    assert texts() == {("mine", "d0"): "tea it is", ("mine", "d1"): "bread it is"}


@pytest.mark.parametrize("nested", [lambda t: {"completion": t}, chat])
def test_a_log_of_inspect_is_read_with_its_epochs(call, data, tmp_path, nested):
    samples = [
        {"id": f"d{n}", "epoch": epoch, "input": "hi", "target": "x", "output": nested(f"{n} {epoch}")}
        for n in (0, 1)
        for epoch in (1, 2)
    ]
    Path("log.json").write_text(json.dumps({"version": 2, "samples": samples}, indent=1), "utf-8")
    assert call("import", "log.json", "--data", data, "--out", "runs/mine").code == 0
    with RunStore.open("runs/mine") as store:
        found = {(d.id, job.repetition): r.text for job, d, r in store.responses()}
    assert found == {("d0", 0): "0 1", ("d0", 1): "0 2", ("d1", 0): "1 1", ("d1", 1): "1 2"}


def test_a_zipped_log_of_inspect_is_read(call, data):
    with zipfile.ZipFile("log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", '{"version": 2, "status": "success"}')
        for n in (0, 1):
            sample = {"id": f"d{n}", "epoch": 1, "input": "hi", "output": {"completion": f"answer {n}"}}
            archive.writestr(f"samples/d{n}_epoch_1.json", json.dumps(sample))
        archive.writestr("summaries.json", "[]")
    assert call("import", "log.eval", "--data", data, "--out", "runs/mine").code == 0
    assert texts() == {("log", "d0"): "answer 0", ("log", "d1"): "answer 1"}


def test_a_damaged_zipped_log_of_inspect_is_refused(call, data):
    Path("log.eval").write_bytes(b"PK\x03\x04 and no more")
    complaint = call("import", "log.eval", "--data", data).complaint
    assert "log.eval" in complaint
    assert "inspect log convert" in complaint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.csv", 'id,response\r\nd0,"tea, it ""is"""\r\nd1,"a\nb"\r\n'),
        ("mine.tsv", 'ID\tprediction\nd0\t"tea, it ""is"""\nd1\t"a\nb"\n'),
        ("mine.csv", 'id;Output\nd0;"tea, it ""is"""\nd1;"a\nb"\n'),
    ],
)
def test_tables_with_a_header_are_read(call, data, name, text):
    Path(name).write_bytes(text.encode())
    assert call("import", name, "--data", data).code == 0
    assert texts() == {("mine", "d0"): 'tea, it "is"', ("mine", "d1"): "a\nb"}


@pytest.mark.parametrize("text", ["id,response\nd0,a,b\n", "id,response\n", 'id,response\nd0,"a\n'])
def test_a_broken_table_is_refused(call, data, text):
    Path("mine.csv").write_text(text, "utf-8")
    assert "mine.csv" in call("import", "mine.csv", "--data", data).complaint


def test_several_generations_are_repetitions(call, data, tmp_path):
    lines(tmp_path / "mine.jsonl", [{"id": f"d{n}", "generation": ["I like tea a lot.", "No."]} for n in (0, 1)])
    assert call("import", "mine.jsonl", "--data", data).code == 0
    with RunStore.open("runs/mine") as store:
        assert [(job.position, job.repetition) for job in store.jobs()] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_failed_request_of_a_batch_is_a_failed_response(call, data, tmp_path):
    good = TOOLS["openai"](0, "", "a")
    bad = {"custom_id": "d1", "response": {"status_code": 500, "body": {}}, "error": {"message": "no room"}}
    lines(tmp_path / "mine.jsonl", [good, bad])
    done = call("import", "mine.jsonl", "--data", data, "--json")
    assert done.lines[0]["systems"]["mine"]["failed"] == 1


def test_different_texts_in_known_keys_are_an_error_until_one_is_named(call, data, tmp_path):
    entries = [{"id": f"d{n}", "text": "Tell me.", "prediction": "I like tea a lot."} for n in (0, 1)]
    lines(tmp_path / "mine.jsonl", entries)
    complaint = call("import", "mine.jsonl", "--data", data).complaint
    assert "text_key" in complaint
    assert "`text`" in complaint
    assert "`prediction`" in complaint
    assert not (tmp_path / "runs" / "mine").exists()
    assert call("import", "mine.jsonl", "--data", data, "--text-key", "prediction").code == 0
    assert texts() == {("mine", "d0"): "I like tea a lot.", ("mine", "d1"): "I like tea a lot."}
    lines(tmp_path / "same.jsonl", [{"id": "d0", "text": "a", "prediction": "a"}])
    assert call("import", "same.jsonl", "--data", data).code == 0
    assert "none" in call("import", "mine.jsonl", "--data", data, "--text-key", "none").complaint


@pytest.mark.parametrize(
    "text",
    [
        "<think>drinks</think>I like tea.",
        "so drinks</think>\n\nI like tea.",
        "[THINK]drinks[/THINK] I like tea.",
        "<|channel|>analysis<|message|>drinks<|end|><|start|>assistant<|channel|>final<|message|>I like tea.",
    ],
)
def test_thoughts_are_removed_and_reported(call, data, tmp_path, text):
    lines(tmp_path / "mine.jsonl", [{"id": "d0", "text": text}, {"id": "d1", "text": "I like tea."}])
    done = call("import", "mine.jsonl", "--data", data, "--json")
    assert done.lines[0]["systems"]["mine"]["thoughts"] == 1
    assert set(texts().values()) == {"I like tea."}


def test_rows_with_unknown_keys_name_the_key_to_rename(call, data, tmp_path):
    lines(tmp_path / "mine.jsonl", [{"id": f"d{n}", "reply": "a"} for n in (0, 1)])
    assert "'reply'" in call("import", "mine.jsonl", "--data", data).complaint
    lines(tmp_path / "other.jsonl", [{"key": f"d{n}", "reply": "a"} for n in (0, 1)])
    assert "'key'" in call("import", "other.jsonl", "--data", data).complaint


def test_without_dialogues_or_files_the_mend_is_said(call, data, tmp_path):
    lines(tmp_path / "mine.jsonl", [{"id": "d0", "text": "a"}])
    assert "runs/mine is no run yet (name their file: dataset.path) [--data]" in call("score", "mine.jsonl").complaint
    assert "no such file: none.jsonl" in call("import", "x=none.jsonl", "--data", data).complaint
    assert call("import", "mine.jsonl", "--data", data).code == 0
    assert "knows its dialogues" in call("score", "runs/mine", "--data", data).complaint
    other = lines(tmp_path / "other.jsonl", DIALOGUES[:2])
    assert "has 4 dialogues, not 2" in call("import", "mine.jsonl", "--data", other).complaint


def test_ours_are_read_whole_and_set_beside_those_of_a_run(call, data):
    assert (
        call("run", "-M", "vanilla", "--data", data, "--dataset", "jsonl", "-m", "rehearsal", "--out", "runs/mine").code
        == 0
    )
    done = call("respond", data, "-M", "t-rag", "-m", "rehearsal", "--json")
    assert done.code == 0
    Path("ours.jsonl").write_text(done.out, "utf-8")
    assert call("import", "ours.jsonl", "--out", "runs/mine").code == 0
    with RunStore.open("runs/mine") as store:
        assert [system.title for system in store.systems()] == ["vanilla", "t-rag"]
        response = store.response(store.jobs(1)[0])
        assert response.status == "ok"
        assert response.model == "rehearsal"
    assert set(scores(call, "runs/mine", "-x", "f1")) == {"vanilla", "t-rag"}
    again = call("run", "-M", "vanilla", "--data", data, "--dataset", "jsonl", "-m", "rehearsal", "--out", "runs/mine")
    assert "0 answered, 0 failed, 4 were there" in again.err


WHOLE = [
    {"id": "w1", "turns": ["Hello !", "Hi , how are you ?", "Fine .", "Good ."]},
    {"id": "w2", "turns": ["Tea ?", "Yes , please .", "Sugar ?"]},
]


@pytest.fixture
def whole(tmp_path):
    return lines(tmp_path / "whole.jsonl", WHOLE)


def test_a_log_of_parlai_is_matched_by_labels_and_turns(call, whole, tmp_path):
    """The form of `parlai eval_model --world-logs`: episodes of pairs of acts, in any order, tokenised otherwise."""

    def parley(text, label, reply):
        teacher = {"id": "dailydialog", "text": text, "eval_labels": [label], "episode_done": False}
        return [teacher, {"id": "TransformerGenerator", "text": reply, "episode_done": False}]

    logs = [
        {
            "dialog": [parley("your persona: i drink tea\nTea?", "Yes, please.", "No tea.")],
            "context": [],
            "metadata_path": "m",
        },
        {"dialog": [parley("Hello!", "Hi, how are you?", "Hey."), parley("Fine.", "Good.", "Great!")], "context": []},
    ]
    lines(tmp_path / "mine.jsonl", logs)
    done = call("import", "mine.jsonl", "--data", whole, "--set", "dataset.cut=all")
    assert "mine: 3 responses; 2 dialogues without one" in done.err
    assert texts() == {("mine", "w1@1"): "Hey.", ("mine", "w1@3"): "Great!", ("mine", "w2@1"): "No tea."}
    logs[0]["dialog"][0][0]["eval_labels"] = ["Never said."]
    lines(tmp_path / "other.jsonl", logs)
    assert (
        "no dialogue of the data has the latest turn 'Tea?'; so it is with 1 of 3"
        in call("import", "other.jsonl", "--data", whole, "--set", "dataset.cut=all").complaint
    )


@pytest.mark.parametrize("both", [False, True])
def test_generations_of_the_few_shot_bot_go_by_dialogue_and_pair(call, whole, tmp_path, both):
    """`{"score", "generation": [{"meta", "dialogue": [[reply], ...]}]}`, or both turns of each pair."""
    replies = [[["u0", "s0"], ["u1", "s1"]], [["u2", "s2"], ["u3", "past the end"]]]
    made = [
        [pair if both else pair[1:] for pair in pairs] for pairs in (replies if both else [replies[0], replies[1][:1]])
    ]
    entry = {"score": {"F1": 1}, "generation": [{"meta": [], "dialogue": pairs} for pairs in made]}
    (tmp_path / "mine.json").write_text(json.dumps(entry, indent=4), "utf-8")
    assert call("import", "mine.json", "--data", whole, "--set", "dataset.cut=all").code == 0
    system = {("mine", "w1@1"): "s0", ("mine", "w1@3"): "s1", ("mine", "w2@1"): "s2"}
    user = {("mine", "w1@2"): "u1", ("mine", "w2@2"): "u3"}
    assert texts() == (system | user if both else system)


def test_samples_of_lm_eval_go_by_their_documents_id_or_number(call, data, tmp_path):
    by_number = [
        {
            "doc_id": number,
            "doc": {},
            "target": "",
            "arguments": [],
            "resps": [["raw"]],
            "filtered_resps": [f"n{number}"],
        }
        for number in range(4)
    ]
    by_id = [
        {"doc_id": 3 - number, "doc": {"id": f"d{number}"}, "resps": [[f"i{number}"]], "filter": name}
        for number in range(4)
        for name in ("none", "first-line")
    ]
    lines(tmp_path / "mine.jsonl", by_number)
    lines(tmp_path / "ids.jsonl", by_id)
    assert call("import", "mine.jsonl", "ids.jsonl", "--data", data, "--out", "runs/mine").code == 0
    found = texts()
    assert {name for name, _ in found} == {"mine", "ids", "ids (first-line)"}
    assert [found["mine", f"d{number}"] for number in range(4)] == ["n0", "n1", "n2", "n3"]
    assert [found["ids", f"d{number}"] for number in range(4)] == ["i0", "i1", "i2", "i3"]


def test_every_command_works_on_an_imported_run(call, data, tmp_path, url, monkeypatch):
    for name, text in (("a", "I like it a lot."), ("b", "No.")):
        lines(tmp_path / f"{name}.jsonl", [{"id": each["id"], "text": f"{text} {each['id']}"} for each in DIALOGUES])
    assert call("import", "a.jsonl", "b.jsonl", "--data", data, "--out", "runs/two").code == 0
    assert call("score", "runs/two", "-x", "f1", "-x", "distinct-1").code == 0
    assert call("report", "runs/two", "--out", "report", "--baseline", "b").code == 0
    assert "| a |" in (tmp_path / "report" / "report.md").read_text("utf-8")
    monkeypatch.setenv("DIALORE_BASE_URL", url)
    judged = call("judge", "runs/two", "--pairwise", "a", "b", "--model", "wait-0", "-c", "coherence", "--json")
    assert judged.lines[0][0]["criterion"] == "coherence"
    pytest.importorskip("openpyxl", reason="the evaluation extra is not installed")
    exported = call("annotate", "export", "runs/two", "-c", "dcrag", "--form", "likert", "--annotators", "1", "--json")
    (sheet,) = [path for path in exported.lines[0]["sheets"] if path.endswith(".csv")]
    filled = fill(tmp_path / sheet)
    assert call("annotate", "import", filled, "--key", exported.lines[0]["key"], "--out", "annotations.jsonl").code == 0
    rated = call("score", "runs/two", "-x", "f1", "--against-ratings", "annotations.jsonl", "--json")
    assert rated.code == 0, rated.err
    assert {row["n"] for row in rated.lines[0] if row["level"] == "response"} == {8}


def fill(path):
    """The sheet with a score in every empty cell, rising from row to row."""
    import csv

    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    header, *body = rows
    body = [[cell or str(number % 3 + 1) for cell in row] for number, row in enumerate(body)]
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows([header, *body])
    return path


@settings(max_examples=400, deadline=None)
@given(entry=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5))
def test_no_entry_is_a_traceback(tmp_path_factory, entry):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_text(json.dumps(entry) + "\n", "utf-8")
    with suppress(InputError):
        assert all(answer.key for answer in _read(path, ""))
