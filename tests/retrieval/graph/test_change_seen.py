"""A graph that another process changes while questions are asked: each question sees one state, and soon the newest."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

from dialore.dialogue import Dialogue
from dialore.response import Demands
from dialore.retrieval.graph import GraphEditor
from dialore.sources.graph import open_graph
from tests.retrieval.graph.graphs import ROOT, build, embedder, facts, graph_of

if TYPE_CHECKING:
    from pathlib import Path

    from dialore.sources.graph import Retrieval

DIALOGUE = Dialogue.model_validate({"id": "d", "language": "en", "turns": ["Which of the two things is it?"]})
ROUNDS = 30
WRITER = f"""
    import sys
    from pathlib import Path
    from dialore.retrieval.graph import GraphEditor
    from tests.retrieval.graph.graphs import build, embedder, facts
    path = Path(sys.argv[1])
    for number in range({ROUNDS}):
        both = facts(f"left {{number}} | IsA | thing", f"rite {{number}} | IsA | thing")
        with GraphEditor(path, embedder()) as editor:
            editor.add(both)
        if number % 10 == 4:  # a new graph in the file's place, whose concepts have other numbers
            build(path, facts("rock | IsA | thing", *(f"{{s}} {{n}} | IsA | thing" for n in range(number + 1)
                for s in ("rite", "left"))))
"""


def ends(found: Retrieval) -> tuple[set[str], set[str]]:
    heads = [str(item.fact.head) for item in found.unforeseen]
    left, rite = ({head[5:] for head in heads if head.startswith(side)} for side in ("left", "rite"))
    return left, rite


def test_each_question_sees_one_state_of_what_another_process_writes(tmp_path: Path) -> None:
    path = build(tmp_path / "g.graph", facts("rock | IsA | thing"))
    graph = open_graph(path, "paper", embedder())
    writer = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(WRITER), str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OPENBLAS_NUM_THREADS": "1"},
    )
    sizes = []
    try:
        while writer.poll() is None or not sizes:
            found = graph.retrieve(Demands(explicit=["thing"]), DIALOGUE, 200)
            left, rite = ends(found)
            assert left == rite
            assert found.unforeseen_found == len(found.unforeseen) == 1 + 2 * len(left)
            sizes.append(len(left))
    finally:
        writer.wait(60)
    assert writer.returncode == 0
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 3, "no change was seen while it was asked"
    assert len(ends(graph.retrieve(Demands(explicit=["thing"]), DIALOGUE, 200))[0]) == ROUNDS
    graph.close()


def test_links_of_a_graph_that_was_built_anew_are_found_by_name(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "sushi | IsA | food", "tea | IsA | drink")
    (link,) = graph.link(["tea"])
    build(tmp_path / "small.graph", facts("tea | IsA | leaf", "zebra | IsA | animal", "sushi | IsA | fish"))
    known, count = graph.retrieve_queries([link], DIALOGUE)
    assert ([item.triple for item in known], count) == (["(tea, IsA, leaf)"], 1)
    assert graph.facts_count == 3
    build(tmp_path / "small.graph", facts("zebra | IsA | animal"))
    assert graph.retrieve_queries([link], DIALOGUE) == ([], 0)
    graph.close()


def test_a_new_relation_is_ranked_as_soon_as_it_is_there(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "tea | IsA | drink")
    assert len(graph.retrieve(Demands(explicit=["tea"]), DIALOGUE).unforeseen) == 1
    with GraphEditor(tmp_path / "small.graph", embedder()) as editor:
        editor.add(facts("tea | GoesWellWith | biscuit"))
    found = graph.retrieve(Demands(explicit=["tea"]), DIALOGUE)
    assert {item.triple for item in found.unforeseen} == {"(tea, IsA, drink)", "(tea, GoesWellWith, biscuit)"}
    graph.close()
