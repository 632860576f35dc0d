"""Is a dataset whole? And training on what is good of it.

python examples/make_data.py images /tmp/images && python examples/verify.py /tmp/images
"""

import argparse
import json

import headrace as hr

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data")
args = parser.parse_args()

# With the index beside the data (headrace index URL) a broken record does not hide those behind it.
report = hr.verify(args.data, use_index=True, most_problems=1_000_000)
print(json.dumps({"samples": report.samples, "good": report.samples_ok, "problems": report.problem_count}))
# Where the digest of a shard differs, that is all its samples. Or by a file that other programs take:
# headrace verify URL --quarantine bad.jsonl, and Loader(quarantine="bad.jsonl").
bad = [
    position
    for problem in report.problems
    if problem.position >= 0
    for position in range(problem.position, problem.position + problem.samples)
]
# Each bad sample is replaced by another one, the same on all ranks and in all runs, and is not read again;
# "replace" goes on without shards that are broken as a whole.
loader = hr.Loader(
    args.data, batch_size=16, seed=17, epoch_end="uneven", on_bad_sample="replace", quarantine=bad
)
ids, replaced = [], 0
for batch in loader:
    ids += batch.ids.tolist()
    replaced += len(batch.replaced)
print(json.dumps({"bad": bad, "delivered": len(ids), "replaced": replaced}))
