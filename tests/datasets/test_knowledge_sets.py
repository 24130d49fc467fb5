"""Data sets whose turns come with knowledge: documents, spans, graph walks and facts."""

from __future__ import annotations

import csv
import json
import tarfile

import pytest

from dialore.datasets import data_set, knowledge_pieces, split_dialogues
from dialore.errors import InputError
from tests.data_folder import real_file


def every_turn(name, path):
    return split_dialogues(data_set(name).read(path), cut="all")


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, ensure_ascii=False), "utf-8")
    return path


def test_the_real_cmu_dog():
    archive = real_file("cmu_dog/cmu_dog_train_valid.tar.gz")
    whole = list(data_set("cmu-dog").read(archive.with_name(f"{archive.name}:valid")))
    assert len(whole) == 229
    # The first valid conversation: both saw the document, of a film of 2002 about a con artist, and user2 opens.
    first = whole[0]
    assert first.id == "cmu-dog-00938aa6d208cc3884c2bae678a23cb9f27f9c31"
    assert first.topic == "Catch me if you can"
    histories = split_dialogues([first], cut="all")
    assert {turn.speaker for turn in first.turns} == {"user1", "user2"}
    assert len(histories) == len(first.turns) - 1
    assert histories[1].reference == "Good , thanks! You?"
    assert [item["section"] for item in histories[0].knowledge][:2] == ["cast", "critical_response"]
    scenes = [{item["section"] for item in history.knowledge} for history in histories]
    assert {"scene 1"} in scenes
    assert {"scene 3"} in scenes
    assert all(a.speaker != b.speaker for talk in whole for a, b in zip(talk.turns, talk.turns[1:], strict=False))
    assert len({talk.topic for talk in whole}) == 30


FILM = {
    "0": {
        "cast": ["Ann as the captain", "Bo as the cook"],
        "critical_response": ["A fine film. I laughed."],
        "director": "C. Dee",
        "genre": "comedy",
        "introduction": "The Boat is a film by C. Dee. It is set at sea.",
        "movieName": "The Boat",
        "rating": ["Tomatoes: 80%"],
        "year": "1999",
    },
    "1": "A boat leaves. Dr. Low waves.",
    "2": "It sinks.",
    "3": "All are saved!",
    "wikiDocumentIdx": 4,
}


def _said(user, section, text):
    return {"docIdx": section, "text": text, "uid": user, "utcTimestamp": "2018-02-28T18:11:32.421Z"}


CONVERSATION = {
    "history": [
        _said("user1", 0, "Hello "),
        _said("user1", 0, "Which film?"),
        _said("user2", 0, "The Boat."),
        _said("user2", 1, "It leaves."),
        _said("user1", 1, " "),
        _said("user1", 2, "And then?"),
        _said("user2", 2, "It sinks."),
    ],
    "whoSawDoc": ["user2"],
    "wikiDocumentIdx": 4,
    "rating": 2,
}


@pytest.fixture
def cmu_dog(tmp_path):
    write(tmp_path / "WikiData" / "The_Boat.json", FILM)
    write(tmp_path / "Conversations" / "train" / "a.json", CONVERSATION)
    write(tmp_path / "Conversations" / "valid" / "b.json", CONVERSATION)
    return tmp_path


def test_cmu_dog_as_published(cmu_dog):
    archive = cmu_dog / "cmu.tar.gz"
    with tarfile.open(archive, "w:gz") as tarred:
        for folder in ("Conversations", "WikiData"):
            tarred.add(cmu_dog / folder, f"datasets-CMU_DoG/{folder}")
    read = data_set("cmu-dog").read
    for everything in (cmu_dog, archive):
        assert [talk.id for talk in read(everything)] == ["cmu-dog-a", "cmu-dog-b"]
    for split in (cmu_dog / "Conversations" / "valid", cmu_dog / "cmu.tar.gz:valid"):
        first, second = every_turn("cmu-dog", split)
        assert (first.id, first.topic, first.extra) == ("cmu-dog-b@1", "The Boat", {"rating": 2})
        assert (first.texts, first.reference) == (("Hello Which film?",), "The Boat. It leaves.")
        assert second.knowledge == ({"text": "It sinks.", "title": "The Boat", "section": "scene 2"},)
        sections = [item["section"] for item in first.knowledge]
        assert sections == [
            "cast",
            "critical_response",
            "director",
            "genre",
            "introduction",
            "rating",
            "year",
            "scene 1",
        ]
        texts = [passage.text for passage in knowledge_pieces("cmu-dog", split)]
        assert {"It is set at sea.", "Dr. Low waves.", "The Boat, year: 1999", "I laughed."} <= set(texts)


def test_cmu_dog_in_pieces(cmu_dog):
    (cmu_dog / "Conversations" / "a" / "b" / "c").mkdir(parents=True)
    with pytest.raises(InputError, match="no WikiData folder"):
        every_turn("cmu-dog", cmu_dog / "Conversations" / "a" / "b" / "c")
    with pytest.raises(InputError, match="no such folder"):
        every_turn("cmu-dog", cmu_dog / "Conversations" / "test")
    with pytest.raises(InputError, match="no such file"):
        every_turn("cmu-dog", cmu_dog / "none.tar.gz")
    broken = write(cmu_dog / "Conversations" / "valid" / "b.json", {**CONVERSATION, "wikiDocumentIdx": 9})
    with pytest.raises(InputError, match=r"b\.json: field wikiDocumentIdx: WikiData has no document 9"):
        every_turn("cmu-dog", cmu_dog)
    broken.write_text('{\n"history": [}', "utf-8")
    with pytest.raises(InputError, match=r"b\.json, line 2: not valid JSON"):
        every_turn("cmu-dog", cmu_dog)
    broken.unlink()
    write(cmu_dog / "WikiData" / "The_Boat.json", {key: FILM[key] for key in FILM if key != "2"})
    with pytest.raises(InputError, match=r"The_Boat\.json: field 2: missing"):
        every_turn("cmu-dog", cmu_dog)


DOCUMENTS = {
    "plot": "A boat sinks. All are saved.",
    "review": "I liked it. Go and see it.",
    "comments": ["Best film ever", "Not bad."],
    "fact_table": {
        "box_office": "$5 million",
        "awards": ["Best Boat 1999"],
        "taglines": [],
        "similar_movies": ["Ship"],
    },
}
CHAT = ["Seen The Boat?", "Yes. A boat sinks.", "Was it good?", "I liked it.", "Bye.", "See you."]
HOLL_E = {
    "chat_id": "c7",
    "imdb_id": "tt1",
    "movie_name": "The Boat",
    "chat": CHAT,
    "labels": [4, 0, 4, 1, 4, 4],
    "spans": ["", "A boat sinks.", "", "I liked it.", "", ""],
    "documents": DOCUMENTS,
}


def _example(turn, span, label):
    example = {"example_id": f"c7_{turn // 2}", "chat_id": "c7", "movie_name": "The Boat", "chat": CHAT, "span": span}
    return {**example, "query": CHAT[turn - 1], "response": CHAT[turn], "label": label, "all_documents": DOCUMENTS}


def test_holl_e_in_both_forms(tmp_path):
    chats = every_turn("holl-e", write(tmp_path / "train_data.json", [HOLL_E]))
    examples = every_turn(
        "holl-e", write(tmp_path / "raw.json", [_example(1, "A boat sinks.", 0), _example(3, "I liked it.", 1)])
    )
    assert [history.reference for history in chats] == [CHAT[1], CHAT[3], CHAT[5]]
    assert chats[1].knowledge == ({"text": "I liked it.", "title": "The Boat", "section": "review"},)
    assert chats[2].knowledge == ()
    for chat, example in zip(chats, examples, strict=False):
        assert (chat.turns, chat.reference, chat.knowledge) == (example.turns, example.reference, example.knowledge)
    assert [example.id for example in examples] == ["holl-e-c7_0@1", "holl-e-c7_1@3"]
    assert [passage.text for passage in knowledge_pieces("holl-e", tmp_path / "raw.json")] == [
        *("A boat sinks.", "All are saved.", "I liked it.", "Go and see it.", "Best film ever", "Not bad."),
        *("$5 million", "Best Boat 1999", "Ship"),
    ]


def _graph_walk(*triples):
    metadata = {"path": [0.5, [list(triple) for triple in triples], "in words"]}
    return {"type": "action", "action_id": "kgwalk/choose_path", "metadata": metadata}


MESSAGES = [
    {"type": "chat", "sender": "user", "message": "Who made The Boat?"},
    {**_graph_walk(("The Boat", "directed_by", "C. Dee"), ("C. Dee", "~written_by", "Ship")), "sender": "assistant"},
    {"type": "chat", "sender": "assistant", "message": "C. Dee, who wrote Ship."},
    {**_graph_walk(("Ship", "has_genre", "Drama")), "sender": "user"},
    {"type": "chat", "sender": "user", "message": "A drama?"},
    {"type": "action", "action_id": "meta_thread/send_meta_message", "sender": "user", "metadata": {"text": "end"}},
    {"type": "chat", "sender": "assistant", "message": "Yes."},
]


def _csv(path, *rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["Messages", "User Rating", "Assistant Rating"])
        writer.writerows([json.dumps(row), "{}", "{}"] for row in rows)
    return path


def test_opendialkg_as_published(tmp_path):
    path = _csv(tmp_path / "valid.csv", MESSAGES, [], MESSAGES)
    histories = every_turn("opendialkg", path)
    first = histories[0].id.partition("@")[0]  # the same conversation twice
    assert [history.id for history in histories] == [f"{first}@1", f"{first}@3", f"{first}-2@1", f"{first}-2@3"]
    assert histories[0].knowledge == (
        {"head": "The Boat", "relation": "directed_by", "tail": "C. Dee"},
        # Walked from the writer to the work; told as it is.
        {"head": "Ship", "relation": "written_by", "tail": "C. Dee"},
    )
    # The user's walk is not the assistant's.
    assert histories[1].knowledge == ()
    assert [passage.text for passage in knowledge_pieces("opendialkg", path)] == [
        "The Boat directed by C. Dee",
        "Ship written by C. Dee",
    ]
    broken = json.loads(json.dumps(MESSAGES))
    broken[1]["metadata"]["path"][1][0].pop()
    with pytest.raises(InputError, match=r"line 3, entry 2, message 1: field path\[1\]\[0\]\[2\]: Field required"):
        every_turn("opendialkg", _csv(path, MESSAGES, broken))


def test_the_two_real_forms_of_opendialkg_agree():
    theirs = every_turn("opendialkg", real_file("opendialkg/valid.csv.gz"))
    ours = every_turn("opendialkg", real_file("opendialkg/valid.json.gz"))
    # Of the 1,380 rows three hold no message and 85 a single one; the rest has 4,415 turns of assistants.
    assert len(theirs) == 4415
    assert len({history.id.split("@")[0] for history in theirs}) == 1380 - 3 - 85
    for one, other in zip(theirs, ours, strict=True):
        assert " ".join(one.reference.split()) == " ".join(other.reference.split())
        assert one.knowledge == other.knowledge
        assert len(one.turns) == len(other.turns)
    # The first: the Bond films, over two facts about GoldenEye.
    assert theirs[0].knowledge == (
        {"head": "GoldenEye", "relation": "starred_actors", "tail": "Martin Campbell"},
        {"head": "GoldenEye", "relation": "written_by", "tail": "Michael France"},
    )


TOPICAL = {
    "t_1": {
        "article_url": "http://x",
        "config": "A",
        "content": [
            {"message": "Hi", "agent": "agent_1", "sentiment": "Neutral", "knowledge_source": ["Personal Knowledge"]},
            {"message": "Boats float.", "agent": "agent_2", "sentiment": "Happy", "knowledge_source": ["FS1", "AS2"]},
            {"message": "Do they?", "agent": "agent_1", "sentiment": "Neutral", "knowledge_source": ["FS1"]},
        ],
        "conversation_rating": {},
    }
}
READING = {
    "t_0": {"agent_1": {}, "agent_2": {}, "article": {"url": "x"}},
    "t_1": {
        "config": "A",
        "agent_1": {"FS1": {"entity": "Ship", "fun_facts": ["Ships are big."]}},
        "agent_2": {
            "FS1": {"entity": "Boat", "shortened_wiki_lead_section": "Boats float. Some row.", "fun_facts": []}
        },
        "article": {"url": "http://x", "headline": "At sea", "AS1": "It rains.", "AS2": "It blows."},
    },
}


def test_topical_chat_with_and_without_its_reading_sets(tmp_path):
    path = write(tmp_path / "conversations" / "valid_freq.json", TOPICAL)
    bare = every_turn("topical-chat", path)
    assert [history.knowledge for history in bare] == [(), ()]
    assert bare[0].extra["knowledge_source"] == ["FS1", "AS2"]
    write(tmp_path / "reading_sets" / "post-build" / "valid_freq.json", READING)
    first, second = every_turn("topical-chat", path)
    assert first.knowledge == (
        {"text": "Boats float. Some row.", "title": "Boat", "section": "FS1"},
        {"text": "It blows.", "title": "At sea", "section": "AS2"},
    )
    # The other partner's FS1 is another section.
    assert [item["text"] for item in second.knowledge] == ["Ships are big."]
    texts = [passage.text for passage in knowledge_pieces("topical-chat", path)]
    assert texts == ["Ships are big.", "Boats float.", "Some row.", "It rains.", "It blows."]


def test_the_real_topical_chat():
    for split, turns in (("freq", 11681), ("rare", 11692)):
        whole = list(data_set("topical-chat").read(real_file(f"topical_chat/valid_{split}.json.gz")))
        assert (len(whole), sum(len(talk.turns) for talk in whole)) == (539, turns)
    whole = next(data_set("topical-chat").read(real_file("topical_chat/valid_freq.json.gz")))
    assert whole.answers[0].extra["knowledge_source"] == ["FS3"]


@pytest.mark.parametrize(
    ("domain", "turns", "told"), [("film", 3858, 2526), ("music", 2772, 1751), ("travel", 2691, 1702)]
)
def test_the_real_kdconv(domain, turns, told):
    whole = list(data_set("kdconv").read(real_file(f"kdconv/{domain}_dev.json.gz")))
    assert (len(whole), sum(len(talk.turns) for talk in whole)) == (150, turns)
    # An opening that uses a fact is no answer.
    answered = sum(bool(answer.knowledge) for talk in whole for answer in talk.answers)
    assert told - 150 <= answered <= told


def test_facts_of_kdconv():
    histories = every_turn("kdconv", real_file("kdconv/film_dev.json.gz"))
    # The first is about The Notebook: what it is, then what it cost.
    assert histories[0].topic.startswith("恋恋笔记本")
    assert histories[0].knowledge[0]["relation"] == "Information"
    assert histories[1].knowledge == ({"head": histories[0].topic, "relation": "制片成本", "tail": "2900万美元"},)
    texts = [passage.text for passage in knowledge_pieces("kdconv", real_file("kdconv/kb_travel.json.gz"))]
    assert texts[0] == "故宫 周边景点 南锣鼓巷"
    assert len(texts) == len(set(texts)) == 10968


def test_a_wrong_graph_of_kdconv(tmp_path):
    path = write(tmp_path / "kb_film.json", {"a": [["a", "b", "c"]], "d": [["d", "e"]]})
    with pytest.raises(InputError, match=r"line 1, entry 'd': field \[0\]\[2\]: Field required"):
        [passage.text for passage in knowledge_pieces("kdconv", path)]
