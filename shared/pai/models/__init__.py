"""The model step: one provider call in, AI SDK chunks out. Importing this package imports no provider library."""

from pai.models.demo import DemoModel
from pai.models.errors import ModelError, ModelErrorCode
from pai.models.model import (
    Chunk,
    FinishReason,
    Model,
    ModelRequest,
    ModelResult,
    ModelStream,
    ToolDefinition,
)
from pai.models.resolve import ModelOptions, resolve_model
from pai.models.scripted import ScriptedModel, Turn, says

__all__ = [
    "Chunk",
    "DemoModel",
    "FinishReason",
    "Model",
    "ModelError",
    "ModelErrorCode",
    "ModelOptions",
    "ModelRequest",
    "ModelResult",
    "ModelStream",
    "ScriptedModel",
    "ToolDefinition",
    "Turn",
    "resolve_model",
    "says",
]
