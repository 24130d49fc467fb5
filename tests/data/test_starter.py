"""The starter graph's files: well formed, large and even enough, free of repeats, and broad in both languages."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import pytest

from dialore.retrieval.graph.relations import RELATIONS
from dialore.retrieval.graph.starter import starter_facts, starter_files


class Line(NamedTuple):
    file: str
    number: int
    cells: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"


def read_lines() -> list[Line]:
    return [
        Line(path.name, number, tuple(text.split("\t")))
        for path in starter_files()
        for number, text in enumerate(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"), start=1)
    ]


LINES = read_lines()
FILES = {line.file for line in LINES}

# What people say about each topic in Chinese: every word must be a concept of its own, and well enough described.
TOPICS = {
    "food": "火锅 饺子 面条 奶茶 早餐 外卖 做饭 水果 蛋糕 夜宵",
    "film": "电影 看电影 电影院 电视剧 追剧 喜剧片 恐怖片 爆米花 演员 导演",
    "music": "音乐 听歌 唱歌 演唱会 歌手 KTV 吉他 钢琴 周杰伦 音乐节",
    "sport": "跑步 打篮球 打羽毛球 踢足球 游泳 健身 爬山 瑜伽 马拉松 世界杯",
    "travel": "旅游 旅行 高铁 飞机 酒店 行李箱 北京 上海 自驾游 海边",
    "work": "上班 加班 老板 同事 工资 面试 找工作 出差 辞职 开会",
    "school": "考试 作业 老师 高考 大学 宿舍 复习 图书馆 毕业 英语",
    "health": "感冒 发烧 失眠 熬夜 医生 医院 头疼 牙疼 养生 减肥",
    "weather": "下雨 下雪 夏天 冬天 春天 天气预报 台风 雾霾 热 冷",
    "family": "妈妈 爸爸 父母 奶奶 爷爷 过年 结婚 孩子 亲戚 过生日",
    "feelings": "开心 难过 生气 紧张 孤单 无聊 焦虑 害怕 压力大 失恋",
    "shopping": "网购 超市 打折 快递 逛街 衣服 礼物 钱 退货 买菜",
    "home": "租房 搬家 打扫卫生 邻居 房东 冰箱 洗衣服 家务 沙发 阳台",
    "animals": "小狗 小猫 猫 宠物 养猫 遛狗 大熊猫 动物园 兔子 养宠物",
    "technology": "手机 电脑 微信 网络卡 人工智能 充电宝 打游戏 刷手机 耳机 朋友圈",
}
PLAIN_WORDS = (
    "trip friend weekend vacation tired nervous boss party gift rain homework exam sick hungry car bus coffee movie "
    "game birthday neighbor rent bill money phone news sleep dream plan secret mistake advice dog cat school"
)


def of_language(language: str) -> list[Line]:
    return [line for line in LINES if line.file.endswith(f".{language}.tsv")]


def facts_by_concept(language: str) -> Counter[str]:
    return Counter(concept for line in of_language(language) for concept in {line.cells[0], line.cells[2]})


def test_every_line_has_three_clean_columns():
    bad = [line.place for line in LINES if len(line.cells) != 3 or any(c != c.strip() or not c for c in line.cells)]
    assert bad == []


def test_the_package_reads_every_line_as_a_fact():
    assert [(fact.head, fact.relation, fact.tail) for fact in starter_facts()] == [line.cells for line in LINES]


def test_every_relation_is_known():
    assert {line.cells[1] for line in LINES} - RELATIONS.keys() == set()


def test_concepts_are_short():
    long = [
        line.place
        for line in LINES
        for concept in line.cells[::2]
        if (len(concept) > 12 if ".zh." in line.file else len(concept.split()) > 7)
    ]
    assert long == []


def test_no_line_comes_twice_and_none_leads_to_itself():
    places = defaultdict(list)
    for line in LINES:
        places[tuple(cell.lower() for cell in line.cells)].append(line.place)
    assert {key: found for key, found in places.items() if len(found) > 1} == {}
    assert [found for (head, _, tail), found in places.items() if head == tail] == []


def test_a_symmetric_fact_is_told_in_one_direction():
    told = {tuple(cell.lower() for cell in line.cells) for line in LINES if RELATIONS[line.cells[1]].symmetric}
    assert [(head, name, tail) for head, name, tail in told if (tail, name, head) in told] == []


@pytest.mark.parametrize(("language", "least"), [("en", 5_000), ("zh", 1_000)])
def test_there_are_enough_facts_and_no_relation_rules(language, least):
    relations = Counter(line.cells[1] for line in of_language(language))
    assert relations.total() >= least
    name, count = relations.most_common(1)[0]
    assert count <= 0.2 * relations.total(), f"{name} is {count} of {relations.total()}"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_has_its_file_in_english(topic):
    assert sum(line.file == f"{topic}.en.tsv" for line in LINES) >= 300


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_covered_in_chinese(topic):
    facts = facts_by_concept("zh")
    counts = {word: facts[word] for word in TOPICS[topic].split()}
    assert {word: count for word, count in counts.items() if count < 3} == {}
    assert sum(counts.values()) >= 60, counts


def test_plain_words_of_everyday_talk_have_something_to_say():
    facts = facts_by_concept("en")
    assert {word: facts[word] for word in PLAIN_WORDS.split() if facts[word] < 5} == {}


def test_files_are_named_by_topic_and_language():
    assert {name for name in FILES if name.split(".")[1:] not in (["en", "tsv"], ["zh", "tsv"])} == set()


def test_body_parts_and_everyday_heads_are_described():
    facts = facts_by_concept("en")
    words = "throat stomach nose ear arm knee ankle finger neck tongue lip bone hurt service business machine luggage"
    assert {word for word in words.split() if facts[word] < 2} == set()
