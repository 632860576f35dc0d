"""Functions that fail, end their process, or cannot be sent; ends of the main program."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import map_functions as functions
import psutil
import pytest
from map_loaders import open_loader

import headrace as hr
from headrace.loader.mapping.messages import READY
from headrace.loader.mapping.process import WorkerProcess


def ids_of(loader: Any) -> list[int]:
    return [int(i) for batch in loader for i in batch.ids]


@pytest.mark.parametrize("how", ["kill", "exit", "_exit"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_ends_is_replaced_and_its_batch_done_again(
    few_numbers: Path,
    tmp_path: Path,
    how: str,
    times: int,
) -> None:
    (tmp_path / "count").touch()
    ends = functions.EndsOnce(how, times, tmp_path / "count")
    with open_loader(few_numbers) as plain, open_loader(few_numbers).map(ends, workers=2) as mapped:
        for wanted, batch in zip(plain, mapped, strict=True):
            assert batch.ids.tolist() == wanted.ids.tolist()
            assert batch["x"].tolist() == (wanted["x"] + 1).tolist()
    assert len((tmp_path / "count").read_bytes()) == times


def test_a_batch_that_ends_three_workers_is_an_error_that_names_it(few_numbers: Path, tmp_path: Path) -> None:
    (tmp_path / "count").touch()
    ends = functions.EndsOnce("kill", 1000, tmp_path / "count")
    with open_loader(few_numbers, shuffle=False).map(ends, workers=2) as mapped:
        stream = iter(mapped)
        assert next(stream).ids.tolist() == list(range(10))
        state = mapped.state_dict()
        for _ in range(2):  # It stays.
            with pytest.raises(hr.UserCodeError, match=r"(?s)samples 10, 11, .*3 worker processes.*SIGKILL"):
                next(stream)
            assert mapped.state_dict() == state
        assert len((tmp_path / "count").read_bytes()) == 3
        mapped.set_epoch(1)
        (tmp_path / "count").write_bytes(bytes(1000))
        assert sorted(set(ids_of(mapped))) == list(range(211))


def test_what_a_worker_said_before_it_ended_with_tasks_unread_is_heard() -> None:
    """Else one that was ready counts as one that never started, and its answer as none."""
    worker = object.__new__(WorkerProcess)
    worker.is_ready = False
    worker.connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with worker.connection:
        other.send(READY)
        worker.connection.send(b"a task")
        other.close()
        assert worker.receive() is None
        assert worker.is_ready
        with pytest.raises(EOFError):
            worker.receive()


def test_a_worker_killed_from_outside_is_replaced(few_numbers: Path) -> None:
    with open_loader(few_numbers).map(functions.double, workers=2) as mapped:
        found = []
        for batch in mapped:
            found += [int(i) for i, real in zip(batch.ids, batch.mask, strict=True) if real]
            if batch.index in (3, 9):
                for child in psutil.Process().children():
                    os.kill(child.pid, signal.SIGKILL)
        assert sorted(found) == list(range(211))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_function_raises_is_raised_with_the_sample(few_numbers: Path, workers: int) -> None:
    with open_loader(few_numbers, shuffle=False).map(functions.fail_on_13, workers=workers) as mapped:
        stream = iter(mapped)
        next(stream)
        for _ in range(2):
            with pytest.raises(LookupError, match="thirteen") as raised:
                next(stream)
            text = "".join(traceback.format_exception(raised.value))
            assert "map(fail_on_13) of sample 13 of " in text
            assert "in shard.00000.mds, in batch 1 of epoch 0" in text
            assert 'raise LookupError("thirteen")' in text
        assert mapped.state_dict()["t"] == 10
        mapped.set_epoch(0)
        assert next(iter(mapped)).ids.tolist() == list(range(10))


def test_an_exception_that_cannot_be_sent_is_a_user_code_error(few_numbers: Path) -> None:
    with (
        open_loader(few_numbers).map(functions.fail_pickily, workers=1) as mapped,
        pytest.raises(hr.UserCodeError, match=r"map\(fail_pickily\) of sample .*PickyError: picky") as raised,
    ):
        next(iter(mapped))
    assert "raise PickyError(1, 2)" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("workers", [0, 1])
def test_bad_samples_are_replaced_where_the_loader_says_so(few_numbers: Path, workers: int) -> None:
    loader = open_loader(few_numbers, shuffle=False, on_bad_sample="replace")
    with loader.map(functions.fail_on_13, workers=workers) as mapped:
        stream = iter(mapped)
        next(stream)
        with pytest.warns(RuntimeWarning, match=r"map\(fail_on_13\) of sample 13: LookupError"):
            batch = next(stream)
        assert batch.ids.tolist() == [10, 11, 12, 12, 14, 15, 16, 17, 18, 19]
        assert batch["t"][3] == "s12"
        assert batch.mask.tolist() == [row != 3 for row in range(10)]
        assert batch.replaced == {3: 13}
        assert [(bad.position, bad.samples) for bad in mapped.bad_samples] == [(13, 1)]
        assert len(list(stream)) == 20


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stand_in_is_a_copy(few_numbers: Path, workers: int) -> None:
    """What is done to it in place, by functions or the loop, is not done to the sample that it stands for."""
    loader = open_loader(few_numbers, shuffle=False, on_bad_sample="replace")
    mapped = loader.map(functions.repeat_but_13, workers=workers).map(functions.negate_lists, per="batch")
    with mapped:
        stream = iter(mapped)
        next(stream)
        with pytest.warns(RuntimeWarning, match="repeat_but_13"):
            batch = next(stream)
        assert [values[0] for values in batch["v"]] == [-10, -11, -12, -12, *range(-14, -20, -1)]
        batch["v"][3][:] = 7
        assert batch["v"][2][0] == -12


def run(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, **options)


OPEN = """
import os, signal, sys, headrace as hr, map_functions as functions
loader = hr.Loader(sys.argv[1], batch_size=10, memory="16MiB", index_cache="")
"""


def test_functions_of_the_main_program_are_refused_without_cloudpickle(few_numbers: Path) -> None:
    code = OPEN + (
        "sys.modules['cloudpickle'] = None\n"
        "def own(sample): return sample\n"
        "for fn in (lambda sample: sample, own):\n"
        "    try:\n"
        "        next(iter(loader.map(fn, workers=1)))\n"
        "    except hr.InvalidArgumentError as error:\n"
        "        assert 'pip install cloudpickle' in str(error), error\n"
        "    else:\n"
        "        raise SystemExit(1)\n"
    )
    done = run(code, str(few_numbers))
    assert (done.returncode, done.stderr) == (0, "")


def test_lambdas_and_closures_work_with_cloudpickle_and_without_a_guard(few_numbers: Path) -> None:
    pytest.importorskip("cloudpickle")
    code = OPEN + (
        "print('main')\n"
        "factor = 3\n"
        "class Scale:\n"
        "    def __call__(self, sample): return {'y': sample['x'] * factor}\n"
        "mapped = loader.map(Scale(), workers=2).map(lambda sample: {'z': sample['y'] + factor})\n"
        "for batch in mapped:\n"
        "    assert batch['z'].tolist() == [3 * (7 * i + 1) + 3 for i in batch.ids.tolist()]\n"
    )
    done = run(code, str(few_numbers))
    assert (done.returncode, done.stdout, done.stderr) == (0, "main\n", "")


SPAWNING = """
import multiprocessing, sys
import headrace as hr

def own(sample): return {"y": 2 * sample["x"]}

def train(path):
    if "refuses" in sys.argv:
        sys.modules["cloudpickle"] = None
    with hr.Loader(path, batch_size=10, memory="16MiB", index_cache="").map(own, workers=1) as mapped:
        try:
            assert next(iter(mapped))["y"].shape == (10,)
        except hr.InvalidArgumentError as error:
            assert "refuses" in sys.argv and "pip install cloudpickle" in str(error), error
            sys.exit(3)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=train, args=(sys.argv[1],))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize(("more", "code"), [([], 0), (["refuses"], 3)])
def test_functions_of_the_main_program_work_in_processes_that_it_spawns(
    few_numbers: Path, tmp_path: Path, more: list[str], code: int
) -> None:
    """As those of torch.multiprocessing.spawn, where they have a module of another name."""
    pytest.importorskip("cloudpickle")
    (tmp_path / "train.py").write_text(SPAWNING)
    done = subprocess.run(
        [sys.executable, tmp_path / "train.py", few_numbers, *more],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (code, "")


def test_results_of_classes_of_the_main_program_are_refused(few_numbers: Path) -> None:
    pytest.importorskip("cloudpickle")
    code = OPEN + (
        "class Pair:\n"
        "    pass\n"
        "mapped = loader.map(lambda sample: {'pair': Pair()}, workers=1)\n"
        "try:\n"
        "    next(iter(mapped))\n"
        "except hr.InvalidArgumentError as error:\n"
        "    assert 'Move it to a module' in str(error) and '__main__.Pair' in str(error), error\n"
        "else:\n"
        "    raise SystemExit(1)\n"
    )
    done = run(code, str(few_numbers))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "end",
    [
        "",
        "raise SystemExit(0)",
        "os._exit(0)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "del mapped, stream, loader",
    ],
)
def test_any_end_of_the_main_program_leaves_no_process(few_numbers: Path, end: str) -> None:
    code = OPEN + (
        "mapped = loader.map(functions.double, workers=2)\n"
        "stream = iter(mapped)\n"
        "print(*{int(pid) for batch in (next(stream), next(stream), next(stream)) for pid in batch['pid']}, "
        "flush=True)\n" + end
    )
    done = run(code, str(few_numbers))
    assert done.stderr == ""
    assert done.returncode == (-9 if "SIGKILL" in end else 0)
    psutil.wait_procs([psutil.Process(int(p)) for p in done.stdout.split() if psutil.pid_exists(int(p))], 20)
    assert not any(psutil.pid_exists(int(pid)) for pid in done.stdout.split())


def test_ctrl_c_ends_the_main_program_at_once(few_numbers: Path) -> None:
    code = OPEN + (
        "from map_functions import wait_for_ever\n"
        "mapped = loader.map(wait_for_ever, workers=2)\n"
        "try:\n"
        "    next(iter(mapped))\n"
        "except KeyboardInterrupt:\n"
        "    assert mapped.state_dict()['t'] == 0\n"
        "    raise SystemExit(9)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(few_numbers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())  # A worker is within the function.
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (9, "")
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], 20)
    assert not psutil.pid_exists(pid)


def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on(few_numbers: Path) -> None:
    code = (
        OPEN
        + """
mapped = loader.map(functions.double, workers=2)
stream = iter(mapped)
held = next(stream)
pid = os.fork()
if pid == 0:
    try:
        next(stream)
    except hr.InvalidArgumentError as error:
        assert "fork" in str(error), error
        mapped.close()
        sys.exit(0)
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert len(list(stream)) == 21
"""
    )
    done = run(code, str(few_numbers))
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_left_open(few_numbers: Path) -> None:
    def count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(psutil.Process().children())

    with open_loader(few_numbers) as loader:
        next(iter(loader))
    before = count()
    for _ in range(2):
        with open_loader(few_numbers).map(functions.double, workers=2) as mapped:
            held = [batch for batch in mapped if batch.index < 3]
        assert held[0]["y"].tolist() == [2 * (7 * i + 1) for i in held[0].ids.tolist()]
        del held
        assert count() == before


@pytest.mark.parametrize(
    "place", [{"workers": 0}, {"workers": 2, "where": "thread"}, {"workers": 1}], ids=str
)
def test_a_warning_that_is_an_error_loses_no_batch(few_numbers: Path, place: dict[str, Any]) -> None:
    loader = open_loader(few_numbers, shuffle=False, on_bad_sample="replace")
    with loader.map(functions.fail_on_13, **place) as mapped, warnings.catch_warnings():
        warnings.simplefilter("error")
        received: list[int] = []

        def loop() -> None:
            for batch in mapped:
                received.append(batch.index)

        with pytest.raises(RuntimeWarning, match="fail_on_13"):
            loop()
        assert mapped.state_dict()["batches"] == len(received) == 1
        loop()
        assert received == list(range(22))
        assert [bad.position for bad in mapped.bad_samples] == [13]


def test_the_warning_names_the_line_of_the_loop(few_numbers: Path) -> None:
    loader = open_loader(few_numbers, shuffle=False, on_bad_sample="replace")
    with loader.map(functions.fail_on_13) as mapped, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in mapped:
            pass
        assert [each.filename for each in caught] == [__file__]


def test_a_warning_of_the_loader_that_is_an_error_loses_no_batch(few_numbers: Path) -> None:
    """Those of memory and pins come after the first batch, the second, the fourth."""

    def warn(_: Any) -> None:
        warnings.warn("told", RuntimeWarning, stacklevel=1)

    for place in (None, {"workers": 0}, {"workers": 1}):
        loader = open_loader(few_numbers)
        with loader if place is None else loader.map(functions.double, **place) as opened:
            planned = [ids.tolist() for ids in loader.sample_ids(0)]
            loader._check_memory = warn.__get__(loader)  # type: ignore[method-assign]
            received: list[list[int]] = []
            failed = 0
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                while len(received) < len(planned):
                    try:
                        for batch in opened:
                            received.append(batch.ids.tolist())
                    except RuntimeWarning:
                        failed += 1
                        assert opened.state_dict()["batches"] == len(received)
            assert received == planned
            assert failed >= 3


@pytest.mark.parametrize("place", [{"workers": 1, "where": "thread"}, {"workers": 2}], ids=str)
def test_closing_it_cancels_a_loop_that_waits(
    few_numbers: Path, place: dict[str, Any], tmp_path: Path
) -> None:
    mapped = open_loader(few_numbers).map(functions.StopsIn(tmp_path / "begun", tmp_path / "go"), **place)
    caught: list[BaseException] = []

    def loop() -> None:
        try:
            list(mapped)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    mapped.close()
    (tmp_path / "go").touch()
    thread.join(60)
    assert [type(error) for error in caught] == [hr.CancelledError]
    assert mapped._executor is None
    with pytest.raises(hr.InvalidArgumentError, match="closed"):
        next(iter(mapped))
