// A training loop: batches in the order that the seed fixes, the state kept in a file. Started
// again it goes on with the next sample.
//
//   train s3://bucket/dataset state.json [BATCHES]      (stop after so many batches)
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "common.h"
#include "headrace/loader.h"

namespace {

using namespace headrace;

constexpr std::uint64_t kMemoryBytes = std::uint64_t{256} << 20;

/// What a model would learn from. Here: the positions of the samples and how many bytes they have.
void step(const Batch& batch) {
  std::size_t bytes = 0;
  for (const BatchColumn& column : batch.columns()) bytes += column.values.size();
  std::printf("epoch %llu batch %llu bytes %zu ids", static_cast<unsigned long long>(batch.epoch()),
              static_cast<unsigned long long>(batch.index()), bytes);
  for (const std::int64_t id : batch.ids()) std::printf(" %lld", static_cast<long long>(id));
  std::puts("");
}

Result<std::unique_ptr<Loader>> open_loader(const std::string& url,
                                            const std::shared_ptr<SlabPool>& pool) {
  StoreOptions options;
  options.url = url;
  HEADRACE_TRY_ASSIGN(auto store, open_store(options, process_environment()));
  HEADRACE_TRY_ASSIGN(auto dataset, Dataset::open(*store, *pool, {}));
  LoaderOptions loading;
  loading.batch_size = 8;
  loading.seed = 17;
  loading.epoch_end = EpochEnd::kUneven;  // No sample comes twice to fill up the last batch.
  return Loader::create(std::move(dataset), std::move(store), pool, loading);
}

/// Goes to where the last run stopped, if there was one.
Status resume(Loader& loader, const std::string& state_path) {
  std::ifstream file(state_path);
  if (!file) return {};
  const std::string state(std::istreambuf_iterator<char>(file), {});
  return loader.load_state(state).annotate("while reading " + state_path);
}

/// A new file that takes the place of the old one: whenever the program ends, one of them is whole.
Status save(const Loader& loader, const std::string& state_path) {
  const std::string next_path = state_path + ".next";
  std::ofstream file(next_path, std::ios::trunc);
  file << loader.state();
  file.close();
  if (file && std::rename(next_path.c_str(), state_path.c_str()) == 0) return {};
  return Status(Code::kUnavailable, "cannot write " + state_path);
}

/// One epoch, or what is left of it.
Status train(Loader& loader, long batches) {
  for (long k = 0; k < batches; ++k) {
    HEADRACE_TRY_ASSIGN(const auto batch, loader.next(TimePoint::max()));
    if (batch == nullptr) break;
    step(*batch);
  }
  return {};
}

Status run(const std::string& url, const std::string& state_path, long batches) {
  HEADRACE_TRY_ASSIGN(std::shared_ptr<SlabPool> pool,
                      SlabPool::create({.limit_bytes = kMemoryBytes}));
  HEADRACE_TRY_ASSIGN(const auto loader, open_loader(url, pool));
  HEADRACE_TRY(resume(*loader, state_path));
  HEADRACE_TRY(loader->start_epoch());
  HEADRACE_TRY(train(*loader, batches));
  return save(*loader, state_path);
}

}  // namespace

int main(int argc, char** argv) {
  const long batches = argc == 4 ? std::strtol(argv[3], nullptr, 10) : 1L << 30;
  if (argc < 3 || argc > 4 || batches <= 0) {
    std::fputs("usage: train URL STATE_FILE [BATCHES]\n", stderr);
    return 2;
  }
  return report(run(argv[1], argv[2], batches));
}
