"""Several graphs answer as one would that held the facts of all, each fact keeping its graph's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dialore.dialogue import Dialogue
from dialore.errors import InputError
from dialore.response import Demands
from dialore.retrieval.graph import GraphStore
from dialore.sources.graph import Graph, MultiGraph
from tests.hashing import HashingEmbedder
from tests.retrieval.graph.graphs import build, embedder, facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HISTORY = Dialogue.model_validate({"id": "d", "turns": ["Where is your tea from?", "We sell tea from Assam."]})
WORLD = ("tea | IsA | drink | 1", "tea | HasProperty | warm | 3", "cup | UsedFor | tea | 1", "drink | HasA | taste | 1")
COMPANY = (
    "tea | IsA | drink | 5",
    "assam | IsA | tea | 2",
    "Tea | HasProperty | warm | 1",
    "assam | MadeOf | leaf | 1",
)


def opened(folder: Path, name: str, *lines: str, ranking: str = "paper") -> Graph:
    return Graph(GraphStore(build(folder / f"{name}.graph", facts(*lines), name)), embedder(), ranking)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[MultiGraph]:
    graphs = MultiGraph([opened(tmp_path, "world", *WORLD), opened(tmp_path, "company", *COMPANY)])
    yield graphs
    graphs.close()


def test_facts_of_both_by_one_rank(both: MultiGraph, tmp_path: Path) -> None:
    demands = Demands(explicit=["tea", "assam", "zeppelin"], maintained=["drink"])
    found = both.retrieve(demands, HISTORY)
    one = opened(tmp_path, "one", *WORLD, *COMPANY).retrieve(demands, HISTORY)
    assert {item.id for item in found.foreseen} == {item.id for item in one.foreseen}
    assert [(item.id, item.score) for item in found.unforeseen] == [(item.id, item.score) for item in one.unforeseen]
    assert found.unlinked == one.unlinked == ["zeppelin"]
    assert {link.name.lower() for link in found.links} == {"tea", "assam", "drink"}
    assert both.name == "world+company"


def test_a_fact_keeps_its_graph_and_a_copy_the_heavier(both: MultiGraph) -> None:
    found = both.retrieve(Demands(explicit=["tea"], maintained=["drink"]), HISTORY)
    origin = {item.triple.lower(): (item.fact.graph, item.fact.weight) for item in found.unforeseen}
    assert [(item.fact.graph, item.fact.weight) for item in found.foreseen] == [("company", 5.0)]
    assert origin["(tea, hasproperty, warm)"] == ("world", 3.0)
    assert origin["(assam, isa, tea)"] == ("company", 2.0)
    assert origin["(cup, usedfor, tea)"] == ("world", 1.0)
    assert (found.foreseen_found, found.unforeseen_found) == (2, 5)


def test_foreseen_in_one_is_not_unforeseen_in_the_other(tmp_path: Path) -> None:
    # "green tea" is a concept of the second graph only: in the first the phrase leads to "tea".
    one = opened(tmp_path, "one", "tea | IsA | drink", "green | IsA | colour")
    other = opened(tmp_path, "other", "green tea | IsA | drink", "tea | IsA | drink")
    graphs = MultiGraph([one, other])
    found = graphs.retrieve(Demands(explicit=["green tea"], maintained=["drink"]), HISTORY)
    assert {item.triple for item in found.foreseen} == {"(tea, IsA, drink)", "(green tea, IsA, drink)"}
    assert not {item.id for item in found.foreseen} & {item.id for item in found.unforeseen}
    graphs.close()


def test_the_cut_is_of_all(both: MultiGraph) -> None:
    demands = Demands(explicit=["tea", "assam", "drink"])
    whole = both.retrieve(demands, HISTORY, top=50)
    assert both.retrieve(demands, HISTORY, top=2).unforeseen == whole.unforeseen[:2]


def test_links_mentions_and_queries(both: MultiGraph) -> None:
    links = both.link(["teas", "Assam"])
    assert [link.name.lower() for link in links] == ["tea", "assam"]
    assert [link.name.lower() for link in both.mentions(HISTORY.texts)] == ["tea", "assam"]
    found, count = both.retrieve_queries(links, HISTORY)
    assert {item.fact.graph for item in found} == {"world", "company"}
    assert len(found) == 5
    assert count == 7


def test_pairs_are_folded_across_graphs(tmp_path: Path) -> None:
    one = opened(tmp_path, "one", "tea | AtLocation | cup", ranking="default")
    other = opened(tmp_path, "other", "cup | UsedFor | tea", ranking="default")
    graphs = MultiGraph([one, other])
    assert len(graphs.retrieve(Demands(explicit=["tea"]), HISTORY).unforeseen) == 1
    graphs.close()


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    one, same = opened(tmp_path, "one", *WORLD), opened(tmp_path, "one", *COMPANY)
    with pytest.raises(InputError, match="two graphs are called 'one'"):
        MultiGraph([one, same])
    with pytest.raises(InputError, match="rank differently"):
        MultiGraph([one, opened(tmp_path, "other", *COMPANY, ranking="default")])
    with pytest.raises(InputError, match="rank differently"):
        MultiGraph([one, Graph(opened(tmp_path, "third", *COMPANY).store, HashingEmbedder(), "paper")])
    with pytest.raises(InputError, match="no graphs"):
        MultiGraph([])
