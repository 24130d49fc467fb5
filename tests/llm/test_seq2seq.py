"""Local sequence-to-sequence models: tiny random ones of T5's and BART's kind, made on the spot."""

from __future__ import annotations

import json
import shutil

import pytest

from dialore.errors import InputError, ModelError
from dialore.llm.connection import connect
from dialore.llm.local import LocalModel
from dialore.llm.model import Message, Request, Sampling, Steering
from tests.llm.local_checks import check_batched, check_pieces_join_to_the_text, check_stopped
from tests.llm.tiny_causal import needs_torch

pytestmark = pytest.mark.filterwarnings("ignore")

WORDS = "two friends talk about films and reviews while the tea is warm and the river runs to the sea"


def _tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<pad>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS] * 20, trainer)
    # As T5 does: the encoder's text ends in </s>.
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>")


def _t5(tokens):
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=tokens,
            d_model=32,
            d_kv=16,
            d_ff=64,
            num_layers=2,
            num_heads=2,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
            initializer_factor=3.0,
        )
    )


def _bart(tokens):
    from transformers import BartConfig, BartForConditionalGeneration

    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=tokens,
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=48,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=1,
            decoder_start_token_id=1,
            forced_eos_token_id=None,
            init_std=0.5,
        )
    )
    # What published models of this kind bring along, and what streaming cannot do.
    model.generation_config.num_beams = 4
    return model


KINDS = {"t5": _t5, "bart": _bart}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    import torch

    made = {}
    for name, kind in KINDS.items():
        path = tmp_path_factory.mktemp(name)
        tokenizer = _tokenizer()
        tokenizer.save_pretrained(path)
        torch.manual_seed(2)
        kind(len(tokenizer)).save_pretrained(path)
        made[name] = path
    return made


@pytest.fixture(params=KINDS)
async def model(request, folders):
    made = LocalModel(str(folders[request.param]))
    yield made
    await made.close()


def ask(text="two friends talk", *, continuation=None, continuation_stop=(), steering=None, **sampling) -> Request:
    return Request(
        messages=(Message(role="user", content=text),),
        sampling=Sampling(**{"max_tokens": 12, "seed": 5, **sampling}),
        continuation=continuation,
        continuation_stop=continuation_stop,
        steering=steering,
    )


@needs_torch
async def test_the_encoder_reads_the_continuation_and_the_count_is_exact(model):
    tokenizer, _ = model._load()
    form = "a film fan <sep> you answer <sep> seen it? <turn> yes"
    completion = await model.complete(ask("something else entirely", continuation=form))
    assert completion.usage.prompt_tokens == len(tokenizer(form)["input_ids"])
    assert completion.usage.calls == 1
    assert not completion.estimated
    assert completion.text == (await model.complete(ask("other words", continuation=form))).text
    if completion.finish_reason == "length":
        assert completion.usage.completion_tokens == 12


@needs_torch
async def test_without_a_continuation_it_reads_a_transcript(model):
    tokenizer, _ = model._load()
    completion = await model.complete(ask("the tea"))
    assert completion.usage.prompt_tokens == len(tokenizer("User: the tea\nAssistant:")["input_ids"])


@needs_torch
async def test_the_answer_holds_nothing_of_what_was_given(model):
    """The decoder's start token is no part of the answer, and the prompt does not come back."""
    tokenizer, loaded = model._load()
    inputs = tokenizer("User: the tea\nAssistant:", return_tensors="pt")
    whole = loaded.generate(**inputs, max_new_tokens=12, do_sample=False, num_beams=1)[0].tolist()
    completion = await model.complete(ask("the tea", temperature=0))
    assert whole[0] == loaded.config.decoder_start_token_id
    assert completion.text == tokenizer.decode(whole[1:], skip_special_tokens=True)
    assert completion.usage.completion_tokens == len(whole) - 1


@needs_torch
async def test_seeds_and_temperature(model):
    same = [(await model.complete(ask(seed=3))).text for _ in range(2)]
    others = {(await model.complete(ask(seed=seed))).text for seed in range(4, 9)}
    greedy = [(await model.complete(ask(temperature=0, seed=seed))).text for seed in (1, 2)]
    assert same[0] == same[1]
    assert others - {same[0]}
    assert greedy[0] == greedy[1]


@needs_torch
async def test_streamed_pieces_join_to_the_text(model):
    await check_pieces_join_to_the_text(model, ask())


@needs_torch
@pytest.mark.parametrize("where", ["sampling", "continuation"])
async def test_stop_strings_cut_text_and_stream(model, where):
    whole = (await model.complete(ask(continuation="the river", max_tokens=30))).text
    stop = next(word for place in range(3, len(whole)) if "\ufffd" not in (word := whole[place]) and word != whole[0])
    stops = {"stop": (stop,)} if where == "sampling" else {"continuation_stop": (stop,)}
    await check_stopped(model, ask(continuation="the river", max_tokens=30, **stops), stop, whole)


@needs_torch
async def test_requests_that_wait_are_batched(model):
    texts = ("two", "the river runs to the sea", "films and films and reviews")
    requests = [ask(text, seed=None, temperature=0) for text in texts]
    await check_batched(model, requests)


@needs_torch
async def test_encoder_and_decoder_have_their_places_each(folders):
    bart = LocalModel(str(folders["bart"]))
    with pytest.raises(ModelError, match="takes 48"):
        await bart.complete(ask("tea " * 80))
    # A prompt that nearly fills the encoder leaves the decoder its own room.
    tokenizer, _ = bart._load()
    text = "tea" * 14
    width = len(tokenizer(text)["input_ids"])
    assert 24 < width <= 48
    completion = await bart.complete(ask(continuation=text, max_tokens=30, temperature=0))
    assert completion.usage.completion_tokens > 48 - width or completion.finish_reason == "stop"
    t5 = LocalModel(str(folders["t5"]))
    assert (await t5.complete(ask("tea " * 700))).usage.prompt_tokens > 700


@needs_torch
async def test_it_cannot_be_steered(model):
    with pytest.raises(ModelError, match="cannot be steered"):
        await model.complete(ask(steering=Steering(words=("tea",))))


@needs_torch
async def test_a_model_is_of_the_kind_that_its_configuration_says(folders, tmp_path):
    shutil.copytree(folders["t5"], tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    # Older files leave the key out: then the architecture's own default counts.
    del config["is_encoder_decoder"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    named, older = connect(f"hf:{folders['t5']}").backend, LocalModel(str(tmp_path))
    assert isinstance(named, LocalModel)
    assert (await named.complete(ask())).text == (await older.complete(ask())).text
    assert type(named._load()[1]).__name__ == type(older._load()[1]).__name__ == "T5ForConditionalGeneration"
    await named.close()
    await older.close()


@needs_torch
async def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot load the model"):
        await LocalModel(str(tmp_path / "none")).complete(ask())
