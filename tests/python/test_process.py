"""Life in a process: Ctrl-C, fork, spawn, exit without close, the GIL. Each runs in an interpreter of its
own."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import sim as simulator

SLOW = {"first_byte_p50_ms": 100_000.0, "first_byte_p99_ms": 100_000.0}
PATIENT = "timeout=90, first_byte_timeout=90"


def run(
    code: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=os.environ | (environment or {})
    )


@pytest.mark.parametrize(
    "call",
    [
        f'hr.Store("s3://b", {PATIENT}).get("x")',
        f'hr.Store("s3://b", {PATIENT}).head("x")',
        f'next(hr.Store("s3://b", {PATIENT}).get_ranges([("x", 0, 1)]))',
        f'hr.Dataset("s3://b/numbers", {PATIENT})',
    ],
)
def test_ctrl_c_ends_a_wait_at_once(call: str, numbers: Path) -> None:
    (numbers.parent / "x").write_bytes(b"x")
    code = (
        f"import headrace as hr\nprint('ready', flush=True)\ntry:\n    {call}\nexcept KeyboardInterrupt:\n   "
        " print('interrupted')\n    raise SystemExit(9)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = os.environ | {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        silent.accept()[0].recv(1)  # the request is on the wire, so the call waits
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (9, "interrupted\n"), err


def test_ctrl_c_on_the_command_line_exits_with_130(numbers: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = os.environ | {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        command = [
            sys.executable,
            "-m",
            "headrace.cli",
            "stat",
            "s3://b/x",
            "--endpoint",
            f"http://127.0.0.1:{silent.getsockname()[1]}",
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        silent.accept()[0].recv(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err


# An iterator over a dataset whose store has become so slow that it never has a batch.
WAITING = """
import sys, headrace as hr
from headrace import sim
quick = sim.Server(sys.argv[1])
where = {"endpoint": quick.endpoint, "access_key": "headrace", "secret_key": "headrace-secret", "timeout": 90, "first_byte_timeout": 90}
dataset = hr.Dataset("s3://b/numbers", **where)
quick.close()
slow = sim.Server(sys.argv[1], port=quick.port, behaviour={"first_byte_p50_ms": 100_000.0, "first_byte_p99_ms": 100_000.0})
stream = iter(hr.Loader(dataset, batch_size=10, memory="64MiB"))
"""  # noqa: E501


def test_ctrl_c_ends_a_wait_for_a_batch(numbers: Path, buckets: Path) -> None:
    code = f"""{WAITING}
print("ready", flush=True)
try:
    next(stream)
except KeyboardInterrupt:
    raise SystemExit(9)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(buckets)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 9 or "KeyboardInterrupt" in err


def test_ctrl_c_ends_a_wait_for_the_order_that_another_process_makes(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "a.bin").write_bytes(
        bytes(2 * 2 * 300_000)
    )  # 300,000 samples of two tokens: a table of 1.2 MB
    code = """
import sys, headrace as hr
data = hr.Dataset(sys.argv[1], format="tokens", tokens_per_sample=2)
loader = hr.Loader(data, batch_size=100, order="mosaic:py1e")
try:
    print("ready", flush=True)
    next(iter(loader))
except KeyboardInterrupt:
    assert loader.state_dict()["t"] == 0
    raise SystemExit(9)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "tokens")]
    environment = os.environ | {"HEADRACE_ORDER_CACHE": str(tmp_path / "orders")}
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert made.returncode == 0, made.stderr
    (table,) = (tmp_path / "orders").glob("*.order")
    table.unlink()
    with table.with_suffix(".lock").open("w") as lock:  # as a process that makes it, and is stopped
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=50)
        assert process.returncode == 9, err
        assert not table.exists()


def test_ctrl_c_while_a_table_is_decoded_is_ctrl_c(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with pa.ipc.new_file(tmp_path / "t.arrow", pa.schema({"a": pa.int64()})) as writer:
        writer.write_table(pa.table({"a": range(10)}))
    code = """
import os, signal, sys, headrace as hr
from headrace.data import tables
def interrupted(*arguments, unpack=tables.unpack):
    os.kill(os.getpid(), signal.SIGINT)
    return unpack(*arguments)
with hr.Dataset(sys.argv[1]) as dataset:
    unpack, tables.unpack = tables.unpack, interrupted
    try:
        dataset.read([3])
    except KeyboardInterrupt:
        tables.unpack = unpack
        assert dataset.read([3]) == [{"a": 3}]
        raise SystemExit(9)
"""
    done = run(code, str(tmp_path))
    assert done.returncode == 9, done.stderr


def test_ctrl_c_ends_a_proof_of_an_order(tmp_path: Path) -> None:
    with (tmp_path / "a.bin").open("wb") as tokens:
        tokens.truncate(2 * 300_000_000)
    code = """
import signal, sys, time, headrace as hr
from headrace.cli import _prove
with hr.Dataset(sys.argv[1], format="tokens", tokens_per_sample=1) as dataset, hr.Loader(dataset, batch_size=100) as loader:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        started = time.monotonic()
        _prove.prove_own(dataset, loader.order_spec, 0, [_prove.Part(None, 2, 1000)])
    except KeyboardInterrupt:
        raise SystemExit(9 if time.monotonic() < started + 5 else 1)
"""  # noqa: E501
    done = run(code, str(tmp_path))
    assert done.returncode == 9, done.stderr


def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on(numbers: Path) -> None:
    code = """
import os, sys, gc, headrace as hr
store = hr.Store(os.path.dirname(sys.argv[1]))
dataset = hr.Dataset(sys.argv[1])
loader = hr.Loader(sys.argv[1], batch_size=10, memory="64MiB")
stream = iter(loader)
held = next(stream)
result = next(store.get_ranges([("numbers/index.json", 0, 10)]))
pid = os.fork()
if pid == 0:
    try:
        for call in (lambda: store.get("numbers/index.json"), lambda: dataset[0], lambda: next(stream), lambda: loader.state_dict()):
            try:
                call()
            except hr.InvalidArgumentError as error:
                assert "fork" in str(error), error
            else:
                os._exit(3)
        for thing, name in ((store, "Store"), (dataset, "Dataset"), (loader, "Loader")):
            assert repr(thing).startswith(name + "("), repr(thing)  # debuggers call it anywhere
        del held, result, stream
        store.close(); loader.close(); dataset.close()
        gc.collect()
        with hr.Store(sys.argv[1]) as fresh:  # a new one works here
            assert fresh.get("index.json")
    except BaseException:
        import traceback; traceback.print_exc(); sys.stderr.flush()
        os._exit(4)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert len(list(stream)) == 99
print(dataset[0]["x"], held["x"].shape)
"""  # noqa: E501
    done = run(code, str(numbers))
    assert (done.returncode, done.stdout) == (0, "1 (10,)\n"), done.stderr
    assert done.stderr == ""


def test_a_forked_child_that_exits_normally_is_clean(numbers: Path) -> None:
    code = """
import os, sys, headrace as hr
loader = hr.Loader(sys.argv[1], batch_size=10, memory="64MiB")
held = next(iter(loader))
pid = os.fork()
if pid == 0:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    done = run(code, str(numbers))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["directory", "memcached", "hot store"])
def test_a_forked_child_opens_a_cache_that_its_parent_has_open(
    kind: str, buckets: Path, tmp_path: Path
) -> None:
    """The parent's has threads that are not in the child, and its own objects are not to be used there."""
    code = """
import os, signal, sys, headrace as hr
from headrace import sim
server = sim.Server(sys.argv[2])
where = {"endpoint": server.endpoint, "access_key": server.access_key, "secret_key": server.secret_key}
directory = sys.argv[3] + "/cache"
caches = {"directory": directory, "memcached": "memcached://127.0.0.1:1", "hot store": {"url": "s3://hot", **where}}
cache = caches[sys.argv[1]]
bytes_of = {name: os.urandom(300_000) for name in ("parent", "child")}
def read(name):
    with hr.Store("s3://b", cache=cache, **where) as store:
        store.put(name, bytes_of[name])
        assert all(store.get(name) == bytes_of[name] for _ in range(2))
held = hr.Store("s3://b", cache=cache, **where)
read("parent")
shown = hr.Cache(directory, create=True)
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    try:
        read("child")
        try:
            shown.usage()
        except hr.InvalidArgumentError as error:
            assert "fork" in str(error), error
        else:
            os._exit(3)
        del shown
        assert hr.Cache(directory).usage().extents == (2 if sys.argv[1] == "directory" else 0)
    except BaseException:
        import traceback; traceback.print_exc(); sys.stderr.flush()
        os._exit(4)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert held.get("child") == bytes_of["child"]
"""  # noqa: E501
    (buckets / "hot").mkdir()
    done = run(code, kind, str(buckets), str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


def test_spawned_workers_open_their_own(numbers: Path, tmp_path: Path) -> None:
    program = tmp_path / "spawning.py"
    program.write_text(
        "import multiprocessing, sys, headrace as hr\n"
        "def work(rank):\n"
        "    with hr.Loader(sys.argv[1], batch_size=10, rank=rank, world_size=2, memory='64MiB', lanes=10) "
        "as loader:\n"
        "        return [int(i) for batch in loader for i, real in zip(batch.ids, batch.mask) if real]\n"
        "if __name__ == '__main__':\n"
        "    parent = hr.Loader(sys.argv[1], batch_size=10, memory='64MiB')\n"
        "    next(iter(parent))\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "        parts = pool.map(work, range(2))\n"
        "    print(sorted(sum(parts, [])) == list(range(1000)))\n"
    )
    done = subprocess.run(
        [sys.executable, str(program), str(numbers)], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.parametrize(
    "code",
    [
        "import sys, headrace as hr; store = hr.Store(sys.argv[1]); store.get('index.json')",
        "import sys, headrace as hr; r = next(hr.Store(sys.argv[1]).get_ranges([('index.json', 0, 9)] * 50))",
        "import sys, headrace as hr; loader = hr.Loader(sys.argv[1], batch_size=10, memory='64MiB'); stream "
        "= iter(loader); batch = next(stream)",
        "import sys, headrace as hr; batch = next(iter(hr.Loader(sys.argv[1], batch_size=10, "
        "memory='64MiB'))); x = batch['x']",
        "import sys, headrace as hr; d = hr.Dataset(sys.argv[1]); d.me = d; d[0]",
        "import os, headrace.sim; s = headrace.sim.Server(os.path.dirname(os.path.dirname(os.sys.argv[1])))",
    ],
)
def test_exit_without_close_is_clean(code: str, numbers: Path) -> None:
    done = run(code, str(numbers))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# A thread that waits for a store which is slow.
WAITING_THREAD = """
import threading, headrace as hr
store = hr.Store('s3://b', timeout=90, first_byte_timeout=90)
thread = threading.Thread(target=lambda: store.get('x'), daemon=True)
thread.start()
while store.stats()['pool.used_bytes'] == 0:
    pass
"""


def test_exit_while_another_thread_waits_is_clean(buckets: Path) -> None:
    (buckets / "b" / "x").write_bytes(b"x")
    with simulator.Server(buckets, behaviour=SLOW) as slow:
        done = run(WAITING_THREAD, environment=slow.environment())
    assert (done.returncode, done.stderr) == (0, "")


def test_waiting_leaves_the_interpreter_to_other_threads(buckets: Path) -> None:
    (buckets / "b" / "x").write_bytes(b"x")
    code = f"{WAITING_THREAD}\nprint(sum(range(1_000_000)), thread.is_alive())\n"
    with simulator.Server(buckets, behaviour=SLOW) as slow:
        done = run(code, environment=slow.environment())
    assert done.stdout == "499999500000 True\n", done.stderr


def test_waiting_for_a_batch_costs_no_processor_time(numbers: Path, buckets: Path) -> None:
    code = f"""{WAITING}
import os, threading, time
threading.Thread(target=lambda: next(stream), daemon=True).start()
time.sleep(0.5)
before = time.process_time()
time.sleep(2)
print(time.process_time() - before, flush=True)
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(buckets)], capture_output=True, text=True, timeout=60, check=False
    )
    assert float(done.stdout) < 0.5, done.stderr
