// A loader over a store of one's own (map_store.h): arrays that this program makes are a dataset of
// .npy files, mixed and delivered like those of a bucket.
//
//   own_store [FILES [ROWS]]
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common.h"
#include "headrace/loader.h"
#include "map_store.h"

namespace {

using namespace headrace;

constexpr std::uint64_t kMemoryBytes = std::uint64_t{64} << 20;

/// An .npy file of int64 numbers.
std::string npy(const std::vector<std::int64_t>& numbers) {
  std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (" +
                       std::to_string(numbers.size()) + ",), }";
  constexpr std::size_t kHeaderBytes = 128, kMagicBytes = 10;
  header.resize(kHeaderBytes - kMagicBytes - 1, ' ');
  std::string file("\x93NUMPY\x01\x00\x76\x00", kMagicBytes);  // Version 1.0; 118 bytes of header.
  file += header + "\n";
  file.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t));
  return file;
}

/// `files` arrays of `rows` numbers: 0, 1, 2, ... over all.
std::shared_ptr<const MapStore::Objects> make_objects(int files, int rows) {
  auto objects = std::make_shared<MapStore::Objects>();
  std::int64_t next = 0;
  for (int file = 0; file < files; ++file) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(rows));
    for (std::int64_t& number : numbers) number = next++;
    (*objects)["part-" + std::to_string(file) + ".npy"] = npy(numbers);
  }
  return objects;
}

/// The sum of all numbers of an epoch, and how many there were.
Status add_up(Loader& loader) {
  std::int64_t sum = 0;
  std::size_t count = 0;
  HEADRACE_TRY(loader.start_epoch());
  while (true) {
    HEADRACE_TRY_ASSIGN(const auto batch, loader.next(TimePoint::max()));
    if (batch == nullptr) break;
    const std::span<std::byte> values = batch->columns()[0].values;
    for (std::uint32_t i = 0; i < batch->count(); ++i) {
      std::int64_t number = 0;
      std::memcpy(&number, values.data() + i * sizeof(number), sizeof(number));
      sum += number;
    }
    count += batch->count();
  }
  std::printf("%zu numbers, sum %lld\n", count, static_cast<long long>(sum));
  return {};
}

Status run(int files, int rows) {
  HEADRACE_TRY_ASSIGN(std::shared_ptr<SlabPool> pool,
                      SlabPool::create({.limit_bytes = kMemoryBytes}));
  auto store = std::make_unique<MapStore>("map://numbers", make_objects(files, rows));
  HEADRACE_TRY_ASSIGN(auto dataset, Dataset::open(*store, *pool, {}));
  LoaderOptions options;
  options.batch_size = 32;
  options.seed = 17;
  options.epoch_end = EpochEnd::kUneven;
  HEADRACE_TRY_ASSIGN(const auto loader,
                      Loader::create(std::move(dataset), std::move(store), pool, options));
  return add_up(*loader);
}

}  // namespace

int main(int argc, char** argv) {
  const int files = argc > 1 ? std::atoi(argv[1]) : 4;
  const int rows = argc > 2 ? std::atoi(argv[2]) : 1000;
  if (argc > 3 || files <= 0 || rows <= 0) {
    std::fputs("usage: own_store [FILES [ROWS]]\n", stderr);
    return 2;
  }
  return report(run(files, rows));
}
