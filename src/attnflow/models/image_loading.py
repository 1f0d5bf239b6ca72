"""A vision model, its image processor and what it predicts, from an object, a folder or a hub name.

The rules are those of `attnflow.models.checkpoint`: weights from safetensors only, and no code that
a checkpoint brings along.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from attnflow.errors import FileError, InputError
from attnflow.minilm.folders import find_adapter
from attnflow.models.checkpoint import (
    Task,
    class_names,
    first_line,
    import_transformers,
    read_config,
    refuse_remote_code,
    require_safetensors,
    warn_of_missing,
)
from attnflow.models.loading import LoadedModel
from attnflow.verb_number.folders import find_folder

PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True, eq=False)
class LoadedImageModel:
    """A vision model ready to be explained.

    model: called with pixel_values, in evaluation mode. processor: makes these from pictures.
    task: "classifier", or "encoder", which predicts nothing. name: what it was loaded from.
    """

    model: Any
    processor: Any
    task: Task
    name: str

    @property
    def config(self) -> Any:
        """The configuration of the vision model; of a model with several parts, that of this."""
        config: Any = getattr(self.model, "config", None)
        return getattr(config, "vision_config", None) or config

    @property
    def predicting(self) -> LoadedModel:
        """The model as `attnflow.models.predicting` takes it."""
        return LoadedModel(self.model, self.processor, self.task, self.name, None)


def load_image_model(model: Any, processor: Any = None) -> LoadedImageModel:
    """Load a vision model and its image processor, and find out what it predicts.

    model: a transformers model (put into evaluation mode), a folder, a name on the hub, or a
    LoadedImageModel, which is given back.
    processor: an object, a folder or a name; where the model came from if not given.
    Raises FileError for a checkpoint that is missing, has no safetensors weights or needs its own
    code, InputError if no processor is named. Warns if weights are missing.
    """
    if isinstance(model, LoadedImageModel):
        return model
    if isinstance(model, str | Path):
        _refuse_text_model(str(model))
    import_transformers("loading a model")
    if isinstance(model, str | Path):
        name, origin = str(model), str(model)
        task, loaded = _load_checkpoint(name)
    else:
        if not callable(getattr(model, "forward", None)):
            raise InputError(
                f"model is a {type(model).__name__}; expected a vision model of transformers, a "
                "folder or a name on the hub. Give one of these."
            )
        loaded = model
        origin = str(getattr(model, "name_or_path", "") or "")
        name = origin or type(model).__name__
        task = _task_of([kind.__name__ for kind in type(model).__mro__])
    _refuse_two_towers(name, loaded)
    loaded.eval()
    if processor is None and not origin:
        raise InputError(
            f"no image processor was given, and the {name} does not say where it came from; "
            "expected one with such a model. Name it with processor=..."
        )
    if processor is None or isinstance(processor, str | Path):
        processor = load_processor(str(processor or origin))
    return LoadedImageModel(loaded, processor, task, name)


def _refuse_text_model(name: str) -> None:
    """Raise InputError for the models that come with attnflow, or are trained by it."""
    if find_folder(name) is not None or find_adapter(name) is not None:
        raise InputError(
            f"{name} is a text model; expected a vision model. For texts, use attnflow explain."
        )


def _refuse_two_towers(name: str, model: Any) -> None:
    config = getattr(model, "config", None)
    if hasattr(config, "text_config") and callable(getattr(model, "get_text_features", None)):
        raise InputError(
            f"{name} is a model of pictures and texts; expected one of pictures alone. Give its "
            "vision part, such as CLIPVisionModel.from_pretrained(...), with processor=..."
        )


def _load_checkpoint(name: str) -> tuple[Task, Any]:
    transformers = import_transformers("loading a model")
    config = read_config(name)
    refuse_remote_code(name, config)
    require_safetensors(name)
    task = _task_of(config.get("architectures") or [])
    loader = "AutoModelForImageClassification" if task == "classifier" else "AutoModel"
    try:
        model, found = getattr(transformers, loader).from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # transformers raises whatever its parts raise
        raise FileError(
            f"{name} cannot be loaded ({first_line(error)}); expected a vision model as "
            "model.save_pretrained writes it. Check the folder, or save it again."
        ) from error
    warn_of_missing(name, task, found["missing_keys"])
    return task, model


def _task_of(classes: list[str]) -> Task:
    """Whether the first known class of these is one that classifies images."""
    tables = import_module("transformers.models.auto.modeling_auto")
    names = class_names(tables.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)
    return "classifier" if any(name in names for name in classes) else "encoder"


def load_processor(name: str) -> Any:
    """Load an image processor from a folder or by its name on the hub.

    Raises FileError if there is none.
    """
    transformers = import_transformers("loading an image processor")
    folder = Path(name)
    if folder.is_dir() and not any((folder / file).is_file() for file in PROCESSOR_FILES):
        raise FileError(
            f"the folder {name} has no image processor; expected preprocessor_config.json. "
            "Write it there with processor.save_pretrained, or name it with processor=..."
        )
    try:
        # The same pixels with and without torchvision.
        return transformers.AutoImageProcessor.from_pretrained(
            name, backend="pil", trust_remote_code=False
        )
    except Exception as error:  # transformers raises whatever its parts raise
        raise FileError(
            f"no image processor can be loaded from {name} ({first_line(error)}); expected a "
            "folder or name that has one. Name it with processor=..."
        ) from error
