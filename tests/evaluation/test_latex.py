"""The report's table in LaTeX: what it says, and, where there is a TeX, that pdfLaTeX and XeLaTeX set it.

`apt-get install texlive-latex-recommended` is enough for most; Chinese wants latex-cjk-chinese and
latex-cjk-chinese-arphic-gbsn00lp too, or texlive-xetex and texlive-lang-chinese.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess

import pytest

from dialore.evaluation.registry import Context, load_metrics
from dialore.evaluation.report.build import make_report
from dialore.evaluation.report.forms import escape_latex as escape
from dialore.evaluation.report.forms import render_latex
from dialore.experiments.config import make_config
from dialore.experiments.results import RunResults
from dialore.experiments.run import run_experiment
from dialore.experiments.scoring import measure_run
from dialore.experiments.store import RunStore
from dialore.session import open_model
from tests.evaluation.made_up import EVIL, made_up

pytest.importorskip("scipy", reason="the evaluation extra is not installed")
SPECIAL = '[b]* a_b & 50% of #1 {x} ~^\\ $ <|> "q" `g\' --n ± · × – − α ≤ → é “ø” ✓ 😀 \x07'
METRICS = ["bleu", "bleu-1", "bleu-2", "bleu-4", "rouge-l", "meteor-exact-stem", "f1", "kf1", "knowledge-copy"]
METRICS += ["distinct-1", "distinct-2", "recall-1", "mrr"]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The table of a run of the no model over English and Chinese dialogues; systems have hostile names."""
    folder = tmp_path_factory.mktemp("latex")
    said = [("en", f"I like {what}.", f"I like {what} too.") for what in ("tea", "rain", "bread", "music", "the sea")]
    said += [("zh", f"我喜欢{what}。", f"我也喜欢{what}。") for what in ("茶", "雨", "面包", "音乐", "大海")]
    lines = [
        {"id": f"d{n}", "language": language, "turns": [text], "reference": reference}
        for n, (language, text, reference) in enumerate(said)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    systems = [{"name": "vanilla", "method": "vanilla"}, {"name": SPECIAL.replace("\x07", ""), "method": "t-rag"}]
    systems += [{"name": "dcrag_full & 100%", "method": "dcrag"}]
    systems += [{"name": "*top #5", "method": "dcrag", "options": {"top": 5}}]
    given = {"name": "run_1", "dataset": {"name": "jsonl", "path": str(folder / "data.jsonl")}, "systems": systems}
    config = make_config(given | {"models": [{"model": "lexical"}]})
    asyncio.run(run_experiment(config, folder / "run", open_model))
    with RunStore.open(folder / "run") as store:
        with store.writing():
            asyncio.run(measure_run(store, load_metrics(METRICS, Context())))
        results = RunResults([store], METRICS)
        return render_latex(make_report(results, dialogues=0))


def typeset(text, folder, engine="pdflatex", packages="", files=("booktabs.sty",), options="twocolumn"):
    """Set a paper with the table; returns TeX's log and the PDF's words, or skips where a part of TeX is missing."""
    if shutil.which(engine) is None or shutil.which("kpsewhich") is None:
        pytest.skip(f"the table is not set: {engine} is not installed")
    for name in files:
        if not subprocess.run(["kpsewhich", name], capture_output=True, check=False).stdout.strip():
            pytest.skip(f"the table is not set: TeX lacks {name}")
    paper = (
        f"\\documentclass[{options}]{{article}}\\usepackage[margin=2cm]{{geometry}}\\usepackage{{booktabs,graphicx}}"
        f"{packages}\\begin{{document}}Before it.\n{text}After it.\\end{{document}}\n"
    )
    (folder / "paper.tex").write_text(paper, "utf-8")
    command = [engine, "-interaction=nonstopmode", "-halt-on-error", "-file-line-error", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    log = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, log[-2000:]
    shown = ""
    if shutil.which("pdftotext") is not None:
        pdf = ["pdftotext", "-layout", "paper.pdf", "-"]
        shown = subprocess.run(pdf, cwd=folder, capture_output=True, check=True).stdout.decode("utf-8")
    return log, shown


def test_a_real_runs_table_is_set_and_fits_the_page(real, tmp_path):
    log, shown = typeset(real, tmp_path)
    for complaint in ("Overfull", "Float too large", "Missing character", "undefined"):
        assert complaint not in log
    if shown:
        for word in ("full & 100%", "*top #5", "[b]* a", "b & 50% of #1 {x}", "$ <|>", "Reference-based", "bleu-4 (%)"):
            assert word in shown
        figures = re.findall(r"\d\.\d+\*{0,2} *±\d", shown)
        assert len(figures) > 20


def test_every_part_of_a_wide_table_has_every_row_once(real):
    text = real
    assert text.count("\\begin{tabular}") >= 2
    assert text.count("\\begin{tabular}") == text.count("dcrag\\_full \\& 100\\% & ")
    for name in METRICS:
        if name not in ("kf1", "recall-1", "mrr"):  # no gold knowledge: no column
            assert len(re.findall(rf"\{{{escape(name)}(?: \(\\%\))? \$\\uparrow\$\}}", text)) == 1


def test_chinese_is_set_by_pdflatex(tmp_path):
    results = made_up(datasets=("对话数据集", "b"))
    results.title = "中文_标题"
    text = render_latex(make_report(results, keep_absent=True))
    assert "It has Chinese characters" in text
    assert "CJK" not in render_latex(make_report(made_up()))
    log, shown = typeset(text, tmp_path, packages="\\usepackage{CJKutf8}", files=("booktabs.sty", "c70gbsn.fd"))
    assert "Missing character" not in log
    assert ("中文" in shown and "标题" in shown and "对话数据集" in shown) or not shown


def test_chinese_is_set_by_xelatex(tmp_path):
    results = made_up()
    results.title = "中文_标题"
    text = render_latex(make_report(results))
    files = ("booktabs.sty", "xeCJK.sty", "FandolSong-Regular.otf")
    log, shown = typeset(text, tmp_path, engine="xelatex", packages="\\usepackage{xeCJK}", files=files)
    assert "Missing character" not in log
    assert "中文" in shown or not shown


def test_hostile_names_and_many_rows_are_set(tmp_path):
    """Many groups make a part nearly as high as a page: each stands on its own, and the notes below the last."""
    results = made_up(datasets=tuple(f"[{n}] *{EVIL}" for n in range(6)))
    results.title = EVIL
    text = render_latex(make_report(results, keep_absent=True))
    log, _ = typeset(text, tmp_path, options="12pt")
    assert "Float too large" not in log


def unescaped(text, sign):
    return len(re.findall(rf"(?<!\\){re.escape(sign)}", re.sub(r"\\\\", "", text)))


def test_it_is_balanced_and_escaped():
    results = made_up(datasets=("a_b & 50%", "c"), fails=False)
    results.title = EVIL
    text = render_latex(make_report(results))
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert unescaped(body, "{") == unescaped(body, "}")
    assert body.count("\\begin{") == body.count("\\end{")
    assert unescaped(body, "$") % 2 == 0
    assert unescaped(body, "#") == 0
    assert "\\begin{tabular}{lrr@{}l@{}lr@{}l@{}l}" in body
    rows = [line for line in body.splitlines() if line.endswith("\\\\") and "multicolumn" not in line]
    assert len(rows) == 6  # three systems on two data sets
    assert {unescaped(line, "&") for line in rows} == {7}
    assert body.count("\\textbf{") == 2  # F1, on two data sets; CDP is level
    assert body.count("\\underline{") == 2
    assert "& $^{**}$ &" in body
    assert "a\\_b \\& 50\\%" in body
    for word in ("\\toprule", "\\midrule", "\\bottomrule", "\\label{tab:"):
        assert word in body
    assert "of 39 responses only: the response failed" in render_latex(make_report(made_up()))


def test_every_part_of_a_wide_table_is_a_table_with_the_notes_below_the_last():
    systems = made_up()
    systems._metrics = [each for each in systems._metrics for _ in range(5)]
    text = render_latex(make_report(systems, keep_absent=True))
    tables = text.split("\\begin{table*}")[1:]
    assert len(tables) == 3
    assert [f"({n} of 3)" in table for n, table in enumerate(tables, start=1)] == [True] * 3
    assert ["footnotesize" in table for table in tables] == [False, False, True]
    assert text.count("\\label{") == 1


def test_missing_figures_and_their_notes():
    text = render_latex(make_report(made_up(), keep_absent=True))
    assert "\\multicolumn{3}{c}{n/a\\textsuperscript{" in text
    for number in re.findall(r"n/a\\textsuperscript\{(\d)\}", text):
        assert f"\\textsuperscript{{{number}}}\\,not available" in text


@pytest.mark.parametrize(
    ("plain", "set_"),
    [
        (
            "a_b%{c}~^\\<>",
            "a\\_b\\%\\{c\\}\\textasciitilde{}\\textasciicircum{}\\textbackslash{}\\textless{}\\textgreater{}",
        ),
        ("[x] *", "{[}x{]} {*}"),
        ('a--b `q"', "a-{}-b \\textasciigrave{}q''"),
        ("α ≤ −1 → β", "$\\alpha$ $\\leq$ $-$1 $\\to$ $\\beta$"),
        ("a\x07b\u200bc\u00a0d\n e", "abc d e"),
        ("ok ✓ 😀 €", "ok ? ? €"),
        ("é“中”", "é“中”"),
    ],
)
def test_every_special_sign_is_set_as_it_is(plain, set_):
    assert escape(plain) == set_
