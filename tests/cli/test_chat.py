"""`dialore chat`, its lines from a pipe."""

from __future__ import annotations

import json
from pathlib import Path

from tests.llm.server import say


def test_a_talk_with_its_grounds(call, url, tmp_path):
    saved = tmp_path / "talk.json"
    lines = [
        "I have a sore throat.",
        "/why",
        "/trace",
        "/method t-rag",
        "What about honey?",
        "/graph",
        f"/save {saved}",
    ]
    done = call("chat", "-M", "dcrag", "-u", url, stdin="\n".join([*lines, "/quit", "never read"]))
    assert done.code == 0
    assert done.err == ""
    for words in ("queries said", "fact-retrieval", "method: t-rag", "graph: starter", "4 turns written"):
        assert words in done.out
    kept = json.loads(saved.read_text("utf-8"))
    assert [turn["text"] for turn in kept["turns"]][::2] == ["I have a sore throat.", "What about honey?"]
    assert kept["turns"][1]["text"] in done.out


def test_respond_answers_the_turn_that_the_saved_talk_answered_and_chat_goes_on_after_it(call, faulty_server, tmp_path):
    faulty_server.always = say("Take some honey [1].")
    talk, persona = tmp_path / "talk.json", tmp_path / "me.yaml"
    persona.write_text('{"I keep bees.": ["Bees make honey."]}', "utf-8")
    options = (
        "-M",
        "safari",
        "-o",
        "planning=persona",
        "--set",
        f"sources.persona={persona}",
        "-u",
        faulty_server.url,
        "--set",
        "cite=true",
    )
    done = call("chat", *options, stdin=f"Hello there.\nMy throat is sore.\n/save {talk}\n")
    assert done.code == 0, done.err
    kept = json.loads(talk.read_text("utf-8"))
    assert [turn["speaker"] for turn in kept["turns"]] == ["user", "system", "user"]
    assert kept["persona"] == ["I keep bees."]
    assert kept["documents"] == {"I keep bees.": ["Bees make honey."]}
    assert [each["text"] for each in kept["responses"]] == ["Take some honey."] * 2
    assert kept["responses"][1]["citations"][0]["end"] == len("Take some honey")

    call("respond", talk, "-M", "vanilla", "-u", faulty_server.url, "--set", "model.no_cache=true")
    asked = faulty_server.calls[-1].body["messages"][-1]["content"]
    assert asked == "My throat is sore."
    assert str(faulty_server.calls[-1].body["messages"]).count("Take some honey") == 1

    again = call("chat", talk, "-M", "vanilla", "-u", faulty_server.url, stdin=f"/why\nAnd tea?\n/save {talk}\n")
    assert again.code == 0
    assert "I keep bees." in again.out
    assert str(faulty_server.calls[-1].body["messages"]).count("Take some honey.") == 2
    kept = json.loads(talk.read_text("utf-8"))
    assert ([len(kept[part]) for part in ("turns", "responses")], kept["persona"]) == ([5, 3], ["I keep bees."])


def test_a_dialogue_without_responses_is_answered_at_once(call, faulty_server, talks):
    faulty_server.always = say("Good luck.")
    talks.write_text('{"turns": [{"speaker": "Ann", "text": "Hi."}]}', "utf-8")
    done = call("chat", talks, "-M", "vanilla", "-u", faulty_server.url, stdin="And now?\n/save talk.json\n")
    assert done.out.startswith("Good luck.\nGood luck.\n")
    speakers = [turn["speaker"] for turn in json.loads(Path("talk.json").read_text("utf-8"))["turns"]]
    assert speakers == ["Ann", "system", "Ann"]


def test_responses_that_are_none_are_one_line(call, url, talks):
    talks.write_text('{"turns": ["Hi."], "responses": ["Hello."]}', "utf-8")
    assert "responses: field [0]" in call("chat", talks, "-u", url).complaint


def test_responses_stream_piece_by_piece_and_only_once(call, faulty_server):
    faulty_server.always = say("One two three.")
    done = call("chat", "-M", "vanilla", "-u", faulty_server.url, stdin="Hello\n")
    assert done.out.strip() == "One two three."
    assert faulty_server.calls[0].body["stream"] is True


def test_the_history_grows_and_reset_empties_it(call, faulty_server):
    faulty_server.always = say("Quite so.")
    call("chat", "-M", "vanilla", "-u", faulty_server.url, stdin="First thing\nSecond thing\n/reset\nThird thing\n")
    prompts = [str(asked.body["messages"]) for asked in faulty_server.calls]
    assert "First thing" in prompts[1]
    assert "Quite so." in prompts[1]
    assert "First thing" not in prompts[2]


def test_mistakes_are_said_and_the_talk_goes_on(call, url):
    lines = ["/why", "/mehtod", "/method dcarg", "/save", "/trace", "Hello, I feel tired.", "/trace fact-retreival"]
    done = call("chat", "-M", "dcrag", "-u", url, stdin="\n".join(lines))
    assert done.code == 1
    assert done.err.count("dialore: error:") == 6
    for words in ("there is no response yet", "did you mean /method", "known: cosmo, dcrag, ", "fact-retrieval"):
        assert words in done.err
    assert "What would you like to do" in done.out


def test_a_failing_call_does_not_end_the_talk(call, faulty_server):
    from tests.llm.server import status

    faulty_server.reply(status(500, "boom"), say("Back again."))
    done = call("chat", "-M", "vanilla", "-u", faulty_server.url, "--set", "model.retries=0", stdin="Hello\nHello?\n")
    assert done.code == 1
    assert done.err.count("boom") == 1
    assert done.out.strip() == "Back again."


def test_lines_of_a_pipe_that_nobody_answers_end_in_the_errors_code(call, faulty_server):
    from tests.llm.server import status

    faulty_server.always = status(500, "boom")
    done = call("chat", "-M", "vanilla", "-u", faulty_server.url, "--set", "model.retries=0", stdin="hi\n")
    assert "boom" in done.complaint


def test_json_lines(call, url):
    done = call("chat", "-u", url, "--json", stdin="Hello, I feel tired.\n/why\nAnd now?\n")
    assert [line["id"] for line in done.lines] == ["chat", "chat"]
    assert "queries inferred" in done.err


def test_without_an_endpoint(call):
    done = call("chat", stdin="Do you have a cat or a dog?\n/why\nWhat else?\n")
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert "no model: what was found is shown" in done.err
    first, why, second = done.out.split("queries said: ")[1:]
    assert first.startswith("cat, dog\n")
    assert ("more" in first, "more" in why) == (True, False)
    assert second.startswith("cat, dog\n")  # what it said itself is not looked up


def test_a_wrong_start_is_one_line(call, url):
    assert "did you mean dcrag" in call("chat", "-u", url, "-M", "dcrga").complaint
    assert "unknown language: 'xx'" in call("chat", "-u", url, "-l", "xx").complaint
