"""`dialore chat`, its lines from a pipe."""

from __future__ import annotations

import json

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
    done = call("chat", "-u", url, stdin="\n".join([*lines, "/quit", "never read"]))
    assert done.code == 0
    assert done.err == ""
    for words in ("queries said", "fact-retrieval", "method: t-rag", "graph: starter", "4 turns written"):
        assert words in done.out
    kept = json.loads(saved.read_text("utf-8"))
    assert [turn["text"] for turn in kept["turns"]][::2] == ["I have a sore throat.", "What about honey?"]
    assert kept["turns"][1]["text"] in done.out


def test_the_saved_talk_can_be_answered(call, url, tmp_path):
    call("chat", "-u", url, stdin=f"Hello there.\n/save {tmp_path / 'talk.json'}\n")
    assert call("respond", tmp_path / "talk.json", "-u", url, "-M", "vanilla").code == 0


def test_responses_stream_piece_by_piece_and_only_once(call, faulty_server):
    faulty_server.always = say("One two three.")
    done = call("chat", "-M", "vanilla", "-u", faulty_server.url, stdin="Hello\n")
    assert done.out.strip() == "One two three."
    assert faulty_server.calls[0].body["stream"] is True


def test_the_history_grows_and_reset_empties_it(call, faulty_server):
    faulty_server.always = say("Quite so.")
    call("chat", "-M", "vanilla", "-u", faulty_server.url, stdin="First thing\nSecond thing\n/reset\nThird thing\n")
    prompts = [asked.body["messages"][-1]["content"] for asked in faulty_server.calls]
    assert "First thing" in prompts[1]
    assert "Quite so." in prompts[1]
    assert "First thing" not in prompts[2]


def test_mistakes_are_said_and_the_talk_goes_on(call, url):
    lines = ["/why", "/mehtod", "/method dcarg", "/save", "/trace", "Hello, I feel tired.", "/trace fact-retreival"]
    done = call("chat", "-u", url, stdin="\n".join(lines))
    assert done.code == 0
    assert done.err.count("dialore: error:") == 6
    for words in ("there is no response yet", "did you mean /method", "did you mean dcrag", "fact-retrieval"):
        assert words in done.err
    assert "What would you like to do" in done.out


def test_a_failing_call_does_not_end_the_talk(call, faulty_server):
    from tests.llm.server import status

    faulty_server.reply(status(500, "boom"), say("Back again."))
    done = call("chat", "-M", "vanilla", "-u", faulty_server.url, "--retries", 0, stdin="Hello\nHello?\n")
    assert done.code == 0
    assert "boom" in done.err
    assert done.out.strip() == "Back again."


def test_json_lines(call, url):
    done = call("chat", "-u", url, "--json", stdin="Hello, I feel tired.\n/why\nAnd now?\n")
    assert [line["id"] for line in done.lines] == ["chat", "chat"]
    assert "queries said" in done.err


def test_without_an_endpoint(call):
    done = call("chat", stdin="Do you have a cat or a dog?\n/why\nHello.\n")
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert "no model: what was found is shown" in done.err
    first, why, second = done.out.split("queries said: ")[1:]
    assert first.startswith("cat, dog\n")
    assert ("more" in first, "more" in why) == (True, False)
    assert second.startswith("cat, dog\n")  # what it said itself is not looked up


def test_a_wrong_start_is_one_line(call, url):
    assert "did you mean dcrag" in call("chat", "-u", url, "-M", "dcrga").complaint
    assert "unknown language: 'fr'" in call("chat", "-u", url, "-l", "fr").complaint
