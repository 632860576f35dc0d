"""A keyword argument that does not exist: the error is about the class that was called, and says what to
write."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import prepare
from headrace.base.option_names import OptionNames
from headrace.checkpoint import Checkpointer, checkpointer
from headrace.data import dataset, mixture, packed
from headrace.loader import options as loader_options
from headrace.loader.peer_names import LOADER_PEERS
from headrace.prepare import conversion
from headrace.sources.peer_names import DATASET_PEERS
from headrace.store.peer_names import STORE_PEERS
from headrace.store.store import STORE_OPTIONS

FRUIT = OptionNames("Basket", {"": ["apple", "pear"], "the cellar": ["wine"]}, {"pomme": "use apple="})


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(hr.InvalidArgumentError) as raised:
        call()
    return str(raised.value)


def test_names_that_exist_pass() -> None:
    FRUIT.check(["wine", "apple"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aple", "Basket has no option 'aple': did you mean apple? Its own options are apple, pear"),
        ("pomme", "Basket has no option 'pomme': use apple="),
        ("pome", "Basket has no option 'pome' (nor 'pomme': use apple=). Its own options are apple, pear"),
        ("x", "Basket has no option 'x'. Its own options are apple, pear; of the cellar: wine"),
    ],
)
def test_what_is_said_about_one_that_does_not(name: str, message: str) -> None:
    assert refusal(lambda: FRUIT.check(["pear", name])) == message


@pytest.mark.parametrize(
    "name", ["num_workers", "collate_fn", "drop_last", "shuffle_buffer", "remote", "local"]
)
@pytest.mark.parametrize("name_of", ["of a URL", "of an open dataset"])
def test_a_loader_knows_what_others_call_it(name: str, name_of: str, few_numbers: Path) -> None:
    with hr.Dataset(few_numbers) as opened:
        given: Any = few_numbers if name_of == "of a URL" else opened
        said = refusal(lambda: hr.Loader(given, batch_size=4, **{name: 1}))  # type: ignore[call-arg]
    assert said == f"Loader has no option {name!r}: {LOADER_PEERS[name]}"


def test_a_typing_error_names_the_loaders_options(few_numbers: Path) -> None:
    said = refusal(lambda: hr.Loader(few_numbers, batch_size=4, shufle=False))  # type: ignore[call-arg]
    assert "did you mean shuffle?" in said
    assert "epoch_end" in said
    assert "hedge_fraction" not in said
    said = refusal(lambda: hr.Loader(few_numbers, batch_size=4, zzz=1))  # type: ignore[call-arg]
    for name in ("epoch_end", "tokens_per_sample", "hedge_fraction", "memory", "rank"):
        assert f" {name}," in said


@pytest.mark.parametrize("module", ["headrace", "headrace.torch", "headrace.jax"])
def test_a_typing_error_of_batch_size_is_told_before_that_it_lacks(module: str, few_numbers: Path) -> None:
    loader: Any = pytest.importorskip(module, exc_type=ImportError).Loader
    for call in (lambda: loader(few_numbers, batchsize=8), lambda: loader(dataset=few_numbers, batchsize=8)):
        assert "Loader has no option 'batchsize': did you mean batch_size?" in refusal(call)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'batch_size'"):
        loader(few_numbers, shuffle=False)
    assert list(inspect.signature(loader).parameters)[:2] == ["dataset", "batch_size"]

    class Mine(loader):  # type: ignore[misc]
        def __init__(self, url: Path, mine: int) -> None:
            super().__init__(url, batch_size=mine)

    with Mine(few_numbers, mine=4) as opened:
        assert len(list(opened)) > 0


@pytest.mark.parametrize("name", ["image", "jpeg"])
def test_a_decoder_names_its_options(name: str) -> None:
    call: Any = getattr(hr.decode, name)
    said = refusal(lambda: call(size=224))
    assert (
        said
        == "decode.image() has no option 'size': use resize=, crop=, random_crop= or random_resized_crop="
    )
    assert "did you mean interpolation? Its own options are augment," in refusal(lambda: call(interpolate=1))


CALLS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "Dataset": (lambda url, **more: hr.Dataset(url, **more), "shuffle", "belongs to a loader"),
    "Store": (lambda url, **more: hr.Store(url, **more), "endpoint_url", "use endpoint="),
    "Mixture": (lambda url, **more: hr.Mixture({"a": url}, **more), "batchin", "did you mean batching?"),
    "pack_tokens()": (lambda url, **more: hr.pack_tokens(url, **more), "lenght", "did you mean length?"),
    "prepare.write()": (lambda url, **more: prepare.write([], url, **more), "fmt", "use format="),
    "prepare.convert()": (
        lambda url, **more: prepare.convert(url, url, **more),
        "labels",
        "dataset_options=",
    ),
    "MDSWriter": (lambda url, **more: prepare.MDSWriter(url, **more), "size_limit", "use shard_bytes="),
    "Checkpointer": (lambda url, **more: Checkpointer(url, **more), "max_to_keep", "use keep="),
}


@pytest.mark.parametrize("owner", CALLS)
def test_others_speak_of_themselves(owner: str, few_numbers: Path) -> None:
    call, name, advice = CALLS[owner]
    said = refusal(lambda: call(str(few_numbers), **{name: 1}))
    assert said.startswith(f"{owner} has no option {name!r}")
    assert advice in said


@pytest.mark.parametrize("call", ["save", "load", "check_reference"])
def test_options_of_a_checkpointers_calls_are_told_apart(call: str, tmp_path: Path) -> None:
    names = inspect.signature(getattr(Checkpointer, call)).parameters.keys() - {"self", "measured"}
    for name in names:
        said = refusal(lambda name=name: Checkpointer(tmp_path, **{name: 1}))  # type: ignore[misc]
        assert re.search(rf"^Checkpointer has no option '{name}': it is of .*{call}\(", said), said
        assert "Its own options" not in said


@pytest.mark.parametrize("name", ["profile_name", "aws_profile"])
def test_a_profile_is_named_by_the_option_that_there_is(name: str) -> None:
    assert "profile" in hr.StoreOptions.__annotations__
    said = refusal(lambda: hr.Store("memory://", **{name: "x"}))  # type: ignore[misc]
    assert f"Store has no option {name!r}: use profile=" in said


def test_options_of_writers_are_listed() -> None:
    said = refusal(lambda: prepare.write([], "out", zzz=1))  # type: ignore[call-arg]
    for name in (
        "columns",
        "compression",
        "format",
        "hash",
        "memory",
        "shard_bytes",
        "access_key",
        "profile",
    ):
        assert f" {name}" in said
    assert "retry_seed" not in said
    said = refusal(lambda: prepare.MDSWriter("out", shard_byte=1))  # type: ignore[call-arg]
    assert "did you mean shard_bytes? Its own options are columns, compression, hash, memory," in said


TABLES = {
    "Loader": loader_options.LOADER_NAMES,
    "Dataset": dataset._NAMES,
    "Mixture": mixture._NAMES,
    "pack_tokens": packed._NAMES,
    "prepare.write()": conversion._WRITE_NAMES,
    "Store": STORE_OPTIONS,
    "Checkpointer": checkpointer._NAMES,
}


@pytest.mark.parametrize("owner", TABLES)
def test_names_of_others_are_not_options(owner: str) -> None:
    """A row for an option that exists is never read, and what it says is out of date."""
    known = {name for names in TABLES[owner].groups.values() for name in names}
    # A Dataset says of a Loader's options that they are that; the Loader knows them before it looks here.
    handed_on = DATASET_PEERS.keys() - STORE_PEERS.keys() if owner == "Loader" else set()
    assert not (TABLES[owner].elsewhere.keys() - handed_on) & known


@pytest.mark.parametrize("owner", TABLES)
def test_the_options_that_are_declared_are_known(owner: str) -> None:
    known = {name for names in TABLES[owner].groups.values() for name in names}
    declared = {
        "Loader": hr.LoaderOptions.__annotations__,
        "Store": hr.StoreOptions.__annotations__,
        "Checkpointer": hr.StoreOptions.__annotations__,
        "prepare.write()": hr.StoreOptions.__annotations__,
    }.get(owner, {**hr.DatasetOptions.__annotations__, **hr.StoreOptions.__annotations__})
    assert set(declared) <= known


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("batch_size", 0, "batch_size=0: expected a whole number from 1 to"),
        ("batch_size", -1, "batch_size=-1: expected a whole number from 1 to"),
        ("prefetch", 0, "prefetch=0: expected a whole number from 1 to 1,024"),
        ("workers", 10**6, "workers=1000000: expected a whole number from 0 to 1,024"),
        ("shuffle", "no", "shuffle='no': expected True or False"),
        ("progress", "x", "progress='x': expected True or False"),
        ("cache_decoded", True, "cache_decoded=True: expected a str"),
        ("on_bad_sample", None, "on_bad_sample=None: expected a str"),
        ("epoch_end", 1, "epoch_end=1: expected a str"),
        ("read_timeout", "3", "read_timeout='3': expected seconds"),
        ("read_timeout", float("nan"), "read_timeout=nan: expected seconds"),
        ("anonymous", "no", "anonymous='no': a value of the wrong kind"),
        *(
            (name, value, f"{name}={value!r}: expected seconds above 0, at most a year")
            for name in ("timeout", "connect_timeout", "first_byte_timeout", "progress_timeout")
            for value in (0, -1, float("nan"), 1e9)
        ),
    ],
)
def test_a_value_out_of_range_names_the_option_as_it_was_given(
    tmp_path: Path, option: str, value: Any, message: str
) -> None:
    hr.prepare.write([{"a": 1}], tmp_path / "d", format="mds")
    with pytest.raises(hr.InvalidArgumentError, match=re.escape(message)):
        hr.Loader(tmp_path / "d", **{"batch_size": 1, option: value})


def test_secrets_of_a_wrong_kind_are_not_shown(tmp_path: Path) -> None:
    for name in ("password", "password_salt", "proxy", "endpoint"):
        with pytest.raises(hr.InvalidArgumentError) as refused:
            hr.Dataset(tmp_path, **{name: b"topsecret"})
        assert f"{name}: a value of the wrong kind" in str(refused.value)
        assert "topsecret" not in str(refused.value)


def test_a_state_is_a_dict(tmp_path: Path) -> None:
    hr.prepare.write([{"a": 1}], tmp_path / "d", format="mds")
    with hr.Loader(tmp_path / "d", batch_size=1) as loader:
        for state, message in ((None, "NoneType"), (json.dumps(loader.state_dict()), r"str \(json.loads")):
            with pytest.raises(hr.InvalidArgumentError, match=message):
                loader.load_state_dict(state)
