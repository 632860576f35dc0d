"""What other loaders call the options of a loader."""

from __future__ import annotations

from headrace.sources.peer_names import DATASET_PEERS

__all__ = ["LOADER_PEERS"]

_THREADS = (
    "decode runs on the engine's threads (workers= says how many); for functions of your own use "
    "loader.map(fn, workers=N)"
)
_TRANSFORM = (
    'use loader.map(fn) for samples, or loader.map(fn, per="batch"), also with workers=N; '
    "headrace.torch.Loader has transform= for whole batches"
)
_AHEAD = "reading ahead fills memory= by itself; prefetch= is the most batches assembled ahead"
_SAMPLER = (
    "the loader has its own order (shuffle=, seed=, order=) and reads its rank's part; headrace.Mixture "
    "mixes datasets by weights"
)
_RANK = "use rank= and world_size=, or leave them out: they are found from torch.distributed or the launcher"
_WINDOW = (
    "leave it out: the default order mixes the whole dataset; window= is the number of blocks that are "
    "shuffled together"
)
_MOSAIC = 'write order="mosaic:py1e", order_options={{"{}": ...}}'
_MIXTURE = (
    "use headrace.Mixture({name: (url, weight)}), or headrace.MixtureSource(url, repeat=...) in it; a list "
    "of URLs is read one after the other"
)
_TORCH = "headrace.torch.Loader has it"
_LAST = 'use epoch_end="drop", "pad" or "uneven"'

LOADER_PEERS: dict[str, str] = {
    **DATASET_PEERS,
    # torch's DataLoader
    "num_workers": _THREADS,
    "collate_fn": "the engine assembles batches; for a function of your own use loader.collate(fn)",
    "transform": _TRANSFORM,
    "transforms": _TRANSFORM,
    "target_transform": _TRANSFORM,
    "map_fn": _TRANSFORM,
    "drop_last": 'use epoch_end="drop"',
    "sampler": _SAMPLER,
    "batch_sampler": _SAMPLER,
    "generator": "seed= chooses the order",
    "prefetch_factor": _AHEAD,
    "persistent_workers": "leave it out: threads and workers live as long as the loader",
    "worker_init_fn": (
        "leave it out: a function of map() that declares rng gets a generator of its sample, and modules are "
        "imported once a worker"
    ),
    "multiprocessing_context": 'leave it out: map() spawns processes, or uses threads with where="thread"',
    "in_order": "leave it out: batches come in the order of the loader",
    "pin_memory": f"{_TORCH}; with its device='cuda' batches arrive on the device",
    "pin_memory_device": "headrace.torch.Loader has device=",
    "device": f"{_TORCH}, and headrace.jax.Loader",
    "sharding": "headrace.jax.Loader has it",
    "unsigned": _TORCH,
    # mosaicml-streaming
    "predownload": _AHEAD,
    "num_canonical_nodes": _MOSAIC.format("num_canonical_nodes"),
    "shuffle_block_size": _MOSAIC.format("shuffle_block_size"),
    "partition_algo": _MOSAIC.format("partition_algo"),
    "batching_method": f"{_MOSAIC.format('batching_method')}; headrace.Mixture has batching=",
    "sampling_method": _MOSAIC.format("sampling_method"),
    "sampling_granularity": _MOSAIC.format("sampling_granularity"),
    "epoch_size": f"{_MOSAIC.format('epoch_size')}; headrace.Mixture has samples_per_epoch=",
    "shuffle_algo": (
        'use order="mosaic:py1e" (py1s, py1br, py2s, naive) for the sequence of mosaicml-streaming; else '
        "leave it out"
    ),
    "shuffle_seed": "use seed=",
    "streams": _MIXTURE,
    "proportion": _MIXTURE,
    "repeat": _MIXTURE,
    "choose": _MIXTURE,
    "replication": "give the processes that want the same samples the same rank= and world_size=",
    # webdataset, Hugging Face, LitData, Petastorm, tf.data, DALI
    "shuffle_buffer": _WINDOW,
    "shuffle_buffer_size": _WINDOW,
    "shuffle_size": _WINDOW,
    "buffer_size": _WINDOW,
    "shuffling_queue_capacity": _WINDOW,
    "initial": _WINDOW,
    "shardshuffle": "use shuffle=",
    "shuffle_row_groups": "use shuffle=",
    "random_shuffle": "use shuffle=",
    "nodesplitter": _RANK,
    "workersplitter": _RANK,
    "num_replicas": _RANK,
    "cur_shard": _RANK,
    "shard_count": _RANK,
    "shard_id": _RANK,
    "num_shards": _RANK,
    "resampled": "each loop over the loader is the next epoch, without an end",
    "num_epochs": "epochs= lets reading go on into the next epoch; each loop over the loader is one epoch",
    "handler": 'use on_bad_sample="replace"',
    "num_proc": _THREADS,
    "num_threads": _THREADS,
    "workers_count": _THREADS,
    "num_parallel_calls": _THREADS,
    "reader_pool_type": _THREADS,
    "max_pre_download": _AHEAD,
    "prefetch_queue_depth": _AHEAD,
    "last_batch_policy": _LAST,
    "drop_remainder": 'use epoch_end="drop"',
    "global_batch_size": "use batch_size=, which is the number of samples of one rank",
    "per_device_batch_size": "use batch_size=, which is the number of samples of one rank",
}
"""What to write instead, by their names."""
