"""Train SAFARI's generator from random weights, with nothing that was trained elsewhere, and measure it on KBP's dev.

    python scripts/measure_generator.py --data DATA --models FOLDER

DATA holds kbp/train.json.gz, kbp/dev.json.gz and dailydialog/pool_zh.txt.gz. A small causal model first learns to
continue the Chinese dialogues of DailyDialog's training part and of KBP's training split, then SAFARI's sequences
(`dialore train generator`). What lies in FOLDER already is taken as it is.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
from pathlib import Path

from dialore.cli.output import progress
from dialore.datasets import data_set
from dialore.dialogue import Dialogue
from dialore.experiments.dataframes import load_run
from dialore.experiments.run import run_experiment
from dialore.prompts.history import render_history
from dialore.sources.declared import default_sources
from dialore.text import close_gaps
from dialore.training.finetune import Target, finetune
from dialore.training.generators import RECIPES, read_targets, special_tokens
from dialore.training.trainer import SCRATCH, Job, Tuning

METRICS = ("bleu-1", "rouge-l", "persona-consistency", "knowledge-consistency")
PLANS = ("planning-f1-null", "planning-f1-persona", "planning-f1-both")
HELD = 20
BASE = Tuning(epochs=3, batch=16, rate=1e-3, length=192, precision="bf16")
TOKENS = special_tokens("safari", default_sources({}))
SAFARI = Tuning(epochs=3, batch=16, rate=1e-3, length=192, precision="bf16")


def texts(data: Path) -> list[Target]:
    """Whole dialogues, every token of which is learnt: DailyDialog's and KBP's, the latter with what they stand on."""
    found = []
    for dialogue in data_set("kbp").read(data / "kbp" / "train.json.gz"):
        known = [
            close_gaps(text)
            for each in dialogue.persona
            for text in (each, *(dialogue.extra.get("documents", {}).get(each, [])))
        ]
        found.append(Target(((" ".join(known) + "\n" + render_history(dialogue), True),), dialogue.id))
    with gzip.open(data / "dailydialog" / "pool_zh.txt.gz", "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            said = [text.strip() for text in line.split("__eou__") if text.strip()]
            if said:
                turns = [{"speaker": "ab"[at % 2], "text": text} for at, text in enumerate(said)]
                dialogue = Dialogue.model_validate({"id": f"pool-{number}", "language": "zh", "turns": turns})
                found.append(Target(((render_history(dialogue), True),), dialogue.id))
    return list({each.parts: each for each in found}.values())  # some dialogues come twice


def train_base(data: Path, out: Path) -> None:
    """Make the model to start from."""
    found = texts(data)
    held, train = found[::HELD], [each for at, each in enumerate(found) if at % HELD]
    whole = "\n".join(text for each in found for text, _ in each.parts)
    card = {
        "kind": "language model of Chinese dialogues",
        "use": "A --base of `dialore train generator`.",
        "data": {
            "dataset": "dailydialog and kbp",
            "sha256": hashlib.sha256(whole.encode()).hexdigest(),
            "responses": len(train),
        },
    }
    with progress("base") as step:
        finetune("causal", Job(SCRATCH, out, BASE, step), train, held, card, tokens=TOKENS)


def train_generator(data: Path, base: Path, out: Path) -> None:
    """SAFARI's generator, from the base, as `dialore train generator kbp --base BASE` trains it."""
    files = [data / "kbp" / f"{split}.json.gz" for split in ("train", "dev")]
    targets, described = read_targets("safari", "kbp", files)
    recipe = RECIPES["safari"]
    card = {"kind": "generator (safari)", "use": recipe.use, "data": described}
    with progress("generator") as step:
        finetune("causal", Job(str(base), out, SAFARI, step), *targets, card, tokens=TOKENS)


async def measure_generator(
    data: Path, models: Path, nli: Path, *, planner: Path, ranker: Path
) -> dict[str, list[str]]:
    """BLEU-1, ROUGE-L, P.C and K.C with intervals, by who plans and what is found; trains what is not there."""
    base, safari = models / "base", models / "safari"
    if not safari.is_dir():
        if not base.is_dir():
            train_base(data, base)
        train_generator(data, base, safari)
    found = {"prompt_variant": "supervised", "on_invalid_plan": "null", "retriever": f"trained:{ranker}"}
    systems = {
        "ours, plans itself": found,
        "ours, with our planner": {**found, "planning": f"trained:{planner}"},
        "ours, gold plans": {**found, "planning": "gold"},
        "ours, gold plans and knowledge": {**found, "planning": "gold", "retrieval": "gold"},
    }
    config = {
        "name": "generator",
        "dataset": {"name": "kbp", "path": data / "kbp" / "dev.json.gz", "cut": "all"},
        "systems": [{"name": name, "method": "safari", "options": options} for name, options in systems.items()],
        "models": [{"model": f"hf:{safari}"}],
        "concurrency": 32,
    }
    folder = models / "safari-dev"
    await run_experiment(config, folder)
    measured = await load_run(folder).score(*METRICS, *PLANS, nli=f"trained:{nli}")
    rows: dict[str, list[str]] = {}
    for name in systems:
        of = measured[measured["system"] == name].set_index("metric")
        rows[name] = []
        for metric in METRICS:
            one, scale = of.loc[metric], 1 if metric.startswith("bleu") else 100
            rows[name].append(f"{scale * one.value:.1f} ({scale * one.low:.1f} to {scale * one.high:.1f})")
        rows[name].append(", ".join(f"{100 * of.loc[plan].value:.1f}" for plan in PLANS))
        rows[name].append(str(of.loc["rouge-l"].n))
    return rows


def main() -> None:
    """Train what is not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    given = parser.parse_args()
    base, safari = given.models / "base", given.models / "safari"
    if not base.is_dir():
        train_base(given.data, base)
    if not safari.is_dir():
        train_generator(given.data, base, safari)


if __name__ == "__main__":
    main()
