"""States that cannot be saved as they are, and states to fill that are not like what was saved: told, by
name."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.checkpoint import Checkpointer

torch = pytest.importorskip("torch")

ARRAY = np.ones(3)


class Two(torch.Tensor):  # type: ignore[misc]
    """Keeps its numbers in two other tensors, as quantized weights of others do."""

    @staticmethod
    def __new__(cls, one: Any, other: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, one.shape, dtype=one.dtype)

    def __init__(self, one: Any, other: Any) -> None:
        self.one, self.other = one, other

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [each.one if isinstance(each, Two) else each for each in args]
        return function(*args, **(kwargs or {}))


def nested() -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            lambda: Two(torch.ones(5000), torch.ones(5000)),
            r"x: is a .*\.Two, which keeps its numbers in other",
        ),
        (lambda: torch.eye(3).to_sparse(), "x: is a torch.sparse_coo tensor; save its indices and values"),
        (lambda: torch.eye(3).to_sparse_csr(), "x: is a torch.sparse_csr tensor"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), "x: is quantized"),
        (nested, "x: is a nested tensor"),
        (lambda: torch.ones(3, device="meta"), "x: is on the meta device"),
        (
            lambda: torch.nn.UninitializedParameter(),
            "x: is a parameter of a LazyModule and has no values yet: run the module",
        ),
        (lambda: np.ma.masked_array([1.0, 2.0], [True, False]), "x: is a masked array"),
        (lambda: "caf\udce9", r"state\['x'\] has text with a half of a surrogate pair"),
        (lambda: {"\udce9": 1}, r"state\['x'\] has text with a half of a surrogate pair"),
        (lambda: 10**5000, r"state\['x'\] has an integer of 16610 bits"),
    ],
)
def test_what_cannot_be_saved_is_told_before_anything_is_written(
    tmp_path: Path, value: Any, says: str
) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        with pytest.raises(hr.InvalidArgumentError, match=says):
            checkpointer.save(1, {"w": torch.ones(3), "x": value()})
        assert not list(tmp_path.glob("saves/*"))
        checkpointer.save(2, {"w": torch.ones(3)}).result()


@pytest.mark.parametrize(
    ("wrap", "place"),
    [
        (lambda model: model, "state"),
        (lambda model: {"nets": {"g": model}}, r"state\['nets'\]\['g'\]"),
        (lambda model: [model], r"state\['0'\]"),
        (lambda model: {0: model}, r"state\['0'\]"),
    ],
)
@pytest.mark.parametrize("kind", ["Linear", "SGD"])
def test_what_has_a_state_is_told_its_place(tmp_path: Path, wrap: Any, place: str, kind: str) -> None:
    model = torch.nn.Linear(2, 2)
    value = model if kind == "Linear" else torch.optim.SGD(model.parameters())
    with Checkpointer(tmp_path) as checkpointer:
        text = rf"^{place} is a torch.*\.{kind}, which is saved by its state: put it into the outermost dict"
        for call in (lambda: checkpointer.save(1, wrap(value)), lambda: checkpointer.prepare(wrap(value))):
            with pytest.raises(hr.InvalidArgumentError, match=text) as raised:
                call()
            assert "state_dict()" in str(raised.value)
            assert "pickle" not in str(raised.value)
        with pytest.raises(hr.InvalidArgumentError, match="is no value of a checkpoint"):
            checkpointer.save(1, {"net": {"kind": type(value)}})


def test_metadata_is_what_it_was_when_it_was_saved(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {"loss": [1.5], "shape": (2, 3)}
    with Checkpointer(tmp_path) as checkpointer:
        may_end = threading.Event()
        checkpointer._worker.submit(may_end.wait, 60)
        handle = checkpointer.save(1, {"w": np.ones(3)}, metadata=metadata)
        metadata["loss"].append({"no": object()})
        may_end.set()
        assert handle.result().metadata == checkpointer.info(1).metadata == {"loss": [1.5], "shape": [2, 3]}
        with pytest.raises(hr.InvalidArgumentError, match="metadata= cannot be written as JSON: Object of"):
            checkpointer.save(2, {"w": np.ones(3)}, metadata=metadata)


def test_metadata_that_utf8_cannot_say_is_an_error(tmp_path: Path) -> None:
    with (
        Checkpointer(tmp_path) as checkpointer,
        pytest.raises(hr.InvalidArgumentError, match="metadata= cannot"),
    ):
        checkpointer.save(1, {"w": np.ones(3)}, metadata={"file": "caf\udce9"})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"wait": "foo"}, "wait='foo': expected one of staged, local, remote"),
        ({"metadata": [1]}, r"metadata=\[1\]: expected a dict"),
    ],
)
def test_nothing_is_saved_with_wrong_options(tmp_path: Path, options: Any, says: str) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        with pytest.raises(hr.InvalidArgumentError, match=says):
            checkpointer.save(1, {"w": ARRAY}, **options)
        assert checkpointer.steps() == []
        assert not list(tmp_path.glob("saves/*"))


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    with (
        Checkpointer(tmp_path, allow_pickle=True) as checkpointer,
        pytest.raises(hr.InvalidArgumentError, match=r"state\['m'\]\['f'\] is a .*function, which cannot be"),
    ):
        checkpointer.save(1, {"m": {"f": lambda: 1}})


class Unpicklable:
    def __reduce__(self) -> Any:
        raise AssertionError("nobody has to pickle it")


def test_a_state_to_fill_may_hold_anything(tmp_path: Path) -> None:
    """What the checkpoint has no value for stays what it is, and needs no allow_pickle=."""
    own = Unpicklable()
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"w": ARRAY, "f": 5}).result()
        into = {"w": np.zeros(3), "f": own}
        assert checkpointer.load(into=into)["f"] == 5
        got = checkpointer.load(into={**into, "only_here": [own, 1]}, partial=True)
        assert got["only_here"][0] is own
        with pytest.raises(hr.InvalidArgumentError, match=r"state\['only_here'\] is not in it"):
            checkpointer.load(into={**into, "only_here": own})


def test_a_part_without_any_array_is_an_error(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"model": {"a": ARRAY}, "n": 1}).result()
        filled = {"modle": {"a": np.zeros(3)}, "n": 0}
        with pytest.raises(
            hr.InvalidArgumentError,
            match=r"none of the state's arrays \(modle\.a\) is in it; it has model\.a",
        ):
            checkpointer.load(into=filled, partial=True)
        assert checkpointer.load(into={"n": 0, "m": 2}, partial=True) == {"n": 1, "m": 2}
        checkpointer.save(2, {"n": 1}).result()
        with pytest.raises(hr.InvalidArgumentError, match="it has none"):
            checkpointer.load(into=filled, partial=True)


def test_the_error_that_leaves_the_block_is_the_one_that_is_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not that of a save which failed too."""

    def fail(checkpointer: Checkpointer, error: Exception | None = None) -> None:
        checkpointer.save(1, {"w": np.array([np.nan])}, wait=None)
        if error is not None:
            raise error

    with pytest.raises(hr.InvalidArgumentError, match="NaN"), Checkpointer(tmp_path, values="error") as one:
        fail(one)
    with pytest.raises(ZeroDivisionError), Checkpointer(tmp_path, values="error") as other:
        fail(other, ZeroDivisionError())
    assert other.closed
    assert "a save had failed that nobody has looked at: " in caplog.text


def test_tensors_without_memory_of_their_own_are_not_filled(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"x": torch.ones(5000)}).result()
        with pytest.raises(hr.InvalidArgumentError, match="keeps its numbers in other tensors"):
            checkpointer.load(into={"x": Two(torch.zeros(5000), torch.zeros(5000))})


@pytest.mark.parametrize(
    ("saved", "into", "says"),
    [
        (
            {},
            {"sched": {"last": 7}},
            r"state\['sched'\]\['last'\] is not in it|state\['sched'\] is not in it",
        ),
        ({}, {"step": 0}, r"state\['step'\] is not in it"),
        ({"a": (ARRAY, 5)}, {"a": [ARRAY, 0]}, r"state\['a'\] is a list of 2 here, and a tuple of 2 there"),
        ({"a": [ARRAY, 5]}, {"a": [ARRAY, 1, 2]}, r"state\['a'\] is a list of 3 here, and a list of 2 there"),
        ({"a": {"b": {}}}, {"a": {"b": {"c": None}}}, r"state\['a'\]\['b'\]\['c'\] is not in it"),
    ],
)
def test_what_would_stay_as_it_is_is_told(tmp_path: Path, saved: Any, into: Any, says: str) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"w": np.full(3, 7.0), **saved}).result()
        with pytest.raises(hr.InvalidArgumentError, match=f"{says}.*partial=True"):
            checkpointer.load(into={"w": np.zeros(3), **into})
        assert checkpointer.load(into={"w": np.zeros(3), **into}, partial=True)["w"].tolist() == [7, 7, 7]


def test_values_that_only_the_checkpoint_has_are_in_the_result(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"w": np.ones(3), "step": 7, "list": [1, 2, 3], "none": {"a": 1}}).result()
        state = checkpointer.load(into={"w": np.zeros(3), "list": [], "none": {}, "empty": {}})
        assert (state["step"], state["list"], state["none"], state["empty"]) == (7, [1, 2, 3], {"a": 1}, {})


class Scheduler:
    def __init__(self, **values: Any) -> None:
        self.values = values

    def state_dict(self) -> dict[str, Any]:
        return dict(self.values)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state


def test_an_object_may_have_more_than_it_had_when_it_was_saved(tmp_path: Path) -> None:
    """A scheduler of a newer library, which knows what to do without; but one that was not saved at all is
    told."""
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"w": np.ones(3), "sched": Scheduler(last=5)}).result()
        newer = Scheduler(last=0, new=1)
        checkpointer.load(into={"w": np.zeros(3), "sched": newer})
        assert newer.values == {"last": 5}
        with pytest.raises(hr.InvalidArgumentError, match=r"state\['other'\] is not in it"):
            checkpointer.load(into={"w": np.zeros(3), "sched": newer, "other": Scheduler(a=1)})


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        ({"seen": {"a": 1}}, {"seen": {"a": 2, "b": 1}}),
        ({"a": {}}, {"a": {"x": 1}}),
        ({"a": 1}, {"a": 2, "best": 0.5}),
        ({"a": None}, {"a": {"x": 1}}),
        ({"a": [1]}, {"a": [1, 2, 3]}),
    ],
)
def test_an_object_goes_back_to_what_was_saved(
    tmp_path: Path, saved: dict[str, Any], now: dict[str, Any]
) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"s": Scheduler(**saved)}).result()
        later = Scheduler(**now)
        checkpointer.load(into={"s": later})
        assert later.values == saved


@pytest.mark.parametrize("make", ["Adam", "SGD", "LBFGS"])
def test_an_optimizer_goes_back_to_before_its_first_step(tmp_path: Path, make: str) -> None:
    def step() -> None:
        def loss() -> Any:
            optimizer.zero_grad()
            value = model(torch.ones(3, 2)).square().sum()
            value.backward()
            return value

        optimizer.step(loss)

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    more = {"Adam": {}, "SGD": {"lr": 0.1, "momentum": 0.9}, "LBFGS": {"line_search_fn": "strong_wolfe"}}[
        make
    ]
    optimizer = getattr(torch.optim, make)(model.parameters(), **more)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(0, {"model": model, "optimizer": optimizer}).result()
        step()
        first = [each.detach().clone() for each in model.parameters()]
        checkpointer.save(1, {"model": model, "optimizer": optimizer}).result()
        step()
        second = [each.detach().clone() for each in model.parameters()]
        for at, wanted in ((1, second), (0, first)):
            checkpointer.load(at, into={"model": model, "optimizer": optimizer})
            step()
            for mine, theirs in zip(model.parameters(), wanted, strict=True):
                assert torch.equal(mine, theirs)


def test_a_part_has_whole_objects(tmp_path: Path) -> None:
    """Of a module what both have; of what else has a state_dict() all, also what it does not hold yet."""
    first, model = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.Adam(first.parameters(), lr=0.5)
    first(torch.ones(3, 2)).square().sum().backward()
    optimizer.step()
    fresh, own = torch.optim.Adam(torch.nn.Linear(2, 2).parameters()), Scheduler(a=9, b={"c": 1})
    with Checkpointer(tmp_path) as checkpointer:
        saved = {"model": first, "optimizer": optimizer, "own": Scheduler(a=1, w=ARRAY), "rest": {"x": 1}}
        checkpointer.save(1, saved).result()
        into = {"model": model, "optimizer": fresh, "own": own, "rest": {"y": 2}, "other": Scheduler(a=3)}
        got = checkpointer.load(into=into, partial=True)
        assert torch.equal(model.weight, first.weight)
        wanted, now = optimizer.state_dict(), fresh.state_dict()
        assert now["param_groups"] == wanted["param_groups"]
        assert now["state"].keys() == wanted["state"].keys()
        for number, moments in wanted["state"].items():
            assert all(torch.equal(value, now["state"][number][name]) for name, value in moments.items())
        assert own.values.keys() == {"a", "w"}
        assert own.values["w"].tolist() == [1, 1, 1]
        assert got["rest"] == {"y": 2}
        assert into["other"].values == {"a": 3}


def test_tied_weights_are_not_filled_from_two_that_differ(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"m": {"embed": torch.ones(4), "head": torch.ones(4) * 2}}).result()
        checkpointer.save(2, {"m": {"embed": torch.ones(4), "head": torch.ones(4)}}).result()
        tied = torch.zeros(4)
        with pytest.raises(
            hr.InvalidArgumentError, match=r"m.embed and m.head are one array here, and differ"
        ):
            checkpointer.load(1, into={"m": {"embed": tied, "head": tied}})
        checkpointer.load(2, into={"m": {"embed": tied, "head": tied}})
        assert tied.tolist() == [1] * 4


@pytest.mark.parametrize("framework", [np.ones, torch.ones])
def test_nor_from_two_of_safetensors(tmp_path: Path, framework: Any) -> None:
    values = {"embed": framework(1000), "head": framework(1000) * 2, "same": framework(1000)}
    hr.checkpoint.safetensors.save_sharded(tmp_path, values, max_shard_bytes="8kB")
    tied = framework(1000) * 0
    with pytest.raises(hr.InvalidArgumentError, match=r"'embed' and 'head' differ, and are one array"):
        hr.checkpoint.safetensors.load(tmp_path, into={"embed": tied, "head": tied}, names=["embed", "head"])
    hr.checkpoint.safetensors.load(tmp_path, into={"embed": tied, "same": tied}, names=["embed", "same"])
    assert float(tied.sum()) == 1000


def numpy_twice() -> dict[str, Any]:
    one = np.zeros(8, np.float32)
    return {"a": one, "b": one[:]}


def numpy_and_torch() -> dict[str, Any]:
    one = np.zeros(8, np.float32)
    return {"a": one, "b": torch.from_numpy(one)}


def parts_that_overlap() -> dict[str, Any]:
    one = torch.zeros(13)
    return {"a": one[:8], "b": one[5:]}


def columns_and_all() -> dict[str, Any]:
    one = torch.zeros(8, 2)
    return {"a": one[:, 0], "b": one.view(-1)[8:]}


def reversed_numpy() -> dict[str, Any]:
    one = np.zeros(15, np.float32)
    return {"a": one[::2], "b": one[::-2]}


@pytest.mark.parametrize(
    "make", [numpy_twice, numpy_and_torch, parts_that_overlap, columns_and_all, reversed_numpy]
)
def test_views_of_one_memory_are_not_filled_from_what_differs(tmp_path: Path, make: Any) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"a": torch.ones(8), "b": torch.ones(8) * 2}).result()
        checkpointer.save(2, {"a": torch.ones(8), "b": torch.ones(8)}).result()
        for partial in (False, True):
            with pytest.raises(
                hr.InvalidArgumentError, match=r"\b[ab] and [ab] have memory in common here, and differ"
            ):
                checkpointer.load(1, into=make(), partial=partial)
        into = make()
        checkpointer.load(2, into=into)
        assert [into[name].tolist() for name in "ab"] == [[1] * 8] * 2


def test_views_beside_one_another_are_filled(tmp_path: Path) -> None:
    def make(number: float) -> dict[str, Any]:
        table, flat, odd = torch.zeros(6, 4), np.zeros(12), torch.zeros(12)
        views = {f"column{i}": table[:, i] for i in range(4)}
        views |= {"even": flat[::2], "odd": flat[::-2], "empty": flat[5:5], "one": flat[3:4][:0]}
        # Its rows lie between one another's elements, and nothing meets.
        views["between"] = odd.as_strided((2, 3), (3, 2))
        for at, value in enumerate(views.values()):
            value[...] = number + at
        return views

    saved, filled = make(1), make(50)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, saved).result()
        checkpointer.load(into=filled)
    for name, value in saved.items():
        assert filled[name].tolist() == value.tolist(), name


@pytest.mark.parametrize(
    "into",
    [
        lambda: torch.zeros(10).as_strided((6, 5), (1, 1)),
        lambda: torch.zeros(1, 1).expand(6, 5),
        lambda: np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (6, 5), (0, 0)),
        lambda: np.lib.stride_tricks.as_strided(np.zeros(40, np.float32), (6, 5), (12, 8)),
        lambda: np.lib.stride_tricks.as_strided(np.zeros(40, np.float32), (6, 5), (20, 3)),
    ],
)
def test_elements_that_share_memory_are_not_filled(tmp_path: Path, into: Any) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"x": torch.arange(30.0).view(6, 5)}).result()
        with pytest.raises(hr.InvalidArgumentError, match="x: elements share memory"):
            checkpointer.load(into={"x": into()})


def test_every_name_may_be_that_of_an_array(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"\0x": np.ones(3), "b": 1}).result()
        into = {"\0x": np.zeros(3), "b": 0}
        assert checkpointer.load(into=into)["b"] == 1
        assert into["\0x"].tolist() == [1, 1, 1]  # type: ignore[attr-defined]


def test_keys_that_are_no_text_are_shown_otherwise(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"m": {1: np.ones(3), "a": np.ones(3)}}).result()
        with pytest.raises(
            hr.InvalidArgumentError, match=r'not in it \(m\."1"\), and 1 .* not in the state \(m\.1\)'
        ):
            checkpointer.load(into={"m": {"1": np.zeros(3), "a": np.zeros(3)}})


def test_values_come_back_as_what_they_were_or_are_refused(tmp_path: Path) -> None:
    record = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])[0]
    values = {
        "empty": np.str_(""),
        "bytes": np.bytes_(b""),
        "array": bytearray(b"ab"),
        "milestones": Counter({2: 1, 4: 2}),
        "when": np.datetime64("2026-11-27"),
    }
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, values).result()
        loaded = checkpointer.load()
        assert loaded == values
        assert {key: type(value) for key, value in loaded.items()} == {
            key: type(value) for key, value in values.items()
        }
        with pytest.raises(hr.InvalidArgumentError, match=r"state\['r'\] is a numpy.void"):
            checkpointer.save(2, {"r": record})


def test_multi_step_schedulers_are_saved(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"scheduler": scheduler}).result()
        other = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3])
        checkpointer.load(into={"scheduler": other})
        assert other.state_dict() == scheduler.state_dict()


@pytest.mark.parametrize("local", ["run", "run/", "link", "run/disk", "."])
def test_the_disk_is_not_the_url(tmp_path: Path, local: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(hr.InvalidArgumentError, match="are one directory, or one lies in the other"):
        Checkpointer(tmp_path / "run", local=f"{tmp_path}/{local}")
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("has_disk", [False, True])
def test_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_disk: bool
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "first")
    with Checkpointer("run", local="disk" if has_disk else None) as checkpointer:
        monkeypatch.chdir(tmp_path / "second")
        checkpointer.save(1, {"x": np.ones(3)}).result()
        checkpointer.verify(1)
        assert checkpointer.url == str(tmp_path / "first" / "run")
    assert not list((tmp_path / "second").iterdir())
    with Checkpointer(tmp_path / "first" / "run") as checkpointer:
        assert checkpointer.steps() == [1]


def test_what_torch_has_saved_loads_into_numpy_and_back(tmp_path: Path) -> None:
    dtypes = ["float32", "float64", "float16", "int64", "uint8", "bool", "complex64"]
    saved = {name: torch.arange(24).reshape(4, 6).to(getattr(torch, name)) for name in dtypes}
    into = {name: np.zeros((4, 12), name)[:, ::2] for name in dtypes}
    back = {name: torch.zeros(6, 4, dtype=getattr(torch, name)).T for name in dtypes}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, saved).result()
        got = checkpointer.load(into=into)
        for name, value in saved.items():
            assert got[name] is into[name]
            assert np.array_equal(got[name], value.numpy()), name
        checkpointer.save(2, got).result()
        for name, value in checkpointer.load(into=back).items():
            assert value is back[name]
            assert torch.equal(value, saved[name]), name
        checkpointer.save(3, {"x": torch.ones(3, dtype=torch.bfloat16)}).result()
        with pytest.raises(hr.InvalidArgumentError, match=r"x: is F32\[3\] here, and BF16\[3\] in"):
            checkpointer.load(into={"x": np.zeros(3, np.float32)})
