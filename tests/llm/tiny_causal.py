"""A tiny random causal language model with a tokenizer of its own, made on the spot."""

from __future__ import annotations

import importlib.util

import pytest

HAVE = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("transformers") is not None
needs_torch = pytest.mark.skipif(
    not HAVE, reason="torch and transformers are not installed: pip install 'dialore[local]'"
)
WORDS = "green tea is warm and the river runs to the sea while people talk about books"


def make_tiny_causal(folder, *, kind: str = "llama", positions: int = 160, begins: bool = False) -> None:
    """Save a model of about 30,000 random weights; its vocabulary has the words of WORDS and all bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["</s>", *(["<s>"] if begins else [])],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS] * 20, trainer)
    names = {"eos_token": "</s>"} | ({"bos_token": "<s>"} if begins else {})
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.save_pretrained(folder)
    torch.manual_seed(1)
    ids = {"vocab_size": len(fast), "eos_token_id": fast.eos_token_id, "bos_token_id": fast.bos_token_id}
    if kind == "gpt2":
        config = GPT2Config(**ids, n_embd=32, n_layer=2, n_head=2, n_positions=positions)
        model = GPT2LMHeadModel(config)
    else:
        config = LlamaConfig(
            **ids,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=positions,
        )
        model = LlamaForCausalLM(config)
    # Random weights as they are made give nearly even odds; these prefer some tokens.
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(3.0)
    model.save_pretrained(folder)
