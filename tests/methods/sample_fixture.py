"""Samples of our own writing, in both languages: histories with topic, knowledge and response."""

from __future__ import annotations

from dialore.dialogue import Dialogue

# topic, history, knowledge, response
_EN = [
    (
        "Pizza",
        ["What do you like to eat?", "I love pizza more than anything."],
        "Pizza is a flat bread that is baked with tomato sauce and cheese.",
        "Me too. Pizza is a flat bread baked with tomato sauce and cheese.",
    ),
    (
        "Pizza",
        ["Have you been to Naples?", "No, but I would like to try the pizza there."],
        "Naples is where the Margherita pizza was first baked, in 1889.",
        "Go! The Margherita pizza was first baked there.",
    ),
    (
        "Tea",
        ["I drink tea all day long."],
        "Green tea and black tea are made from the leaves of one plant.",
        "So do I. Green tea and black tea are made from one plant, you know.",
    ),
    (
        "Tea",
        ["Coffee or tea?", "Tea, always."],
        "It was brought to Europe by Dutch traders.",
        "It was brought to Europe by Dutch traders.",
    ),
    ("Bicycle", ["I ride my bike to work."], "The bicycle (1817) had no pedals at first.", "Nice. Is it far?"),
    (
        "Bicycle",
        ["My bicycle was stolen yesterday."],
        "A bicycle lock of hardened steel is hard to cut.",
        "How sad! A lock of hardened steel is hard to cut, maybe buy one.",
    ),
    (
        "Kyoto",
        ["I am going to Japan.", "You should see Kyoto.", "I have seen Kyoto in films only."],
        "Kyoto was the capital of Japan for more than a thousand years.",
        "Kyoto was the capital of Japan for a thousand years.",
    ),
    (
        "Guitar",
        ["I am learning to play the guitar."],
        "A guitar has six strings as a rule, which are tuned in fourths and one third.",
        "Wonderful, keep it up!",
    ),
]
_ZH = [
    ("茶", ["我每天都喝茶。"], "绿茶和红茶用的是同一种植物的叶子。", "我也是。绿茶和红茶用的是同一种植物的叶子。"),
    ("长城", ["你去过北京吗？", "去过，还爬了长城。"], "长城全长两万多公里。", "真好，长城全长两万多公里呢！"),
    ("自行车", ["我骑自行车上班。"], "它在十九世纪初发明时没有踏板。", "很环保！"),
]


def histories() -> list[Dialogue]:
    """The samples as histories with their references."""
    found = []
    for language, rows in (("en", _EN), ("zh", _ZH)):
        for number, (topic, turns, knowledge, response) in enumerate(rows):
            data = {"id": f"{language}{number}@{len(turns)}", "language": language, "topic": topic, "turns": turns}
            found.append(Dialogue.model_validate({**data, "knowledge": [knowledge], "reference": response}))
    return found
