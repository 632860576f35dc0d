"""transformers.Trainer goes on by step numbers alone. So the loader adds its state to Trainer's
checkpoints, goes on from it, and refuses numbers that say something else (design note 0034)."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

from headrace.errors import InvalidArgumentError
from headrace.loader.frameworks import callers
from headrace.loader.loader import Loader
from headrace.loader.mapping.mapped import MappedLoader

__all__ = ["find_run"]

_NAME = "HeadraceLoader"  # Of the state in trainer_state.json: the name of the callback's type.
_GO_ON = "TrainingArguments(ignore_data_skip=True, max_steps={max_steps})"
_COMPACT = (
    'filter(holes="compact") may leave batches out, and Trainer goes on by how many it has had: train with '
    f'holes="mask", or write {_GO_ON.format(max_steps="...")}, with which the loader goes on where its state '
    "says"
)


class _Run:
    """Callback that keeps a loader's state with the checkpoints of a Trainer, as stateful callbacks do."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None
        self._trainer: Any = None
        self._loader: Any = None
        self._state: Any = None  # Trainer's, of the run for which the loader has its place.
        self._epochs_ahead = 0  # Of the loader, before Trainer's count.

    def state(self) -> dict[str, Any]:
        """What Trainer writes into trainer_state.json, and makes this object of again."""
        if self._loader is not None and not self._loader.closed:
            self.kept = self._loader.state_dict()
        return {"args": {}, "attributes": {"kept": self.kept}}

    def follow(self, trainer: Any, loader: Loader | MappedLoader) -> None:
        """At the first use in a run of Trainer's: goes to where its checkpoint says."""
        self._trainer, self._loader = trainer, loader
        if self._state is trainer.state:
            return
        self._epochs_ahead = 0
        if trainer.state.global_step:
            self._resume()
        # Trainer writes those that it finds there already.
        trainer.state.stateful_callbacks.setdefault(_NAME, self.state())
        self._state = trainer.state

    def loader_epoch(self, epoch: int) -> int:
        """The loader's epoch where Trainer's count is at ``epoch``."""
        return epoch + self._epochs_ahead

    def _resume(self) -> None:
        state, loader = self._trainer.state, self._loader
        kept = (state.stateful_callbacks.get(_NAME) or {}).get("attributes", {}).get("kept")
        is_ignoring = bool(self._trainer.args.ignore_data_skip)
        if loader._may_skip and (not is_ignoring or self._trainer.args.max_steps <= 0):
            raise InvalidArgumentError(_COMPACT)
        if loader._is_placed:
            kept = None  # The user has loaded a state.
        elif kept is not None:
            loader.load_state_dict(kept)
        else:
            if not is_ignoring:
                self._check_length()
                loader.set_epoch(self._counted()[0])
            return
        epoch, skipped = self._counted()
        is_same = loader.epoch == epoch and loader._stands_at(skipped)
        if not is_same and (not is_ignoring or self._trainer.args.max_steps <= 0):
            raise InvalidArgumentError(self._disagreement(kept, epoch, skipped))
        if is_ignoring:
            self._epochs_ahead = loader.epoch - epoch

    @property
    def _accumulated(self) -> int:
        return int(self._trainer.args.gradient_accumulation_steps)

    @property
    def _steps_an_epoch(self) -> int:
        return max(-(-len(self._loader) // self._accumulated), 1)

    def _counted(self) -> tuple[int, int]:
        """Epoch, and batches of it, that Trainer takes for done, by this run's length of an epoch."""
        epoch, steps = divmod(self._trainer.state.global_step, self._steps_an_epoch)
        return epoch, steps * self._accumulated

    def _check_length(self) -> None:
        """Without the loader's state: Trainer's own says how many epochs the steps were."""
        state = self._trainer.state
        epoch, skipped = self._counted()
        length = max(len(self._loader), 1)
        if state.epoch is None or abs(state.epoch - epoch - skipped / length) * length < 0.5:
            return
        raise InvalidArgumentError(
            f"the {state.global_step} steps of this checkpoint were {state.epoch:.6g} epochs, and with this "
            f"loader are {epoch + skipped / length:.6g}: its run had another global batch or dataset, and "
            "Trainer would skip other samples than it had. Resume with as many processes and the batch size "
            "of before; or with the loader's state, where a callback has kept it: "
            f"loader.load_state_dict(state) and {_GO_ON.format(max_steps='...')}"
        )

    def _disagreement(self, kept: dict[str, Any] | None, epoch: int, skipped: int) -> str:
        loader, steps = self._loader, self._trainer.state.global_step
        before = "" if kept is None else f" in global batches of {kept['global_batch']}"
        return (
            f"the loader goes on from a state of epoch {loader.epoch}, {loader.batches_left} of {len(loader)}"
            f" batches to go, and Trainer takes its {steps} steps{before} for {epoch} epochs and {skipped}"
            " batches, so that samples would be lost or repeated: train with the global batch of before"
            f" (batch_size times processes, it is {loader._global_batch} now), or write"
            f" {_GO_ON.format(max_steps=self._max_steps())}, with which the loader goes on where its state "
            "says"
        )

    def _max_steps(self) -> int | str:
        """Steps at the end of the epochs that the run was given, those of before included."""
        args, loader = self._trainer.args, self._loader
        if args.max_steps > 0:
            return "..."
        done, each = int(self._trainer.state.global_step), self._steps_an_epoch
        left: int = loader.batches_left // self._accumulated
        if not left and done % each == 0:
            left = 1  # Trainer counts its epochs in steps too, and would end one short.
        epochs = math.ceil(float(args.num_train_epochs))
        steps: int = done + left + max(epochs - loader.epoch - 1, 0) * each
        return steps


@functools.cache
def _callback_type() -> Any:
    """A type that Trainer knows, made when transformers is there already."""
    module = sys.modules["transformers.trainer_callback"]
    return type(_NAME, (_Run, module.TrainerCallback, module.ExportableState), {})


def find_run(given: Any, loader: Loader | MappedLoader) -> _Run | None:
    """The run of a Trainer that calls now and trains with ``given``, which delivers what ``loader`` does."""
    if "transformers.trainer" not in sys.modules:
        return None
    for module, frame in callers():
        # Of train(), whose locals are few: asking for them keeps them until it returns.
        if module != "transformers.trainer" or frame.f_code.co_name != "train":
            continue
        trainer: Any = frame.f_locals.get("self")
        handler: Any = getattr(trainer, "callback_handler", None)
        if getattr(handler, "train_dataloader", None) is not given:
            return None
        run: _Run | None = next((known for known in handler.callbacks if isinstance(known, _Run)), None)
        if run is None:
            run = _callback_type()()
            trainer.add_callback(run)
        run.follow(trainer, loader)
        return run
    return None
