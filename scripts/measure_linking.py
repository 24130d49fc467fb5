"""Measure linking: how many phrases find a concept that they name, and how many find one that they do not.

    python scripts/measure_linking.py [--data FOLDER] [--split dev|test] [--misses] [--json]

The phrases are in `tests/retrieval/graph/linking_phrases.<language>.jsonl`, each with the concepts it may be linked to
(`accept`, of which `best` name the whole of it) and some that it must not be (`reject`). They are linked over graphs
built for the purpose: ConceptNet's 100,000 English facts, the starter graph, and the starter's Chinese facts with
ConceptNet's. A link to a concept that is not accepted is wrong, whether or not somebody thought to reject it.
Odd lines of a file are for development, even ones for the test, but for the last two kinds below. Intervals are 95%
bootstraps over phrases.

Most kinds are our own phrases; the `drawn` ones are from turns of eight English and three Chinese data sets, as a rule
took them (`from` says the dialogue and the turn): a run of one to four content words of a clause with the function
words inside it and a light verb before it, in Chinese of one to three words. They were labelled from the turn and a
list of the concepts that share their words' stems, before they were first linked. The `fresh` ones were drawn and
labelled after the others had been seen, all for the test; so were later the `turns`, of which a seed chose one half for
development after all had been labelled. Their other half was linked once, by the rules made on everything else.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dialore.retrieval.embedding import load_embedder
from dialore.retrieval.graph import GraphStore, build_graph, read_facts
from dialore.retrieval.graph.starter import starter_files
from dialore.retrieval.linking.linker import Linker
from dialore.text import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dialore.text import Language

ROOT = Path(__file__).resolve().parent.parent
PHRASES = ROOT / "tests" / "retrieval" / "graph"


def read_phrases(language: str) -> list[dict[str, Any]]:
    """Read the labelled phrases of a language."""
    lines = (PHRASES / f"linking_phrases.{language}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def graph_files(data: Path) -> dict[str, list[Path]]:
    """Return the fact files of each graph that phrases are linked over."""
    return {
        "cn100k": sorted((data / "conceptnet_cn100k").glob("*.txt.gz")),
        "starter": starter_files(),
        "zh": [*(path for path in starter_files() if ".zh." in path.name), data / "conceptnet_zh" / "triples.csv.gz"],
    }


def open_graphs(data: Path, folder: Path) -> dict[str, GraphStore]:
    """Build the graphs in a folder and open them."""
    embedder = load_embedder()
    stores = {}
    for name, files in graph_files(data).items():
        facts = (fact for path in files for fact in read_facts(path))
        build_graph(facts, folder / f"{name}.graph", name=name, embedder=embedder)
        stores[name] = GraphStore(folder / f"{name}.graph")
    return stores


def linkers(stores: dict[str, GraphStore], *, nearest: bool = True) -> dict[str, Linker]:
    """Return a linker for each graph."""
    return {name: Linker(store, load_embedder(), nearest=nearest) for name, store in stores.items()}


def judge(item: dict[str, Any], links: Sequence[Any], known: Callable[[str], int | None]) -> dict[str, Any]:
    """Judge a phrase's links by its labels; labels are compared as the graph's concepts."""
    accept, best, reject = ({known(name) for name in item[field]} - {None} for field in ("accept", "best", "reject"))
    right = [link.concept in accept for link in links]
    return {
        **{field: item[field] for field in ("phrase", "kind", "split")},
        "links": [(link.name, link.how, link.score) for link in links],
        "right": right,
        "linkable": bool(accept),
        "covered": any(right),
        "has_best": bool(best),
        "best": any(link.concept in best for link in links),
        "wrong": not all(right),
        "rejected": any(link.concept in reject for link in links),
    }


def interval(numerators: Sequence[float], denominators: Sequence[float], draws: int = 2000) -> dict[str, float]:
    """Return a ratio of sums over phrases and its 95% bootstrap interval (percentiles, fixed seed)."""
    over, under = np.array(numerators, float), np.array(denominators, float)
    if not under.sum():
        return {"mean": float("nan"), "low": float("nan"), "high": float("nan"), "of": 0}
    picks = np.random.default_rng(0).integers(0, len(over), (draws, len(over)))
    sums = under[picks].sum(axis=1)
    ratios = over[picks].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.percentile(ratios, [2.5, 97.5])
    return {
        "mean": round(float(over.sum() / under.sum()), 4), "low": round(float(low), 4), "high": round(float(high), 4),
        "of": int(under.sum()),
    }  # fmt: skip


def scores(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return coverage, whole, precision, wrong and rejected of judged phrases."""
    linkable = [row["linkable"] for row in rows]
    return {
        "phrases": len(rows),
        "coverage": interval([row["covered"] for row in rows], linkable),
        "whole": interval([row["best"] for row in rows], [row["has_best"] for row in rows]),
        "precision": interval([sum(row["right"]) for row in rows], [len(row["right"]) for row in rows]),
        "wrong": interval([row["wrong"] for row in rows], [1] * len(rows)),
        "rejected": interval([row["rejected"] for row in rows], [1] * len(rows)),
    }


def groups(rows: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the scores by kind of phrase, and links and precision by how they were made."""
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    hows: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for row in rows:
        kinds[f"{row['kind']} {row['split']}" if row["kind"] in ("drawn", "turns") else row["kind"]].append(row)
        for right, (_, how, score) in zip(row["right"], row["links"], strict=True):
            hows[how].append((right, score))
    by_how = {
        how: {
            "precision": interval([right for right, _ in found], [1] * len(found)),
            "mean_score": round(float(np.mean([score for _, score in found])), 3),
        }
        for how, found in sorted(hows.items())
    }
    return {kind: scores(found) for kind, found in kinds.items()}, by_how


def seconds(linker: Linker, phrases: Sequence[str], language: Language) -> dict[str, float]:
    """Return microseconds a phrase: the first time, as a new phrase of words that were seen, and once it was seen."""
    times = []
    # A phrase that ends in one more mark is a new one of the same words.
    for marks in ("", "!", "!!", "!!!", "!!!", "!!!"):
        asked = [phrase + marks for phrase in phrases]
        started = time.perf_counter()
        for phrase in asked:
            linker.link(phrase)
        times.append((time.perf_counter() - started) * 1e6 / len(phrases))
    return {"first_us": round(times[0], 1), "words_us": round(min(times[1:4]), 1), "seen_us": round(min(times[4:]), 2)}


def measure(data: Path, split: str | None = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Link every phrase; return the scores and the judged phrases."""
    report: dict[str, Any] = {}
    every = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = open_graphs(data, folder)
        chosen = linkers(stores)
        for language in LANGUAGES:
            items = read_phrases(language)
            main = next(item["graph"] for item in items)
            fresh = linkers(stores, nearest=False)[main]
            fresh.link("餃子" if language == "zh" else "tea")  # loads what is loaded once
            speed = seconds(fresh, [item["phrase"] for item in items if item["graph"] == main], language)
            rows = [
                judge(item, chosen[item["graph"]].link(item["phrase"]), stores[item["graph"]].find)
                for item in items
                if split in (None, item["split"])
            ]
            kinds, by_how = groups(rows)
            splits = {part: scores([row for row in rows if row["split"] == part]) for part in ("dev", "test")}
            report[language] = {**splits, "all": scores(rows), "kinds": kinds, "how": by_how, "speed": speed}
            every.extend(rows)
        for store in stores.values():
            store.close()
    return report, every


def shown(value: dict[str, float]) -> str:
    """Write a ratio and its interval."""
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]" if value["of"] else "-"


def show(report: dict[str, Any]) -> None:
    """Print the tables."""
    fields = ("coverage", "whole", "precision", "wrong", "rejected")
    for language, part in report.items():
        print(f"\n| {language} | n | {' | '.join(fields)} |\n|{'---|' * (len(fields) + 2)}")
        rows = {**{name: part[name] for name in ("dev", "test", "all")}, **part["kinds"]}
        for name, row in rows.items():
            if row["phrases"]:
                print(f"| {name} | {row['phrases']} | {' | '.join(shown(row[field]) for field in fields)} |")
        print("\n| how | links | precision | mean score |\n|---|---|---|---|")
        for how, row in part["how"].items():
            print(f"| {how} | {row['precision']['of']} | {shown(row['precision'])} | {row['mean_score']} |")
        speed = part["speed"]
        print(
            f"\nus a phrase: {speed['first_us']} at first, {speed['words_us']} of words seen before, "
            f"{speed['seen_us']} seen before"
        )


def main() -> None:
    """Print the tables, or all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the development data")
    parser.add_argument("--split", choices=("dev", "test"))
    parser.add_argument("--misses", action="store_true", help="list the phrases with a wrong link or none")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report, rows = measure(options.data, options.split)
    if options.json:
        print(json.dumps(report, indent=1))
        return
    show(report)
    if options.misses:
        show_misses(rows)


def show_misses(rows: Iterable[dict[str, Any]]) -> None:
    """Print the phrases that have a wrong link (W), no right one (M) or none for the whole of them."""
    for row in rows:
        missed = row["linkable"] and not row["covered"]
        if row["wrong"] or missed or (row["has_best"] and not row["best"]):
            found = ", ".join(
                f"{'' if right else '!'}{name} ({how} {score})"
                for (name, how, score), right in zip(row["links"], row["right"], strict=True)
            )
            print(f"{'W' if row['wrong'] else ' '}{'M' if missed else ' '} {row['kind']:9} {row['phrase']}: {found}")


if __name__ == "__main__":
    main()
