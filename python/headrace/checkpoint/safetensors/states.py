"""States as this format has them: arrays by name, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.checkpoint.tree import is_array
from headrace.errors import InvalidArgumentError

__all__ = ["as_bytes", "as_float4", "is_float4", "values_of"]


def values_of(state: Any) -> dict[str, Any]:
    """Of a model or a mapping. Raises InvalidArgumentError for what is no array."""
    if not isinstance(state, Mapping) and hasattr(state, "state_dict"):
        state = state.state_dict()
    if not isinstance(state, Mapping):
        raise InvalidArgumentError(f"{type(state).__name__}: expected a model, or arrays by name")
    for name, value in state.items():
        if not isinstance(name, str) or not is_array(value):
            raise InvalidArgumentError(
                f"state[{name!r}] is a {type(value).__module__}.{type(value).__qualname__}; safetensors "
                "files have arrays by name and nothing else: give state['model'], or what of the state they "
                "shall have"
            )
    return dict(state)


def is_float4(value: Any) -> bool:
    """Whether it is torch's pairs of 4-bit floats, of which safetensors counts each."""
    return str(getattr(value, "dtype", "")) == "torch.float4_e2m1fn_x2"


def as_bytes(value: Any) -> Any:
    """Of torch's pairs of 4-bit floats: their bytes; anything else as it is."""
    if not is_float4(value):
        return value
    import torch

    return value.view(torch.uint8)


def as_float4(value: Any) -> Any:
    """Bytes as torch's pairs of 4-bit floats; those of numpy, which has no such thing, stay."""
    if not hasattr(value, "untyped_storage"):
        return value
    import torch

    return value.view(torch.float4_e2m1fn_x2)
