"""headrace.torch.Loader in the workers of DataLoaders: the same batches, in the same order, with the same
state as without."""

from __future__ import annotations

import gc
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

torch = pytest.importorskip("torch")

import worker_functions as functions  # noqa: E402
from framework_ranks import LONG  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import headrace.torch  # noqa: E402
from headrace.loader.relay.relay import Group, Relay  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks"),
]

OPTIONS: dict[str, Any] = {"batch_size": 32, "memory": "64MiB", "block_bytes": "64KiB", "seed": 1}
BATCHES = 32  # An epoch of the 1,000 numbers.


@pytest.fixture
def loader(numbers: Path) -> Iterator[headrace.torch.Loader]:
    with headrace.torch.Loader(numbers, **OPTIONS) as opened:
        yield opened


def around(loader: Any, workers: int, method: str = "fork", **more: Any) -> Any:
    return DataLoader(loader, batch_size=None, num_workers=workers, multiprocessing_context=method, **more)


def planned(loader: Any, epochs: int = 1) -> list[list[int]]:
    return [ids.tolist() for epoch in range(epochs) for ids in loader.sample_ids(epoch)]


def take(batches: Iterator[Any], count: int) -> list[list[int]]:
    return [batch.ids.tolist() for batch in itertools.islice(batches, count)]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_batches_and_their_order_are_those_without_workers(
    loader: Any, numbers: Path, workers: int, persistent: bool
) -> None:
    inside = around(loader, workers, persistent_workers=persistent)
    assert len(inside) == BATCHES
    with headrace.torch.Loader(numbers, **OPTIONS) as plain:
        for _ in range(3):
            for ours, theirs in zip(inside, plain, strict=True):
                assert torch.equal(ours["x"], theirs["x"])
                assert torch.equal(ours.ids, theirs.ids)
                assert torch.equal(ours.mask, theirs.mask)
                assert (ours["t"], ours.epoch, ours.index) == (theirs["t"], theirs.epoch, theirs.index)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_it_makes_no_difference_how_workers_start(loader: Any, method: str) -> None:
    inside = around(loader, 2, method, persistent_workers=True)
    expected = planned(loader, 2)
    assert take(iter(inside), 10) == expected[:10]
    assert loader.state_dict()["batches"] == 10
    assert take(iter(inside), 100) == expected[10:BATCHES]
    assert take(iter(inside), 5) == expected[BATCHES : BATCHES + 5]


def test_workers_may_begin_before_the_others_are_started(
    loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Group.add

    def start_late(group: Group) -> Any:
        """When the workers before have begun and got what they may have."""
        while group.channels and not group.loops:
            pass
        with group._relay._driving:
            return start(group)

    monkeypatch.setattr(Group, "add", start_late)
    assert take(iter(around(loader, 3)), 100) == planned(loader, 1)


@pytest.mark.parametrize(
    ("move", "first"),
    [
        (lambda loader: loader.reset(), 0),
        (lambda loader: loader.set_epoch(1), BATCHES),
        (lambda loader: loader.load_state_dict(loader.state_dict()), 1),
    ],
    ids=["reset", "set_epoch", "load_state_dict"],
)
def test_a_worker_may_start_when_the_others_are_in_the_next_loop(
    loader: Any, monkeypatch: pytest.MonkeyPatch, move: Callable[[Any], None], first: int
) -> None:
    may_start = multiprocessing.get_context("fork").Event()
    begin = Relay._begin

    def begin_and_tell(relay: Relay, group: Group, *what: Any) -> None:
        begin(relay, group, *what)
        if len(group.loops) == 2:
            may_start.set()

    def start(worker: int) -> None:
        if worker == 1:
            may_start.wait(60)

    monkeypatch.setattr(Relay, "_begin", begin_and_tell)
    expected = planned(loader, 2)
    inside = around(loader, 2, persistent_workers=True, worker_init_fn=start, timeout=20)
    assert take(iter(inside), 1) == expected[:1]
    move(loader)
    assert take(iter(inside), BATCHES - first % BATCHES) == expected[first:][: BATCHES - first % BATCHES]


@pytest.mark.parametrize("epoch_end", ["drop", "uneven", "pad"])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_last_batch_is_as_asked(numbers: Path, epoch_end: str, rank: int) -> None:
    options = {**OPTIONS, "batch_size": 37, "rank": rank, "world_size": 2, "epoch_end": epoch_end}
    with (
        headrace.torch.Loader(numbers, **options) as loader,
        headrace.torch.Loader(numbers, **options) as plain,
    ):
        inside = [(b.ids.tolist(), b.mask.tolist()) for b in around(loader, 3)]
        assert inside == [(b.ids.tolist(), b.mask.tolist()) for b in plain]


@pytest.mark.parametrize("persistent", [False, True])
def test_the_state_counts_what_the_loop_received(loader: Any, numbers: Path, persistent: bool) -> None:
    """After every batch it is the state of a loader without workers, though these are ahead."""
    inside = around(loader, 2, persistent_workers=persistent)
    with headrace.torch.Loader(numbers, **OPTIONS) as plain:
        for _ in range(2):
            for _ in zip(inside, plain, strict=True):
                assert loader.state_dict() == plain.state_dict()
                assert (loader.epoch, loader.batches_left) == (plain.epoch, plain.batches_left)
            assert loader.state_dict() == plain.state_dict()


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_that_is_left_is_gone_on_with_by_the_next(loader: Any, persistent: bool) -> None:
    inside = around(loader, 3, persistent_workers=persistent, prefetch_factor=4)
    received: list[list[int]] = []
    for count in (1, 0, 5, 7, 100, 3, 100):
        received += take(iter(inside), count)
    assert received == planned(loader, 2)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_run_goes_on_from_any_batch_with_any_number_of_workers(numbers: Path, workers: int) -> None:
    with headrace.torch.Loader(numbers, **OPTIONS) as loader:
        expected = planned(loader, 2)
    for stop in (0, 1, 2, 3, 31, 32, 33):
        with headrace.torch.Loader(numbers, **OPTIONS) as loader:
            inside = around(loader, workers)
            received = list(
                itertools.chain.from_iterable(
                    take(iter(inside), n) for n in (min(stop, 32), max(stop - 32, 0))
                )
            )
            state = json.loads(json.dumps(loader.state_dict()))
        with headrace.torch.Loader(numbers, **OPTIONS) as loader:
            loader.load_state_dict(state)
            inside = around(loader, 3 - workers if workers < 3 else 2)
            while len(received) < 2 * BATCHES:
                received += take(iter(inside), 100)
        assert received == expected, stop


@pytest.mark.parametrize("persistent", [False, True])
def test_the_position_may_change_between_loops(loader: Any, persistent: bool) -> None:
    inside = around(loader, 2, persistent_workers=persistent)
    expected = planned(loader, 6)
    take(iter(inside), 3)
    state = loader.state_dict()
    take(iter(inside), 4)
    loader.set_epoch(5)
    assert take(iter(inside), 2) == expected[5 * BATCHES : 5 * BATCHES + 2]
    loader.load_state_dict(state)
    assert take(iter(inside), 100) == expected[3:BATCHES]
    assert take(iter(loader), 4) == expected[BATCHES : BATCHES + 4], "the loader itself goes on as well"
    assert take(iter(inside), 4) == expected[BATCHES + 4 : BATCHES + 8]


def test_a_position_that_changes_within_a_loop_ends_it(loader: Any) -> None:
    batches = iter(around(loader, 2))
    take(batches, 3)
    loader.set_epoch(1)
    with pytest.raises(hr.InvalidArgumentError, match="begin a new one"):
        take(batches, 100)
    assert loader.epoch == 1
    first = iter(around(loader, 2))
    assert take(first, 2) == planned(loader, 2)[BATCHES : BATCHES + 2]
    second = iter(around(loader, 2))
    assert take(second, 2) == planned(loader, 2)[BATCHES + 2 : BATCHES + 4]
    for _ in range(2):
        with pytest.raises(hr.InvalidArgumentError, match="begin a new one"):
            next(first)
    assert take(second, 100) == planned(loader, 2)[BATCHES + 4 :]


def test_a_loop_whose_workers_start_late_takes_nothing_from_one_that_was_begun_since(loader: Any) -> None:
    may_start = multiprocessing.get_context("fork").Event()
    late = iter(around(loader, 1, worker_init_fn=lambda _: may_start.wait(60)))
    received = []
    for batch in loader:
        received.append(batch.ids.tolist())
        if len(received) == 3:
            may_start.set()
            with pytest.raises(hr.InvalidArgumentError, match="begin a new one"):
                next(late)
    assert received == planned(loader)
    assert (loader.epoch, loader.state_dict()["batches"]) == (1, 0)


@pytest.mark.parametrize(
    ("move", "first"),
    [
        (lambda loader, older: loader.set_epoch(3), 3 * BATCHES),
        (lambda loader, older: loader.load_state_dict(loader.state_dict()), 2),
        (lambda loader, older: take(older, 1), 3),
        (lambda loader, older: take(iter(around(loader, 1)), 1), 3),
    ],
    ids=["set_epoch", "load_state_dict", "older loop", "younger loop"],
)
def test_a_loop_is_refused_where_the_loader_was_moved_before_its_workers_started(
    loader: Any, move: Callable[[Any, Iterator[Any]], None], first: int
) -> None:
    may_start = multiprocessing.get_context("fork").Event()
    older = iter(loader)
    take(older, 2)
    late = iter(around(loader, 2, worker_init_fn=lambda _: may_start.wait(60)))
    move(loader, older)
    may_start.set()
    with pytest.raises(hr.InvalidArgumentError, match="begin a new one"):
        next(late)
    assert take(iter(around(loader, 2)), 2) == planned(loader, 4)[first : first + 2]


def test_an_older_plain_loop_goes_on_behind_what_was_received(loader: Any) -> None:
    """And ends the younger one, which would lack what the older one takes."""
    older = iter(loader)
    take(older, 2)
    younger = iter(around(loader, 2))
    assert take(younger, 3) == planned(loader)[2:5]
    assert take(older, 2) == planned(loader)[5:7]
    with pytest.raises(hr.InvalidArgumentError, match="begin a new one"):
        take(younger, 100)
    assert take(older, 100) == planned(loader)[7:]


def test_the_last_of_several_loops_that_were_begun_is_the_one_that_opens(loader: Any) -> None:
    may_start = multiprocessing.get_context("fork").Event()
    first, second = (iter(around(loader, 2, worker_init_fn=lambda _: may_start.wait(60))) for _ in range(2))
    may_start.set()
    with pytest.raises(hr.InvalidArgumentError, match="begin a new one"):
        next(first)
    assert take(second, BATCHES) == planned(loader)


def test_batches_that_were_only_taken_ahead_do_not_move_the_loader_from_a_state(
    loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """set_epoch() stays where a state has put the loader until a batch was received."""
    is_dealt = threading.Event()
    deal_out = Relay._deal_out

    def deal_out_and_tell(relay: Relay) -> None:
        deal_out(relay)
        if relay._deal is not None and relay._deal.is_ahead:
            is_dealt.set()

    monkeypatch.setattr(Relay, "_deal_out", deal_out_and_tell)
    take(iter(loader), 5)
    loader.load_state_dict(loader.state_dict())
    batches = iter(around(loader, 1))
    assert is_dealt.wait(60)
    loader.set_epoch(0)
    assert take(batches, 1) == planned(loader)[5:6], "the loop goes on, as one without workers"
    loader.load_state_dict({**loader.state_dict()})
    is_dealt.clear()
    batches = iter(around(loader, 1))
    assert is_dealt.wait(60)
    del batches
    assert take(iter(loader), 0) == []  # What is ahead is given back.
    with pytest.raises(hr.InvalidArgumentError, match="load_state_dict"):
        loader.set_epoch(1)
    take(iter(around(loader, 1)), 1)
    loader.set_epoch(0)
    assert loader.state_dict()["batches"] == 0


def test_bytes_are_read_once_for_all_workers(loader: Any, numbers: Path) -> None:
    def read_bytes(batches: Any, of: Any) -> float:
        before = of.stats()["store.received_bytes"]  # Of the index, which may be there already.
        list(batches)
        return float(of.stats()["store.received_bytes"] - before)

    with headrace.torch.Loader(numbers, **OPTIONS) as plain:
        assert read_bytes(around(loader, 3), loader) == read_bytes(plain, plain) > 0


def test_functions_run_in_the_workers_and_do_what_they_do_without(numbers: Path) -> None:
    with (
        headrace.torch.Loader(numbers, **OPTIONS).map(functions.double, workers=7) as loader,
        headrace.torch.Loader(numbers, **OPTIONS).map(functions.double) as plain,
    ):
        pids = set()
        for ours, theirs in zip(around(loader, 2), plain, strict=True):
            assert ours["y"].tolist() == theirs["y"].tolist()
            assert ours["t"] == theirs["t"]
            assert ours.ids.tolist() == theirs.ids.tolist()
            pids |= set(ours["pid"].tolist())
        assert len(pids) == 2
        assert os.getpid() not in pids


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_random_numbers_do_not_depend_on_workers(numbers: Path, method: str) -> None:
    with headrace.torch.Loader(numbers, **OPTIONS).map(functions.draw) as plain:
        expected = [(b["own"].tolist(), b["torch"].tolist()) for b in itertools.islice(plain, 4)]
    with headrace.torch.Loader(numbers, **OPTIONS).map(functions.draw) as loader:
        seen = [
            (b["own"].tolist(), b["torch"].tolist()) for b in itertools.islice(around(loader, 2, method), 4)
        ]
    assert seen == expected


def test_transform_and_collate_fn_run_in_the_workers(numbers: Path) -> None:
    with headrace.torch.Loader(numbers, transform=functions.with_worker, **OPTIONS) as loader:
        made = list(around(loader, 2, collate_fn=lambda made: {**made, "collated": os.getpid()}))
        assert [each["ids"].tolist() for each in made] == planned(loader)
        assert [each["worker"] for each in made] == [number % 2 for number in range(BATCHES)]
        assert all(each["pid"] == each["collated"] != os.getpid() for each in made)


@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_of_a_function_comes_in_the_place_of_its_batch_and_ends_the_loop(
    numbers: Path, persistent: bool
) -> None:
    with headrace.torch.Loader(numbers, **OPTIONS, shuffle=False).map(functions.fail_on_13) as loader:
        loader.set_epoch(1)
        batches = iter(around(loader, 2, persistent_workers=persistent))
        state = loader.state_dict()
        for kind in (LookupError, hr.InvalidArgumentError, hr.InvalidArgumentError):
            with pytest.raises(kind, match="thirteen"):
                next(batches)
            assert loader.state_dict() == state
    with headrace.torch.Loader(numbers, **OPTIONS).map(functions.fail_on_13) as loader:
        position = next(n for n, ids in enumerate(planned(loader)) if 13 in ids)
        inside = around(loader, 3, persistent_workers=persistent)
        for _ in range(2):  # A new loop tries it again.
            with pytest.raises(LookupError, match="thirteen"):
                take(iter(inside), 100)
            assert loader.state_dict()["batches"] == position


def test_samples_that_fail_are_replaced_and_told(numbers: Path) -> None:
    options = {**OPTIONS, "on_bad_sample": "replace"}
    with headrace.torch.Loader(numbers, **options).map(functions.fail_on_13) as loader:
        with pytest.warns(RuntimeWarning, match="replaced by others"):
            replaced = [batch.replaced for batch in around(loader, 2) if batch.replaced]
        assert [list(each.values()) for each in replaced] == [[13]]
        assert [bad.position for bad in loader.bad_samples] == [13]


@pytest.mark.filterwarnings("ignore:.*Samples whose function fails are replaced")
def test_all_samples_that_workers_replace_are_counted(numbers: Path) -> None:
    """More of a batch than one message has room for."""
    options = {**OPTIONS, "batch_size": 200, "shuffle": False, "on_bad_sample": "replace"}
    found = []
    for workers in (0, 2):
        with headrace.torch.Loader(numbers, **options).map(functions.fail_often) as loader:
            for _ in DataLoader(loader, batch_size=None, num_workers=workers):
                pass
            positions = sorted(bad.position for bad in loader.bad_samples)
            found.append((positions, loader.stats()["map.replaced_samples"]))
    assert found[0] == found[1]
    assert len(set(found[0][0])) == 937


def test_a_warning_that_is_an_error_ends_the_loop_and_loses_no_batch(numbers: Path) -> None:
    options = {**OPTIONS, "on_bad_sample": "replace", "shuffle": False}
    received: list[list[int]] = []

    def loop() -> None:
        for batch in around(loader, 2):
            received.append(batch.ids.tolist())

    with (
        headrace.torch.Loader(numbers, **options).map(functions.fail_on_13) as loader,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(RuntimeWarning, match="replaced by others"):
            loop()
        assert loader.state_dict()["batches"] == len(received) < BATCHES
        loop()
        assert received[1:] == planned(loader)[1:]


def test_a_loop_that_lives_until_the_program_ends_says_nothing(numbers: Path) -> None:
    code = (
        "import sys, headrace.torch, torch\n"
        "loader = headrace.torch.Loader(sys.argv[1], batch_size=32, memory='64MiB')\n"
        "batches = iter(torch.utils.data.DataLoader(loader, batch_size=None, num_workers=1))\n"
        "next(batches)\n"
        "sys.modules['kept'] = batches\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(numbers)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_of_the_store_is_the_loops(numbers: Path) -> None:
    with headrace.torch.Loader(numbers, **OPTIONS) as loader:
        for shard in numbers.glob("*.mds"):
            shard.write_bytes(b"")
        with pytest.raises(hr.HeadraceError, match=r"\.mds"):
            list(around(loader, 2))


KILLED = """
import itertools, json, os, signal, sys
import headrace.torch
from torch.utils.data import DataLoader

loader = headrace.torch.Loader(sys.argv[1], **json.loads(sys.argv[2]))
batches = iter(DataLoader(loader, batch_size=None, num_workers=2))
received = [next(batches).ids.tolist() for _ in range(5)]
signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would raise wherever the main thread is.
os.kill(batches._workers[0].pid, signal.SIGKILL)
try:
    for batch in batches:
        received.append(batch.ids.tolist())
except Exception as error:  # Of torch, or of a batch that can no more be fetched from the worker.
    print(json.dumps([received, loader.state_dict()]), flush=True)
os._exit(0)
"""


def test_a_worker_that_is_killed_ends_the_loop_and_the_state_stays(loader: Any, numbers: Path) -> None:
    """In another process, for the sake of signal handlers."""
    command = [sys.executable, "-c", KILLED, str(numbers), json.dumps(OPTIONS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ended.stdout, ended.stderr
    received, state = json.loads(ended.stdout)
    assert received == planned(loader)[: len(received)]
    assert state["batches"] == len(received)
    loader.load_state_dict(state)
    assert take(iter(around(loader, 2)), 100) == planned(loader)[len(received) :]


def test_nothing_is_left_of_workers(loader: Any) -> None:
    list(around(loader, 2))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        list(around(loader, 2))
        batches = iter(around(loader, 2))
        take(batches, 3)
        del batches
        loader.set_epoch(0)
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "headrace-relay":
            thread.join(20)
            assert not thread.is_alive()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_loader_that_is_closed_ends_the_loop(loader: Any) -> None:
    batches = iter(around(loader, 2))
    take(batches, 3)
    loader.close()
    with pytest.raises(Exception, match="closed"):
        take(batches, 100)


class TestRefused:
    """What could not be exact is an error with the line to write."""

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    @pytest.mark.parametrize(
        ("arguments", "line"),
        [({"batch_size": 4}, "batch_size=None"), ({"in_order": False}, "in_order=False")],
    )
    def test_a_data_loader_that_changes_batches(
        self, loader: Any, method: str, arguments: dict[str, Any], line: str
    ) -> None:
        given = {"batch_size": None, "num_workers": 1, "multiprocessing_context": method, **arguments}
        with pytest.raises(hr.InvalidArgumentError, match=line):
            next(iter(DataLoader(loader, **given)))

    def test_a_dataset_around_the_loader(self, loader: Any) -> None:
        with pytest.raises(hr.InvalidArgumentError, match="the loader itself"):
            next(iter(around(functions.Wrapped(loader), 1)))
        with pytest.raises(hr.InvalidArgumentError, match="the loader itself"):
            next(iter(around(functions.Wrapped(loader), 1, "spawn")))

    def test_a_filter_that_may_empty_batches(self, loader: Any) -> None:
        with pytest.raises(hr.InvalidArgumentError, match='holes="mask"'):
            next(iter(around(loader.filter(functions.is_even), 1)))
        masked = next(iter(around(loader.filter(functions.is_even, holes="mask"), 1)))
        assert masked.mask.tolist() == (masked["x"] % 2 == 0).tolist()

    def test_tensors_on_a_device(self, numbers: Path) -> None:
        with (
            headrace.torch.Loader(numbers, device="meta", **OPTIONS) as loader,
            pytest.raises(hr.InvalidArgumentError, match="pin_memory=True to the DataLoader"),
        ):
            next(iter(around(loader, 1)))


def stateful(loader: Any, workers: int = 2, **more: Any) -> Any:
    found = pytest.importorskip("torchdata.stateful_dataloader")
    # Whatever other tests left as the default: spawned workers take seconds each.
    more = {"multiprocessing_context": "fork", **more}
    return found.StatefulDataLoader(loader, batch_size=None, num_workers=workers, **more)


class TestStateful:
    """torchdata's StatefulDataLoader, which asks for the state in each worker."""

    @pytest.mark.parametrize(
        "more",
        [{}, {"persistent_workers": True}, {"snapshot_every_n_steps": 3}, {"workers": 3}],
        ids=["plain", "persistent", "snapshots", "three"],
    )
    def test_it_resumes_at_the_next_batch(self, numbers: Path, more: dict[str, Any]) -> None:
        with headrace.torch.Loader(numbers, **OPTIONS) as loader:
            expected = planned(loader, 3)
        for stop in (0, 1, 2, 7, 31, 32, 40, 64) if LONG else (0, 7, 40):
            with headrace.torch.Loader(numbers, **OPTIONS) as loader:
                first = stateful(loader, **more)
                batches = itertools.chain.from_iterable(iter(first) for _ in range(3))
                received = take(batches, stop)
                state = first.state_dict()
                own = loader.state_dict()
            for is_own in (False, True):
                with headrace.torch.Loader(numbers, **OPTIONS) as loader:
                    if is_own:  # The loader's state, counted in this process, says the same.
                        loader.load_state_dict(own)
                        second = stateful(loader, **more)
                    else:
                        second = stateful(loader, **more)
                        second.load_state_dict(state)
                    rest: list[list[int]] = []
                    while len(received) + len(rest) < len(expected):
                        rest += take(iter(second), 100)
                    assert received + rest == expected, (stop, is_own)

    def test_a_run_that_went_on_goes_on_again(self, numbers: Path) -> None:
        """Workers that delivered nothing since hand on the state that they were given."""
        with headrace.torch.Loader(numbers, **OPTIONS) as loader:
            expected = planned(loader)
        received: list[list[int]] = []
        state = None
        while len(received) < BATCHES:
            with headrace.torch.Loader(numbers, **OPTIONS) as loader:
                outer = stateful(loader, 3)
                if state is not None:
                    outer.load_state_dict(state)
                batches = iter(outer)
                received += take(batches, 1 + len(received) % 4 if LONG else 9)
                state = outer.state_dict()
                assert loader.state_dict()["batches"] == len(received) % BATCHES
        assert received == expected

    def test_states_of_other_workers_are_refused(self, numbers: Path) -> None:
        with headrace.torch.Loader(numbers, **OPTIONS) as loader:
            outer = stateful(loader, 2)
            take(iter(outer), 3)
            state = outer.state_dict()
        snapshots = state["_snapshot"]["_worker_snapshots"]
        snapshots["worker_0"], snapshots["worker_1"] = snapshots["worker_1"], snapshots["worker_0"]
        with headrace.torch.Loader(numbers, **OPTIONS) as loader:
            outer = stateful(loader, 2)
            outer.load_state_dict(state)
            with pytest.raises(hr.InvalidArgumentError, match="same num_workers"):
                next(iter(outer))

    def test_a_state_of_other_data_is_refused(self, numbers: Path) -> None:
        with headrace.torch.Loader(numbers, **OPTIONS) as loader:
            outer = stateful(loader, 2)
            take(iter(outer), 3)
            state = outer.state_dict()
        with headrace.torch.Loader(numbers, **{**OPTIONS, "seed": 2}) as loader:
            outer = stateful(loader, 2)
            outer.load_state_dict(state)
            with pytest.raises(hr.InvalidArgumentError, match="seed"):
                next(iter(outer))
