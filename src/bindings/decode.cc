// What a user asks for of a column, checked by the engine when it is made: mistakes show where they
// are written, not at the first batch.
#include "decode.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>

#include "errors.h"
#include "option_table.h"

namespace headrace {
namespace {

using Size = std::pair<std::uint32_t, std::uint32_t>;

OptionTable<ImageOptions>::Setter size(std::optional<ImageSize> ImageOptions::*field) {
  return [field](ImageOptions& options, nb::handle value) {
    const auto [height, width] = nb::cast<Size>(value);
    options.*field = ImageSize{.height = height, .width = width};
  };
}

OptionTable<ImageOptions>::Setter channels(
    std::optional<std::array<float, 3>> ImageOptions::*field) {
  return [field](ImageOptions& options, nb::handle value) {
    options.*field = nb::cast<std::array<float, 3>>(value);
  };
}

/// Of an enum, by the names that `names` has in its order.
template <class Enum>
OptionTable<ImageOptions>::Setter choice(Enum ImageOptions::*field, const char* option,
                                         std::vector<std::string> names) {
  return [=](ImageOptions& options, nb::handle value) {
    const auto given = nb::cast<std::string>(value);
    std::string known;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == given) {
        options.*field = static_cast<Enum>(i);
        return;
      }
      known += (i == 0 ? "" : ", ") + names[i];
    }
    raise(Status(Code::kInvalidArgument,
                 std::string(option) + "='" + given + "' is unknown; there are " + known));
  };
}

void set_jitter(ImageOptions& options, nb::handle value) {
  const auto given = nb::cast<std::array<double, 4>>(value);
  options.jitter = {
      .brightness = given[0], .contrast = given[1], .saturation = given[2], .hue = given[3]};
}

void set_rand_augment(ImageOptions& options, nb::handle value) {
  const auto [operations, magnitude] = nb::cast<Size>(value);
  options.rand_augment = {.operations = operations, .magnitude = magnitude};
}

OptionTable<ImageOptions> make_table() {
  return {
      {"resize", size(&ImageOptions::resize)},
      {"resize_shorter", plain(&ImageOptions::resize_shorter)},
      {"crop", size(&ImageOptions::crop)},
      {"is_crop_random", plain(&ImageOptions::is_crop_random)},
      {"random_resized_crop", size(&ImageOptions::random_resized_crop)},
      {"scale", plain(&ImageOptions::scale)},
      {"ratio", plain(&ImageOptions::ratio)},
      {"horizontal_flip", plain(&ImageOptions::horizontal_flip)},
      {"vertical_flip", plain(&ImageOptions::vertical_flip)},
      {"pad", plain(&ImageOptions::pad)},
      {"jitter", set_jitter},
      {"rand_augment", set_rand_augment},
      {"mean", channels(&ImageOptions::mean)},
      {"stddev", channels(&ImageOptions::stddev)},
      {"dtype", choice(&ImageOptions::type, "dtype", {"uint8", "float16", "bfloat16", "float32"})},
      {"layout", choice(&ImageOptions::layout, "layout", {"HWC", "CHW"})},
      {"mode", choice(&ImageOptions::mode, "mode", {"RGB", "L", "RGBA"})},
      {"interpolation",
       choice(&ImageOptions::interpolation, "interpolation", {"nearest", "bilinear", "bicubic"})},
      {"orient", plain(&ImageOptions::applies_orientation)},
      {"exact", plain(&ImageOptions::is_exact)},
      {"allows_truncated", plain(&ImageOptions::allows_truncated)},
      {"max_pixels", plain(&ImageOptions::max_pixels)},
  };
}

PyDecode make_image(const nb::dict& fields) {
  static const OptionTable<ImageOptions> kTable = make_table();
  ImageOptions options;
  kTable.apply(fields, options);
  return {value_or_raise(decode_image(options))};
}

ArrayType make_type(std::string dtype, std::uint64_t item_bytes, std::vector<std::uint64_t> shape) {
  return {.dtype = std::move(dtype), .item_bytes = item_bytes, .shape = std::move(shape)};
}

using FeatureFields =
    std::tuple<std::string, std::string, std::optional<std::vector<std::uint64_t>>,
               std::optional<nb::bytes>, const PyDecode*>;

TfFeature make_feature(const FeatureFields& fields) {
  const auto& [name, kind, shape, missing, decode] = fields;
  TfFeature feature;
  feature.name = name;
  if (kind != "bytes")
    feature.kind = kind == "float32" ? TfFeature::Kind::kFloat : TfFeature::Kind::kInt64;
  feature.is_list = !shape.has_value();
  feature.shape = shape.value_or(std::vector<std::uint64_t>());
  if (missing) {
    const auto* data = static_cast<const std::byte*>(missing->data());
    feature.missing.emplace(data, data + missing->size());
  }
  if (decode != nullptr) feature.decode = decode->decode;
  return feature;
}

PyDecode make_tf_example(const std::vector<FeatureFields>& given) {
  std::vector<TfFeature> features;
  features.reserve(given.size());
  for (const FeatureFields& fields : given) features.push_back(make_feature(fields));
  return {value_or_raise(decode_tf_example(std::move(features)))};
}

}  // namespace

void bind_decode(nb::module_& m) {
  nb::class_<PyDecode>(m, "Decode");
  m.def("decode_image", &make_image, nb::arg("options"));
  m.def(
      "decode_as", [](std::string encoding) { return PyDecode{decode_as(std::move(encoding))}; },
      nb::arg("encoding"));
  m.def(
      "decode_array",
      [](std::string dtype, std::uint64_t item_bytes, std::vector<std::uint64_t> shape) {
        return PyDecode{value_or_raise(
            decode_array(make_type(std::move(dtype), item_bytes, std::move(shape))))};
      },
      nb::arg("dtype"), nb::arg("item_bytes"), nb::arg("shape"));
  m.def(
      "decode_npy",
      [](std::string dtype, std::uint64_t item_bytes, std::vector<std::uint64_t> shape,
         std::string descr) {
        return PyDecode{value_or_raise(decode_npy(
            make_type(std::move(dtype), item_bytes, std::move(shape)), std::move(descr)))};
      },
      nb::arg("dtype"), nb::arg("item_bytes"), nb::arg("shape"), nb::arg("descr"));
  m.def("decode_tf_example", &make_tf_example, nb::arg("features"));
  m.def(
      "decode_msgpack", [](bool is_numpy) { return PyDecode{decode_msgpack(is_numpy)}; },
      nb::arg("is_numpy"));
  m.def(
      "decode_audio",
      [](std::uint64_t frames, std::uint64_t channels, bool mono, std::uint32_t sample_rate) {
        return PyDecode{value_or_raise(decode_audio({.frames = frames,
                                                     .channels = channels,
                                                     .is_mono = mono,
                                                     .sample_rate = sample_rate}))};
      },
      nb::arg("frames"), nb::arg("channels"), nb::arg("mono"), nb::arg("sample_rate"));
}

}  // namespace headrace
