"""Chunks to message: the fold, partial JSON, and the projection of reserved parts."""

from pai.fold.errors import FoldError
from pai.fold.folding import Fold
from pai.fold.metadata import merge_metadata
from pai.fold.partial_json import parse_partial_json
from pai.fold.projection import Projection, project
from pai.fold.stream import fold, fold_sse

__all__ = [
    "Fold",
    "FoldError",
    "Projection",
    "fold",
    "fold_sse",
    "merge_metadata",
    "parse_partial_json",
    "project",
]
