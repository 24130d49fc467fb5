"""Fine-tuning through transformers' Trainer, on tiny random models made on the spot, and SAFARI's generator."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil

import pytest

from dialore import Dialogue, connect, create_agent
from dialore.datasets import data_set, split_dialogues
from dialore.errors import InputError
from dialore.methods.few_shot import build_samples, samples_of
from dialore.prompts.history import render_history
from dialore.retrieval.embedding import load_embedder
from dialore.sources.declared import default_sources
from dialore.trained import read_card
from dialore.training.finetune import Target, collate, encode, finetune
from dialore.training.generators import RECIPES, read_declared, read_targets, special_tokens
from dialore.training.trainer import SCRATCH, Job, Tuning
from tests.example_data import write_data
from tests.llm.models import Scripted
from tests.llm.test_seq2seq import _t5, _tokenizer
from tests.llm.tiny_causal import make_tiny_causal

for needed in ("torch", "transformers", "accelerate", "peft"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'dialore[finetune]'")

CARD = {"kind": "generator", "use": "A test.", "data": {"dataset": "kbp", "sha256": "0", "responses": 8}}
TALK = ["green tea is warm", "the river runs to the sea", "people talk about books", "tea and books"]
TRAIN = [Target.after(f"people talk {place}", text, f"t{place}") for place, text in enumerate(TALK * 2)]
DEV = [Target.after(f"people run {place}", text, f"d{place}") for place, text in enumerate(TALK)]
QUICK = Tuning(epochs=3, batch=4, rate=0.01, length=64)


@pytest.fixture(autouse=True)
def one_thread():
    """So small a model is slower by two."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """A folder of a causal model and one of a sequence-to-sequence one."""
    folder = tmp_path_factory.mktemp("bases")
    make_tiny_causal(folder / "causal")
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(folder / "seq2seq")
    _t5(len(tokenizer)).save_pretrained(folder / "seq2seq")
    return folder


def losses(folder):
    with (folder / "loss.csv").open(encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def weights(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


# peft asks transformers by a name that goes.
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
@pytest.mark.parametrize("lora", [False, True])
def test_training_lowers_the_loss_and_the_folder_is_a_model(bases, tmp_path, kind, lora):
    out, steps = tmp_path / "model", []
    tuning = dataclasses.replace(QUICK, lora=lora, dropout=0.0, rate=0.03 if lora else 0.01)
    card = finetune(kind, Job(str(bases / kind), out, tuning, lambda *said: steps.append(said)), TRAIN, DEV, CARD)
    rows = losses(out)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert rows[-1]["train"] < rows[0]["train"]
    assert card["loss"]["dev"] == pytest.approx(min(row["dev"] for row in rows))
    assert read_card(out) == json.loads(json.dumps(card))
    assert steps[-1] == ("training", 6, 6)
    names = {path.name for path in out.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "README.md", "loss.csv"} <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


async def test_what_is_written_is_what_was_trained(bases, tmp_path):
    finetune("causal", Job(str(bases / "causal"), tmp_path / "model", QUICK), TRAIN, DEV, CARD)
    import torch

    from dialore.llm.local import load

    tokenizer, model = load(str(tmp_path / "model"))
    rows = [encode(tokenizer, "causal", one, 64) for one in DEV]
    with torch.inference_mode():
        loss = model.cpu()(**collate(rows, tokenizer.pad_token_id)).loss.item()
    assert loss == pytest.approx(read_card(tmp_path / "model")["loss"]["dev"], rel=1e-4)


def test_the_same_seed_gives_the_same_model_and_another_does_not(bases, tmp_path):
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        tuning = dataclasses.replace(QUICK, seed=seed, epochs=1)
        finetune("causal", Job(str(bases / "causal"), tmp_path / name, tuning), TRAIN, DEV, CARD)
    one, two, three = (read_card(tmp_path / name)["files"]["model.safetensors"] for name in ("one", "two", "three"))
    assert one == two != three


def test_an_interrupted_training_goes_on_to_the_same_model(bases, tmp_path):
    done = []

    def stop(_what, at, _of):
        done.append(at)
        if at == 5:  # in the third epoch
            raise KeyboardInterrupt

    base = str(bases / "causal")
    finetune("causal", Job(base, tmp_path / "straight", QUICK), TRAIN, DEV, CARD)
    with pytest.raises(KeyboardInterrupt):
        finetune("causal", Job(base, tmp_path / "broken", QUICK, stop), TRAIN, DEV, CARD)
    assert not (tmp_path / "broken").exists()
    done.clear()
    finetune("causal", Job(base, tmp_path / "broken", QUICK, lambda _, at, __: done.append(at)), TRAIN, DEV, CARD)
    assert done == [5, 6]
    straight, broken = weights(tmp_path / "straight"), weights(tmp_path / "broken")
    assert all((straight[name] == broken[name]).all() for name in straight)


def test_other_data_do_not_go_on_from_what_was_interrupted(bases, tmp_path):
    def stop(_what, at, _of):
        if at == 3:
            raise KeyboardInterrupt

    base = str(bases / "causal")
    with pytest.raises(KeyboardInterrupt):
        finetune("causal", Job(base, tmp_path / "model", QUICK, stop), TRAIN, DEV, CARD)
    done = []
    finetune("causal", Job(base, tmp_path / "model", QUICK, lambda _, at, __: done.append(at)), TRAIN[2:], DEV, CARD)
    assert done[0] == 1


def test_from_scratch(tmp_path):
    tuning = dataclasses.replace(QUICK, epochs=1, rate=1e-3)
    for kind in ("causal", "seq2seq"):
        card = finetune(kind, Job(SCRATCH, tmp_path / kind, tuning), TRAIN, DEV, CARD)
        assert 2e6 < card["loss"]["parameters"] < 2e7


@pytest.mark.parametrize(
    ("kind", "base", "said"),
    [
        ("causal", "seq2seq", "T5ForConditionalGeneration) is no causal model"),
        ("seq2seq", "causal", "LlamaForCausalLM) is no sequence-to-sequence model"),
        ("causal", "nowhere", "cannot train"),
    ],
)
def test_a_base_of_another_kind_is_named(bases, tmp_path, kind, base, said):
    with pytest.raises(InputError) as caught:
        finetune(kind, Job(str(bases / base), tmp_path / "model", QUICK), TRAIN, DEV, CARD)
    assert said in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_pickled_weights_are_refused(bases, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    shutil.copytree(bases / "causal", tmp_path / "pickled")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pickled" / "pytorch_model.bin")
    with pytest.raises(InputError, match="safetensors"):
        finetune("causal", Job(str(tmp_path / "pickled"), tmp_path / "model", QUICK), TRAIN, DEV, CARD)


@pytest.mark.parametrize(
    ("train", "dev", "said"),
    [([], DEV, "training data has nothing"), (TRAIN, [], "held-out data has nothing"), (TRAIN, TRAIN[:1], "t0")],
)
def test_nothing_to_learn_and_leaks_are_refused(bases, tmp_path, train, dev, said):
    with pytest.raises(InputError, match=said):
        finetune("causal", Job(str(bases / "causal"), tmp_path / "model", QUICK), train, dev, CARD)


def test_too_little_memory_says_what_to_lower(bases, tmp_path, monkeypatch):
    import torch

    def no_room(*_args, **_named):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    monkeypatch.setattr("transformers.Trainer.train", no_room)
    with pytest.raises(InputError, match="lower batch"):
        finetune("causal", Job(str(bases / "causal"), tmp_path / "model", QUICK), TRAIN, DEV, CARD)


# --- papers' generators

PAPER = default_sources({})
TOKENS = special_tokens("safari", PAPER)


def targets_of(dialogues, recipe="safari"):
    return [RECIPES[recipe].make_target(one, PAPER) for one in dialogues]


@pytest.fixture(scope="module")
def dialogues(small):
    return split_dialogues(data_set("kbp").read(small / "train.json"), cut="all")


def test_the_loss_is_of_plan_and_response_alone(bases, dialogues):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bases / "causal")
    tokenizer.add_tokens([*TOKENS])
    found = {tuple(one.sources): one for one in dialogues}
    for plan, said in (
        ((), " [SOURCE] NULL [EOS]"),
        (("persona",), " [SOURCE] PERSONA [EOS]"),
        (("persona", "documents"), " [SOURCE] PERSONA DOCUMENTS [EOS]"),
    ):
        one = found[plan]
        encoded = encode(tokenizer, "causal", targets_of([one])[0], 4096)
        learnt = [token for token in encoded["labels"] if token != -100]
        assert tokenizer.decode(learnt) == f"{said} {one.reference}</s>"
        # Token by token: what is learnt is what is read there, and nothing else is.
        assert all(label in (-100, token) for token, label in zip(encoded["input_ids"], encoded["labels"], strict=True))
        whole = tokenizer.decode(encoded["input_ids"])
        before, _, after = whole.partition(said)
        assert before == render_history(one)
        gold = [item["text"] for item in one.knowledge]
        assert after == f"{' '.join(['', '[MIDDLE]', *gold, '[EOM]'])} {one.reference}</s>"


def test_a_long_context_loses_its_oldest_turns_and_keeps_what_is_learnt(bases, dialogues):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bases / "causal")
    tokenizer.add_tokens([*TOKENS])
    target = targets_of([dialogues[4]])[0]
    whole, short = (encode(tokenizer, "causal", target, length) for length in (4096, 150))
    assert len(whole["input_ids"]) > 150 == len(short["input_ids"])
    assert short["input_ids"] == whole["input_ids"][-150:]
    assert short["labels"] == whole["labels"][-150:]


@pytest.fixture(scope="module")
def wizard(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("wizard")) / "wizard_of_wikipedia" / "train.json"


@pytest.mark.parametrize(
    ("recipe", "prompt", "said"),
    [
        ("fkg", "{topic} {history} =>", "{known}"),
        ("fcm", "{topic} {history} We know that: {known} System replies:", "{reference}"),
    ],
)
def test_msdp_learns_knowledge_and_responses_after_topic_and_history(wizard, recipe, prompt, said):
    (train, dev), data = read_targets(recipe, "wizard-of-wikipedia", [wizard, wizard])
    wholes = [*data_set("wizard-of-wikipedia").read(wizard)]
    assert len(train) == len(dev) == data["responses"] > data["dialogues"] == len(wholes)
    one = split_dialogues(data_set("wizard-of-wikipedia").read(wizard), cut="all")[1]
    sides = ["System" if turn.speaker == one.responder else "User" for turn in one.turns]
    given = {
        "topic": one.topic,
        "history": " ".join(f"{side}: {turn.text}" for side, turn in zip(sides, one.turns, strict=True)),
        "known": one.knowledge[0]["text"],
        "reference": one.reference,
    }
    assert train[1].parts == ((prompt.format(**given), False), (" " + said.format(**given), True))


async def test_msdp_asks_a_trained_model_as_it_was_trained(wizard, tmp_path):
    base = build_samples(
        samples_of(split_dialogues(data_set("wizard-of-wikipedia").read(wizard), cut="all")),
        tmp_path / "own.samples",
        load_embedder(),
    )
    assert base
    one = split_dialogues(data_set("wizard-of-wikipedia").read(wizard), cut="all")[1]
    known, model = one.knowledge[0]["text"], Scripted(one.knowledge[0]["text"], "Sure.")
    options = {"prompt_variant": "supervised", "topic": "checked", "turns": 0, "shots": 0, "response_shots": 0}
    sources = {"samples": str(tmp_path / "own.samples")}
    async with create_agent("msdp", model=model, sources=sources, options=options) as agent:
        response = await agent.respond(one)
    assert (response.text, response.knowledge[0].text) == ("Sure.", known)
    trained = [targets_of([one], recipe)[0].parts[0][0] for recipe in ("fkg", "fcm")]
    assert [asked.continuation for asked in model.asked] == trained


def test_without_a_held_out_file_a_tenth_of_the_dialogues_is(small):
    (train, dev), data = read_targets("safari", "kbp", [small / "train.json"])
    assert data["dialogues"] == 54
    assert len(train) == 54 * 5
    in_order = [dialogue.id for dialogue in data_set("kbp").read(small / "train.json")]
    assert {one.dialogue.partition("@")[0] for one in dev} == set(in_order[9::10])


def test_data_without_what_is_learnt(wizard):
    with pytest.raises(InputError, match="wizard-of-wikipedia has no plan to learn safari from"):
        read_targets("safari", "wizard-of-wikipedia", [wizard])


SPACED = {
    "id": "spaced",
    "language": "zh",
    "persona": ["我的星座是 天蝎座", "我 是 电工"],
    "turns": ["你是 什么 星座？", "我是 天蝎座。", "那你的  守护星 呢？"],
    "reference": "我的 守护星 是 冥王星。",
    "extra": {"documents": {"我的星座是 天蝎座": ["天蝎座的 守护星 是 冥王星", "天蝎座 在 秋天"]}},
}
ZODIAC = {"text": "我的星座是 天蝎座", "source": "persona"}
PLUTO = {"text": "天蝎座的 守护星 是 冥王星", "source": "documents", "persona": "我的星座是 天蝎座"}


@pytest.mark.parametrize(
    ("plan", "knowledge"),
    [([], []), (["persona"], [ZODIAC]), (["persona", "documents"], [ZODIAC, PLUTO, PLUTO]), ([], [ZODIAC])],
)
async def test_what_is_learnt_is_what_is_asked_in_use_byte_for_byte(plan, knowledge):
    """The words of KBP stand apart; a model that learnt them so would be asked for others."""
    one = Dialogue.model_validate({**SPACED, "sources": plan, "knowledge": knowledge})
    target = targets_of([one])[0]
    model = Scripted(target.parts[1][0].removesuffix("[EOS]"), target.parts[3][0])
    options = {"prompt_variant": "supervised", "retrieval": "gold", "on_invalid_plan": "null"}
    async with create_agent("safari", model=model, options=options) as agent:
        response = await agent.respond(one)
    assert (response.plan, response.text) == (plan, "我的守护星是冥王星。")
    asked = [each.continuation for each in model.asked]
    assert asked == [target.parts[0][0], "".join(text for text, _ in target.parts[:3])]
    # Equation 3, whose labels are those of the authors' release: [SOURCE] is learnt, too.
    marked = [text.strip() for text, _ in target.parts[1:3]]
    shown = " ".join(item["text"].replace(" ", "") for item in knowledge[:2] if plan)
    assert marked[0] == f"[SOURCE] {' '.join(plan).upper() or 'NULL'} [EOS]"
    assert marked[1] == f"[MIDDLE] {shown} [EOM]".replace("  ", " ")


async def test_source_shows_the_plan_whatever_was_found():
    """With ground retrieval all gold pieces are there, but the plan stands as it was made (the authors' release)."""
    one = Dialogue.model_validate({**SPACED, "sources": ["persona", "documents"], "knowledge": [ZODIAC, PLUTO]})
    model = Scripted(" [SOURCE] PERSONA ", "好。")
    async with create_agent(
        "safari", model=model, options={"prompt_variant": "supervised", "retrieval": "gold"}
    ) as agent:
        await agent.respond(one)
    shown = "[SOURCE] PERSONA [EOS] [MIDDLE] 我的星座是天蝎座 天蝎座的守护星是冥王星 [EOM]"
    assert model.asked[-1].continuation.endswith(shown)


def test_special_tokens_are_those_of_the_declared_sources(tmp_path):
    (tmp_path / "own.yaml").write_text(
        "- {name: diary, kind: persona, description: what I did}\n"
        "- {name: letters, kind: documents, depends_on: diary, description: what I wrote}\n"
        "- {name: the news, kind: web, description: what happened}\n"
    )
    declared = read_declared(tmp_path / "own.yaml")
    assert special_tokens("safari", declared)[4:] == ("NULL", "DIARY", "LETTERS", "THE NEWS")
    assert special_tokens("fcm", declared) == ()
    one = Dialogue.model_validate({**SPACED, "sources": ["persona", "documents"], "knowledge": [ZODIAC, PLUTO]})
    assert RECIPES["safari"].make_target(one, declared).parts[1][0] == " [SOURCE] DIARY LETTERS [EOS]"


def test_the_command_takes_the_sources_that_are_planned_over(bases, small, tmp_path):
    from transformers import AutoTokenizer
    from typer.testing import CliRunner

    from dialore.cli.app import app

    (tmp_path / "own.yaml").write_text(
        "- {name: diary, kind: persona, description: what I did}\n"
        "- {name: letters, kind: documents, depends_on: diary, description: what I wrote}\n"
    )
    given = {"data": small, "out": tmp_path / "model", "base": bases / "causal", "sources": tmp_path / "own.yaml"}
    options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    done = CliRunner().invoke(
        app, ["train", "generator", "kbp", *options, "--set", "epochs=0.05", "--set", "length=64"]
    )
    assert done.exit_code == 0, done.output
    assert {"DIARY", "LETTERS", "[SOURCE]"} <= AutoTokenizer.from_pretrained(tmp_path / "model").get_vocab().keys()


def test_a_model_that_learnt_to_continue_text_has_no_chat_template_and_its_first_token(bases, tmp_path):
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    base = tmp_path / "base"
    shutil.copytree(bases / "causal", base)
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = "{% for one in messages %}<{{ one.role }}>{{ one.content }}{% endfor %}"
    tokenizer.add_special_tokens({"bos_token": "<begin>"})
    begin = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing("<begin> $A", special_tokens=[("<begin>", begin)])
    assert encode(tokenizer, "causal", TRAIN[0], 100)["input_ids"][0] == begin
    assert encode(tokenizer, "causal", TRAIN[0], 8)["input_ids"].count(begin) == 1
    assert encode(tokenizer, "causal", TRAIN[0], 100)["labels"][0] == -100
    tokenizer.save_pretrained(base)
    finetune("causal", Job(str(base), tmp_path / "model", QUICK), TRAIN, DEV, CARD, tokens=["<begin>"])
    assert not AutoTokenizer.from_pretrained(tmp_path / "model").chat_template


async def test_safari_plans_and_responds_with_the_trained_model(tmp_path, small, dialogues):
    """A model that learnt one dialogue by heart plans its sources, and says its response after what was found."""
    one = next(each for each in dialogues if each.sources == ("persona", "documents") and len(each.turns) == 1)
    make_tiny_causal(tmp_path / "base", kind="gpt2", positions=400)
    targets = targets_of([one])
    dev = [dataclasses.replace(targets[0], parts=((" ", False), *targets[0].parts))]
    tuning = Tuning(epochs=1, batch=1, rate=0.01, length=400)
    finetune("causal", Job(str(tmp_path / "base"), tmp_path / "model", tuning), targets * 150, dev, CARD, tokens=TOKENS)
    model = connect(f"hf:{tmp_path / 'model'}")
    async with create_agent(
        "safari", model=model, options={"prompt_variant": "supervised", "retrieval": "gold"}
    ) as agent:
        response = await agent.respond(Dialogue.model_validate(one.model_dump()))
    assert response.plan == ["persona", "documents"]
    assert response.text == one.reference


def test_a_processor_calculates_in_bfloat16_too(bases, tmp_path):
    tuning = dataclasses.replace(QUICK, epochs=2, precision="bf16")
    finetune("causal", Job(str(bases / "causal"), tmp_path / "model", tuning), TRAIN, DEV, CARD)
    rows = losses(tmp_path / "model")
    assert rows[-1]["train"] < rows[0]["train"]


async def test_a_bart_as_published_is_trained_and_reads_in_use_what_it_read_in_training(tmp_path):
    """EDIT, Table 4: facebook/bart-base has no head of its own, and its texts have a beginning as well as an end."""
    from tokenizers import processors
    from transformers import BartConfig, BartModel

    tokenizer = _tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    marks = [("<s>", tokenizer.bos_token_id), ("</s>", tokenizer.eos_token_id)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=marks)
    tokenizer.save_pretrained(tmp_path / "base")
    size = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_attention_heads": 2}
    layers = {"decoder_attention_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 128}
    ends = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 1, "bos_token_id": tokenizer.bos_token_id}
    config = BartConfig(vocab_size=len(tokenizer), forced_bos_token_id=tokenizer.bos_token_id, **size, **layers, **ends)
    BartModel(config).save_pretrained(tmp_path / "base")
    finetune("seq2seq", Job(str(tmp_path / "base"), tmp_path / "bart", QUICK), TRAIN, DEV, CARD)
    encoded = encode(tokenizer, "seq2seq", TRAIN[0], 64)
    assert encoded["input_ids"] == tokenizer(TRAIN[0].parts[0][0])["input_ids"]
    assert encoded["labels"] == tokenizer(TRAIN[0].parts[1][0])["input_ids"]
    model = connect(f"hf:{tmp_path / 'bart'}")
    agent = create_agent("edit-questions", model=model, options={"trained": True, "questions": 0})
    response = await agent.respond(Dialogue(id="d", turns=["people talk about tea"]))
    assert response.trace[0].model == str(tmp_path / "bart")
    await model.close()
