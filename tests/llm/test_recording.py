from __future__ import annotations

import json

import pytest

from dialore.errors import InputError, ModelError, NotRecordedError
from dialore.llm.model import OutputSchema
from dialore.llm.recording import Recorded, Replay
from tests.llm.models import Scripted, ask, with_recording


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "recording.jsonl"


async def record(path, *calls):
    recorder = with_recording(Scripted(*[text for _, text in calls]), path)
    for request, _ in calls:
        await recorder.complete(request)
    await recorder.close()


async def test_a_recording_is_one_line_a_call(path):
    schema = OutputSchema(name="Plan", definition={"type": "object"})
    await record(path, (ask("你好\u2028there", label="dcrag/plan", output_schema=schema), "line one\nline two"))
    lines = path.read_text(encoding="utf-8").split("\n")
    assert len(lines) == 2
    line = json.loads(lines[0])
    assert {"label", "model", "made_by", "messages", "sampling", "schema", "text", "usage", "prompt"} <= set(line)
    assert (line["label"], line["made_by"], line["schema"]) == ("dcrag/plan", "scripted", "Plan")
    assert line["text"] == "line one\nline two"
    replayed = await Replay(path).complete(ask("你好\u2028there", output_schema=schema))
    assert replayed.text == "line one\nline two"
    assert (replayed.usage.prompt_tokens, replayed.usage.completion_tokens, replayed.prompt_changed) == (10, 5, False)
    assert Replay(path).name == "scripted"


async def test_failed_calls_are_not_recorded_and_recordings_are_appended_to(path):
    await record(path, (ask("a"), "1"))
    recorder = with_recording(Scripted(ModelError("down"), "2"), path)
    with pytest.raises(ModelError):
        await recorder.complete(ask("b"))
    await recorder.complete(ask("c"))
    await recorder.close()
    assert [line.text for line in Replay(path).lines] == ["1", "2"]


async def test_an_unfinished_last_line_is_not_glued_to(path):
    await record(path, (ask("a"), "1"))
    path.write_text(path.read_text().rstrip("\n"))
    await record(path, (ask("b"), "2"))
    assert [line.text for line in Replay(path).lines] == ["1", "2"]


async def test_by_prompt_is_strict(path):
    await record(path, (ask("a", label="dcrag/queries"), "1"), (ask("b", label="dcrag/topics"), "2"))
    replay = Replay(path)
    assert (await replay.complete(ask("b", label="whatever"))).text == "2"
    with pytest.raises(NotRecordedError, match=r"dcrag/topic .*the nearest that is: dcrag/topics.*record it anew"):
        await replay.complete(ask("c", label="dcrag/topic"))
    with pytest.raises(NotRecordedError, match="dcrag/topics was recorded with another prompt"):
        await replay.complete(ask("c", label="dcrag/topics"))
    with pytest.raises(NotRecordedError):
        await replay.complete(ask("b", output_schema=OutputSchema(name="Other", definition={})))
    with pytest.raises(NotRecordedError):
        await replay.complete(ask("b", sample=1))


async def test_by_label_marks_what_differs(path):
    await record(path, (ask("a", label="x/1"), "1"), (ask("a", label="x/1", sample=1), "second sample"))
    replay = Replay(path, match="label")
    same = await replay.complete(ask("a", label="x/1"))
    other = await replay.complete(ask("changed", label="x/1"))
    assert (same.text, same.prompt_changed, other.text, other.prompt_changed) == ("1", False, "1", True)
    assert (await replay.complete(ask("a", label="x/1", sample=1))).text == "second sample"
    with pytest.raises(NotRecordedError, match=r"x/2 .*the nearest that is: x/1"):
        await replay.complete(ask("b", label="x/2"))
    with pytest.raises(NotRecordedError):
        await replay.complete(ask("b"))


V1, V2 = "dcrag/queries.en v1 0a1b2c", "dcrag/queries.en v2 3d4e5f"
CITING = " + shared/citing.en v7 778899"


async def test_a_prompt_that_has_changed_since_is_answered_by_its_label_and_says_so(path):
    await record(path, (ask("as then", label="x/1", prompt=V1), "answer"))
    assert json.loads(path.read_text())["made_with"] == V1
    replay = Replay(path)
    found = await replay.complete(ask("as now", label="x/1", prompt=V2))
    assert (found.text, found.prompt_changed, found.recorded_with) == ("answer", True, "version 1")
    # The file has changed, but not what was made of it.
    same = await replay.complete(ask("as then", label="x/1", prompt=V2))
    assert (same.prompt_changed, same.recorded_with) == (False, "")
    # The prompt is the same: what differs is something else, such as the knowledge that was found.
    with pytest.raises(NotRecordedError, match="recorded with another prompt"):
        await replay.complete(ask("other knowledge", label="x/1", prompt=V1))
    other = await Replay(path, match="label").complete(ask("other knowledge", label="x/1", prompt=V1))
    assert (other.prompt_changed, other.recorded_with) == (True, "")
    with pytest.raises(NotRecordedError):
        await replay.complete(ask("as now", label="x/2", prompt=V2))


@pytest.mark.parametrize(
    ("then", "now", "version"),
    [
        (V1 + CITING, V2 + CITING, "version 1"),
        (V1 + CITING, V1 + " + shared/citing.en v8 aabbcc", "version 7"),
        (V1 + CITING, V1, "version 7"),
        (V1, V1 + CITING, "another version"),
        ("", V1, ""),
        (V1, "", ""),
    ],
)
def test_which_version_a_line_was_recorded_with(then, now, version):
    assert Recorded(messages=(), text="", made_with=then).version_before(now) == version


async def test_of_one_prompt_under_two_labels_each_has_its_own_answer(path):
    await record(path, (ask("a", label="x/1"), "1"), (ask("a", label="x/2"), "2"))
    for match in ("prompt", "label"):
        replay = Replay(path, match=match)
        assert [(await replay.complete(ask("a", label=label))).text for label in ("x/1", "x/2", "")] == ["1", "2", "2"]


async def test_the_last_recording_of_a_call_counts(path):
    await record(path, (ask("a"), "old"), (ask("a"), "new"))
    assert (await Replay(path).complete(ask("a"))).text == "new"


async def test_lines_written_by_hand_need_little():
    line = json.dumps({"label": "x", "messages": [{"role": "user", "content": "a"}], "text": "one two three four"})
    completion = await Replay([line, "", line]).complete(ask("a"))
    assert completion.text == "one two three four"
    assert completion.estimated
    assert completion.usage.calls == 1


async def test_streaming_splits_in_words():
    text = "Green tea,  warm.\n绿茶，很好 ok "
    line = json.dumps({"messages": [{"role": "user", "content": "a"}], "text": text})
    pieces: list[str] = []
    await Replay([line]).complete(ask("a"), pieces.append)
    assert "".join(pieces) == text
    assert pieces[:3] == ["Green ", "tea,  ", "warm.\n"]
    assert len(pieces) > 8


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "EOF"),
        ("[]", "object"),
        ('{"text": "x"}', "messages"),
        ('{"messages": [{"role": "robot", "content": "a"}], "text": "x"}', r"messages\[0\].role"),
        ('{"messages": [], "text": 3}', "text"),
    ],
)
def test_a_malformed_line_names_file_and_line(tmp_path, line, words):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"messages": [], "text": "fine"}\n\n' + line + "\n")
    with pytest.raises(InputError, match=rf"bad\.jsonl, line 3: .*{words}"):
        Replay(path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"no such file: .*none\.jsonl"):
        Replay(tmp_path / "none.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        Replay(tmp_path / "binary")


@pytest.mark.parametrize("path", ["/dev/full", "/proc/none/recording.jsonl"])
async def test_a_recording_that_cannot_be_written(path):
    recorder = with_recording(Scripted(), path)
    with pytest.raises(InputError, match=f"cannot write {path}"):
        await recorder.complete(ask())
    await recorder.close()
