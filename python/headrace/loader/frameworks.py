"""What other loops do to a torch loader: who iterates it, and what those find who take it for a DataLoader
(design note 0034)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Protocol

from torch.utils.data import Dataset, DistributedSampler

from headrace.errors import InvalidArgumentError

__all__ = [
    "BATCHES",
    "BatchIndexes",
    "Batches",
    "OwnRank",
    "begins_epoch",
    "callers",
    "find_lost_in_composer",
    "find_lost_state",
    "find_state_left_out",
    "find_uncounted",
    "find_wrapper",
    "is_composer_training",
    "is_evaluated",
    "refusal",
    "take_only",
]

_TORCH = ("torch.utils.data.", "torchdata.", "multiprocessing.")  # The last where workers are started.
_LIGHTNING = ("lightning.pytorch.", "pytorch_lightning.")
_OWN = ("headrace.torch", "headrace.loader.trainer", "headrace.loader.relay.", __name__)

BATCHES = (
    "a headrace.torch.Loader delivers whole batches: use DataLoader(loader, batch_size=None), or iterate the "
    "loader itself; the loader's own batch_size= is how many samples they have"
)
"""What is wrong with a DataLoader that would stack batches."""
_ACCELERATE = (
    "Accelerate cannot resume a DataLoader around a headrace.torch.Loader, and on several processes would "
    "deliver the samples of one rank only: write accelerator.prepare(model, optimizer, loader) and "
    "skip_first_batches(loader, n) with the loader itself, which reads its rank's part and whose state "
    "belongs to save_state()"
)
_TRAINER = (
    "transformers.Trainer cannot resume a DataLoader around a headrace.torch.Loader, and on several "
    "processes would deliver the samples of one rank only: give it the loader itself, by a subclass of "
    "Trainer with `def get_train_dataloader(self): return loader` (get_eval_dataloader likewise)"
)
_LIGHTNING_FIT = (
    "Lightning cannot save the state of a DataLoader around a headrace.torch.Loader, and would begin anew "
    "after a restart: return the loader itself from train_dataloader(), or give it to trainer.fit(model, "
    "loader)"
)

_LIGHTNING_LOST = (
    "Lightning goes on at step {step} from {path}, and has no state of this loader from there: it would "
    "deliver samples again that the run has had. Checkpoints of a run whose training data was the loader "
    "itself, fit(model, loader), hold it. To go on with another one, say where to begin: "
    "loader.set_epoch(epoch) or loader.load_state_dict(state)"
)
_LIGHTNING_LEFT_OUT = (
    "Lightning goes on at step {step} from {path}, which was written when an epoch was over (in "
    "on_train_epoch_end, or after fit()): it holds the states of data loaders, but Lightning loads none of "
    "them then, and this loader would deliver again what the run has had. Load the DataLoader's before "
    'fit(): data_loader.load_state_dict(torch.load(path, weights_only=False)["loops"]["fit_loop"]'
    '["state_dict"]["combined_loader"][0]). A run that gives fit() the loader itself, without a DataLoader '
    "around it, goes on without that"
)

_LIGHTNING_COMPACT = (
    'filter(holes="compact") may leave batches out, and Lightning counts on len() of them: where fewer come, '
    "an epoch ends without validation, and without a step for the last gradients that were accumulated: use "
    'holes="mask", with which batch.mask says which samples count'
)

_COMPOSER_TRAINER = "composer.trainer.trainer"
_COMPOSER_WRAPPED = (
    "Composer cannot keep the state of a DataLoader around a headrace.torch.Loader: give "
    "Trainer(train_dataloader=loader) the loader itself"
)
_COMPOSER_LOST = (
    "Composer goes on at batch {batch}, and nobody has told this loader where that is: {why}, and it would "
    "deliver other samples than are left. Its own state is in every checkpoint that Composer's Trainer has "
    "saved with the loader itself as train_dataloader; otherwise say where to begin, "
    "loader.load_state_dict(state) or loader.set_epoch(epoch), and give Trainer(spin_dataloaders=False)"
)


def callers() -> Iterator[tuple[str, FrameType]]:
    """(module, frame) of those who called the loader, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(_OWN):
            yield module, frame
        frame = frame.f_back


def _lightning_loop(module: str) -> str:
    """``"fit"`` or ``"other"`` for modules that run Lightning's loops, else ``""``."""
    if not module.startswith(_LIGHTNING):
        return ""
    last = module.rpartition(".")[2]
    return {
        "fit_loop": "fit",
        "training_epoch_loop": "fit",
        "evaluation_loop": "other",
        "prediction_loop": "other",
    }.get(last, "")


def _lightning() -> tuple[str, Any]:
    """Which loop of Lightning's asks for the loader's batches, the innermost one (``"fit"``, ``"other"``:
    it evaluates or predicts, ``""``: none), and its trainer."""
    for module, frame in callers():
        if not module.startswith((*_TORCH, *_LIGHTNING)):
            break
        if loop := _lightning_loop(module):
            return loop, getattr(frame.f_locals.get("self"), "trainer", None)
    return "", None


def find_wrapper() -> InvalidArgumentError | None:
    """What is wrong where the loader is iterated, or told its epoch, by something that would deliver other
    samples than it should, now or after a restart. Only who comes next behind torch's own classes counts:
    what a user's code does itself is allowed."""
    stack = callers()
    is_inside = is_stateful = False
    caller = ""
    for caller, frame in stack:
        if not caller.startswith(_TORCH):
            break
        is_inside = True
        is_stateful = is_stateful or caller.startswith("torchdata.")
        if caller == "torch.utils.data._utils.fetch" and frame.f_locals.get("auto_collation"):
            return InvalidArgumentError(BATCHES)
    if caller.startswith("accelerate."):
        return InvalidArgumentError(
            _TRAINER if any(module == "transformers.trainer" for module, _ in stack) else _ACCELERATE
        )
    if is_inside and caller.startswith("transformers."):
        return InvalidArgumentError(_TRAINER)
    if is_inside and not is_stateful and caller.startswith(_LIGHTNING):
        loop = next(filter(None, (_lightning_loop(module) for module, _ in stack)), "")
        return InvalidArgumentError(_LIGHTNING_FIT) if loop == "fit" else None
    if is_inside and caller == _COMPOSER_TRAINER and (found := _composer_loop()) and found[0] != "other":
        return InvalidArgumentError(_COMPOSER_WRAPPED)
    return None


def _composer_loop() -> tuple[str, FrameType] | None:
    """Which loop of Composer's asks for the loader's batches: ``"train"``, ``"other"`` (it evaluates or
    predicts), or ``"spin"`` (it takes one batch an epoch to bring a sampler forward); and its frame."""
    behind_torch = (found for found in callers() if not found[0].startswith(_TORCH))
    module, frame = next(behind_torch, ("", None))
    if module != _COMPOSER_TRAINER or frame is None:
        return None
    if frame.f_code.co_name == "_spin_dataloaders_to_cur_epoch":
        is_training = frame.f_locals["dataloader"] is frame.f_locals["self"].state.train_dataloader
        return ("spin" if is_training else "other"), frame
    if frame.f_code.co_name == "_iter_dataloader":
        return ("train" if frame.f_locals["trainer_mode"].name == "TRAIN" else "other"), frame
    return None


def is_composer_training() -> bool:
    """Whether Composer's training asks for the loader's batches."""
    found = _composer_loop()
    return found is not None and found[0] == "train"


def find_lost_in_composer(is_at_start: bool) -> InvalidArgumentError | None:
    """What is wrong where Composer's training goes on, and its checkpoint had no state of the loader:
    Composer then takes batches of each epoch before this one, and of this one as many as it has trained on,
    in the hope that the loader begins anew at each loop."""
    found = _composer_loop()
    if found is None or found[0] == "other":
        return None
    trainer = found[1].f_locals["self"]
    batch, in_epoch = int(trainer.state.timestamp.batch), int(trainer.state.timestamp.batch_in_epoch)
    if "train" in trainer.state.dataset_resumption or not batch:
        return None
    if found[0] == "spin" or (trainer.spin_dataloaders and in_epoch):
        return InvalidArgumentError(
            _COMPOSER_LOST.format(batch=batch, why="Composer skips batches to get there")
        )
    if is_at_start:
        return InvalidArgumentError(_COMPOSER_LOST.format(batch=batch, why="it stands at its very beginning"))
    return None


def find_lost_state() -> InvalidArgumentError | None:
    """What is wrong where Lightning's ``fit(ckpt_path=)`` iterates a loader that stands at its very
    beginning, though the run is further. To be asked where no state was loaded."""
    loop, trainer = _lightning()
    path, step = getattr(trainer, "ckpt_path", None), getattr(trainer, "global_step", 0)
    if loop != "fit" or not path or not step:
        return None
    what = _LIGHTNING_LEFT_OUT if _states_left_out(trainer) else _LIGHTNING_LOST
    return InvalidArgumentError(what.format(step=step, path=path))


def _states_left_out(trainer: Any) -> list[Any]:
    """States of loaders in the checkpoint that Lightning goes on from, and does not load: where it was
    written in ``on_train_epoch_end`` or after ``fit()`` it says that no epoch was interrupted."""
    fit = trainer.fit_loop
    # Not later in the run: they are still there then, and are none of loaders that are made anew.
    return fit._combined_loader_states_to_load if getattr(fit, "is_resuming", False) else []


def find_state_left_out(loader: object) -> Mapping[str, Any] | None:
    """The state of a loader in the checkpoint of Lightning's ``fit(ckpt_path=)``, where Lightning does not
    load it. To be asked where no state was loaded."""
    loop, trainer = _lightning()
    if loop != "fit" or not (states := _states_left_out(trainer)):
        return None
    there = trainer.fit_loop._combined_loader.flattened
    loaders = [each for each in there if hasattr(each, "load_state_dict")]
    if len(loaders) != len(states):
        return None  # They are of others; where Lightning loads them that is an error.
    return next((state for each, state in zip(loaders, states, strict=True) if each is loader), None)


def find_uncounted() -> InvalidArgumentError | None:
    """What is wrong where Lightning's ``fit()`` iterates a loader that may leave batches out."""
    return InvalidArgumentError(_LIGHTNING_COMPACT) if _lightning()[0] == "fit" else None


def refusal(error: Exception) -> Iterator[Any]:
    """An iterator that raises: Lightning hides what ``iter()`` raises behind an error of its own."""
    raise error
    yield


def is_evaluated() -> bool:
    """Whether a loop of Lightning's or Composer's that evaluates or predicts asks for the loader's
    batches."""
    if found := _composer_loop():
        return found[0] == "other"
    return _lightning()[0] == "other"


def begins_epoch(is_placed: bool) -> bool:
    """Whether Lightning's ``fit()`` asks for the batches of an epoch that it begins. It may have left the one
    before (``limit_train_batches=``), also just before its checkpoint was written, and other loaders begin
    anew each time.

    :param is_placed: whether a state was just loaded: by the user, unless Lightning has finished an epoch.
    """
    loop, trainer = _lightning()
    if loop != "fit":
        return False
    progress = trainer.fit_loop.epoch_loop.batch_progress
    return bool(progress.is_last_batch or (not is_placed and not progress.current.ready))


class Indexed(Protocol):
    """A loader whose batches of an epoch have numbers."""

    def __len__(self) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...
    def begin_indexed(self) -> None: ...
    def batch_at(self, index: int) -> Any: ...
    def count_samples(self) -> int: ...
    def state_dict(self) -> dict[str, Any]: ...
    def go_on_from(self, state: Mapping[str, Any], is_epoch_over: bool) -> None: ...


class BatchIndexes:
    """``batch_sampler`` of a loader: numbers of the batches of an epoch, one at a time.
    ``skip_first_batches()`` leaves out the first of them, and Trainer tells it the epoch."""

    def __init__(self, loader: Indexed) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[list[int]]:
        self._loader.begin_indexed()
        return iter([index] for index in range(len(self._loader)))

    def __len__(self) -> int:
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)


class Batches(Dataset[Any]):
    """``dataset`` of a loader: batches by their number in the epoch, in this order only."""

    def __init__(self, loader: Indexed) -> None:
        self._loader = loader

    def __getitem__(self, index: int) -> Any:
        return self._loader.batch_at(index)

    def __len__(self) -> int:
        """Samples of an epoch on all ranks: what Trainer reports and trims its evaluation to."""
        return self._loader.count_samples()

    def state_dict(self, num_samples: int | None = None, from_beginning: bool = True) -> dict[str, Any]:
        """The loader's, which Composer keeps in its checkpoints. ``num_samples``: what it has trained on in
        its epoch. After the last batch that is still all of the epoch, where the loader is in the next one
        already; Composer then wants a loop without batches, to end its own epoch."""
        state = self._loader.state_dict()
        return {"loader": state, "is_epoch_over": bool(num_samples) and not state["batches"]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """By Composer, from a checkpoint."""
        self._loader.go_on_from(state["loader"], state["is_epoch_over"])


class OwnRank(DistributedSampler[Any]):
    """``sampler`` of a loader: says that each rank has its part already, and takes no epoch from loops that
    count from 0 after a restart."""

    def __init__(self, loader: Indexed) -> None:  # DistributedSampler would want a process group.
        self._loader = loader

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._loader)))

    def __len__(self) -> int:
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        pass


def take_only(batches: Sequence[Any]) -> Any:
    """``collate_fn`` of a loader: its one batch as it is."""
    (batch,) = batches
    return batch
