"""What test_jax.py asks of headrace.jax, in the Python that has JAX. Prints JSON."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import headrace as hr
import headrace.jax

jax.config.update("jax_platforms", "cpu")

Job = dict[str, Any]


def report(batch: Any, column: str) -> Any:
    array = batch[column]
    return {
        "ids": batch.ids.tolist(),
        "mask": np.asarray(batch.mask).tolist(),
        "values": np.asarray(array).tolist(),
        "dtype": str(array.dtype),
        "is_jax": isinstance(array, jax.Array) and isinstance(batch.mask, jax.Array),
        "kept": type(batch["t"]).__name__ if "t" in batch else "",
    }


def alone(job: Job) -> Any:
    """Two epochs. All batches are kept, then looked at: their memory is theirs."""
    with headrace.jax.Loader(job["data"], **job["options"]) as loader:
        held = [batch for _ in range(2) for batch in loader]
        return {"batches": [report(batch, job.get("column", "x")) for batch in held], "length": len(loader)}


def resumed(job: Job) -> Any:
    seen = []
    with headrace.jax.Loader(job["data"], **job["options"]) as loader:
        for batch in loader:
            seen.append(batch.ids.tolist())
            if len(seen) == job["stop"]:
                break
        state = json.loads(json.dumps(loader.state_dict()))
    with headrace.jax.Loader(job["data"], **job["options"]) as loader:
        loader.load_state_dict(state)
        while loader.epoch < 2:
            seen += [batch.ids.tolist() for batch in loader]
    return seen


def pickled(job: Job) -> Any:
    """What is left of an epoch, and what is left to a copy."""
    with headrace.jax.Loader(job["data"], **job["options"]) as loader:
        batches = iter(loader)
        next(batches)
        with pickle.loads(pickle.dumps(loader)) as copy:
            return [[report(batch, "x") for batch in each] for each in (batches, copy)]


def double(sample: Any) -> Any:
    return {"y": sample["x"] * 2, "t": sample["t"]}


def mapped(job: Job) -> Any:
    with headrace.jax.Loader(job["data"], **job["options"]).map(double) as loader:
        return [report(batch, "y") for batch in loader]


def halved(sample: Any) -> Any:
    return {"data": sample["data"] / 2, "same": sample["data"]}


def mapped_decoded(job: Job) -> Any:
    """Images of a dtype, as functions in so many workers get and return them."""
    decode = {"data": hr.decode.image(resize=(4, 4), dtype=job["image"])}
    loader = headrace.jax.Loader(job["data"], decode=decode, **job["options"])
    function = importlib.import_module("jax_ways").halved  # Not of the main program: workers import it.
    with loader.map(function, workers=job["workers"]) as mapped:
        return [[report(batch, name) for name in ("data", "same")] for batch in mapped]


def decoded(job: Job) -> Any:
    """Files as arrays: images of a dtype, or numbers."""
    if "image" in job:
        decoding = hr.decode.image(resize=(4, 4), dtype=job["image"])
    else:
        decoding = hr.decode.ndarray(job["dtype"], job["shape"])
    with headrace.jax.Loader(job["data"], decode={"data": decoding}, **job["options"]) as loader:
        return [report(batch, "data") for batch in loader]


def looked_up(job: Job) -> Any:
    """What a table has for numbers of the only batch."""
    decoding = hr.decode.ndarray(job["dtype"], job["shape"])
    with headrace.jax.Loader(job["data"], decode={"data": decoding}, **job["options"]) as loader:
        return (2 * jax.numpy.arange(1 << 16))[next(iter(loader))["data"]].tolist()


def error_of(job: Job) -> Any:
    """The message of what a job raises."""
    try:
        found = WAYS[job["of"]](job)
    except hr.HeadraceError as error:
        return str(error)
    return found


def make_sharding(job: Job) -> NamedSharding:
    devices = np.array(jax.devices())
    if order := job.get("device_order"):
        devices = devices[np.array(order)]
    spec = tuple(tuple(entry) if isinstance(entry, list) else entry for entry in job.get("spec", ["data"]))
    return NamedSharding(Mesh(devices.reshape(job["mesh"]), ("data", "model")), PartitionSpec(*spec))


def sharded(job: Job) -> Any:
    """Global arrays: of each device of this process its rows, and what a computation over all says."""
    if "coordinator" in job:
        jax.distributed.initialize(job["coordinator"], job["processes"], job["process"])
    sharding = make_sharding(job)
    out = []
    with headrace.jax.Loader(job["data"], sharding=sharding, **job["options"]) as loader:
        for batch in loader:
            array = batch["x"]
            shards = [
                [s.index[0].indices(array.shape[0])[:2], np.asarray(s.data).tolist()]
                for s in array.addressable_shards
            ]
            entry = {
                "shape": array.shape,
                "shards": shards,
                "ids": batch.ids.tolist(),
                "mask": batch.mask.shape,
            }
            if jax.process_count() == 1:
                entry["sum"] = int(jax.jit(lambda x: x.sum())(array))
            out.append(entry)
        return {"batches": out, "state": loader.state_dict(), "rank": [loader.rank, loader.world_size]}


def failed(job: Job) -> Any:
    """Batches that a loop gets where the third cannot be made at first, and how many the state counted
    then."""
    with headrace.jax.Loader(job["data"], **job["options"]) as loader:
        if job["is_mapped"]:
            loader = loader.map(double)
        make, fails = loader._converted, iter([False, False, True])

        def make_or_fail(batch: Any) -> Any:
            if next(fails, False):
                raise MemoryError("no room")
            return make(batch)

        loader._converted = make_or_fail  # type: ignore[method-assign]
        seen, counted = [], -1
        try:
            for batch in loader:
                seen.append(batch.ids.tolist())
        except MemoryError:
            counted = loader.state_dict()["batches"]
        return seen + [batch.ids.tolist() for batch in loader], counted


WAYS = {
    way.__name__: way
    for way in (
        alone,
        resumed,
        pickled,
        mapped,
        mapped_decoded,
        failed,
        decoded,
        looked_up,
        sharded,
        error_of,
    )
}

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(WAYS[given["way"]](given)))
