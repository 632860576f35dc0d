// How fast samples are cut and copied out of memory, a format: what a loader's worker does to each
// sample. One thread; CPU seconds.
//   format_bench [--samples 20000] [--bytes 4096] [--seconds 1]

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "bench_common.h"
#include "headrace/dataset.h"
#include "shard/formats/text/text_driver.h"
#include "shard/formats/tfrecord/record.h"
#include "shard/formats/tfrecord/tfrecord_driver.h"
#include "shard/formats/webdataset/webdataset_driver.h"
#include "shard/testing/build_dataset.h"
#include "shard/testing/make_tar.h"
#include "shard/testing/proto_field.h"

namespace {

using headrace::Dataset;
using headrace::Result;
using headrace::testing::field;
using headrace::testing::varint;
namespace detail = headrace::detail;

std::string feature(const std::string& key, int kind, const std::string& list) {
  return field(1, field(1, key) + field(2, field(kind, list)));
}
std::string frame(const std::string& payload) {
  const auto word = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto crc = [](const std::string& text) {
    return detail::mask_crc(headrace::crc32c(std::as_bytes(std::span(text))));
  };
  const std::string length = word(static_cast<std::uint64_t>(payload.size()));
  return length + word(crc(length)) + payload + word(crc(payload));
}

struct Case {
  const char* name;
  std::function<std::string(std::size_t i, const std::string& body)> sample;
  headrace::testing::Builder build;
  headrace::testing::Maker make;
};

Result<std::shared_ptr<const Dataset>> make_tar_dataset(detail::DatasetParts parts) {
  return detail::make_webdataset(std::move(parts));
}

// Cuts and copies all samples of the dataset until the time is over; samples a CPU second.
double rate_of(const Dataset& dataset, std::string_view file, double seconds) {
  std::vector<headrace::ColumnBytes> columns(dataset.columns().size());
  std::vector<std::byte> out(std::size_t{1} << 20);
  std::uint64_t count = 0;
  const double begin = headrace::bench::cpu_now_s();
  while (headrace::bench::cpu_now_s() - begin < seconds) {
    for (std::uint32_t b = 0; b < dataset.block_count(); ++b) {
      std::vector<headrace::Extent> extents;
      const std::uint32_t samples = dataset.block(b).sample_count;
      dataset.append_extents(b, 0, samples, extents);
      const headrace::BlockBytes bytes{
          b, 0, samples,
          std::as_bytes(std::span(file)).subspan(extents[0].offset_bytes, extents[0].length_bytes)};
      for (std::uint32_t i = 0; i < samples; ++i) {
        if (!dataset.cut(bytes, i, columns).ok()) std::abort();
        for (const headrace::ColumnBytes& cell : columns)
          if (cell.present) cell.write_to(std::span(out).first(cell.size()));
      }
      count += samples;
    }
  }
  return static_cast<double>(count) / (headrace::bench::cpu_now_s() - begin);
}

}  // namespace

int main(int argc, char** argv) {
  headrace::bench::Arguments arguments(argc, argv);
  std::size_t samples = 20'000;
  std::size_t body_bytes = 4096;
  std::size_t seconds = 1;
  arguments.take("--samples", samples);
  arguments.take("--bytes", body_bytes);
  arguments.take("--seconds", seconds);
  if (!arguments.all_taken()) return 2;

  const auto name = [](std::size_t i) { return "sample" + std::to_string(1'000'000 + i); };
  const std::vector<Case> cases{
      {"tar, one field",
       [&](std::size_t i, const std::string& body) {
         return headrace::testing::tar_member(name(i) + ".bin", body);
       },
       detail::build_webdataset_index, make_tar_dataset},
      {"tar, two fields",
       [&](std::size_t i, const std::string& body) {
         return headrace::testing::tar_member(name(i) + ".bin", body) +
                headrace::testing::tar_member(name(i) + ".cls", "7");
       },
       detail::build_webdataset_index, make_tar_dataset},
      {"tfrecord, raw", [](std::size_t, const std::string& body) { return frame(body); },
       detail::build_tfrecord_index, detail::make_tfrecord_dataset},
      {"tfrecord, bytes and label",
       [](std::size_t i, const std::string& body) {
         return frame(field(1, feature("image", 1, field(1, body)) +
                                   feature("label", 3, field(1, varint(i % 1000)))));
       },
       detail::build_tfrecord_index, detail::make_tfrecord_dataset},
      {"tfrecord, 1024 floats",
       [](std::size_t i, const std::string& body) {
         return frame(field(1, feature("x", 2, field(1, body.substr(0, body.size() / 4 * 4))) +
                                   feature("label", 3, field(1, varint(i % 1000)))));
       },
       detail::build_tfrecord_index, detail::make_tfrecord_dataset},
      {"tfrecord, token ids",
       [](std::size_t i, const std::string& body) {
         std::string ids;
         for (std::size_t j = 0; ids.size() < body.size(); ++j)
           ids += varint((i + j) * 37 % 50'000);
         return frame(field(1, feature("ids", 3, field(1, ids))));
       },
       detail::build_tfrecord_index, detail::make_tfrecord_dataset},
      {"json lines",
       [](std::size_t i, const std::string& body) {
         return "{\"id\": " + std::to_string(i) + ", \"text\": \"" + body + "\"}\n";
       },
       detail::build_text_index, detail::make_text_dataset},
  };
  for (const Case& c : cases) {
    std::string file;
    const bool is_text = std::string_view(c.name) == "json lines";
    for (std::size_t i = 0; i < samples; ++i) {
      std::string body(body_bytes, 'a');
      for (std::size_t j = 0; !is_text && j < body_bytes; ++j)
        body[j] = static_cast<char>((i * 31 + j) * 2654435761U >> 13);
      file += c.sample(i, body);
    }
    headrace::testing::FakeStore store;
    store.set("file", file);
    auto pool = headrace::SlabPool::create({.limit_bytes = std::uint64_t{512} << 20});
    auto dataset = headrace::testing::build_dataset(store, **pool, {}, c.build, c.make);
    if (!dataset) {
      std::fprintf(stderr, "%s: %s\n", c.name, std::string(dataset.error().message()).c_str());
      return 1;
    }
    const double rate = rate_of(**dataset, file, static_cast<double>(seconds));
    std::printf("%-28s %10.0f samples/CPU s  %6.2f GB/s\n", c.name, rate,
                rate * static_cast<double>(file.size() / samples) * 1e-9);
  }
  return 0;
}
