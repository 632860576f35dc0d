"""Documents packed into sequences of equal length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.base.option_names import named_options
from headrace.base.recipe import Recipe, lasting, lasting_options
from headrace.data.dataset import Dataset
from headrace.sources.concat import open_source
from headrace.sources.options import dataset_names
from headrace.sources.packed import PackedSource

if TYPE_CHECKING:
    from headrace.sources.source import SourceLike

__all__ = ["PackedTokens", "pack_tokens"]


class PackedTokens(Dataset):
    """Documents packed into sequences of equal length: what :func:`pack_tokens` returns."""

    @property
    def report(self) -> dict[str, float]:
        """What packing did: counts of documents, sequences and tokens, and ``waste``, the share of
        padding."""
        report: dict[str, float] = dict(_native.pack_report(self._native))
        slots = report["sequences"] * self._columns[0].shape[0]
        report["waste"] = report["padding_tokens"] / slots
        return report


def pack_tokens(
    dataset: SourceLike,
    *,
    length: int = 2048,
    column: str = "tokens",
    method: str = "best_fit",
    pad_token: int = 0,
    min_piece: int = 1,
    drop_partial: bool = False,
    dtype: str = "",
    memory: int | str = "256MiB",
    **options: Any,
) -> PackedTokens:
    """A dataset whose samples are sequences of ``length`` tokens, made of the documents of another.

    Columns: ``tokens``, ``segment_ids`` (1, 2, ... by document, 0 is padding) and ``positions`` (from 0 in
    each piece of a document). Documents of one block are packed together, so order, states and mixtures work
    as for any dataset. Their lengths come from the index: opening reads no data.

    :param column: one-dimensional token arrays: MDS ``ndarray`` columns, LitData tensors and arrays, Megatron
        documents, or ``bytes`` with ``dtype=``. No other column may vary in size.
    :param method: ``"best_fit"`` cuts only documents longer than a sequence; ``"concatenate"`` puts them end
        to end and cuts at every ``length``.
    :param min_piece: pieces of cut documents shorter than this are left out (see ``report``).
    :param drop_partial: with ``"concatenate"``: leave out the last sequence of a block when it is not full.
    :param options: of :class:`Dataset`, when ``dataset`` is a URL or path.
    """
    _NAMES.check(options)
    packing = {
        "length": length,
        "column": column,
        "method": method,
        "pad_token": pad_token,
        "min_piece": min_piece,
        "drop_partial": drop_partial,
        "dtype": dtype,
    }
    recipe = Recipe(
        pack_tokens, (lasting(dataset),), {**packing, "memory": memory, **lasting_options(options)}
    )
    source = PackedSource(open_source(dataset, **options), memory=memory, **packing)
    return PackedTokens._over(source, recipe)


_NAMES = dataset_names("pack_tokens()", named_options(pack_tokens))
