"""A folder `data` as the examples name it: a few dialogues of our own in each data set's published form."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

THINGS = {
    "tea": ("tea", "Tea is a drink of leaves.", "I drink tea of leaves every morning."),
    "bread": ("bread", "Bread is baked from flour.", "Yes, bread baked from flour is the best."),
    "rain": ("rain", "Rain falls from clouds.", "It is grey, so rain falls from clouds soon."),
    "train": ("train", "A train runs on rails.", "A train runs on rails, so no traffic jams."),
    "garden": ("garden", "A garden needs water.", "My garden needs water all summer."),
}
OLD = {
    f"old {name}": (f"old {name}", f"Old {rest[0][0].lower()}{rest[0][1:]}", rest[1]) for name, *rest in THINGS.values()
}
HELD_OUT = {
    name: (name, f"The {name} was made by hand once.", f"A {name} was made by hand once, they say.")
    for name in ("chair", "table", "shoe", "glove", "lamp", "basket", "knife", "boat", "wheel", "carpet")
}
FACTS = [
    ("tea", "IsA", "drink"),
    ("tea", "UsedFor", "morning"),
    ("bread", "MadeOf", "flour"),
    ("rain", "AtLocation", "cloud"),
    ("train", "AtLocation", "rail"),
    ("garden", "Desires", "water"),
    ("water", "UsedFor", "drink"),
]
CHINESE = [("茶", "IsA", "饮料"), ("茶", "UsedFor", "早上"), ("面包", "MadeOf", "面粉"), ("雨", "AtLocation", "云")]


def write_data(folder: Path) -> Path:
    """Write `data` into a folder, and give its path."""
    data = folder / "data"
    files = {
        "conceptnet-assertions-5.7.0.csv.gz": _assertions(),
        **{f"dailydialog/{split}.json": _dailydialog() for split in ("train", "valid", "test")},
        **{f"diamante/{split}.txt": _lines(_diamante()) for split in ("train", "valid", "test")},
        **{f"kbp/{split}.json": _kbp() for split in ("dev", "test")},
        "wizard_of_wikipedia/train.json": _wikipedia(THINGS | OLD),
        "wizard_of_wikipedia/dev.json": _wikipedia(HELD_OUT),
        **{f"wizard_of_wikipedia/{split}.json": _wikipedia() for split in ("valid", *_WIKIPEDIA_TESTS)},
        "wikipedia.jsonl": _lines([{"title": name, "text": known} for name, known, _ in THINGS.values()]),
        "wizard_of_internet/train.jsonl": _lines(_internet(OLD)),
        **{f"wizard_of_internet/{split}.jsonl": _lines(_internet(THINGS)) for split in ("valid", "test")},
        "locomo/locomo_1_to_5.json.gz": gzip.compress(json.dumps(_locomo()).encode()),
        **_coq_contexts(),
        **{f"holl_e/{split}_data.json": _holl_e() for split in ("train", "test")},
    }
    for name, content in files.items():
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), "utf-8")
    return data


def _locomo() -> list[dict[str, Any]]:
    turns = [
        {"speaker": "Ann", "dia_id": f"D1:{number}", "text": said}
        for number, (_, _, said) in enumerate(THINGS.values())
    ]
    asked = [
        {"question": f"What did Ann say of {name}?", "answer": said, "evidence": [f"D1:{number}"], "category": 4}
        for number, (name, (_, _, said)) in enumerate(THINGS.items())
    ]
    talk = {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}
    return [{"sample_id": "conv-1", "conversation": talk, "qa": asked}]


_WIKIPEDIA_TESTS = ("test_random_split", "test_topic_split", "valid_random_split")


def _lines(entries: list[Any]) -> str:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)


def _assertions() -> bytes:
    rows = [("en", *fact) for fact in FACTS] + [("zh", *fact) for fact in CHINESE]
    lines = [
        f"/a/[/r/{name}/,/c/{code}/{head}/,/c/{code}/{tail}/]\t/r/{name}\t/c/{code}/{head}\t/c/{code}/{tail}\t"
        + json.dumps({"dataset": "/d/own", "weight": 2.0})
        for code, head, name, tail in rows
    ]
    return gzip.compress("\n".join(lines).encode())


def _dailydialog() -> list[Any]:
    return [
        {"meta": [], "dialogue": [[f"Do you like {name} ?", said], [f"Tell me of {name} .", known], ["I see .", ""]]}
        for name, known, said in THINGS.values()
    ]


def _diamante() -> list[Any]:
    return [
        {
            "conversation": [
                {"utterance": f"你喜欢{thing}吗？", "response_candidates": []},
                {"utterance": f"喜欢，{kind}里我最喜欢它。", "response_candidates": []},
                {"utterance": "为什么？", "response_candidates": [""]},
            ]
        }
        for thing, kind in (("茶", "饮料"), ("面包", "面粉"), ("雨", "云"), ("茶", "早上"))
    ]


def _kbp() -> list[Any]:
    return [
        {
            "persona": {"B0": f"我喜欢{thing}", "B1": "我住在海边"},
            "persona_kg": {"B0": {"K0": f"{thing}很好。", "K1": f"{thing}很多。"}, "B1": {"K0": "海水是咸的。"}},
            "conversation": [
                {"U": "你好！", "S": "你好啊。", "P-K": []},
                {"U": "你住哪儿？", "S": "我家就在海边。", "P-K": [["B1"]]},
                {"U": f"你喜欢{thing}吗？", "S": f"喜欢，{thing}很好。", "P-K": [["B0"], ["B0-K0"]]},
            ],
        }
        for thing in ("茶", "面包")
    ]


def _wikipedia(things: dict[str, tuple[str, str, str]] = THINGS) -> list[Any]:
    entries = []
    for name, known, said in things.values():
        liked = f"{name.capitalize()} is liked by many people."
        chosen, second = {f"chosen_topic_0_{name}": known}, {f"chosen_topic_1_{name}": liked}
        dialog = [
            {"speaker": "1_Apprentice", "text": f"What is {name}?", "retrieved_passages": []},
            {"speaker": "0_Wizard", "text": said, "checked_sentence": chosen, "retrieved_passages": []},
            {"speaker": "1_Apprentice", "text": f"Do you like {name}?", "retrieved_passages": []},
            {"speaker": "0_Wizard", "text": f"I do. {liked}", "checked_sentence": second, "retrieved_passages": []},
        ]
        topic = name.capitalize()
        entries.append({"chosen_topic": topic, "persona": "", "chosen_topic_passage": [known, liked], "dialog": dialog})
    return entries


def _internet(things: dict[str, tuple[str, str, str]]) -> list[Any]:
    entries = []
    for number, (name, known, said) in enumerate(things.values()):
        pages = [{"url": f"http://{name}.example", "title": name, "content": [known, f"More about {name}."]}]
        found = {"contents": pages, "selected_contents": [[False], [True, False]]}
        history = [
            _message("Apprentice => Wizard", f"I think of {name}."),
            _message("Wizard => SearchAgent", name),
            _message("SearchAgent => Wizard", "", {"contents": pages, "selected_contents": []}),
            _message("Wizard => Apprentice", said, found),
        ]
        entries.append({str(number): {"apprentice_persona": f"I like {name}.", "dialog_history": history}})
    return entries


def _message(action: str, text: str, context: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"action": action, "text": text, "context": context or {"contents": [], "selected_contents": []}}


def _coq_contexts() -> dict[str, Any]:
    """The four sets that COQ's contexts are of, and a COQ of them."""
    things = THINGS.values()
    reviews = [{"rating": 4, "review_sentences": [[0, f"A book about {name}."], [1, said]]} for name, _, said in things]
    stories = [
        {
            "premise": f"Ann wanted {name}.",
            "initial": "She went out.",
            "original_ending": f"{known} {said} She was glad.",
        }
        for name, known, said in things
    ]
    made = [{"context": said, "questions": [f"What is {name}?", f"Why is there {name}?"]} for name, _, said in things]
    return {
        "coq/goodreads_reviews_spoiler.json.gz": gzip.compress(_lines(reviews).encode()),
        "coq/News_Category_Dataset_v3.json": _lines(
            [{"headline": known, "short_description": said} for _, known, said in things]
        ),
        "coq/anli_train.jsonl": _lines([{"obs1": f"Tom saw {name}.", "obs2": said} for name, _, said in things]),
        "coq/train_supervised_small.json": _lines(stories),
        "coq/test.jsonl": _lines(made),
    }


def _holl_e() -> list[Any]:
    return [
        {
            "chat_id": f"c{number}",
            "imdb_id": f"tt{number}",
            "movie_name": f"The {name}",
            "chat": [f"Seen The {name}?", f"Yes. {known}", "Was it good?", said],
            "labels": [4, 0, 4, 1],
            "spans": ["", known, "", said],
            "documents": {"plot": f"{known} All are happy.", "review": said, "comments": ["Fine."], "fact_table": {}},
        }
        for number, (name, known, said) in enumerate(THINGS.values())
    ]
