"""A Hugging Face causal language model run in this process (the `local` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dialore.llm.batching import BatchedModel
from dialore.llm.chat_template import ChatTemplates
from dialore.llm.generation import continued_stops, is_continued, prompt_text, room_for

if TYPE_CHECKING:
    from dialore.llm.model import Request
    from dialore.llm.wire import Api


class LocalModel(BatchedModel):
    """A causal language model of Hugging Face transformers, loaded when first called.

    Prompts go through the tokenizer's chat template, rearranged where it takes no system message or wants roles to
    alternate (see `dialore.llm.chat_template`); where it has none, the request's continuation is continued, or a plain
    transcript. How requests wait and are batched: `BatchedModel`. A request's steering is followed (see
    `dialore.llm.steering`), one such request at a time.

    Args:
        name_or_path: a model of the hub, or a folder.
        device: `auto` for a GPU if there is one, else `cpu`, `cuda`, `cuda:1`, `mps`.
        dtype: `auto` for the model's own, else `float32`, `bfloat16`, `float16`.
        batch: the most requests generated together.
        api: `completions` continues plain text even where there is a chat template.
    """

    _loader = "AutoModelForCausalLM"
    _padding = "left"

    def __init__(
        self, name_or_path: str, *, device: str = "auto", dtype: str = "auto", batch: int = 8, api: Api = "chat"
    ) -> None:
        super().__init__(name_or_path, device=device, dtype=dtype, batch=batch)
        self._api = api
        self._templates = ChatTemplates()

    def _load(self) -> tuple[Any, Any]:
        tokenizer, model = super()._load()
        if self._api == "completions":
            tokenizer.chat_template = None
        return tokenizer, model

    def _encode(self, tokenizer: Any, requests: list[Request]) -> tuple[Any, tuple[str, ...]]:  # noqa: ANN401
        first = requests[0]
        continued = is_continued(tokenizer, first)
        stop = continued_stops(first) if continued and first.continuation is not None else first.sampling.stop
        prompts = [prompt_text(tokenizer, request, self._templates) for request in requests]
        return tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=continued), stop

    def _bounds(self, config: Any, width: int, wanted: int) -> tuple[int, int]:  # noqa: ANN401
        return width, room_for(getattr(config, "max_position_embeddings", None), width, wanted)

    def _continue(self, loaded: tuple[Any, Any], inputs: Any, request: Request, **settings: Any) -> Any:  # noqa: ANN401
        if request.steering is None:
            return super()._continue(loaded, inputs, request, **settings)
        from dialore.llm.steering import generate_steered

        return generate_steered(
            loaded,
            inputs["input_ids"],
            request.steering,
            request.sampling,
            settings["max_new_tokens"],
            settings["streamer"],
            settings["stopping_criteria"][0],
        )
