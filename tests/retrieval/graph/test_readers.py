"""Facts are read from every documented form; a malformed line is named."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from dialore.errors import GraphError
from dialore.knowledge import Fact
from dialore.retrieval.graph.facts import Rejects, guess_format, read_facts
from dialore.retrieval.graph.relations import canonical, connecting_words, verbalise
from dialore.text import normalise
from tests.retrieval.graph.graphs import development_data

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def triples(path: Path) -> list[tuple[str, str, str]]:
    return [(fact.head, fact.relation, fact.tail) for fact in read_facts(path)]


def failure(path: Path, **options: object) -> str:
    with pytest.raises(GraphError) as caught:
        list(read_facts(path, **options))
    text = str(caught.value)
    assert "\n" not in text
    assert path.name in text
    return text


SUSHI = [("sushi", "MadeOf", "rice"), ("rice", "AtLocation", "field"), ("cook", "CapableOf", "make sushi")]


@pytest.mark.parametrize("name", ["facts.tsv", "facts.txt", "facts.tsv.gz"])
@pytest.mark.parametrize(
    "text",
    [
        "sushi\tMadeOf\trice\nrice\tAtLocation\tfield\ncook\tCapableOf\tmake sushi\n",
        "MadeOf\tsushi\trice\nAtLocation\trice\tfield\nCapableOf\tcook\tmake sushi\n",
        "head\trelation\ttail\nsushi\tMadeOf\trice\nrice\tAtLocation\tfield\ncook\tCapableOf\tmake sushi\n",
        "Rel\tStart\tEnd\nMadeOf\tsushi\trice\nAtLocation\trice\tfield\nCapableOf\tcook\tmake sushi\n",
        "\ufeffsushi\t/r/MadeOf\trice\r\n\r\nrice\tat_location\tfield\r\ncook\tcapableof\tmake__sushi",
        "1\tsushi\tMadeOf\trice\n2\trice\tAtLocation\tfield\n3\tcook\tCapableOf\tmake sushi\n",
    ],
)
def test_columns_of_a_tsv_are_found(tmp_path: Path, name: str, text: str) -> None:
    assert triples(write(tmp_path / name, text)) == SUSHI


def test_weights_are_read_in_either_order(tmp_path: Path) -> None:
    for text in ("sushi\tMadeOf\trice\t2.5\n", "MadeOf\tsushi\trice\t2.5\n"):
        (fact,) = read_facts(write(tmp_path / "weighted.tsv", text))
        assert fact == Fact("sushi", "MadeOf", "rice", 2.5, "weighted.tsv")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.tsv", "CapableOf\tgod\texist\t0\nMadeOf\tsushi\trice\t1\nIsA\tgod\trice\t-1\n"),
        (
            "own.tsv",
            "head\trelation\ttail\tweight\ngod\tIsA\ta\t0.0\nsushi\tMadeOf\trice\t1\na\tIsA\tb\t-2\n",
        ),
        (
            "facts.jsonl",
            '{"head": "god", "relation": "CapableOf", "tail": "exist", "weight": 0}\n'
            '{"head": "sushi", "relation": "MadeOf", "tail": "rice", "weight": 1}\n'
            '{"head": "a", "relation": "IsA", "tail": "b", "weight": -0.5}\n',
        ),
        (
            "dump.csv",
            '/a/[1]\t/r/CapableOf\t/c/en/god\t/c/en/exist\t{"weight": 0.0}\n'
            '/a/[2]\t/r/MadeOf\t/c/en/sushi\t/c/en/rice\t{"weight": 1.0}\n'
            '/a/[3]\t/r/IsA\t/c/en/a\t/c/en/b\t{"weight": -1.0}\n',
        ),
    ],
)
def test_facts_without_a_positive_weight_are_left_out_and_counted(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path / name, text)
    rejects = Rejects()
    assert [fact.triple for fact in read_facts(path, rejects=rejects)] == ["(sushi, MadeOf, rice)"]
    assert (rejects.left_out.total(), rejects.count) == (2, 0)
    assert len(list(read_facts(path, keep_all=True))) == 3


def test_a_label_column_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = "CapableOf\tgod\texist\t0\nMadeOf\tsushi\trice\t1\n"
    list(read_facts(write(tmp_path / "labels.tsv", lines)))
    assert "labels.tsv: 1 line" in caplog.text
    assert "taken for a label" in caplog.text
    caplog.clear()
    list(read_facts(write(tmp_path / "weights.tsv", f"{lines}IsA\tsushi\tfood\t2.5\n")))
    assert "weights.tsv: 1 line" in caplog.text
    assert "taken for a label" not in caplog.text


def test_atomics_tails_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    text = "personx waits\txReact\tnone\npersonx waits\txEffect\t___\npersonx waits\txWant\tto go\n"
    rejects = Rejects()
    (fact,) = read_facts(write(tmp_path / "atomic.tsv", text), rejects=rejects)
    assert (fact.tail, rejects.left_out.total()) == ("to go", 2)
    other = "nobody\tIsA\tnone\nsushi\tMadeOf\trice\n"
    assert len(list(read_facts(write(tmp_path / "other.tsv", other)))) == 2


def test_unknown_relations_are_taken_from_the_second_column(tmp_path: Path) -> None:
    few = write(tmp_path / "few.tsv", "Ann\tLivesIn\tRome\nAnn\tWorksAt\tRome\n")
    assert triples(few) == [("Ann", "LivesIn", "Rome"), ("Ann", "WorksAt", "Rome")]
    first = "".join(f"{'LivesIn' if n % 2 else 'WorksAt'}\tperson {n}\ttown {n % 7}\n" for n in range(40))
    assert triples(write(tmp_path / "first.tsv", first))[1] == ("person 1", "LivesIn", "town 1")


def test_a_csv_with_header_and_index_column(tmp_path: Path) -> None:
    text = ',url,start,rel,end\n0,"RelatedTo,茶,茶叶",茶,RelatedTo,茶叶\n1,"IsA,""茶"",饮料",茶,IsA,"饮料,热的"\n'
    path = write(tmp_path / "zh.csv.gz", text)
    assert triples(path) == [("茶", "RelatedTo", "茶叶"), ("茶", "IsA", "饮料,热的")]


def test_a_concept_called_relation_is_no_header(tmp_path: Path) -> None:
    assert len(triples(write(tmp_path / "r.tsv", "relation\tIsA\tidea\nrel\tIsA\tunit\n"))) == 2


def test_blank_ends_are_left_out(tmp_path: Path) -> None:
    assert triples(write(tmp_path / "b.tsv", "tea\tIsA\tdrink\n \tIsA\tdrink\ntea\tIsA\t__\n")) == [
        ("tea", "IsA", "drink")
    ]


def test_jsonl(tmp_path: Path) -> None:
    lines = [
        {"head": "sushi", "relation": "made_of", "tail": " rice ", "weight": 2, "provenance": "cookbook"},
        {"head": "茶", "relation": "IsA", "tail": "饮料"},
    ]
    path = write(tmp_path / "facts.jsonl.gz", "".join(json.dumps(line) + "\n" for line in lines))
    assert list(read_facts(path)) == [
        Fact("sushi", "MadeOf", "rice", 2.0, "cookbook"),
        Fact("茶", "IsA", "饮料", 1.0, "facts.jsonl.gz"),
    ]


def assertion(relation: str, start: str, end: str, **metadata: object) -> str:
    columns = (f"/a/[/r/{relation}/,{start}/,{end}/]", f"/r/{relation}", start, end, json.dumps(metadata))
    return "\t".join(columns) + "\n"


DUMP = (
    assertion("IsA", "/c/en/sushi/n/wn/food", "/c/en/japanese_food", weight=2.828, dataset="/d/wordnet/3.1")
    + assertion("IsA", "/c/fr/thé", "/c/fr/boisson", weight=1.0, dataset="/d/verbosity")
    + assertion("Synonym", "/c/en/tea/n", "/c/fr/thé/n", weight=1.0, dataset="/d/wiktionary/en")
    + assertion("Synonym", "/c/en/tea", "/c/zh/茶", weight=2.0, dataset="/d/open_multilingual_wordnet")
    + assertion("RelatedTo", "/c/enm/te", "/c/en/tea", weight=1.0, dataset="/d/wiktionary/en")
    + assertion("AtLocation", "/c/zh/茶", "/c/zh/茶馆", dataset="/d/ptt_petgame")
    + assertion("ExternalURL", "/c/en/tea", "http://dbpedia.org/resource/Tea", weight=1.0)
)


@pytest.mark.parametrize("name", ["assertions.csv", "assertions.csv.gz", "assertions.tsv"])
def test_a_conceptnet_dump(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, DUMP)
    assert guess_format(path) == "conceptnet"
    assert list(read_facts(path)) == [
        Fact("sushi", "IsA", "japanese food", 2.828, "/d/wordnet/3.1"),
        Fact("tea", "Synonym", "茶", 2.0, "/d/open_multilingual_wordnet"),
        Fact("茶", "AtLocation", "茶馆", 1.0, "/d/ptt_petgame"),
    ]
    assert [fact.head for fact in read_facts(path, languages=("en",))] == ["sushi"]
    assert [fact.head for fact in read_facts(path, languages=("zh",))] == ["茶"]


GOOD_JSON = '{"head": "a", "relation": "IsA", "tail": "b"}'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("short.tsv", "tea\tIsA\tdrink\nrice\tIsA\n", "line 2: 2 columns"),
        ("late.tsv", "tea\tIsA\tdrink\n" * 300 + "rice\tIsA\n", "line 301: 2 columns"),
        ("weight.tsv", "tea\tIsA\tdrink\t1\nrice\tIsA\tfood\theavy\n", "line 2: weight 'heavy'"),
        ("nan.tsv", "tea\tIsA\tdrink\tnan\n", "line 1: weight 'nan'"),
        ("last.tsv", "tea\tdrink\tIsA\n", "last column"),
        ("bad.jsonl", GOOD_JSON + "\n{\n", "line 2: not valid JSON"),
        ("bad.jsonl", GOOD_JSON + '\n{"head": "a", "tail": "b"}\n', "line 2: field relation is missing"),
        ("bad.jsonl", GOOD_JSON + '\n["a", "IsA", "b"]\n', "line 2: not a JSON object"),
        ("bad.jsonl", '{"head": 1, "relation": "IsA", "tail": "b"}\n', "line 1: field head must be text"),
        ("bad.jsonl", '{"head": "\\ud83d", "relation": "IsA", "tail": "b"}\n', "line 1: field head must be text"),
        ("bad.jsonl", '{"head": "a", "relation": "IsA", "tail": "b", "weight": "x"}\n', "line 1: weight 'x'"),
        ("bad.jsonl", '{"head": "a", "relation": "IsA", "tail": "b", "weight": null}\n', "line 1: weight None"),
        ("bad.jsonl", '{"head": "a", "relation": "IsA", "tail": "b", "weight": Infinity}\n', "line 1: weight inf"),
        ("dump.csv", DUMP + "/a/x\t/r/IsA\t/c/en/tea\n", "line 8: 3 columns"),
        ("dump.csv", DUMP + "/a/x\t/r/IsA\t/c/en/tea\t/c/en/drink\t{\n", "line 8: metadata is not valid JSON"),
        ("dump.csv", DUMP + "/a/x\t/r/IsA\t/c/en/tea\t/c/en/drink\t[]\n", "line 8: metadata is not a JSON object"),
        ("dump.csv", DUMP + assertion("IsA", "/c/en/tea", "/c/en/drink", weight="much"), "line 8: weight 'much'"),
        ("prose.txt", "Once upon a time\n", "cannot tell the format"),
        ("empty.tsv", "", "empty"),
        ("empty.jsonl.gz", "", None),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, name: str, text: str, said: str | None) -> None:
    path = write(tmp_path / name, text)
    if said is None:
        assert list(read_facts(path)) == []
    else:
        assert said in failure(path)


def test_a_huge_csv_cell_is_an_error_of_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "huge.csv", "tea,IsA,drink\n" * 3 + f"tea,IsA,{'x' * 200_000}\n")
    assert "line 4" in failure(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in failure(tmp_path / "missing.tsv")
    assert "cannot read" in failure(tmp_path, file_format="tsv")
    latin = tmp_path / "latin.tsv"
    latin.write_bytes(b"caf\xe9\tIsA\tplace\n")
    assert "not UTF-8" in failure(latin)
    whole = gzip.compress("".join(f"tea {n}\tIsA\tdrink\n" for n in range(5000)).encode())
    short = tmp_path / "short.tsv.gz"
    short.write_bytes(whole[:-300])
    assert "cut short" in failure(short)
    torn = tmp_path / "torn.tsv.gz"
    torn.write_bytes(whole[:200] + bytes(200) + whole[400:])
    assert "cut short or not gzip" in failure(torn)
    plain = tmp_path / "plain.tsv.gz"
    plain.write_text("tea\tIsA\tdrink\n", encoding="utf-8")
    assert "not gzip" in failure(plain)


def test_progress_tells_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "many.tsv", "tea\tIsA\tdrink\n" * 50_000)
    seen: list[int] = []
    assert sum(1 for _ in read_facts(path, progress=seen.append)) == 50_000
    assert len(seen) == 2
    assert 0 < seen[0] < seen[1] <= path.stat().st_size


@pytest.mark.parametrize(
    ("name", "expected"), [("/r/IsA", "IsA"), ("is_a", "IsA"), ("xintent", "xIntent"), ("LivesIn", "LivesIn")]
)
def test_relations_are_spelt_as_usual(name: str, expected: str) -> None:
    assert canonical(name) == expected


def test_wording() -> None:
    assert verbalise(Fact("sushi", "MadeOf", "rice"), "en") == "sushi is made of rice"
    assert verbalise(Fact("寿司", "MadeOf", "米"), "zh") == "寿司由米制成"
    assert verbalise(Fact("Ann", "LivesIn", "{head}"), "en") == "Ann lives in {head}"
    assert verbalise(Fact("{tail}", "IsA", "braces"), "en") == "{tail} is a kind of braces"
    assert connecting_words("UsedFor") == "is used for"


def test_conceptnet_100k() -> None:
    facts = list(read_facts(development_data("conceptnet_cn100k/train.txt.gz")))
    assert len(facts) == 100_000
    assert len({(normalise(fact.head), fact.relation, normalise(fact.tail)) for fact in facts}) == 99_997
    assert len({normalise(end) for fact in facts for end in (fact.head, fact.tail)}) == 78_088
    assert len({fact.relation for fact in facts}) == 34
    assert facts[0] == Fact("hockey", "ReceivesAction", "play on ice", 1.0, "train.txt.gz")


def test_conceptnet_chinese() -> None:
    facts = list(read_facts(development_data("conceptnet_zh/triples.csv.gz")))
    assert facts[0] == Fact("上", "Antonym", "下", 1.0, "triples.csv.gz")
    assert len(facts) == 21_341


def test_atomic() -> None:
    rejects = Rejects()
    facts = list(read_facts(development_data("atomic/valid.txt.gz"), rejects=rejects))
    assert len(facts) == 79_600 - 13_107
    assert rejects.left_out == {'the tail "none" of ATOMIC': 13_107}
    assert {fact.relation for fact in facts} <= {
        f"{who}{what}" for who in "xo" for what in ("Need", "Intent", "Want", "Effect", "React", "Attr")
    }
