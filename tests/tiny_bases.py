"""Tiny models with random weights, in folders named as the published models that examples and pages start from.

transformers takes a folder of that name in the working directory for the published model, so commands run as printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

POSITIONS = 1100
GENERATED_TOKENS = 24
ENCODERS = (
    "google-bert/bert-base-chinese",
    "models/zh_dureader_de_v2",
    "sentence-transformers/facebook-dpr-question_encoder-single-nq-base",
    "sentence-transformers/bert-base-nli-mean-tokens",
)
KINDS = {
    "gpt2": "gpt2",
    "openai-community/gpt2": "gpt2",
    "openai-community/gpt2-medium": "gpt2",
    "Qwen/Qwen3-0.6B": "qwen3",
    "bigscience/bloom-560m": "bloom",
    "google/flan-t5-small": "t5",
    "google/flan-t5-large": "t5",
    "google-t5/t5-base": "t5",
    "google-t5/t5-large": "t5",
    "allenai/cosmo-xl": "t5",
    "facebook/bart-base": "bart",
    "facebook/bart-large": "bart",
    "cross-encoder/ms-marco-MiniLM-L-6-v2": "cross",
    **dict.fromkeys(ENCODERS, "bert"),
}
TEXT = "two friends talk about tea and rain while the train is late and the garden needs water 我喜欢茶"
PAD, END, START, SEPARATOR = range(4)


def write_tiny_bases(folder: Path) -> None:
    """Write a model for each name of `KINDS` into a folder."""
    import torch

    torch.manual_seed(1)
    for name, kind in KINDS.items():
        tokenizer = _make_tokenizer(kind)
        model = _make_model(kind, len(tokenizer))
        # Random weights give nearly even odds. Larger ones prefer some tokens.
        with torch.no_grad():
            for weights in model.parameters():
                weights.mul_(3.0)
        if model.can_generate():
            model.generation_config.max_length = GENERATED_TOKENS
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def _make_tokenizer(kind: str) -> Any:  # noqa: ANN401 - transformers ships no types
    """Return a tokenizer of bytes and a few words; its special tokens are those that a kind of model has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "</s>", "<s>", "<sep>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 20, trainer)
    names = {"pad_token": "<pad>", "eos_token": "</s>"}
    if kind in {"bert", "cross"}:
        tokenizer.post_processor = processors.BertProcessing(("<sep>", SEPARATOR), ("<s>", START))
        names |= {"cls_token": "<s>", "sep_token": "<sep>"}
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **names)
    if kind == "t5":
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    if kind == "bart":
        ends = [("<s>", START), ("</s>", END)]
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
        names["bos_token"] = "<s>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def _make_model(kind: str, tokens: int) -> Any:  # noqa: ANN401 - transformers ships no types
    import transformers as library

    common = {"vocab_size": tokens, "pad_token_id": PAD, "eos_token_id": END}
    layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    if kind == "gpt2":
        size = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": POSITIONS}
        return library.GPT2LMHeadModel(library.GPT2Config(**common, **size, bos_token_id=END))
    if kind == "qwen3":
        size = {**layers, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": POSITIONS}
        return library.Qwen3ForCausalLM(library.Qwen3Config(**common, **size))
    if kind == "bloom":
        return library.BloomForCausalLM(library.BloomConfig(**common, hidden_size=32, n_layer=1, n_head=2))
    if kind == "t5":
        size = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2}
        config = library.T5Config(**common, **size, decoder_start_token_id=PAD)
        return library.T5ForConditionalGeneration(config)
    if kind == "bart":
        size = {"d_model": 32, "max_position_embeddings": POSITIONS}
        for side in ("encoder", "decoder"):
            size |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 64}
        config = library.BartConfig(**common, **size, bos_token_id=START, decoder_start_token_id=END)
        return library.BartForConditionalGeneration(config)
    config = library.BertConfig(vocab_size=tokens, pad_token_id=PAD, max_position_embeddings=512, **layers, num_labels=1)
    return library.BertForSequenceClassification(config) if kind == "cross" else library.BertModel(config)
