"""States that cannot be saved as they are, and states to fill that are not like what was saved: told, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.checkpoint import Checkpointer

torch = pytest.importorskip("torch")


class Two(torch.Tensor):  # type: ignore[misc]
    """Keeps its numbers in two other tensors, as quantized weights of others do."""

    @staticmethod
    def __new__(cls, one: Any, other: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, one.shape, dtype=one.dtype)

    def __init__(self, one: Any, other: Any) -> None:
        self.one, self.other = one, other

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [each.one if isinstance(each, Two) else each for each in args]
        return function(*args, **(kwargs or {}))


def nested() -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            lambda: Two(torch.ones(5000), torch.ones(5000)),
            r"x: is a .*\.Two, which keeps its numbers in other",
        ),
        (lambda: torch.eye(3).to_sparse(), "x: is a torch.sparse_coo tensor; save its indices and values"),
        (lambda: torch.eye(3).to_sparse_csr(), "x: is a torch.sparse_csr tensor"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), "x: is quantized"),
        (nested, "x: is a nested tensor"),
        (lambda: torch.ones(3, device="meta"), "x: is on the meta device"),
        (lambda: np.ma.masked_array([1.0, 2.0], [True, False]), "x: is a masked array"),
        (lambda: "caf\udce9", r"state\['x'\] has text with a half of a surrogate pair"),
        (lambda: {"\udce9": 1}, r"state\['x'\] has text with a half of a surrogate pair"),
        (lambda: 10**5000, r"state\['x'\] has an integer of 16610 bits"),
    ],
)
def test_what_cannot_be_saved_is_told_before_anything_is_written(
    tmp_path: Path, value: Any, says: str
) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        with pytest.raises(hr.InvalidArgumentError, match=says):
            checkpointer.save(1, {"w": torch.ones(3), "x": value()})
        assert not list(tmp_path.glob("saves/*"))
        checkpointer.save(2, {"w": torch.ones(3)}).result()


def test_metadata_that_utf8_cannot_say_is_an_error(tmp_path: Path) -> None:
    with (
        Checkpointer(tmp_path) as checkpointer,
        pytest.raises(hr.InvalidArgumentError, match="metadata= cannot"),
    ):
        checkpointer.save(1, {"w": np.ones(3)}, metadata={"file": "caf\udce9"})


def test_tensors_without_memory_of_their_own_are_not_filled(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"x": torch.ones(5000)}).result()
        with pytest.raises(hr.InvalidArgumentError, match="keeps its numbers in other tensors"):
            checkpointer.load(into={"x": Two(torch.zeros(5000), torch.zeros(5000))})


ARRAY = np.ones(3)


@pytest.mark.parametrize(
    ("saved", "into", "says"),
    [
        (
            {},
            {"sched": {"last": 7}},
            r"state\['sched'\]\['last'\] is not in it|state\['sched'\] is not in it",
        ),
        ({}, {"step": 0}, r"state\['step'\] is not in it"),
        ({"a": (ARRAY, 5)}, {"a": [ARRAY, 0]}, r"state\['a'\] is a list of 2 here, and a tuple of 2 there"),
        ({"a": [ARRAY, 5]}, {"a": [ARRAY, 1, 2]}, r"state\['a'\] is a list of 3 here, and a list of 2 there"),
        ({"a": {"b": {}}}, {"a": {"b": {"c": None}}}, r"state\['a'\]\['b'\]\['c'\] is not in it"),
    ],
)
def test_what_would_stay_as_it_is_is_told(tmp_path: Path, saved: Any, into: Any, says: str) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"w": np.full(3, 7.0), **saved}).result()
        with pytest.raises(hr.InvalidArgumentError, match=f"{says}.*partial=True"):
            checkpointer.load(into={"w": np.zeros(3), **into})
        assert checkpointer.load(into={"w": np.zeros(3), **into}, partial=True)["w"].tolist() == [7, 7, 7]


def test_values_that_only_the_checkpoint_has_are_in_the_result(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"w": np.ones(3), "step": 7, "list": [1, 2, 3], "none": {"a": 1}}).result()
        state = checkpointer.load(into={"w": np.zeros(3), "list": [], "none": {}, "empty": {}})
        assert (state["step"], state["list"], state["none"], state["empty"]) == (7, [1, 2, 3], {"a": 1}, {})


class Scheduler:
    def __init__(self, **values: int) -> None:
        self.values = values

    def state_dict(self) -> dict[str, int]:
        return dict(self.values)

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.values = state


def test_an_object_may_have_more_than_it_had_when_it_was_saved(tmp_path: Path) -> None:
    """A scheduler of a newer library; but one that was not saved at all is told."""
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"w": np.ones(3), "sched": Scheduler(last=5)}).result()
        newer = Scheduler(last=0, new=1)
        checkpointer.load(into={"w": np.zeros(3), "sched": newer})
        assert newer.values == {"last": 5, "new": 1}
        with pytest.raises(hr.InvalidArgumentError, match=r"state\['other'\] is not in it"):
            checkpointer.load(into={"w": np.zeros(3), "sched": newer, "other": Scheduler(a=1)})
