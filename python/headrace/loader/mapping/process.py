"""A worker process, seen from the process of the training loop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from multiprocessing import spawn

from headrace.loader.mapping.messages import MOST_BYTES, READY, Reply, Task

__all__ = ["FdsOf", "WorkerProcess"]

FdsOf = Callable[[Task], tuple[int, int]]

_MAIN = (
    "import json, sys; sys.path[:], sys.argv = json.loads(sys.argv[1]), sys.argv[2:]; "
    "from headrace.loader.mapping.worker import main; main(*map(int, [sys.argv.pop(0) for _ in range(4)]))"
)
_END_SECONDS = 5.0
# Each worker is one of many: it uses one core, also by what it imports later.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def _start(connection: socket.socket, plan_fd: int) -> subprocess.Popen[bytes]:
    """Spawned, not forked: nothing of this process's threads, locks and memory goes along.

    In a session of its own, so that Ctrl-C in a terminal reaches the training loop alone, also while the
    worker's interpreter starts.
    """
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [connection.fileno(), plan_fd, os.getpid(), int(is_main)]
    command = [
        spawn.get_executable(),
        *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
        "-c",
        _MAIN,
        json.dumps([path for path in sys.path if isinstance(path, str)]),
        *map(str, numbers),
        *getattr(sys, "argv", ()),
    ]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=(connection.fileno(), plan_fd),
        env=os.environ | _ONE_THREAD,
        start_new_session=True,
    )


class WorkerProcess:
    """Starts at once. Tasks are done in the order in which they were sent, one at a time."""

    def __init__(self, plan_fd: int) -> None:
        self.tasks: deque[Task] = deque()
        """Sent, or to be sent by :meth:`restart`, and not answered."""
        self.problem = ""
        """Why the functions cannot be loaded there."""
        self.is_ready = False
        self._plan_fd = plan_fd
        self._open()

    def _open(self) -> None:
        self.is_ready, self._sources, self._targets = False, set[int](), set[int]()
        self.connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = _start(other, self._plan_fd)

    def fileno(self) -> int:
        return self.connection.fileno()

    def send(self, task: Task, fds_of: FdsOf) -> None:
        """Never waits: a worker has a few packets to read at most. That it has died shows when it is asked
        for a reply.

        :param fds_of: the file descriptors of a task's memory, source and target.
        """
        self.tasks.append(task)
        self._send(task, fds_of)

    def _send(self, task: Task, fds_of: FdsOf) -> None:
        try:
            if task.source in self._sources and task.target in self._targets:
                self.connection.send(task.packed())
            else:
                self._send_with_fds(task, fds_of)
        except ConnectionError:
            return

    def _send_with_fds(self, task: Task, fds_of: FdsOf) -> None:
        is_new = task.source not in self._sources, task.target not in self._targets
        task = task._replace(has_new_source=is_new[0], has_new_target=is_new[1])
        fds = [fd for fd, is_sent in zip(fds_of(task), is_new, strict=True) if is_sent]
        socket.send_fds(self.connection, [task.packed()], fds)
        self._sources.add(task.source)
        self._targets.add(task.target)

    def forget_source(self, number: int) -> None:
        """The slab of this number is another one from now on."""
        self._sources.discard(number)

    def receive(self) -> Reply | None:
        """The next reply, if there is one; waits for a packet. Raises EOFError where the process has
        ended."""
        data = self._packet()
        if not data:
            raise EOFError
        if self.is_ready:
            self.tasks.popleft()
            return Reply.unpacked(data)
        self.is_ready = data == READY
        self.problem = "" if self.is_ready else data.decode(errors="replace")
        return None

    def _packet(self) -> bytes:
        """Empty where the process has ended and all that it sent was taken. One that has ended with tasks
        unread resets the connection, which is told before what it had sent, once."""
        for _ in range(2):
            try:
                return self.connection.recv(MOST_BYTES)
            except ConnectionError:
                continue
        return b""

    def ended(self) -> str:
        """Waits for the end of a process whose socket is closed; how it ended."""
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # It has closed its socket, and lives on.
            code = self._process.wait()
        if code >= 0:
            return f"exit status {code}"
        return f"signal {-code} ({signal.Signals(-code).name})"

    def restart(self, fds_of: FdsOf) -> None:
        """Starts another process in the place of one that has ended, and gives it the same tasks."""
        self.connection.close()
        self._open()
        for task in self.tasks:
            self._send(task, fds_of)

    def close(self) -> None:
        """Ends the process at once."""
        self.connection.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """In a forked child: the process is the parent's. Only what keeps it from seeing our end goes."""
        self.connection.close()
        self._process.returncode = 0  # It is not ours to wait for.
