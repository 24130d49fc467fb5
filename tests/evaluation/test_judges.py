"""Judges that score: what they are asked, in both languages, and what becomes of every kind of answer."""

from __future__ import annotations

import json

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import ModelError
from dialore.evaluation.base import Metric, Sample
from dialore.evaluation.judges import scoring
from dialore.evaluation.judges.asking import is_refusal, queries_of
from dialore.evaluation.judges.scoring import sentences_of
from dialore.evaluation.registry import Context, load_metric
from dialore.knowledge import Fact, Knowledge
from dialore.prompts.library import PromptLibrary
from dialore.response import Demands, Response, StageTrace
from dialore.text import is_chinese
from tests.llm.models import Scripted

TEA = Knowledge.of_fact(Fact("honey", "UsedFor", "sore throat"), "honey is used for sore throat", 0.5)
PASSAGE = Knowledge(
    id="p", kind="passage", text="Honey soothes. Dr. No is a film. It is old!", source="documents", score=1
)
DIALOGUES = {
    "en": Dialogue(id="throat", turns=["My throat hurts before the interview."]),
    "zh": Dialogue(id="throat-zh", turns=["面试前我嗓子疼。"]),
}
TEXTS = {"en": "Honey helps a sore throat.\nWhen is it?", "zh": "蜂蜜对嗓子好。什么时候面试？"}
NAMES = [
    "meep",
    "informativeness",
    "overall",
    "relevance",
    "specificity",
    "usefulness",
    "interestingness",
    "useful-knowledge",
    "useful-pieces",
    "query-score",
    "ragas-context-relevance",
    "ragas-faithfulness",
    "ragas-answer-relevance",
]
# A good script for each judge, and the value that it comes to.
GOOD = {
    "meep": (['{"score": 72.5}'], 72.5),
    "informativeness": (['{"informativeness": 2, "overall": 5}'], 2.0),
    "overall": (['{"informativeness": 2, "overall": 5}'], 5.0),
    "relevance": (['{"scores": [5, 2]}'], 3.5),
    "specificity": (['{"scores": [4, 4]}'], 4.0),
    "query-score": (['{"scores": [10, 7]}'], 8.5),
    "usefulness": (['{"scores": [1, 2]}'], 1.5),
    "interestingness": (['{"scores": [5, 5]}'], 5.0),
    "useful-knowledge": (['{"score": 8}'], 8.0),
    "useful-pieces": (['{"useful": [2, 2, 1]}'], 2.0),
    "ragas-context-relevance": (['{"needed": [1, 2]}'], 0.5),
    "ragas-faithfulness": (['{"statements": ["Honey helps.", "It is old.", " "]}', '{"verdicts": [true, false]}'], 0.5),
    "ragas-answer-relevance": (
        [json.dumps({"questions": ["My throat hurts before the interview."] * 3, "noncommittal": False})],
        1.0,
    ),
}


def sample_of(language="en", **changes):
    given = {
        "knowledge": [TEA, PASSAGE],
        "demands": Demands(explicit=["sore throat"], implicit=["nervous"]),
        **changes,
    }
    return Sample(DIALOGUES[language], Response(id="throat", method="dcrag", text=TEXTS[language], **given))


def judge_of(name, *answers, **context):
    model = Scripted(*answers)
    return load_metric(name, Context(judge=model, **context)), model


@pytest.mark.parametrize("name", NAMES)
async def test_a_good_answer_is_scored(name):
    answers, value = GOOD[name]
    metric, model = judge_of(name, *answers)
    assert isinstance(metric, Metric)
    measure = await metric.measure(sample_of())
    assert (measure.problem, measure.reason) == (None, "")
    assert measure.values == pytest.approx((value,), abs=1e-3)
    assert len(model.asked) == len(answers)
    assert "judge" in metric.about.needs
    # DCRAG, Appendix A.1.2: "all models" at 0.7; RAGAs' own settings, and ours, are 0.
    warm = 0.7 if name in {"meep", "informativeness", "overall"} else 0
    assert all(request.sampling.temperature == warm for request in model.asked)
    assert all(request.label.startswith("throat/judge/") for request in model.asked)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_judge_is_asked_in_the_dialogues_language_by_dcrags_prompts_in_english(name, language):
    metric, model = judge_of(name, *GOOD[name][0])
    measure = await metric.measure(sample_of(language))
    assert measure.problem is None
    system, said = (message.content for message in model.asked[0].messages)
    if name in {"meep", "informativeness", "overall"}:  # Tables 19 and 20
        assert not is_chinese(system)
        assert {"en": "English", "zh": "Chinese"}[language] in system
        assert said.startswith("Dialogue history:\nMe-1: ")
        assert f"\nFriend-2: {TEXTS[language].split()[0]}" in said
    else:
        assert is_chinese(system) == (language == "zh")
    asked = "\n".join(message.content for request in model.asked for message in request.messages)
    wanted = ["nervous"] if "queries" in metric.about.needs else []
    if not wanted:
        wanted = [TEA.text] if name in {"useful-pieces", "ragas-context-relevance"} else TEXTS[language].split("\n")
    assert all(piece in asked for piece in wanted)
    if name != "ragas-answer-relevance":
        assert DIALOGUES[language].last.text in asked


@pytest.mark.parametrize("name", NAMES)
async def test_a_refusal_is_counted_and_never_scored(name):
    metric, model = judge_of(name, "I'm sorry, but I can't assist with that request.")
    measure = await metric.measure(sample_of())
    assert (measure.values, measure.problem) == ((), "refused")
    assert "sorry" in measure.detail
    assert len(model.asked) == 2
    assert model.asked[1].label.endswith("/repair")


@pytest.mark.parametrize("name", NAMES)
async def test_an_answer_without_a_score_is_unparsed(name):
    metric, _ = judge_of(name, "It is a lovely response, quite good.")
    measure = await metric.measure(sample_of())
    assert (measure.values, measure.problem) == ((), "unparsed")
    assert "parsed" in measure.reason


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("meep", '{"score": 140}'),
        ("overall", '{"informativeness": 3, "overall": 0}'),
        ("query-score", '{"scores": [5]}'),
        ("query-score", '{"scores": [5, 11]}'),
        ("useful-pieces", '{"useful": [3]}'),
        ("useful-knowledge", '{"score": 11}'),
        ("ragas-context-relevance", '{"needed": [0]}'),
        ("meep", '{"score": null}'),
    ],
)
async def test_a_score_off_the_scale_is_no_score(name, answer):
    metric, model = judge_of(name, answer)
    assert (await metric.measure(sample_of())).problem == "unparsed"
    assert len(model.asked) == 2


async def test_a_repaired_answer_is_scored():
    metric, _ = judge_of("meep", "I would say seventy.", '{"score": 70}')
    assert (await metric.measure(sample_of())).values == (70.0,)


async def test_a_number_beside_a_refusal_is_not_scored():
    metric, _ = judge_of("meep", 'I cannot rate this response. {"score": 0}')
    assert (await metric.measure(sample_of())).problem == "refused"


@pytest.mark.parametrize("said", ["the endpoint refuses to answer: no", "the endpoint held its answer back (filter)"])
async def test_a_server_that_withholds_the_answer_refuses(said):
    metric, _ = judge_of("overall", ModelError(said, refused=True))
    assert (await metric.measure(sample_of())).problem == "refused"


async def test_an_endpoint_that_is_down_is_neither():
    metric, _ = judge_of("overall", ModelError("the endpoint is down"))
    with pytest.raises(ModelError, match="is down"):
        await metric.measure(sample_of())


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("query-score", {"demands": None}, "no query"),
        ("useful-pieces", {"knowledge": []}, "no knowledge"),
        ("ragas-context-relevance", {"knowledge": []}, "no knowledge"),
        ("ragas-faithfulness", {"knowledge": []}, "no knowledge"),
    ],
)
async def test_what_is_not_there_is_not_available_and_nobody_is_asked(name, changes, reason):
    metric, model = judge_of(name, "never")
    measure = await metric.measure(sample_of(**changes))
    assert measure.problem == "unavailable"
    assert reason in measure.reason
    assert not model.asked


@pytest.mark.parametrize("name", NAMES)
async def test_without_a_judge_it_is_not_available(name):
    metric = load_metric(name, Context())
    assert (await metric.measure(sample_of())).problem == "unavailable"
    assert metric.identity == ""


async def test_a_response_that_claims_nothing_has_no_faithfulness():
    metric, model = judge_of("ragas-faithfulness", '{"statements": []}')
    assert (await metric.measure(sample_of())).problem == "unavailable"
    assert len(model.asked) == 1


async def test_answer_relevance_falls_with_distance_and_is_0_for_the_noncommittal():
    values = []
    for question, evasive in (("My throat hurts.", False), ("Which train goes to Rome?", False), ("Rome?", True)):
        answer = json.dumps({"questions": [question], "noncommittal": evasive})
        values.append((await judge_of("ragas-answer-relevance", answer)[0].measure(sample_of())).values[0])
    assert values[0] > values[1] + 0.2
    assert values[2] == 0


async def test_answer_relevance_looks_at_the_whole_history():
    answer = json.dumps({"questions": ["Which train goes to Rome?"], "noncommittal": False})
    found = []
    for before in ("I want to take a train to Rome tomorrow.", "My throat hurts and I have a cold."):
        dialogue = Dialogue(id="d", turns=[before, "I see.", "What do you think?"])
        sample = Sample(dialogue, Response(id="d", method="m", text="Take it."))
        found.append((await judge_of("ragas-answer-relevance", answer)[0].measure(sample)).values[0])
    assert found[0] > found[1] + 0.1


async def test_ragas_asks_about_the_answer_with_its_context_as_the_response_had_it():
    """The official question is of answer and context, and the context what the pipeline's prompt held: here triples."""
    trace = [StageTrace(stage="response-generation", messages=[{"role": "user", "content": f"- {TEA.triple}\n"}])]
    for given, shown in ((trace, TEA.triple), ([], TEA.text)):
        sample = sample_of(knowledge=[TEA], trace=given)
        for name in ("ragas-context-relevance", "ragas-faithfulness", "ragas-answer-relevance"):
            metric, model = judge_of(name, *[answer.replace("[1, 2]", "[1]") for answer in GOOD[name][0]])
            assert (await metric.measure(sample)).problem is None
            last = model.asked[-1].messages[-1].content
            assert shown in last
            assert (TEA.triple in last) == (shown == TEA.triple)
    assert "Write 3 different questions" in model.asked[0].messages[0].content
    without = judge_of("ragas-answer-relevance", *GOOD["ragas-answer-relevance"][0])
    assert (await without[0].measure(sample_of(knowledge=[]))).problem is None
    assert "ontext" not in "".join(message.content for message in without[1].asked[0].messages)


def test_a_passage_counts_by_sentence_and_a_fact_is_one():
    assert sentences_of(TEA, "(tea, IsA, drink)") == ["(tea, IsA, drink)"]
    chinese = PASSAGE.model_copy(update={"text": "蜂蜜润喉。它很甜，也很贵！"})
    assert sentences_of(chinese, chinese.text) == ["蜂蜜润喉。", "它很甜，也很贵！"]
    assert sentences_of(PASSAGE, PASSAGE.text) == ["Honey soothes.", "Dr. No is a film.", "It is old!"]


def test_what_counts_sentences_is_measured_anew_where_other_ones_are_found(monkeypatch):
    names = ("ragas-context-relevance", "ragas-faithfulness")
    before = [judge_of(name, "x")[0].identity for name in names]
    monkeypatch.setattr(scoring, "SENTENCE_RULES", scoring.SENTENCE_RULES + 1)
    assert [judge_of(name, "x")[0].identity != was for name, was in zip(names, before, strict=True)] == [True, False]


def test_identity_changes_with_judge_and_prompt(tmp_path):
    own = PromptLibrary().get("judge/meep", "en")
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / "meep.zh.md").write_text(own.text + "\n另外。\n", encoding="utf-8")
    plain, _ = judge_of("meep", "x")
    changed, _ = judge_of("meep", "x", judge_prompts=tmp_path)
    other = load_metric("meep", Context(judge=Scripted("x", name="another")))
    assert len({plain.identity, changed.identity, other.identity}) == 3
    assert own.reference in plain.identity


def test_queries_come_from_demands_else_from_the_trace():
    assert queries_of(sample_of().response) == ["sore throat", "nervous"]
    stages = [
        StageTrace(stage="a", output={"query": "honey"}),
        StageTrace(stage="b", output={"questions": ["honey", 3]}),
    ]
    assert queries_of(sample_of(demands=None, trace=stages).response) == ["honey"]
    assert queries_of(sample_of(demands=None).response) == []


REFUSALS = [
    "I'm sorry, but I can't assist with that request.",
    "I’m unable to comply.",
    "As an AI language model, I cannot rate people.",
    "Sorry, I won't score this.",
    "I must respectfully decline.",
    "I cannot in good conscience rate this.",
    "Your request violates the usage policy.",
    "很抱歉，我无法对这段内容进行评分。",
    "作为AI助手，我不能提供评价。",
    "对不起，无法回答。",
    "该请求违反了使用政策。",
]
NO_REFUSALS = [
    "",
    '{"score": 3}',
    "I cannot tell what Friend means, so 20.",
    "The response says \"I'm sorry, I can't help\", which is dull: 5",
    "I would rate this 40.",
    "Unfortunately the response is dull.",
    "我不能确定他的意思，给40分",
    "对话中朋友说我无法回答，分数：10",
    "遗憾的是，这个回复很无聊。",
]


@pytest.mark.parametrize(("text", "wanted"), [*((t, True) for t in REFUSALS), *((t, False) for t in NO_REFUSALS)])
def test_refusals_are_told_by_their_wording(text, wanted):
    assert is_refusal(text) is wanted
