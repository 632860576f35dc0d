#pragma once
/// \file
/// A dataset of one format over a FakeStore, made by its builder and opened from the index it made,
/// without detection; for the tests of src/shard.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "io/testing/fake_store.h"
#include "shard/dataset/build.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/dataset/listing.h"

namespace headrace::testing {

using Builder = Result<std::string> (*)(const detail::BuildContext&,
                                        const std::vector<ObjectInfo>&);
using Maker = Result<std::shared_ptr<const Dataset>> (*)(detail::DatasetParts);

/// Every object of the store is data, in order of the keys.
inline Result<std::shared_ptr<const Dataset>> build_dataset(FakeStore& store, SlabPool& pool,
                                                            const DatasetOptions& options,
                                                            Builder build, Maker make) {
  std::vector<ObjectInfo> objects;
  for (const auto& [key, object] : store.shared().objects) {
    ObjectInfo& info = objects.emplace_back();
    info.key = key;
    info.size_bytes = object.bytes.size();
    info.etag = object.etag;
  }
  const CallOptions call;
  const detail::BuildContext context{store, pool, options, call};
  HEADRACE_TRY_ASSIGN(auto index, build(context, objects));
  detail::DatasetParts parts{
      .url = store.url(), .bytes = detail::IndexBytes(std::move(index)), .view = {}, .blocks = {}};
  HEADRACE_TRY_ASSIGN(parts.view, detail::IndexView::parse(parts.bytes.bytes()));
  HEADRACE_TRY_ASSIGN(parts.blocks, detail::make_blocks(parts.view, options.block_bytes));
  return make(std::move(parts));
}

}  // namespace headrace::testing
