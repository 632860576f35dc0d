// Decodes image files as a loader would, and prints one line of JSON: images a CPU second.
//   decode_bench OPTION... FILE...
// Options: --resize H,W --shorter N --crop H,W --random-crop H,W --random-resized-crop H,W --flip P
//   --bicubic --nearest --exact --truncated --grey --alpha --chw --float --half --bfloat16
//   --normalise --no-orientation --jitter B,C,S,H --augment N,M --pil --key K --seconds S
//   --write DIRECTORY: instead of timing, writes what each file gives to DIRECTORY/<n>.raw (an
//   error: <n>.error), and prints needs() of each
//   --bare: times libjpeg-turbo's decoding of all pixels to RGB alone, for comparison
#include <cstddef>
#include <cstdio>
// After those: it uses FILE and size_t.
#include <jpeglib.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "bench_common.h"
#include "bench_result.h"
#include "headrace/decode.h"

namespace {

using namespace headrace;
using bench::must;

struct Job {
  ImageOptions options;
  std::string encoding = "bytes";
  std::string write_to;
  std::uint64_t key = 1;
  double seconds = 2;
  bool is_bare = false;
  std::vector<std::string> files;
};

std::vector<double> numbers(const std::string& text) {
  std::vector<double> out;
  for (const char* p = text.c_str(); *p != '\0';) {
    char* end = nullptr;
    out.push_back(std::strtod(p, &end));
    p = *end == ',' ? end + 1 : end;
    if (p == end && *p != '\0') std::exit(2);
  }
  out.resize(4);
  return out;
}

ImageSize size_of(const std::string& text) {
  const auto parts = numbers(text);
  return {static_cast<std::uint32_t>(parts[0]), static_cast<std::uint32_t>(parts[1])};
}

bool take_flag(const std::string& name, Job& job) {
  ImageOptions& o = job.options;
  if (name == "--bicubic") return o.interpolation = Interpolation::kBicubic, true;
  if (name == "--nearest") return o.interpolation = Interpolation::kNearest, true;
  if (name == "--exact") return o.is_exact = true;
  if (name == "--truncated") return o.allows_truncated = true;
  if (name == "--no-orientation") return o.applies_orientation = false, true;
  if (name == "--grey") return o.mode = PixelMode::kGrey, true;
  if (name == "--alpha") return o.mode = PixelMode::kColorAlpha, true;
  if (name == "--chw") return o.layout = PixelLayout::kChw, true;
  if (name == "--float") return o.type = PixelType::kFloat32, true;
  if (name == "--half") return o.type = PixelType::kFloat16, true;
  if (name == "--bfloat16") return o.type = PixelType::kBfloat16, true;
  if (name == "--pil") return job.encoding = "pil", true;
  if (name == "--bare") return job.is_bare = true;
  if (name != "--normalise") return false;
  o.mean = {0.485F, 0.456F, 0.406F};
  o.stddev = {0.229F, 0.224F, 0.225F};
  return true;
}

bool take_value(const std::string& name, const std::string& value, Job& job) {
  ImageOptions& o = job.options;
  const auto parts = name == "--write" ? std::vector<double>(4) : numbers(value);
  if (name == "--resize") return o.resize = size_of(value), true;
  if (name == "--crop") return o.crop = size_of(value), true;
  if (name == "--random-crop") return o.crop = size_of(value), o.is_crop_random = true;
  if (name == "--random-resized-crop") return o.random_resized_crop = size_of(value), true;
  if (name == "--shorter") return o.resize_shorter = static_cast<std::uint32_t>(parts[0]), true;
  if (name == "--flip") return o.horizontal_flip = parts[0], true;
  if (name == "--vertical-flip") return o.vertical_flip = parts[0], true;
  if (name == "--jitter") return o.jitter = {parts[0], parts[1], parts[2], parts[3]}, true;
  if (name == "--augment") {
    o.rand_augment = {static_cast<std::uint32_t>(parts[0]), static_cast<std::uint32_t>(parts[1])};
    return true;
  }
  if (name == "--pad") {
    for (std::size_t i = 0; i < 4; ++i) o.pad[i] = static_cast<std::uint32_t>(parts[i]);
    return true;
  }
  if (name == "--key") return job.key = static_cast<std::uint64_t>(parts[0]), true;
  if (name == "--seconds") return job.seconds = parts[0], true;
  if (name == "--write") return job.write_to = value, true;
  return false;
}

Job parse(int argc, char** argv) {
  Job job;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      job.files.push_back(word);
    } else if (take_flag(word, job)) {
    } else if (i + 1 < argc && take_value(word, argv[i + 1], job)) {
      ++i;
    } else {
      std::fprintf(stderr, "unknown argument: %s\n", word.c_str());
      std::exit(2);
    }
  }
  return job;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

void write_file(const std::string& path, std::span<const char> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void write_all(const Job& job, const ValueDecoder& decoder) {
  std::vector<char> out;
  for (std::size_t i = 0; i < job.files.size(); ++i) {
    const std::string file = read_file(job.files[i]);
    const std::string name = job.write_to + "/" + std::to_string(i);
    Status status;
    auto needs = decoder.needs(bytes_of(file));
    if (needs) {
      std::printf("%zu %llu %llu\n", i, static_cast<unsigned long long>(needs->output_bytes),
                  static_cast<unsigned long long>(needs->workspace_bytes));
      out.resize(needs->output_bytes);
      status = decoder.decode(bytes_of(file), job.key, std::as_writable_bytes(std::span(out)));
    } else {
      status = needs.error().clone();
    }
    if (status.ok()) {
      write_file(name + ".raw", out);
    } else {
      write_file(name + ".error",
                 std::string(code_name(status.code())) + ": " + std::string(status.message()));
    }
  }
}

void decode_bare(const std::string& file, std::vector<unsigned char>& pixels) {
  jpeg_decompress_struct from{};
  jpeg_error_mgr errors;
  from.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&from);
  jpeg_mem_src(&from, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&from, TRUE);
  from.out_color_space = JCS_RGB;
  jpeg_start_decompress(&from);
  const std::size_t stride = std::size_t{from.output_width} * 3;
  pixels.resize(stride * from.output_height);
  while (from.output_scanline < from.output_height) {
    JSAMPROW row = pixels.data() + stride * from.output_scanline;
    jpeg_read_scanlines(&from, &row, 1);
  }
  jpeg_finish_decompress(&from);
  jpeg_destroy_decompress(&from);
}

}  // namespace

int main(int argc, char** argv) {
  const Job job = parse(argc, argv);
  const OutputColumn column{.name = "image", .encoding = job.encoding, .dtype = {}, .shape = {}};
  const auto decode = must(decode_image(job.options));
  const DecodedColumn bound = must(decode->bind(column)).front();
  if (!job.write_to.empty()) return write_all(job, *bound.decoder), 0;
  std::vector<std::string> files;
  for (const std::string& path : job.files) files.push_back(read_file(path));
  std::vector<std::byte> out;
  std::vector<unsigned char> pixels;
  std::uint64_t count = 0;
  const double begun = bench::cpu_now_s();
  double now = begun;
  for (; now - begun < job.seconds; now = bench::cpu_now_s()) {
    for (const std::string& file : files) {
      ++count;
      if (job.is_bare) {
        decode_bare(file, pixels);
        continue;
      }
      out.resize(must(bound.decoder->needs(bytes_of(file))).output_bytes);
      const Status status = bound.decoder->decode(bytes_of(file), job.key + count, out);
      if (!status.ok()) bench::die(status);
    }
  }
  std::printf("{\"images\": %llu, \"cpu_s\": %.3f, \"images_a_cpu_second\": %.1f}\n",
              static_cast<unsigned long long>(count), now - begun,
              static_cast<double>(count) / (now - begun));
  return 0;
}
