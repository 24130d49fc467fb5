"""Methods, data sets and metrics that are not ours: in a file of the user's, or added by another package."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

from dialore import create_agent
from dialore.errors import InputError
from dialore.experiments import scoring
from dialore.methods.registry import create_method, method_class

METHOD = '''
from __future__ import annotations
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar
from dialore.methods.base import Method
from dialore.response import Grounding
if TYPE_CHECKING:
    from dialore.sources.base import KnowledgeSource

@dataclass(frozen=True, slots=True)
class Mine(Method):
    """Answer in a mood."""
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "one call in a mood"
    optional_sources: ClassVar[tuple[str, ...]] = ("documents",)
    mood: str
    documents: KnowledgeSource | None = None
    words: int | None = None
    topics: list[str] = field(default_factory=list)

    async def respond(self, dialogue, stage):
        text = await stage.write("mine/reply", mood=self.mood, words=self.words, topics=self.topics)
        return Grounding().response(text)
'''
PROMPT = (
    '---\nversion: 1\noutput: text\n---\n<!-- user -->\n{{ history }} {{ mood }} {{ words }} {{ topics | join("+") }}\n'
)
SET = """
from pathlib import Path
from dialore.datasets.plain import Jsonl

class Lines(Jsonl):
    name = "lines"
"""
METRIC = """
from dialore.evaluation.base import Mean, MetricInfo, SampleScore

class Words(Mean):
    def __init__(self, name):
        self.about = MetricInfo(name, paper="ours", definition="Words.", scale=0)

    async def measure(self, sample):
        return SampleScore((float(len(sample.response.text.split())),))

def make(name, context):
    return Words(name)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.setattr("dialore.prompts.library._BESIDE", [])
    for name in ("mine", "lines", "shared"):
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    for name, text in {"mine.py": METHOD, "lines.py": SET, "shared.py": METRIC}.items():
        (tmp_path / name).write_text(text, "utf-8")
    prompts = tmp_path / "prompts" / "mine"
    prompts.mkdir(parents=True)
    (prompts / "reply.en.md").write_text(PROMPT, "utf-8")
    return tmp_path / "mine.py"


def test_a_method_of_a_file_answers_by_the_prompts_beside_it(call, mine, faulty_server):
    options = (
        "-M",
        "./mine.py",
        "-o",
        "mood=glad",
        "-o",
        "words=5",
        "-o",
        "topics=[tea, honey]",
        "--set",
        "model.no_cache=true",
    )
    done = call("ask", "Hello", *options, "-u", faulty_server.url, "--json")
    assert (done.code, done.lines[0]["method"]) == (0, "mine"), done.err
    assert faulty_server.calls[0].body["messages"][0]["content"] == "Me: Hello glad 5 tea+honey"
    [described] = call("methods", "./mine.py", "--json").lines
    assert {each["name"]: each["default"] for each in described["options"]} == {
        "mood": "needed",
        "words": None,
        "topics": [],
    }
    assert described["stages"][0]["prompt"] == "mine/reply"


def test_a_changed_file_of_a_method_is_refused_or_accepted_and_the_report_says_so(call, mine, talks, url):
    talks.write_text(json.dumps({"id": "a", "turns": ["Hello."], "reference": "Hello there."}), "utf-8")
    options = ("-M", "./mine.py", "-o", "mood=glad", "--dataset", "jsonl", "--data", talks, "-u", url, "--out", "run")
    assert call("run", *options, "--set", "model.no_cache=true").code == 0
    mine.write_text(METHOD.replace("mood=self.mood", "mood=self.mood + '!'"), "utf-8")
    options = (*options, "--set", "model.no_cache=true", "--set", "repetitions=2")
    complaint = call("run", *options).complaint
    assert "was made with other methods: mine.py " in complaint
    assert "accept the changed prompts" in complaint
    assert call("run", *options, "--accept-changed", "prompts").code == 0
    assert call("score", "run", "-x", "f1").code == 0
    assert call("report", "run", "--markdown", "--out", "shown").code == 0
    assert "made with several versions of its methods: mine.py " in (mine.parent / "shown/report.md").read_text("utf-8")


def test_options_are_read_as_they_are_annotated(mine):
    name = f"{mine}:Mine"
    assert method_class(name) is method_class(str(mine))
    assert create_method(name, {}, {"mood": "7", "words": "null"}).mood == "7"
    assert create_method(name, {}, {"mood": "glad", "words": "5"}).words == 5
    with pytest.raises(InputError, match=r"option words of mine: 'many' is not int \| None"):
        create_method(name, {}, {"mood": "glad", "words": "many"})
    with pytest.raises(InputError, match="needs its option mood"):
        create_method(name, {}, {})


def test_data_sets_and_metrics_of_a_file(call, mine, url, talks):
    talks.write_text(json.dumps({"id": "a", "turns": ["Hello."], "reference": "Hello there."}), "utf-8")
    options = ("-M", "./mine.py", "-o", "mood=glad", "--dataset", "./lines.py", "--data", talks, "-u", url)
    assert call("run", *options, "--out", "run", "--set", "model.no_cache=true").code == 0
    done = call("score", "run", "-x", "./shared.py", "--json")
    assert done.code == 0, done.err
    assert list(done.lines[0][0]["scores"]) == ["./shared.py"]
    assert call("data", "show", "--stats", "./lines.py", talks, "--json").lines[0]["dialogues"] == 1


@pytest.fixture
def run(call, mine, url, talks):
    """A run of one response, "Hello there friend."."""
    talks.write_text(json.dumps({"id": "a", "turns": ["Hello."], "reference": "Hello there."}), "utf-8")
    options = (
        "-M",
        "vanilla",
        "--dataset",
        "jsonl",
        "--data",
        talks,
        "-u",
        url,
        "--out",
        "run",
        "--set",
        "model.no_cache=true",
    )
    assert call("run", *options).code == 0
    return mine.parent / "run"


def test_a_metric_whose_file_changed_measures_anew(call, run):
    def figure():
        return call("score", run, "-x", "./shared.py", "--json").lines[0][0]["scores"]["./shared.py"]["value"]

    before = figure()
    (run.parent / "shared.py").write_text(METRIC.replace("float(len", "100.0 + float(len"), "utf-8")
    for name in [name for name in sys.modules if name.endswith("shared.py")]:
        del sys.modules[name]  # as a new process has it
    assert figure() == before + 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("Words(name)", "Words('other')"), "is no metric of that name (return an object with `measure`"),
        (("Words(name)", "Words"), "is no metric of that name (return an object with `measure`"),
        (("Words(name)", "name.nothing"), "cannot be loaded: AttributeError"),
        (("async def", "def"), "failed on dialogue a: TypeError"),
        (("SampleScore((float(", "((float("), "`measure` returns tuple, not a SampleScore"),
        (("sample.response.text", "sample.nothing"), "failed on dialogue a: AttributeError"),
        (("def make", "def made"), "has no metric (write a function make(name, context) that returns one)"),
    ],
)
def test_a_metric_that_does_not_do_is_one_line_and_hides_no_other(call, run, change, said):
    (run.parent / "broken.py").write_text(METRIC.replace(*change), "utf-8")
    assert said in call("score", run, "-x", "./broken.py").complaint
    assert call("score", run, "-x", "./shared.py").code == 0
    (run.parent / "broken.py").unlink()
    done = call("report", run, "--markdown", "--out", "shown")
    assert done.code == 0, done.err
    assert "broken.py" not in done.err


def test_a_report_without_the_file_of_a_metric_leaves_it_out_and_says_so(call, run, caplog):
    assert call("score", run, "-x", "./shared.py", "-x", "f1").code == 0
    for name in [name for name in sys.modules if name.endswith("shared.py")]:
        del sys.modules[name]
    (run.parent / "shared.py").unlink()
    assert call("report", run, "--markdown", "--out", "shown").code == 0
    assert "left out: no such file: shared.py" in caplog.text
    shown = (run.parent / "shown" / "report.md").read_text("utf-8")
    assert "f1" in shown
    assert "shared" not in shown
    assert "no such file: shared.py" in call("report", run, "-x", "./shared.py", "--out", "shown").complaint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_there", "method x.py cannot be loaded: ModuleNotFoundError: No module named 'nothing_there'"),
        ("def (", "method x.py cannot be loaded: SyntaxError"),
        ("x = 1", "x.py has no method"),
        (METHOD + METHOD.partition("\n\n")[2].replace("Mine", "Other"), "x.py has 2 methods (name one: x.py:Mine)"),
        (None, "no such file: x.py"),
    ],
)
def test_a_file_that_does_not_do_is_one_line(call, tmp_path, text, said):
    if text is not None:
        (tmp_path / "x.py").write_text(text, "utf-8")
    assert said in call("ask", "Hello", "-M", "x.py", "-m", "rehearsal").complaint


def test_one_broken_plugin_hides_no_other(call, mine, tmp_path, monkeypatch, caplog):
    info = tmp_path / "site" / "others-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n", "utf-8")
    points = ["[dialore.methods]", "mine = mine:Mine", "bad = no_such_module:Bad"]
    points += ["[dialore.datasets]", "lines = lines:Lines", "bad-set = no_such_module:Bad"]
    points += ["[dialore.metrics]", "shared = shared:make", "bad-metric = no_such_module:make"]
    (info / "entry_points.txt").write_text("\n".join(points), "utf-8")
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.syspath_prepend(str(mine.parent))
    for command, good, bad in [
        (("prompts",), "mine/reply", "method bad"),
        (("methods",), "mine", "method bad"),
        (("data", "list"), "lines", "data set bad-set"),
        (("score", "-", "--list"), "shared", "metric bad-metric"),
    ]:
        done = call(*command)
        assert (done.code, good in done.out) == (0, True)
        assert f"left out: {bad} cannot be loaded: ModuleNotFoundError" in caplog.text
        assert "of others" in caplog.text
    assert call("prompts", "mine/reply").out == PROMPT
    assert call("prompts", "--export", tmp_path / "exported").code == 0
    assert (tmp_path / "exported" / "mine" / "reply.en.md").read_text("utf-8") == PROMPT
    record = tmp_path / "calls.jsonl"
    asked = (
        "ask",
        "Hello",
        "-M",
        "mine",
        "-o",
        "mood=glad",
        "-m",
        "rehearsal",
        "--set",
        "model.no_cache=true",
        "--set",
        f"model.record={record}",
    )
    assert call(*asked).code == 0
    assert "rehearsal" in record.read_text("utf-8")
    assert "method bad cannot be loaded" in call("ask", "Hello", "-M", "bad", "-m", "rehearsal").complaint


async def test_what_was_typed_in_has_no_file_and_does(monkeypatch):
    typed = ModuleType("typed")  # as a notebook's `__main__`
    monkeypatch.setitem(sys.modules, "typed", typed)
    exec(METRIC, vars(typed))
    assert scoring.code_mark(typed.make("words", None)) is None
    exec(METHOD, vars(typed))
    async with create_agent(typed.Mine(mood="glad"), model="rehearsal") as agent:
        with pytest.raises(InputError, match=r"it is to be mine/reply\.en\.md"):
            await agent.respond(["Hello."])
