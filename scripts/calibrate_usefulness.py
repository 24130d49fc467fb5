"""Fit the probability that a piece of knowledge is of use, and measure it (docs/weave-figures.md says what came out).

    python scripts/calibrate_usefulness.py --data FOLDER [--turns N] [--seed S] [--also NAME ...]
        [--output JSON] [--diagram SVG]

A search is what one of our retrievers (`fused`, `bm25`, `dense`, by turns) puts first for a query; of use is what the
person who wrote the next turn used. There is a logistic model for persona sentences, one for passages of documents and
of the web, and one for facts of a graph, by the features of `dialore.methods.usefulness`; none knows a language.
Figures of the sets fitted on are held out, of five folds parted by dialogue; what is written is fitted on all. The
threshold is the one with the best F-beta there: of 2 for persona and passages, which nobody can guess, so that one
missed is worse than one too many; of .5 for facts of a graph, which a model mostly knows, so that one too many is.

| set | is | the query | of use | licence |
|---|---|---|---|---|
| asked-persona, asked-documents | ours, en and zh | standing alone; the last turn | labelled by us | ours |
| everyday | ours, facts of the starter graph, en and zh | standing alone | labelled by us | ours |
| woi | Wizard of the Internet, valid | what the wizard typed | the selected sentences | CC BY |
| wow | Wizard of Wikipedia, valid | the last turn | the wizard's sentence | CC BY |
| personachat, msc | PersonaChat, Multi-Session Chat, valid | the last turn | see `distant` | CC BY |
| kdconv | KdConv, dev | the last turn | the facts used | Apache-2.0 |
| kbp-persona, kbp-documents | KBP, train | the last turn | the gold labels | none stated |
| graded | tests/retrieval/graph/relevance, en and zh | two of a turn's demands | grade 2 | dialogues: CC BY-NC-SA |

The last turn comes as it is, with the turn before it, or as its content words alone. In a quarter of the searches of
wow, woi and kdconv the sentences of the dialogue itself are taken out, so that there is nothing to find.

Sets that are fitted on are those of ours and woi; the rest are checked by the models, with nothing of them seen. No
weights are shipped that were fitted on data whose licence is not stated or not commercial. --also fits on further sets,
for a file that stays with you.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure_retrieval
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_curve, roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dialore.datasets import data_set, split_dialogues
from dialore.datasets.base import gold_text
from dialore.dialogue import Dialogue
from dialore.knowledge import Fact, Knowledge, Passage, stable_id
from dialore.methods.usefulness import FEATURES, features_of
from dialore.retrieval.bm25 import Bm25
from dialore.retrieval.embedding import CachedEmbedder
from dialore.retrieval.fusion import reciprocal_ranks
from dialore.retrieval.reranking import load_reranker
from dialore.text import content_lemmas, stem

ROOT = Path(__file__).resolve().parent.parent
OWN = ROOT / "tests" / "methods" / "usefulness"
TOP = 10
RETRIEVERS = ("fused", "bm25", "dense")
NOTHING = 0.25
FOLDS, BINS = 5, 10
STRENGTH = 0.03
FITTED = {
    "persona": ("asked-persona.en", "asked-persona.zh"),
    "passages": ("asked-documents.en", "asked-documents.zh", "woi"),
    "graph": ("everyday.en", "everyday.zh"),
}
BETA = {"persona": 2, "passages": 2, "graph": 0.5}
CHECKED = {
    "persona": ("kbp-persona", "personachat", "msc"),
    "passages": ("wow", "kdconv", "kbp-documents"),
    "graph": ("graded.en", "graded.zh"),
}


def content_stems(text: str, language: str) -> frozenset[str]:
    """Return the stems of a text's content lemmas."""
    return frozenset(stem(word) for word in content_lemmas(text, language))


@dataclass(frozen=True)
class Search:
    """The results of one search, and which pieces a person used; `data` is the set it belongs to."""

    data: str
    dialogue: Dialogue
    query: str
    pieces: list[Knowledge]
    useful: list[bool]

    @property
    def group(self) -> str:
        """The whole dialogue's id."""
        return self.dialogue.id.partition("@")[0]


class Collection:
    """Texts, each with the dialogues that it belongs to, searched by our retrievers."""

    vectors = CachedEmbedder()

    def __init__(self, owned: dict[str, set[str]]) -> None:
        self.texts, self.owners = list(owned), list(owned.values())
        self.lexical = Bm25(self.texts)
        self.dense = self.vectors.encode(self.texts)

    def search(self, query: str, retriever: str, without: str = "") -> list[str]:
        """Return the best texts, those of a dialogue left out."""
        lexical = self.lexical.scores(query)
        cosines = self.dense @ self.vectors.encode([query])[0]
        orders = {
            "bm25": [at for at in np.argsort(-lexical, kind="stable").tolist() if lexical[at] > 0],
            "dense": np.argsort(-cosines, kind="stable").tolist(),
        }
        fused = [at for at, _ in reciprocal_ranks([order[:100] for order in orders.values()])]
        chosen = orders.get(retriever, fused)
        return [self.texts[at] for at in chosen if not without or without not in self.owners[at]][:TOP]


def wording(dialogue: Dialogue, rng: random.Random) -> str:
    """Return the last turn as a query: as it is, with the turn before it, or its content words alone."""
    last = dialogue.last.text
    if dialogue.topic and rng.random() < 0.5:
        last = f"{dialogue.topic} {last}"
    form = rng.choice(("last", "last", "two", "words"))
    if form == "two" and len(dialogue.turns) > 1:
        return f"{dialogue.turns[-2].text} {last}"
    words = content_lemmas(last, dialogue.language)[:8] if form == "words" else []
    return (" " if dialogue.language == "en" else "").join(words) if len(words) > 1 else last


def documents(name: str, paths: Sequence[Path], source: str, turns: int, rng: random.Random) -> Iterator[Search]:
    """Return searches in all that the dialogues of a file used."""
    label = {"wizard-of-wikipedia": "wow", "wizard-of-internet": "woi"}.get(name, name)
    for path in paths:
        dialogues = split_dialogues(data_set(name).read(path), cut="all")
        owned: dict[str, set[str]] = {}
        for dialogue in dialogues:
            for item in dialogue.knowledge:
                owned.setdefault(gold_text(item), set()).add(dialogue.id.partition("@")[0])
        collection = Collection(owned)
        rng.shuffle(dialogues)
        searched = [one for one in dialogues if source != "web" or one.extra.get("query") or rng.random() < 0.3]
        for dialogue in searched[: turns // len(paths)]:
            gold = {gold_text(item) for item in dialogue.knowledge}
            query = dialogue.extra.get("query") or wording(dialogue, rng)
            without = dialogue.id.partition("@")[0] if rng.random() < NOTHING else ""
            found = collection.search(query, rng.choice(RETRIEVERS), without)
            pieces = [Knowledge.of_passage(Passage(text), source) for text in found]
            yield Search(label, dialogue, query, pieces, [text in gold for text in found])


def persona_pieces(persona: dict[str, Sequence[str]]) -> list[Knowledge]:
    """Return a persona's sentences with the documents under each."""
    return [
        Knowledge(
            id=stable_id("persona", text),
            kind="persona",
            text=text,
            source="persona",
            documents=list(under),
        )
        for text, under in persona.items()
    ]


def distant(name: str, path: Path, turns: int, rng: random.Random) -> Iterator[Search]:
    """Persona sentences; one is of use where the response says half of its stems, and its speaker had not.

    A quarter of the personas are another dialogue's.
    """
    dialogues = split_dialogues(data_set(name).read(path), cut="all")
    personas = [dialogue.persona for dialogue in dialogues]
    rng.shuffle(dialogues)
    for dialogue in dialogues[:turns]:
        own = rng.random() >= NOTHING
        persona = dialogue.persona if own else rng.choice(personas)
        before = content_stems(" ".join(turn.text for turn in dialogue.turns if turn.speaker == "system"), "en")
        new = content_stems(dialogue.reference or "", "en") - before
        stems = [content_stems(sentence, "en") for sentence in dict.fromkeys(persona)]
        useful = [own and len(each & new) >= max(1, min(len(each), 6) / 2) for each in stems]
        label = "msc" if name.startswith("multi") else name
        yield Search(label, dialogue, wording(dialogue, rng), persona_pieces(dict.fromkeys(persona, ())), useful)


def kbp(path: Path, turns: int, rng: random.Random) -> Iterator[Search]:
    """Yield the dialogue's persona, and its documents."""
    dialogues = split_dialogues(data_set("kbp").read(path), cut="all")
    rng.shuffle(dialogues)
    for dialogue in dialogues[:turns]:
        gold = {gold_text(item) for item in dialogue.knowledge}
        persona, query = dialogue.extra["documents"], wording(dialogue, rng)
        yield Search("kbp-persona", dialogue, query, persona_pieces(persona), [text in gold for text in persona])
        texts = Collection({text: set() for under in persona.values() for text in under})
        found = texts.search(query, rng.choice(RETRIEVERS))
        pieces = [Knowledge.of_passage(Passage(text), "documents") for text in found]
        yield Search("kbp-documents", dialogue, query, pieces, [text in gold for text in found])


def everyday() -> Iterator[Search]:
    """Our own dialogues with facts of the starter graph."""
    dialogues = data_set("everyday").read(ROOT / "src" / "dialore" / "data" / "everyday.jsonl")
    histories = {dialogue.id: dialogue for dialogue in split_dialogues(dialogues)}
    for line in (OWN / "facts.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        dialogue = histories[entry["id"]]
        useful = [bool(label) for *_, label in entry["facts"]]
        pieces = fact_pieces([tuple(triple) for *triple, _ in entry["facts"]])
        yield Search(f"everyday.{dialogue.language}", dialogue, entry["query"], pieces, useful)


def graded(data: Path, rng: random.Random) -> Iterator[Search]:
    """Yield the graded facts of tests/retrieval/graph/relevance, those nearest to two of the turn's demands."""
    for language in ("en", "zh"):
        for turn in measure_retrieval.read_turns(language, data):
            triples = list(turn.grades)
            collection = Collection({f"{head} {tail}": set() for head, _, tail in triples})
            by_text = {f"{triple[0]} {triple[2]}": triple for triple in triples}
            phrases = [*turn.demands.explicit, *turn.demands.implicit, *turn.demands.extended]
            for _ in range(4):
                query = " ".join(rng.sample(phrases, min(2, len(phrases))))
                found = [by_text[text] for text in collection.search(query, "fused")]
                useful = [turn.grades[triple] == measure_retrieval.USEFUL for triple in found]
                yield Search(f"graded.{language}", turn.dialogue, query, fact_pieces(found), useful)


def fact_pieces(triples: Sequence[tuple[str, str, str]]) -> list[Knowledge]:
    """Facts as knowledge."""
    return [Knowledge.of_fact(Fact(*triple), f"{triple[0]} {triple[2]}", 0.0) for triple in triples]


def asked(rng: random.Random) -> Iterator[Search]:
    """Our own personas with documents, and turns that ask for them or not; the query alone, or the last turn."""
    lines = (OWN / "asked.jsonl").read_text(encoding="utf-8").splitlines() if (OWN / "asked.jsonl").exists() else []
    entries = [json.loads(line) for line in lines]
    for language in ("en", "zh"):
        people = [entry for entry in entries if entry["language"] == language]
        if not people:
            continue
        collection = Collection({text: set() for one in people for text in one["persona"].values()})
        for person in people:
            for number, turn in enumerate(person["turns"]):
                name = f"{person['id']}-{number}"
                dialogue = Dialogue(turn["history"], id=name, language=language, persona=tuple(person["persona"]))
                persona = {sentence: [under] for sentence, under in person["persona"].items()}
                gold = {list(persona)[at] for at in turn["persona"]}
                gold_documents = {persona[list(persona)[at]][0] for at in turn["documents"]}
                for query in dict.fromkeys((turn["query"], dialogue.last.text)):
                    useful = [text in gold for text in persona]
                    yield Search(f"asked-persona.{language}", dialogue, query, persona_pieces(persona), useful)
                    found = collection.search(query, rng.choice(RETRIEVERS))
                    pieces = [Knowledge.of_passage(Passage(text), "documents") for text in found]
                    useful = [text in gold_documents for text in found]
                    yield Search(f"asked-documents.{language}", dialogue, query, pieces, useful)


def read_searches(data: Path, turns: int, seed: int) -> dict[str, list[Search]]:
    """Return the searches of each set, in random order, with a line of progress each."""
    kdconv = [data / "kdconv" / f"{domain}_dev.json.gz" for domain in ("film", "music", "travel")]
    wow = [data / "wizard_of_wikipedia" / "valid.json.gz"]
    woi = [data / "wizard_of_internet" / "valid.json.gz"]
    jobs: list[Callable[[random.Random], Iterator[Search]]] = [
        asked,
        lambda rng: everyday(),
        lambda rng: graded(data, rng),
        lambda rng: distant("personachat", data / "personachat" / "valid.json.gz", turns, rng),
        lambda rng: distant("multi-session-chat", data / "multi_session_chat" / "session_5_valid.json.gz", turns, rng),
        lambda rng: documents("wizard-of-wikipedia", wow, "documents", turns, rng),
        lambda rng: documents("wizard-of-internet", woi, "web", turns, rng),
        lambda rng: documents("kdconv", kdconv, "documents", turns, rng),
        lambda rng: kbp(data / "kbp" / "train.json.gz", turns, rng),
    ]
    found: dict[str, list[Search]] = {}
    for job in jobs:
        rng = random.Random(seed)  # noqa: S311 - a sample, not a secret
        new = [search for search in job(rng) if search.pieces]
        for search in new:
            found.setdefault(search.data, []).append(search)
        print(f"read {len(new)} searches: {', '.join(sorted({one.data for one in new}))}", flush=True)
    return found


@dataclass(frozen=True)
class Table:
    """Features of pieces, whether each is of use, and the dialogue of each."""

    features: NDArray[np.float64]
    useful: NDArray[np.int64]
    groups: NDArray[Any]

    @classmethod
    def of(cls, searches: Sequence[Search]) -> Table:
        """Of all pieces of some searches."""
        features = [features_of(one.pieces, one.query, one.dialogue) for one in searches]
        useful = [label for one in searches for label in one.useful]
        groups = [one.group for one in searches for _ in one.pieces]
        return cls(np.vstack(features), np.array(useful, np.int64), np.array(groups))

    def __add__(self, other: Table) -> Table:
        joined = (np.concatenate(pair) for pair in zip(vars(self).values(), vars(other).values(), strict=True))
        return Table(*joined)


def model() -> Any:  # noqa: ANN401 - scikit-learn is untyped
    """Return a logistic regression of standardised features."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=STRENGTH, max_iter=2000))


def held_out(table: Table) -> NDArray[np.float64]:
    """Probabilities of pieces by models that saw no piece of their dialogues."""
    folds = GroupKFold(FOLDS, shuffle=True, random_state=0)
    found = cross_val_predict(
        model(), table.features, table.useful, groups=table.groups, cv=folds, method="predict_proba"
    )
    return np.asarray(found[:, 1])


def bins(probabilities: NDArray[np.float64], useful: NDArray[np.int64]) -> list[tuple[float, float, int]]:
    """Mean probability, share of use and size of bins of equal size."""
    parts = np.array_split(np.argsort(probabilities, kind="stable"), BINS)
    return [(float(probabilities[part].mean()), float(useful[part].mean()), len(part)) for part in parts if len(part)]


def calibration_error(probabilities: NDArray[np.float64], useful: NDArray[np.int64]) -> float:
    """ECE: the mean distance of probability and share over the bins, weighed by their sizes."""
    return sum(abs(mean - share) * size for mean, share, size in bins(probabilities, useful)) / len(useful)


def best_threshold(probabilities: NDArray[np.float64], useful: NDArray[np.int64], beta: float) -> float:
    """Return the threshold with the best F-beta: the middle of those that come within 2% of it, which moves little."""
    precision, recall, thresholds = precision_recall_curve(useful, probabilities)
    score = (1 + beta**2) * precision * recall / np.maximum(beta**2 * precision + recall, 1e-9)
    good = thresholds[score[:-1] >= 0.98 * score[:-1].max()]
    return round(float(np.median(good)), 2)


def row(name: str, probabilities: NDArray[np.float64], useful: NDArray[np.int64], threshold: float) -> str:
    """Return a line of the table: size, share of use, AUC, ECE, precision and recall at the threshold."""
    kept = probabilities >= threshold
    right = int((kept & (useful == 1)).sum())
    auc = roc_auc_score(useful, probabilities) if 0 < useful.sum() < len(useful) else float("nan")
    figures = [
        f"{len(useful):,}",
        f"{100 * useful.mean():.1f}%",
        f"{auc:.3f}",
        f"{calibration_error(probabilities, useful):.3f}",
        f"{threshold:.3f}",
        f"{right / max(1, kept.sum()):.2f}",
        f"{right / max(1, useful.sum()):.2f}",
    ]
    return f"| {name} | " + " | ".join(figures) + " |"


def main() -> None:
    """Fit, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--turns", type=int, default=1200, help="turns of a data set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--also", nargs="*", default=(), choices=sum(CHECKED.values(), ()), help="fit on these, too")
    parser.add_argument("--output", type=Path, help="write the models to this file")
    parser.add_argument("--diagram", type=Path, help="draw the reliability diagram to this file")
    options = parser.parse_args()
    found = read_searches(options.data, options.turns, options.seed)
    table_of = functools.lru_cache(None)(lambda name: Table.of(found[name]))
    print("\n| model: set | pieces | of use | AUC | ECE | threshold | precision | recall |", "|---" * 8 + "|", sep="\n")
    models: dict[str, Any] = {}
    diagrams: dict[str, list[tuple[float, float, int]]] = {}
    for kind, names in FITTED.items():
        fitted_on = [*names, *(name for name in CHECKED[kind] if name in options.also)]
        table = functools.reduce(lambda one, other: one + other, map(table_of, fitted_on))
        probabilities = held_out(table)
        threshold = best_threshold(probabilities, table.useful, BETA[kind])
        print(row(f"**{kind}**", probabilities, table.useful, threshold), flush=True)
        diagrams[kind] = bins(probabilities, table.useful)
        of = np.repeat(fitted_on, [len(table_of(name).useful) for name in fitted_on])
        for name in fitted_on:
            print(row(f"{kind}: {name}", probabilities[of == name], table.useful[of == name], threshold), flush=True)
        fitted = model().fit(table.features, table.useful)
        scaler, logistic = (step for _, step in fitted.steps)
        weights = logistic.coef_[0] / scaler.scale_
        models[kind] = {
            "fitted_on": fitted_on,
            "threshold": threshold,
            "intercept": round(float(logistic.intercept_[0] - weights @ scaler.mean_), 4),
            "weights": [round(float(weight), 4) for weight in weights],
        }
        for name in CHECKED[kind]:
            if name not in fitted_on:
                other = table_of(name)
                seen = fitted.predict_proba(other.features)[:, 1]
                print(row(f"{kind}: {name}, not fitted on", seen, other.useful, threshold), flush=True)
                diagrams[name] = bins(seen, other.useful)
    if options.output:
        written = {"features": list(FEATURES), "models": models}
        options.output.write_text(json.dumps(written, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    select(models, options.data, options.turns, options.seed)
    if options.diagram:
        draw(diagrams, options.diagram)


def select(models: dict[str, Any], data: Path, turns: int, seed: int) -> None:
    """Print what a threshold does to a search: of KBP's dev split, and of Wizard of Wikipedia's valid split."""
    rng = random.Random(seed)  # noqa: S311 - a sample, not a secret
    found = list(kbp(data / "kbp" / "dev.json.gz", turns, rng))
    found += documents("wizard-of-wikipedia", [data / "wizard_of_wikipedia" / "valid.json.gz"], "documents", turns, rng)
    columns = ("searches", "Recall@3 as found", "by probability", "kept", "pieces kept", "nothing of use", "none kept")
    print("\n| set | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for name in dict.fromkeys(search.data for search in found):
        model = models["persona" if "persona" in name else "passages"]
        hits, kept, empty = [], [], []
        for search in (one for one in found if one.data == name):
            table = features_of(search.pieces, search.query, search.dialogue)
            chances = 1 / (1 + np.exp(-(table @ model["weights"] + model["intercept"])))
            likeliest = np.argsort(-chances, kind="stable")[:3]
            left = [at for at in likeliest if chances[at] >= model["threshold"]]
            ranked: Sequence[int] = range(3)
            if name == "kbp-persona":
                texts = [piece.text for piece in search.pieces]
                ranked = [at for at, _ in load_reranker("fused").rerank(search.query, texts, 3)]
            if any(search.useful):
                gold = sum(search.useful)
                picks = (ranked, likeliest, left)
                hits.append([sum(search.useful[at] for at in pick if at < len(search.useful)) / gold for pick in picks])
                kept.append(len(left))
            else:
                empty.append(not left)
        recalls = [f"{recall:.2f}" for recall in np.mean(hits, axis=0)]
        figures = [str(len(hits)), *recalls, f"{np.mean(kept):.1f}", str(len(empty)), f"{100 * np.mean(empty):.0f}%"]
        print(f"| {name} | " + " | ".join(figures) + " |", flush=True)


def draw(diagrams: dict[str, list[tuple[float, float, int]]], path: Path) -> None:
    """Draw a reliability diagram for each model: the share that is of use over the mean probability of a bin."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "usefulness", "svg.fonttype": "none"}
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(FITTED), figsize=(10, 3.6), layout="constrained")
    for axis, kind in zip(axes, FITTED, strict=True):
        axis.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for name in (kind, *CHECKED[kind]):
            if name in diagrams:
                means, shares, _ = zip(*diagrams[name], strict=True)
                line = {"linewidth": 2, "marker": "o"} if name == kind else {"linewidth": 1, "linestyle": "--"}
                axis.plot(means, shares, markersize=3, label=name, **line)
        axis.set_title(kind, fontsize=10)
        axis.legend(fontsize=7, frameon=False)
    figure.supxlabel("mean probability of a bin")
    figure.supylabel("share of it that is of use")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
