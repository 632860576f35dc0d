"""Models in Hugging Face's safetensors files (docs/checkpoints.md)."""

from headrace.checkpoint.safetensors.files import INDEX, SINGLE
from headrace.checkpoint.safetensors.reading import load
from headrace.checkpoint.safetensors.writing import save_sharded

__all__ = ["INDEX", "SINGLE", "load", "save_sharded"]
