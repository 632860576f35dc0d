"""Several datasets as one: weights, a change of them at a step, and what each batch is made of.

python examples/make_data.py tokens /tmp/web --count 2000 && python examples/make_data.py tokens /tmp/code
--count 500 python examples/mixtures.py /tmp/web /tmp/code
"""

import argparse
import json
from collections import Counter

import headrace as hr

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("web", help="a dataset")
parser.add_argument("code", help="another one, with the same columns")
parser.add_argument("--batches", type=int, default=40)
args = parser.parse_args()

# 7 of 10 samples come from web; from global batch 20 on, half of them. Both are gone through in epochs of
# their own.
mixture = hr.Mixture(
    {"web": (args.web, 0.7), "code": (args.code, 0.3)},
    schedule=[(20, {"web": 0.5, "code": 0.5})],
    samples_per_epoch=64 * args.batches,
)
loader = hr.Loader(mixture, batch_size=64, seed=17)
counts = {"before": Counter(), "after": Counter()}
for batch in loader:
    part = "before" if batch.index < 20 else "after"
    counts[part].update(mixture.names[source] for source in mixture.sources_of(batch.ids))
print(json.dumps(counts))
