"""Decoding that can end in nothing but JSON of a schema."""

from __future__ import annotations

import json

import pytest

from dialore.llm.capabilities import strict_schema
from dialore.llm.local import Constrained
from dialore.llm.structured import output_schema
from dialore.methods.dcrag import SelectedFacts, ThoughtRevision
from dialore.methods.edit import Better
from dialore.methods.scg_qp import SearchDecision
from dialore.methods.weave import Need, Needs

llguidance = pytest.importorskip("llguidance.hf")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

VALUES = [
    SelectedFacts(selected=[3, 11]),
    SelectedFacts(selected=[]),
    Needs(needs=[Need(what='a "b"', source="web", query="c\n", asked=True)], topics=["茶"]),
    Needs(),
    SearchDecision(kind="none"),
    Better(better="B"),
    ThoughtRevision(**{name: "x" if name.endswith("_thoughts") else [] for name in ThoughtRevision.model_fields}),
]


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer of bytes."""
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(["a needs b"], 300, special_tokens=["<pad>", "</s>"], show_progress=False)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, pad_token="<pad>", eos_token="</s>"
    )


@pytest.fixture(scope="module")
def vocabulary(tokenizer):
    # Models score more tokens than there are.
    return llguidance.from_tokenizer(tokenizer, n_vocab=len(tokenizer) + 3, eos_token=[tokenizer.eos_token_id])


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_a_stage_puts_out_can_be_written_and_nothing_else(value, tokenizer, vocabulary):
    processor = Constrained(vocabulary, strict_schema(output_schema(type(value))), 2)
    answer = tokenizer(value.model_dump_json())["input_ids"]
    scores = torch.zeros(1, len(tokenizer) + 3)
    for place, token in enumerate([*answer, tokenizer.eos_token_id]):
        allowed = processor(torch.tensor([[7, 7, *answer[:place]]]), scores)[0] == 0
        assert allowed[token]
        assert allowed[tokenizer.eos_token_id] == (place == len(answer))
        assert not allowed[len(tokenizer) :].any()
        if place == 0:
            assert not allowed[tokenizer("S")["input_ids"][0]]


def test_the_likeliest_answers_of_a_batch_are_json_of_the_schema(tokenizer, vocabulary):
    schema = strict_schema(output_schema(Better))
    processor, generator = Constrained(vocabulary, schema, 0), torch.Generator().manual_seed(0)
    rows = torch.zeros(3, 0, dtype=torch.long)
    ended = torch.zeros(3, dtype=torch.bool)
    while not ended.all():
        scores = torch.rand(3, len(tokenizer) + 3, generator=generator)
        tokens = processor(rows, scores).argmax(dim=1).masked_fill(ended, tokenizer.pad_token_id)
        ended |= tokens == tokenizer.eos_token_id
        rows = torch.cat([rows, tokens[:, None]], dim=1)
        assert rows.shape[1] < 400
    for row in rows.tolist():
        answer = json.loads(tokenizer.decode(row, skip_special_tokens=True))
        assert Better.model_validate(answer).model_dump() == answer
