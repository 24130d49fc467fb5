"""Small models with random weights and a tokenizer made of the training data, for `--base scratch`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

_VOCABULARY = 8000
_SPECIAL = ("[PAD]", "</s>", "[CLS]", "[SEP]")
_PAD_ID, _END_ID, _CLS_ID, _SEP_ID = range(len(_SPECIAL))


def write_scratch_model(kind: str, texts: Iterable[str], length: int, folder: Path) -> None:
    """Write a small model with random weights into a folder, from which transformers loads it.

    Args:
        kind: `causal`, `seq2seq`, `dual`, or else a cross-encoder.
        texts: The texts that the tokenizer is made of.
        length: Maximum number of tokens.
        folder: Target folder.
    """
    import tokenizers
    import transformers

    bytes_of_texts = tokenizers.ByteLevelBPETokenizer()
    bytes_of_texts.train_from_iterator(texts, _VOCABULARY, special_tokens=[*_SPECIAL], show_progress=False)
    inner = bytes_of_texts._tokenizer  # noqa: SLF001 - its documented place
    is_encoder = kind not in {"causal", "seq2seq"}
    names: dict[str, Any] = {"pad_token": _SPECIAL[_PAD_ID], "eos_token": _SPECIAL[_END_ID]}
    if is_encoder:
        names |= {"cls_token": _SPECIAL[_CLS_ID], "sep_token": _SPECIAL[_SEP_ID]}
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        ends = ((_SPECIAL[_SEP_ID], _SEP_ID), (_SPECIAL[_CLS_ID], _CLS_ID))
        inner.post_processor = tokenizers.processors.BertProcessing(*ends)
        names |= {"model_max_length": length, "model_input_names": inputs}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    _make_model(kind, length, len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _make_model(kind: str, length: int, vocabulary: int) -> Any:  # noqa: ANN401 - transformers ships no types
    import transformers

    common: dict[str, Any] = {"vocab_size": vocabulary, "pad_token_id": _PAD_ID}
    if kind == "causal":
        size = {"n_positions": length, "n_embd": 256, "n_layer": 4, "n_head": 4}
        config = transformers.GPT2Config(**common, **size, bos_token_id=_END_ID, eos_token_id=_END_ID)
        return transformers.GPT2LMHeadModel(config)
    if kind == "seq2seq":
        size = {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 3, "num_heads": 4}
        config = transformers.T5Config(**common, **size, eos_token_id=_END_ID, decoder_start_token_id=_PAD_ID)
        return transformers.T5ForConditionalGeneration(config)
    size = {"hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 512}
    config = transformers.BertConfig(**common, **size, max_position_embeddings=length, num_labels=1)
    if kind == "dual":
        return transformers.BertModel(config)
    return transformers.BertForSequenceClassification(config)
