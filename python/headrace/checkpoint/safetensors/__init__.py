"""Models in Hugging Face's safetensors files (docs/checkpoints.md)."""

from headrace.checkpoint.safetensors.files import INDEX, SINGLE
from headrace.checkpoint.safetensors.reading import load

__all__ = ["INDEX", "SINGLE", "load"]
