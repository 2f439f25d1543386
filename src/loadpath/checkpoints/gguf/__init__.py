"""GGUF files → shapes and stored tensors: the metadata and the tensor table, never the weights."""

from loadpath.checkpoints.gguf.file import GgufFile, checkpoint_of, read
from loadpath.checkpoints.gguf.shape import shape_of

__all__ = ["GgufFile", "checkpoint_of", "read", "shape_of"]
