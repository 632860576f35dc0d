"""What a state gives on a batch that never changes, when it was saved and after it was loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.checkpoint import Checkpointer


@pytest.fixture
def checkpointer(tmp_path: Path) -> Iterator[Checkpointer]:
    with Checkpointer(tmp_path) as made:
        yield made


def with_reference(checkpointer: Checkpointer, reference: Any) -> Checkpointer:
    checkpointer.save(1, {"x": 1}, metadata={"reference": reference}).result()
    checkpointer.load()
    return checkpointer


def test_what_is_computed_from_it_is_compared(checkpointer: Checkpointer) -> None:
    with_reference(checkpointer, {"loss": 2.5, "grad_norm": 0.25})
    checkpointer.check_reference({"loss": 2.5, "grad_norm": np.float32(0.25)})
    checkpointer.check_reference({"loss": 2.501, "grad_norm": 0.25})
    with pytest.raises(
        hr.ChangedError, match=r"step 1: on rank 0 loss is 2.52, and was 2.5 when it was saved\. It does not"
    ):
        checkpointer.check_reference({"loss": 2.52, "grad_norm": 0.25})
    checkpointer.check_reference({"loss": 2.52, "grad_norm": 0.25}, rtol=0.01)
    with pytest.warns(RuntimeWarning, match="grad_norm is nan, and was 0.25"):
        checkpointer.check_reference({"loss": 2.5, "grad_norm": np.nan}, on_difference="warn")
    checkpointer.save(2, {"x": 2}, metadata={"reference": {"loss": 7}}).result()
    checkpointer.check_reference({"loss": 7.0}, step=2)


def test_a_reference_that_cannot_be_compared(checkpointer: Checkpointer) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="nothing was loaded yet"):
        checkpointer.check_reference({"loss": 1.0})
    checkpointer.save(7, {"x": 1}).result()
    with pytest.raises(hr.NotFoundError, match="step 7: was saved without a reference"):
        checkpointer.check_reference({"loss": 1.0}, step=7)
    with_reference(checkpointer, {"loss": 1.0})
    with pytest.raises(hr.InvalidArgumentError, match="reference has loss, and grad, loss were measured"):
        checkpointer.check_reference({"loss": 1.0, "grad": 1.0})
    with pytest.raises(hr.InvalidArgumentError, match="expected 'error' or 'warn'"):
        checkpointer.check_reference({"loss": 1.0}, on_difference="no")  # type: ignore[arg-type]
    checkpointer.save(3, {"x": 3}, metadata={"reference": {"loss": "low"}}).result()
    with pytest.raises(hr.InvalidArgumentError, match="and not a number for each name"):
        checkpointer.check_reference({"loss": 1.0}, step=3)
