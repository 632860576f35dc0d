"""The tests of PyTorch's distributed checkpoint and of torch_checkpointing over Headrace's storage: only
where HEADRACE_TORCH_TESTS names test/distributed/checkpoint of a checkout of PyTorch,
HEADRACE_TORCH_CHECKPOINTING a checkout of torch_checkpointing (no package has these tests)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch_checkpointing_tests
import torch_dcp

TORCH = os.environ.get("HEADRACE_TORCH_TESTS", "")
TORCH_CHECKPOINTING = os.environ.get("HEADRACE_TORCH_CHECKPOINTING", "")

pytestmark = pytest.mark.timeout(3000)


@pytest.mark.skipif(not TORCH, reason="HEADRACE_TORCH_TESTS names no directory of PyTorch's tests")
@pytest.mark.parametrize("package", ["headrace", "s3"])
def test_those_of_dcp_pass(package: str) -> None:
    status, output = torch_dcp.run(package, Path(TORCH), [])
    assert status == 0, output


@pytest.mark.skipif(
    not TORCH_CHECKPOINTING, reason="HEADRACE_TORCH_CHECKPOINTING names no checkout of torch_checkpointing"
)
def test_those_of_torch_checkpointing_pass() -> None:
    status, output = torch_checkpointing_tests.run("headrace", Path(TORCH_CHECKPOINTING), [])
    assert status == 0, output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model = FSDP(Net().cuda(dist.get_rank()))", "model = FSDP(Net())"),
        ('placements=["rank:0/cuda:0", f"rank:{r}/cuda:{r}"]', 'placements=["rank:0/cpu", f"rank:{r}/cpu"]'),
        ("torch.rand(8, device=self.rank)", 'torch.rand(8, device="cpu")'),
        ("f(device=self.ranks)", "f(device=self.ranks)"),
        ('return f"cpu:gloo,{self.device_type}:{backend}"', 'return f"gloo"'),
    ],
)
def test_nothing_asks_for_gpus(text: str, expected: str) -> None:
    assert torch_dcp.rewritten(text, "original").split("\n")[2] == expected


def test_what_cannot_run_is_no_storage_of_ours(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has none of PyTorch's tests"):
        torch_dcp.run("headrace", tmp_path, [])
