"""Models in GGUF files, the format of llama.cpp, read by transformers with the package gguf.

A GGUF file holds weights, configuration and tokenizer as plain data, and no code. Quantized weights
become ordinary tensors, with the values that llama.cpp computes with.
"""

from pathlib import Path
from typing import Any

from attnflow.errors import FileError, first_line
from attnflow.optional import import_optional


def load_gguf(name: str) -> tuple[Any, dict[str, Any]]:
    """Load the language model in a GGUF file.

    Returns the model and the report of transformers on missing weights.
    Raises FileError for a file that is missing or cannot be loaded, MissingDependencyError without
    the package gguf.
    """
    return _load(name, "AutoModelForCausalLM", output_loading_info=True)  # type: ignore[no-any-return]


def load_gguf_tokenizer(name: str) -> Any:
    """Load the tokenizer in a GGUF file. Raises as `load_gguf`."""
    return _load(name, "AutoTokenizer")


def _load(name: str, loader: str, **options: Any) -> Any:
    transformers = import_optional("transformers", "loading a model")
    import_optional("gguf", "reading GGUF files")
    path = Path(name)
    if not path.is_file():
        raise FileError(
            f"there is no file {name}",
            expected="a GGUF file",
            fix="Check the path. A model on the hub is given by its name, without a file.",
        )
    try:
        return getattr(transformers, loader).from_pretrained(
            str(path.parent), gguf_file=path.name, trust_remote_code=False, **options
        )
    except Exception as error:  # transformers raises many kinds of errors
        raise FileError(
            f"{name} cannot be loaded ({first_line(error)})",
            expected="a GGUF file of a language model that transformers knows",
            fix="Use the checkpoint with model.safetensors that the file was made from.",
        ) from error
