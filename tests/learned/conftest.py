"""A small data set in KBP's form, made on the spot: the user's turn says which piece it is about."""

from __future__ import annotations

import json
import random

import pytest

TOPICS = {
    "我住在西安": {"大雁塔": "大雁塔是唐代修建的", "人口": "西安的人口是一千三百万", "小吃": "西安的小吃是肉夹馍"},
    "我喜欢星球大战": {
        "导演": "星球大战的导演是卢卡斯",
        "上映": "星球大战的上映时间是一九七七年",
        "主演": "主演是福特",
    },
    "我是电工": {"考试": "电工考试每年两次", "工资": "电工的工资是八千元", "工具": "电工的工具是电笔"},
    "我养了一只猫": {"寿命": "猫的寿命是十五年", "食物": "猫的食物是鱼", "睡觉": "猫每天睡觉十六小时"},
}
SMALL_TALK = ["你好呀", "今天天气不错", "哈哈真有意思", "谢谢你告诉我"]


def entries(count, seed, plans=(0, 1, 2)):
    """Entries of KBP's file."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        chosen = draw.sample(list(TOPICS), 3)
        persona = {f"B{place}": sentence for place, sentence in enumerate(chosen)}
        under = {
            label: {f"K{place}": text for place, text in enumerate(TOPICS[sentence].values())}
            for label, sentence in persona.items()
        }
        talk = []
        for _ in range(5):
            plan, label = draw.choice(plans), draw.choice(list(persona))
            place, asked = draw.choice(list(enumerate(TOPICS[persona[label]])))
            about = persona[label][-2:]
            user, answer, labels = {
                0: (f"{draw.choice(SMALL_TALK)}{number}", "是啊", []),
                1: (f"听说你和{about}有关系吗", f"对，{persona[label]}", [[label]]),
                2: (f"{about}的{asked}是什么呢", under[label][f"K{place}"], [[label], [f"{label}-K{place}"]]),
            }[plan]
            talk.append({"U": user, "S": answer, "P-K": labels})
        made.append({"persona": persona, "persona_kg": under, "conversation": talk})
    return made


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A folder with train.json and dev.json."""
    folder = tmp_path_factory.mktemp("small")
    for split, count, seed in (("train", 60, 1), ("dev", 12, 2)):
        (folder / f"{split}.json").write_text(json.dumps(entries(count, seed), ensure_ascii=False), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def trained(small, tmp_path_factory):
    """A folder with a trained planner, ranker and consistency model, and the examples that they were trained on."""
    pytest.importorskip("lightgbm")
    from dialore.learned.examples import read_examples
    from dialore.learned.nli import train_nli
    from dialore.learned.planner import train_planner
    from dialore.learned.ranker import train_ranker

    folder = tmp_path_factory.mktemp("models")
    examples = read_examples("kbp", small / "train.json")
    for name, recipe in (("planner", train_planner), ("ranker", train_ranker), ("nli", train_nli)):
        recipe(examples, lambda *_: None).save(folder / name, examples)
    return folder
