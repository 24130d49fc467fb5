"""Likelihoods from a Hugging Face causal language model run in this process (the `local` extra)."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError, MissingExtraError, ModelError
from dialore.llm.perplexity import Likelihood, check_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dialore.llm.perplexity import Scored

_AHEAD = 16
"""Batches whose texts are sorted by length together, so that little is padded."""


class LocalLikelihood:
    """Exact log-likelihoods of a causal model of transformers, loaded when first asked, in batches, in a thread.

    Context and text are cut into tokens as one string; a token that begins in the context and ends in the text counts
    as the text's. A context that is too long for the model loses its beginning.

    Args:
        name_or_path: a model of the hub, or a folder.
        device: `auto` for a GPU if there is one, else `cpu`, `cuda`, `cuda:1`, `mps`.
        dtype: `auto` for the model's own, else `float32`, `bfloat16`, `float16`.
        batch: texts scored together.
    """

    def __init__(self, name_or_path: str, *, device: str = "auto", dtype: str = "auto", batch: int = 16) -> None:
        self.name = name_or_path
        self._device, self._dtype, self._batch = device, dtype, max(1, batch)
        self._loaded: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    async def score(
        self, pairs: Sequence[Scored], on_step: Callable[[int, int], None] | None = None
    ) -> list[Likelihood]:
        """The likelihood of each text given its context; see `LikelihoodModel.score`."""
        check_pairs(pairs)
        found: list[Likelihood] = []
        size = self._batch * _AHEAD
        for start in range(0, len(pairs), size):
            found += await asyncio.to_thread(self._score, pairs[start : start + size])
            if on_step is not None:
                on_step(len(found), len(pairs))
        return found

    async def close(self) -> None:
        """Let the model's memory go."""
        self._loaded = None

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is not None:
            return self._loaded
        try:
            import torch
            import transformers
        except ImportError:
            raise MissingExtraError("perplexity by a local model", "local") from None
        device = self._device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        try:
            dtype = "auto" if self._dtype == "auto" else getattr(torch, self._dtype)
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.name)
            model: Any = transformers.AutoModelForCausalLM.from_pretrained(self.name, dtype=dtype)
            self._loaded = tokenizer, model.to(device).eval()
        except (OSError, ValueError, AttributeError, RuntimeError) as error:
            why = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
            raise InputError(
                f"cannot load the model {self.name}: {why}", mend="check its name, device and dtype"
            ) from error
        return self._loaded

    def _score(self, pairs: Sequence[Scored]) -> list[Likelihood]:
        # One at a time: they would load a model each, and fast tokenizers cannot be used by two threads at once.
        with self._lock:
            return self._score_alone(pairs)

    def _score_alone(self, pairs: Sequence[Scored]) -> list[Likelihood]:
        cut = [self._cut(pair) for pair in pairs]
        order = sorted(range(len(cut)), key=lambda place: len(cut[place][0]))
        found: dict[int, Likelihood] = {}
        for start in range(0, len(order), self._batch):
            places = order[start : start + self._batch]
            found.update(zip(places, self._batch_scores([cut[place] for place in places]), strict=True))
        return [found[place] for place in range(len(pairs))]

    def _cut(self, pair: Scored) -> tuple[list[int], int]:
        """The tokens of a pair, and the place of the text's first one that has a probability."""
        tokenizer, model = self._load()
        whole, border = f"{pair.context}{pair.text}", len(pair.context)
        if tokenizer.is_fast:
            encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
            tokens = list(encoded["input_ids"])
            first = next((place for place, (_, end) in enumerate(encoded["offset_mapping"]) if end > border), 0)
        else:
            tokens = tokenizer.encode(whole, add_special_tokens=False)
            first = len(tokenizer.encode(pair.context, add_special_tokens=False)) if pair.context else 0
        if tokenizer.bos_token_id is not None:
            tokens, first = [tokenizer.bos_token_id, *tokens], first + 1
        most = getattr(model.config, "max_position_embeddings", None)
        if isinstance(most, int) and len(tokens) > most:
            dropped = len(tokens) - most
            if dropped >= first:
                raise ModelError(
                    f"a text of {len(tokens) - first} tokens is too long: {self.name} takes {most}",
                    mend="score shorter texts",
                )
            tokens, first = tokens[dropped:], first - dropped
        return tokens, max(first, 1)

    def _batch_scores(self, cut: Sequence[tuple[list[int], int]]) -> list[Likelihood]:
        import torch

        _, model = self._load()
        width = max(len(tokens) for tokens, _ in cut)
        # Padding comes after a text, where a causal model cannot see it.
        ids = torch.zeros((len(cut), width), dtype=torch.long)
        mask = torch.zeros((len(cut), width), dtype=torch.long)
        for row, (tokens, _) in enumerate(cut):
            ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
            mask[row, : len(tokens)] = 1
        ids, mask = ids.to(model.device), mask.to(model.device)
        try:
            with torch.inference_mode():
                logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
                chosen = logits.gather(2, ids[:, 1:, None])[..., 0] - logits.logsumexp(dim=-1)
        except RuntimeError as error:
            raise ModelError(f"{self.name} failed to score: {error}"[:300], mend="lower the batch") from error
        rows = chosen.double().cpu()
        return [
            Likelihood(float(rows[row, first - 1 : len(tokens) - 1].sum()), max(0, len(tokens) - first))
            for row, (tokens, first) in enumerate(cut)
        ]
