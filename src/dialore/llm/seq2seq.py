"""A Hugging Face sequence-to-sequence model run in this process (the `local` extra): Cosmo, Flan-T5, BlenderBot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError, MissingExtraError, ModelError
from dialore.llm.batching import BatchedModel, first_line
from dialore.llm.generation import continued_stops, plain_text
from dialore.llm.local import LocalModel

if TYPE_CHECKING:
    from dialore.llm.model import Completion, LanguageModel, OnText, Request
    from dialore.llm.wire import Api


class LocalSeq2Seq(BatchedModel):
    """An encoder-decoder model of Hugging Face transformers, loaded when first called.

    The encoder reads the request's continuation, else a plain transcript of its messages; the decoder samples as the
    request says, never by beams. How requests wait and are batched, and the arguments: `BatchedModel`.
    """

    _loader = "AutoModelForSeq2SeqLM"
    _padding = "right"

    def _encode(self, tokenizer: Any, requests: list[Request]) -> tuple[Any, tuple[str, ...]]:  # noqa: ANN401
        first = requests[0]
        stop = first.sampling.stop if first.continuation is None else continued_stops(first)
        return tokenizer([plain_text(request) for request in requests], return_tensors="pt", padding=True), stop

    def _continue(self, loaded: tuple[Any, Any], inputs: Any, request: Request, **settings: Any) -> Any:  # noqa: ANN401
        if request.steering is not None:
            raise ModelError(
                f"{self.name} is a sequence-to-sequence model, whose decoding cannot be steered",
                mend="name a causal model: --model hf:NAME",
                configuration=True,
            )
        return super()._continue(loaded, inputs, request, **settings)

    def _bounds(self, config: Any, width: int, wanted: int) -> tuple[int, int]:  # noqa: ANN401
        # Encoder and decoder each have this many places; models of relative positions (T5) name no number.
        most = getattr(config, "max_position_embeddings", None)
        if not isinstance(most, int):
            return 1, wanted
        if width > most:
            raise ModelError(f"the prompt has {width} tokens, {self.name} reads {most}", mend="shorten the prompt")
        return 1, min(wanted, most - 1)


class LocalByConfig:
    """A local model of the kind that its configuration says, which is read with the first request.

    Args:
        name_or_path: a model of the hub, or a folder.
        api: as `LocalModel` takes it; a sequence-to-sequence model always gets plain text.
    """

    def __init__(self, name_or_path: str, *, api: Api = "chat") -> None:
        self.name = name_or_path
        self._api = api
        self._chosen: LanguageModel | None = None
        self._choosing = asyncio.Lock()

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request; raises as `BatchedModel` does."""
        async with self._choosing:
            if self._chosen is None:
                seq2seq = await asyncio.to_thread(is_encoder_decoder, self.name)
                self._chosen = LocalSeq2Seq(self.name) if seq2seq else LocalModel(self.name, api=self._api)
        return await self._chosen.complete(request, on_text)

    async def close(self) -> None:
        """Let the model's memory go."""
        if self._chosen is not None:
            await self._chosen.close()


def is_encoder_decoder(name_or_path: str) -> bool:
    """Whether a model's configuration says that it is a sequence-to-sequence model.

    Raises:
        MissingExtraError: transformers is not installed.
        InputError: there is no such model.
    """
    try:
        import torch  # noqa: F401 - without it there is no need to fetch anything
        import transformers
    except ImportError:
        raise MissingExtraError("a local model", "local") from None
    try:
        config: dict[str, Any]
        config, _ = transformers.PretrainedConfig.get_config_dict(name_or_path)
        if "is_encoder_decoder" in config:
            return bool(config["is_encoder_decoder"])
        return bool(transformers.AutoConfig.from_pretrained(name_or_path).is_encoder_decoder)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot load the model {name_or_path}: {first_line(error)}", mend="check its name, device and dtype"
        ) from error
