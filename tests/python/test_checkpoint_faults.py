"""The fault matrix of checkpoints: every fault, at any point of a save, in each kind of place.

HEADRACE_LONG_TESTS=1 makes more than 20,000 runs of some 360. HEADRACE_FAULT_RUNS: so many draws a cell;
default 3, in the long set 320. HEADRACE_TEST_SEED: of the draws; default 0. -s tells how the runs ended.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from checkpoint_faults import (
    CALL_FAULTS,
    FILE_FAULTS,
    PLACES,
    REQUEST_FAULTS,
    UNREAD_FAULTS,
    Cell,
    Runner,
    Shape,
)

from headrace import sim as simulator

LONG = os.environ.get("HEADRACE_LONG_TESTS") == "1"
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "0"))

RUNS_PER_CELL = int(os.environ.get("HEADRACE_FAULT_RUNS", "320" if LONG else "3"))
KILL_SHAPES = max(1, RUNS_PER_CELL // 16)
"""Each with all its points, some 20 to 40."""

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.timeout(7200 if RUNS_PER_CELL > 3 else 300),
]

CELLS = [
    Cell(place, fault)
    for place in PLACES
    for fault in (
        *CALL_FAULTS,
        *((*FILE_FAULTS, *UNREAD_FAULTS) if place != "s3" else ()),
        *(REQUEST_FAULTS if place != "file" else ()),
    )
]
AT_ONCE = 8
"""Most of a run is waiting for a rank that is dead."""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "buckets" / "b").mkdir(parents=True)
    with simulator.Server(folder / "buckets", require_signature=False) as server:
        opened = Runner(folder, server)
        yield opened
        opened.close()
        print(f"\n{opened.ended.total()} runs; the furthest level that was told: {dict(opened.ended)}")


@pytest.mark.filterwarnings("ignore:.*cannot be proved:RuntimeWarning")
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_no_save_says_what_is_not_so(runner: Runner, cell: Cell) -> None:
    """Kills come at each point in turn; of the other faults' points some are drawn."""
    if cell.fault.startswith("kill"):
        runs = []
        for seed in range(SEED, SEED + KILL_SHAPES):
            shape = Shape.drawn(cell, seed)
            runs += [(shape, at, seed) for at in range(runner.points(cell, shape))]
    else:
        runs = []
        for seed in range(SEED, SEED + RUNS_PER_CELL):
            shape = Shape.drawn(cell, seed)
            at = random.Random(f"{cell} {seed} at").randrange(runner.points(cell, shape))
            runs.append((shape, at, seed))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda run: runner.run(cell, *run), runs))
