"""EDIT's question generator as a local sequence-to-sequence model, trained here on one context (Section 3.2.2)."""

from __future__ import annotations

import importlib.util

import pytest

from dialore.dialogue import Dialogue
from dialore.llm.connection import connect
from dialore.methods.edit import Edit
from dialore.methods.stage_runner import LLMRunner
from dialore.methods.stages import StageContext
from dialore.prompts.history import render_history
from dialore.prompts.library import PromptLibrary
from tests.methods.test_edit import Asked

HAVE = all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))
pytestmark = [
    pytest.mark.skipif(not HAVE, reason="torch and transformers are not installed: pip install 'dialore[local]'"),
    pytest.mark.filterwarnings("ignore"),
]

DIALOGUE = Dialogue(id="d", turns=["I drink tea when my throat is sore."])
QUESTIONS = ["What is in tea?", "Why does warmth help?"]
SEQUENCE = " ".join(QUESTIONS)  # Q = [q1, ..., qn], as it is generated


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    """The folder of a tiny T5 that was taught to ask these questions of this context."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    tokens = Tokenizer(models.BPE())
    tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<pad>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokens.train_from_iterator([render_history(DIALOGUE), SEQUENCE] * 20, trainer)
    tokens.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token="</s>", pad_token="<pad>")
    torch.manual_seed(1)
    size = {"d_model": 48, "d_kv": 16, "d_ff": 96, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
    special = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    model = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **size, **special))
    context = tokenizer(render_history(DIALOGUE), return_tensors="pt").input_ids
    wanted = tokenizer(SEQUENCE, return_tensors="pt").input_ids
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(100):
        loss = model(input_ids=context, labels=wanted).loss  # the negative log-likelihood of the sequence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    folder = tmp_path_factory.mktemp("generator")
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


async def test_a_trained_generator_asks_the_questions_and_the_chat_model_does_the_rest(generator):
    chat, library = Asked(), PromptLibrary()
    local = connect(f"hf:{generator}")
    responder = LLMRunner(chat, library, {"question-generation": local})
    stages = StageContext(responder, "edit", DIALOGUE)
    try:
        response = await Edit(trained=True).respond(DIALOGUE, stages)
    finally:
        await local.close()
    assert [piece.question for piece in response.knowledge] == QUESTIONS
    assert chat.calls == ["model-answer-1", "model-answer-2", "response-generation"]
    assert stages.trace[0].model == str(generator)
    assert stages.trace[0].outcome == "ok"
