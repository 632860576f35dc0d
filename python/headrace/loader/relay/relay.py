"""Reads for the workers of a DataLoader.

A loader's order, memory limit and state belong to one reader, and workers that each read every Nth batch
would read the same blocks N times. So the process that has the loader reads, in a thread of its own, and
deals the batches out in turn; functions run in the workers. The loader's position is what this process has
received from the DataLoader, counted batch by batch.

Threads: one hears the workers and drives the loader. ``_driving`` is held by whoever uses the loader or a
socket, ``_books`` by whoever reads or writes what was dealt; they are taken in this order. Both may be taken
again by a thread that has them: groups end wherever garbage is collected.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import InvalidArgumentError, UserCodeError
from headrace.loader.relay.channel import Channel
from headrace.loader.relay.deal import Deal, Start, place_of
from headrace.loader.relay.messages import message_of

if TYPE_CHECKING:
    from headrace.loader.loader import Loader

__all__ = ["Group", "Refusal", "Relay"]

_MOVED = (
    "the loader's position was changed, or another loop over it was begun, within this loop over a "
    "DataLoader with workers: begin a new one"
)
_END = {"end": True}
_SOME_STATES = (
    "some of the DataLoader's workers go on from a state, and others do not: load its state as it was saved"
)


_relays: weakref.WeakSet[Relay] = weakref.WeakSet()


class _Standing(NamedTuple):
    """Is another one as soon as anybody moves the loader or takes a batch from it."""

    moves: int
    batches: int


class _Loop:
    """One loop of a DataLoader over its workers."""

    def __init__(self) -> None:
        self.deal: Deal | None = None
        """None until it is known where the loop begins, or where it cannot."""
        self.was_placed = False
        """Whether load_state_dict() chose where it begins."""
        self.batches_left = 0
        """Of the epoch, behind what was dealt."""
        self.starts: dict[int, Start] = {}
        """Of workers that go on where their own states say."""
        self.last_word: dict[str, Any] | None = None
        """What each worker gets behind the last batch: the end, or an error."""

    @property
    def is_placed(self) -> bool:
        """And nothing was delivered."""
        return self.was_placed and self.deal is not None and self.deal.delivered == self.deal.first


class Refusal(NamedTuple):
    """What is wrong with a loop."""

    always: Exception | None = None
    anew: Exception | None = None
    """Where the workers have no states to go on from."""
    begins_epoch: bool = False
    """Nothing is wrong, but where the workers' states are within an epoch the loop wants the next one."""


class Group:
    """The workers of one iterator of a DataLoader.

    :param check: what is wrong with the loop that is about to begin.
    :param on_bad: is told samples that workers have replaced, as (position, message).
    """

    def __init__(
        self,
        relay: Relay,
        workers: int,
        check: Callable[[], Refusal],
        on_bad: Callable[[list[tuple[int, str]]], None],
    ) -> None:
        self._relay, self.workers, self._check, self.on_bad = relay, workers, check, on_bad
        self.channels: list[Channel] = []
        """By the number of the worker: that is how they are started."""
        self.loops: list[_Loop] = []
        self.standings: list[_Standing | None] = []
        """Where the loader stood when the training loop began each loop; None: that was refused."""
        self.refusal = Refusal()
        self.before: tuple[Deal, int] | None = None
        """What the batch that the training loop is about to get belongs to, and how many it got before."""
        self.error = ""
        """What the training loop got in the place of a batch: it gets no other until another loop begins."""
        self.is_over = False
        self.prepare()

    def prepare(self) -> None:
        """Before each loop, in the thread of the training loop."""
        self.error, self.refusal = "", self._check()
        self.standings.append(None if self.refusal.always else self._relay.begin())

    def add(self) -> Channel:
        """For the next worker, before it starts."""
        channel = Channel()
        self.channels.append(channel)
        self._relay.add(self, channel)
        return channel

    def note_delivered(self) -> None:
        """The training loop is about to get a batch. Raises InvalidArgumentError where it must not: the
        loader is not where it was."""
        self._relay.note_delivered(self)

    def take_back(self) -> None:
        """The training loop could not have the batch that it was about to get: it comes again."""
        self._relay.take_back(self)

    def note_ended(self) -> None:
        self._relay.note_ended(self)

    def close(self) -> None:
        """When the iterator has gone. Any thread."""
        self.is_over = True
        self._relay.stir()


class Relay:
    """Deals the batches of a loader out to workers.

    A reader of the loader, as mapped loaders are: it has taken batches ahead, and gives back what was not
    delivered. Its thread runs while there are workers.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._driving, self._books = threading.RLock(), threading.RLock()
        self._loop: _Loop | None = None  # Which the loader's position belongs to.
        self._group: Group | None = None
        self._groups: list[Group] = []
        self._moves = 0  # How often the loader's position was changed, or a loop over it begun.
        self._by_fd: dict[int, tuple[Group, int]] = {}
        self._poll = select.poll()
        self._is_running = False
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # An iterator that ends with the interpreter finds no module here any more.
        self._stir = functools.partial(os.write, self._wake, b"x")
        self._poll.register(self._woken, select.POLLIN)
        # Not at exit: iterators may end after that.
        weakref.finalize(self, _close_all, (self._woken, self._wake), os.getpid()).atexit = False
        _relays.add(self)

    # --- The training loop's thread ---

    def begin(self) -> _Standing:
        """A loop is begun, which opens once its workers are there: until then nobody may move the loader."""
        self._loader._recall()
        return self._standing

    def note_moved(self) -> None:
        """The loader is about to be moved: from now on no loop opens that was begun before. Waits for one
        that is being opened."""
        with self._driving:
            self._moves += 1

    @property
    def _standing(self) -> _Standing:
        return _Standing(self._moves, self._loader._batches)

    def add(self, group: Group, channel: Channel) -> None:
        with self._books:
            if group not in self._groups:
                self._groups.append(group)
            self._by_fd[channel.fileno()] = group, len(group.channels) - 1
            self._poll.register(channel, select.POLLIN)
            must_start, self._is_running = not self._is_running, True
        if must_start:
            threading.Thread(target=self._serve, name="headrace-relay", daemon=True).start()
        self.stir()

    def note_delivered(self, group: Group) -> None:
        with self._books:
            if self._group is not group or (deal := self._deal) is None:
                raise InvalidArgumentError(_MOVED)
            group.before = deal, deal.delivered
            deal.note_delivered()

    def take_back(self, group: Group) -> None:
        with self._books:
            if group.before is not None:
                deal, count = group.before
                deal.delivered = count

    def note_ended(self, group: Group) -> None:
        """The training loop knows that the epoch is over: from now on the loader says where it stands."""
        with self._books:
            if self._group is group:
                self._loop = self._group = None

    def stir(self) -> None:
        try:  # noqa: SIM105 (contextlib may be gone too)
            self._stir()
        except BlockingIOError:
            pass  # It has not even heard the last time.

    def _stop(self) -> None:
        """The loader is closed: all loops end."""
        for group in list(self._groups):
            group.close()

    # --- As a reader of the loader; any thread ---

    @property
    def _deal(self) -> Deal | None:
        return None if self._loop is None else self._loop.deal

    @property
    def _is_ahead(self) -> bool:
        return self._deal is not None  # Till its end, also where all is delivered.

    @property
    def _is_placed(self) -> bool:
        with self._books:
            loop = self._loop
            return loop is not None and loop.is_placed

    def state_dict(self) -> dict[str, Any]:
        with self._books:
            text = self._loader._native.state() if self._deal is None else self._deal.state
        state: dict[str, Any] = json.loads(text)
        return state

    @property
    def epoch(self) -> int:
        return int(self.state_dict()["epoch"])

    @property
    def batches_left(self) -> int:
        with self._books:
            native, loop = self._loader._native, self._loop
            if loop is None or loop.deal is None:
                return native.batches_left
            return loop.batches_left + loop.deal.dealt - loop.deal.delivered

    def _rewind(self) -> None:
        """Ends the loop; the loader goes back behind the last batch that was delivered."""
        with self._driving:
            with self._books:
                loop, group, self._loop, self._group = self._loop, self._group, None, None
            if loop is None or loop.deal is None or group is None:
                return
            if loop.deal.is_ahead and not self._loader.closed:
                self._loader._native.load_state(loop.deal.state)
                self._loader._was_placed = loop.is_placed
            self._end(group, loop, message_of(InvalidArgumentError(_MOVED)))

    # --- The relay's own thread ---

    def _serve(self) -> None:
        try:
            self._serve_groups()
        except BaseException:  # A bug; but nobody may wait for ever for a thread that is gone.
            for group in self._groups:
                group.is_over = True
            with self._driving:
                self._close_groups()
            with self._books:
                self._is_running = False
            raise

    def _serve_groups(self) -> None:
        while True:
            ready = self._poll.poll()
            with self._driving:
                for fd, _ in ready:
                    if fd == self._woken:
                        self._calm()
                    elif fd in self._by_fd:
                        self._hear(*self._by_fd[fd])
                self._close_groups()
                self._deal_out()
            with self._books:
                if not self._groups:
                    self._is_running = False
                    return

    def _calm(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 64):
                pass

    def _close_groups(self) -> None:
        for group in [group for group in self._groups if group.is_over]:
            for channel in group.channels:
                self._drop(channel)
            with self._books:
                self._groups.remove(group)

    def _drop(self, channel: Channel) -> None:
        if channel.is_closed:
            return
        self._poll.unregister(channel)
        with self._books:
            del self._by_fd[channel.fileno()]
        channel.close()

    def _hear(self, group: Group, worker: int) -> None:
        channel = group.channels[worker]
        try:
            message = channel.receive()
        except EOFError:
            self._drop(channel)
            return
        if "bad" in message:
            try:
                group.on_bad(message["bad"])
            except Exception as error:  # A warning that was made an error.
                self._end(group, group.loops[-1], message_of(error))
            return
        if "begin" in message:
            self._begin(group, worker, message["begin"])
            return
        if channel.begun < len(group.loops):
            return  # About a loop that is over for the others.
        loop = group.loops[-1]
        if "failed" in message:
            self._end(group, loop, message_of(UserCodeError(message["failed"])))
        elif loop.deal is not None:
            with self._books:
                loop.deal.credits[worker] += 1

    def _begin(self, group: Group, worker: int, start: list[Any] | None) -> None:
        """A worker begins a loop; its state says where, or nothing does."""
        channel = group.channels[worker]
        channel.begun += 1
        number = channel.begun  # A worker that starts late has loops before the last one to begin.
        if number > len(group.loops):
            if group.loops:
                self._end(group, group.loops[-1], message_of(InvalidArgumentError(_MOVED)))
            group.loops.append(_Loop())
            refusal = group.refusal
            if error := refusal.always or (refusal.anew if start is None else None):
                self._end(group, group.loops[-1], message_of(error))
            elif start is None:
                self._open(group, None)
        loop = group.loops[number - 1]
        if start is not None:
            loop.starts[worker] = Start(*start)
            if len(loop.starts) == group.workers and loop.last_word is None:
                self._go_on(group, loop)
        elif loop.starts:
            self._end(group, loop, message_of(InvalidArgumentError(_SOME_STATES)))
        state = loop.deal.state if loop.deal is not None and start is None else None
        channel.send({"begun": number, "state": state})
        if loop.last_word is not None:
            channel.send({"of": number, **loop.last_word})

    def _go_on(self, group: Group, loop: _Loop) -> None:
        try:
            place = place_of([loop.starts[worker] for worker in range(group.workers)])
        except InvalidArgumentError as error:
            self._end(group, loop, message_of(error))
        else:
            self._open(group, place)

    def _open(self, group: Group, place: Start | None) -> None:
        """Begins the group's last loop: where the loader stands, or at a place."""
        loop, loader = group.loops[-1], self._loader
        if group.standings[len(group.loops) - 1] != self._standing:
            self._end(group, loop, message_of(InvalidArgumentError(_MOVED)))
            return
        try:
            if place is not None:
                loader.load_state_dict(json.loads(place.state))
                if group.refusal.begins_epoch and loader.state_dict()["batches"]:
                    loader.reset(loader.epoch + 1)
            iter(loader)
        except Exception as error:
            self._end(group, loop, message_of(error))
            return
        with self._books:
            loop.deal = Deal(group.workers, 0 if place is None else place.next, loader._native.state())
            loop.batches_left, loop.was_placed = loader._native.batches_left, loader._was_placed
            self._loop, self._group, loader._reader = loop, group, self

    def _deal_out(self) -> None:
        """Gives workers what they may have, in turn."""
        loop, group = self._loop, self._group
        if loop is None or group is None or loop.deal is None:
            return
        while loop.last_word is None and loop.deal.can_deal:
            if loop.deal.turn >= len(group.channels):
                return  # The first workers may begin before the last are started.
            channel = group.channels[loop.deal.turn]
            if channel.is_closed or channel.begun < len(group.loops):
                return
            try:
                batch = self._loader._read()
            except Exception as error:
                self._end(group, loop, message_of(error))
                return
            if batch is None:
                loop.batches_left = 0  # Orders of others may leave the last ones empty.
                self._end(group, loop, _END)
                return
            native = self._loader._native
            state, left, number = native.state(), native.batches_left, loop.deal.dealt
            with self._books:
                loop.deal.note_dealt(state)
                loop.batches_left = left
            channel.send_batch(batch, {"of": len(group.loops), "number": number, "state": state})

    def _end(self, group: Group, loop: _Loop, word: dict[str, Any]) -> None:
        """Nothing more is dealt; every worker hears it, or will when it begins."""
        if loop.last_word is not None:
            return
        loop.last_word = word
        number = group.loops.index(loop) + 1
        for channel in group.channels:
            if channel.begun == number and not channel.is_closed:
                channel.send({"of": number, **word})


def _close_all(fds: tuple[int, ...], owner_pid: int) -> None:
    if os.getpid() == owner_pid:
        for fd in fds:
            os.close(fd)


def _forget_all() -> None:
    """In a forked child: it must not keep workers from seeing the parent's end, or the parent theirs."""
    for relay in list(_relays):
        for group in relay._groups:
            for channel in group.channels:
                channel.socket.close()
                channel.other.close()
    _relays.clear()


os.register_at_fork(after_in_child=_forget_all)
